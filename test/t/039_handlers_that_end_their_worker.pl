# D15: code of a type tells the process that it runs in to end, as only superusers' may. The next worker does not run it again: the
# message is a dead letter, and whoever comes after it goes on. A worker that somebody else ends has its messages run again.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', q{
CREATE TABLE pause AS SELECT 1000 AS seconds;
CREATE FUNCTION append(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'end' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
	IF message ? 'fail' THEN PERFORM pg_terminate_backend(pg_backend_pid())::int / 0; END IF;
	IF message ? 'sleep' THEN PERFORM pg_sleep(seconds) FROM pause; END IF;
	RETURN coalesce(state, '[]') || (message->'n');
END $$;
CREATE FUNCTION append_all(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF 'true' = ANY (SELECT m->'end' FROM unnest(messages) m) THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
	RETURN coalesce(state, '[]') || (SELECT jsonb_agg(m->'n') FROM unnest(messages) m);
END $$;
SELECT shard_start('single', 'append', handler_timeout => '2 min'), shard_start('batch', 'append_all');
});

# --- somebody else -----------------------------------------------------------------------------------

my $sleeps = q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'shard region' AND wait_event = 'PgSleep'};
$node->safe_psql('postgres', q{SELECT shard_tell('single', 'ended', '{"n": 1, "sleep": 1}')});
for my $round (1 .. 3)
{
	$node->wait_until($sleeps, 'the handler to run');
	my ($pid) = $node->worker_pids('%region%');
	$node->safe_psql('postgres', 'UPDATE pause SET seconds = 0') if $round == 3;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	ShardCluster::wait_for_condition(sub { !kill 0, $pid }, 'the worker to be gone');
}
$node->drain;
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.single}), '[1]', 'a message whose worker somebody ends runs again');

# --- the code itself ---------------------------------------------------------------------------------

for my $type ('single', 'batch')
{
	# The pauses before a worker's next start begin anew.
	$node->restart;
	$node->safe_psql('postgres', qq{SELECT count(shard_tell('$type', e, jsonb_build_object('n', n) || CASE WHEN e = 'a' AND n = 2 THEN '{"end": true}'::jsonb ELSE '{}' END))
		FROM generate_series(1, 3) n, unnest(ARRAY['a', 'b']) e});
	$node->wait_until("SELECT count(*) = 1 FROM shard_dead_letters WHERE type_name = '$type'", "the message of type $type to be given up");
	$node->drain;
	is($node->safe_psql('postgres', "SELECT string_agg(entity_id || ' ' || state::text, ', ' ORDER BY entity_id) FROM shard_entity.$type WHERE entity_id IN ('a', 'b')"),
		'a [1, 3], b [1, 2, 3]', "$type: the others are handled");
}
is($node->safe_psql('postgres', q{SELECT type_name, entity_id, message->>'n', sqlstate, error FROM shard_dead_letters ORDER BY type_name DESC}),
	"single|a|2|38000|the handler ended its region worker by an error\nbatch|a|2|38000|the handler ended its region worker by an error", 'the letter says why');
# It raises an error of another kind before it is ended.
$node->restart;
$node->safe_psql('postgres', q{SELECT count(shard_tell('single', 'c', m)) FROM unnest(ARRAY['{"n": 1}', '{"n": 2, "fail": true}', '{"n": 3}']::jsonb[]) m});
$node->wait_until(q{SELECT state = '[1, 3]' FROM shard_entity.single WHERE entity_id = 'c'}, 'those beside a message that fails as it ends its worker');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_dead_letters WHERE entity_id = 'c'}), 1, 'it is a dead letter, too');
like(slurp_file($node->logfile), qr/It was ended because code that it ran told it to/, 'the log says who ended the worker');
$node->log_is_clean(qr/terminating background worker|ends the process, so the region worker ends/);
done_testing();
