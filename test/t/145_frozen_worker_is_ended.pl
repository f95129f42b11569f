# A region worker that hangs keeps its shards from being sealed, and nobody by-passes it: when the type's
# handoff_timeout is over the move is given up, and the worker is asked to end; its successor gives the shard away.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;
$_->sql(q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
		RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
	SELECT shard_start('keep', 'keep(jsonb,jsonb)', 8, handoff_timeout => '3 s')}) for $one, $two;
$cluster->wait_registered;
my $entity = $cluster->entity_at('keep', 2);
my $shard = $one->sql("SELECT shard_shard_id('keep', '$entity')");
$cluster->drain;
my $before = $two->sql("SELECT state->>'n' FROM shard_entity.keep WHERE entity_id = '$entity'");

my ($worker) = $two->workers('shard region');
$two->server->stop_idle($worker);
$one->try("SELECT shard_move('keep', $shard, 1)");
ShardCluster::wait_for_condition(sub { slurp_file($two->server->logfile) =~ /region worker 0 did not stop shard $shard of entity type "keep" within its handoff_timeout.*\n.*DETAIL: .*Process $worker is terminated/ },
	'the worker to be given up');
pass('a worker that hangs for the handoff_timeout is asked to end');
is($one->sql("SELECT node FROM shard_homes WHERE type_name = 'keep' AND shard = $shard"), 2, 'and the shard stays its own meanwhile');
kill 'CONT', $worker;
$two->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $worker", 'the end of the worker');
$one->eventually("SELECT shard_move('keep', $shard, 1)");
$one->wait_value("SELECT state->>'n' FROM shard_entity.keep WHERE entity_id = '$entity'", $before, 'the shard at its new home');
pass('its successor gives the shard away');
$one->sql("SELECT shard_tell('keep', '$entity', '{}')");
$one->wait_value("SELECT state->>'n' FROM shard_entity.keep WHERE entity_id = '$entity'", $before + 1, 'a message there');
pass('which goes on there');
done_testing();
