# A turn of a worker that has all lanes takes one lock for them, and one of one that has some of a group a lock for
# each of these, which is found by whoever wants that lane.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('locks', conf => 'shard.region_workers = 1');
$node->start_recorder;
$node->safe_psql('postgres', q{
	CREATE FUNCTION counts(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM shard_reply((SELECT jsonb_object_agg(mode, n) FROM (
			SELECT l.mode, count(*) AS n FROM pg_locks l
			WHERE l.pid = pg_backend_pid() AND l.locktype = 'object' AND l.classid = 'shard.node'::regclass
			GROUP BY l.mode) counted));
		RETURN state;
	END $$;
	SELECT shard_start('counts', 'counts(jsonb,jsonb)')});
my $ask = q{SELECT shard_ask('counts', 'one', '{}', '60 s')};

is($node->safe_psql('postgres', $ask), '{"ExclusiveLock": 1}', 'one lock for all lanes');

$node->append_conf('postgresql.conf', 'shard.region_workers = 2');
$node->restart;
$node->wait_until('SELECT count(DISTINCT pid) = 2 FROM shard_stat_workers', 'two workers');
is($node->safe_psql('postgres', $ask), '{"RowShareLock": 2, "ShareUpdateExclusiveLock": 4}',
	'with two workers one for each of four lanes, and for what they are in');
$node->log_is_clean;

done_testing();
