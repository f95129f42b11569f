# A turn that meets first homes of shards with replicas, in whichever order, and calls that store records of the same lanes
# wait for one another, and none of them fails (Q9, Q36).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use ShardWire;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.region_workers = 1\ndeadlock_timeout = '100ms'\nlog_lock_waits = on");
my ($one, $two) = $cluster->nodes;

$cluster->sql_everywhere(q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message});
$_->sql(q{SELECT shard_start('kept', 'keep', 12, replicas => 1)}) for $one, $two;
$cluster->wait_registered;
my $type = $two->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'kept'});

# Two shards of lanes in the other order than their facts come, and an entity of each.
my $lane = sub { return ShardWire::lane_of($type, $_[0]) };
my ($first, $second) = map { @$_ } (grep { $lane->($_->[0]) > $lane->($_->[1]) } map { my $s = $_; map { [ $s, $_ ] } 0 .. 11 } 0 .. 11)[0];
my %entity = map { split /\|/ } split /\n/, $two->sql(q{SELECT shard_shard_id('kept', 'e' || i), 'e' || i FROM generate_series(1, 100) i});

sub facts
{
	my ($shard) = @_;
	return 'SELECT count(*) > 0 FROM ' . ShardCluster::inbox_rows('kind, type_id, shard') . " WHERE kind = 18 AND type_id = $type AND shard = $shard";
}

# A session of node 1 at node 2, its process, and a call that asks for these shards.
my $wire = ShardWire::Member->new($one, $two);
my $peer = sub { return $two->server->session_as($ShardNodes::peer_role) };
my $asks = sub { return store_sql($wire->head, map { offer(type_id => $type, shard => $_, asks => {}) } sort { $a <=> $b } @_) };
my $waits = sub { return "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $_[0] AND NOT granted)" };

# Who of a turn and two calls fails. A turn that does is tried again and says nothing, but the server does.
sub failures
{
	# One call has the lower lane, and stays there.
	$two->server->set_fault('store_before_commit', 'freeze');
	my $holder = $peer->();
	$holder->send($asks->($second));
	ShardCluster::wait_for_condition(sub { $two->server->fault_happened }, 'a call to have a lane');

	# Another one waits for it; and a turn meets both facts.
	my ($worker) = $two->workers('shard region%');
	$two->server->stop_idle($worker);
	for my $shard ($first, $second)
	{
		$one->sql("SELECT shard_tell('kept', '$entity{$shard}', '{}')");
		$two->wait_until(facts($shard), "the home of shard $shard");
	}
	my $caller = $peer->();
	my $pid = $caller->query('SELECT pg_backend_pid();');
	$caller->send($asks->($first, $second));
	$two->wait_until($waits->($pid), 'the second call to wait');
	kill 'CONT', $worker;
	$two->wait_until($waits->($worker), 'the turn to wait');
	$two->server->thaw_fault;

	$holder->receive;
	my $error = eval { $caller->receive; 1 } ? '' : $@;
	$two->wait_value("SELECT count(*) FROM shard.copy WHERE type_id = $type", 2, 'the turn to be over');
	$two->server->clear_fault;
	return join ' ', ($error . PostgreSQL::Test::Utils::slurp_file($two->server->logfile)) =~ /deadlock detected|detected deadlock/g;
}

ShardMutant::prove(
	{
		promise => 'none of them fails',
		broken_by => ['LANES_LOCKED_AS_MET'],
		run => sub { return (failures(), '') },
	});
done_testing();
