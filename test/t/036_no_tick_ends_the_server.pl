# A region worker that ends in a handler has its clock stopped before it gives up its place in the server's memory: the
# clock would look there, and the server would begin anew for the crash.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
plan skip_all => 'needs a build with fault points' unless $node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'shard.fault_point'});
$node->safe_psql('postgres', q{
CREATE FUNCTION sleeps(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'sleep' THEN PERFORM pg_sleep(1000); END IF;
	RETURN message;
END $$;
SELECT shard_start('sleeps', 'sleeps', handler_timeout => '1 h')});
my $checkpointer = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'};
my $started = $node->safe_psql('postgres', $checkpointer);

$node->set_fault('worker_gone', 'freeze');
# After a turn the worker has heard of it.
$node->safe_psql('postgres', q{SELECT shard_tell('sleeps', 'a', '{}')});
$node->drain;
$node->safe_psql('postgres', q{SELECT shard_tell('sleeps', 'a', '{"sleep": 1}')});
$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'shard region' AND wait_event = 'PgSleep'}, 'the handler to run');
my ($worker) = $node->worker_pids('%region%');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
ShardCluster::wait_for_condition(sub { $node->fault_happened }, 'the worker to have given up its place');
# The clock of a process goes on while it is stopped: for the time of some ticks.
$node->safe_psql('postgres', 'SELECT pg_sleep(0.5)');
$node->clear_fault;
$node->wait_until(qq{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'shard region' AND wait_event = 'PgSleep' AND pid <> $worker}, 'the next worker');
is($node->safe_psql('postgres', $checkpointer), $started, 'the server goes on with the same processes');
$node->log_is_clean;
$node->stop('immediate');
done_testing();
