# A control worker that ends with an error at each start, as with a full disk: the node's own health says of which, that of
# another member says where to look. It is not taken for one that stands still.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 0');
$cluster->start_counter;
my ($one, $two) = $cluster->nodes;
my $health = q{SELECT array_to_string(problems, '; ') FROM shard_health()};
$one->get($_) for 0 .. 7;
$cluster->drain;
$cluster->wait_settled;

# The fault comes once each time that it is armed.
my $server = $two->server;
my $db = $two->db;
my $point = $server->data_dir . '/shard_fault.control_started';
$server->set_fault('control_started', 'error');
$two->sql(qq{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shard control%' AND datname = '$db'});

# What a node says while the worker of node 2 fails again and again.
sub says
{
	my ($node, $expected, $what) = @_;
	ok(eval { ShardCluster::wait_for_condition(sub { unlink $point; $node->sql($health) =~ $expected }, $what); 1 }, $what) or diag $node->sql($health);
	return;
}
says($two, qr/the control worker does not run: it has ended with an error, and is started again after a pause: shard: fault point control_started/,
	'health there says what it has ended of');
says($one, qr/node 2 has not been heard .* its region workers run there and may handle messages: its control worker does not run, for a reason that shard_health\(\) there says/,
	'health of the other member says where to look');
$server->clear_fault;
$_->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'node ' . $_->n . ' to be well') for $cluster->nodes;
pass('when it runs again, nothing is said');
done_testing();
