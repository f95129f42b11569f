# Messages for a node that is away wait, up to buffer_size; then the sender gets an error. Nothing that
# was accepted is lost, and all of it comes in order when the node is back.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.region_workers = 2');
my ($here, $there) = $cluster->nodes;
$cluster->start_recorder;
my $far  = $cluster->entity_at('recorder', 2);
my $near = $cluster->entity_at('recorder', 1, 'n');
$_->sql(q{SELECT shard_alter('recorder', 'buffer_size', '300')}) for $cluster->nodes;
$cluster->drain;

$there->server->stop('immediate');

# Each in a transaction of its own, as the limit acts at admission: what is in flight goes over it.
my $told = 0;
my $refused;
ShardCluster::wait_for_condition(
	sub {
		my ($status, undef, $error) = $here->try(ShardCluster::tell_recorder($far, $told + 1));
		if ($status == 0) { $told++; return $told > 2000; }
		$refused = $error;
		return 1;
	},
	'the sender to be refused');
like($refused, qr/buffer of entity type "recorder" is full/, 'the sender is refused when too much waits');
cmp_ok($told, '>=', 300, 'not before');
cmp_ok($told, '<', 1500, 'and not much later');
is($here->error_of(ShardCluster::tell_recorder($near, 1)), undef, 'what can be handled here is taken all the same');
$cluster->wait_recorded($near, 1, 1);

my $state = $here->sql('SELECT state FROM shard_peers WHERE node = 2');
isnt($state, 'open', "the link is shown as $state");
$here->wait_until('SELECT sum(outbox_messages) >= 300 FROM shard_peers WHERE node = 2', 'what waits to be shown');

$there->server->start;
$cluster->wait_recorded($far, 2, 1 .. $told);
$here->wait_until("SELECT shard_tell('recorder', '$far', '{\"noop\": true}') IS NULL OR true", 'senders to be let in');
$here->sql(ShardCluster::tell_recorder($far, $told + 1, $told + 3));
$cluster->wait_recorded($far, 2, 1 .. $told + 3);
$cluster->drain;
$here->wait_value('SELECT coalesce(sum(outbox_messages), 0) FROM shard_peers', 0, 'nothing to wait any more');

$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
