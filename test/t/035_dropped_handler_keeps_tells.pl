# A handler that is dropped in the middle of a turn, after it handled a message and before it is asked:
# the ask fails, and the entity keeps the state that the message gave it.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.handler_lock_timeout = '60 s'");
$node->safe_psql('postgres', q{
CREATE TABLE gate AS SELECT i AS id FROM generate_series(1, 2) i;
CREATE TABLE behind ();
CREATE FUNCTION guard(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM gate WHERE id = message::int FOR SHARE;
	-- a table that the turn has not locked yet: so it hears of what was dropped
	PERFORM FROM behind;
	RETURN message;
END $$;
CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN to_jsonb(coalesce(state::int, 0) + 1);
END $$;
-- a type for each gate: one that has had a slow call would wait until others have had their share of the time
SELECT shard_start('guard', 'guard', handler_timeout => '180 s'), shard_start('second_guard', 'guard', handler_timeout => '180 s'),
	shard_start('counter', 'counter');
});

# A session that keeps a gate shut, once the worker has come to it.
sub shut
{
	my ($gate) = @_;
	my $keeper = $node->session;
	$keeper->query("BEGIN; SELECT FROM gate WHERE id = $gate FOR UPDATE;");
	return $keeper;
}

# Waits until the worker is held up by that session.
sub wait_at
{
	my ($keeper) = @_;
	my $pid = $keeper->query('SELECT pg_backend_pid();');
	$node->wait_until(qq{SELECT count(*) = 1 FROM pg_stat_activity
		WHERE backend_type LIKE 'shard region%' AND $pid = ANY (pg_blocking_pids(pid))}, 'the worker at the gate');
	return;
}

# Their shards have a home, so nothing has to wait for one.
$node->safe_psql('postgres', q{SELECT shard_start_entity('counter', 'a'), shard_start_entity('guard', 'g'), shard_start_entity('second_guard', 'g')});
$node->drain;

# Behind the first gate gathers what the second turn is to be: a message, the second gate, an ask.
my ($first, $second) = (shut(1), shut(2));
$node->safe_psql('postgres', q{SELECT shard_tell('guard', 'g', '1')});
wait_at($first);
$node->safe_psql('postgres', q{SELECT shard_tell('counter', 'a', '{}'), shard_tell('second_guard', 'g', '2')});
my $asker = $node->session;
$asker->send(q{SELECT shard_ask('counter', 'a', '{}', '180 s');});
$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity
	WHERE wait_event_type = 'Extension' AND query LIKE '%shard_ask%' AND pid <> pg_backend_pid()}, 'the ask to wait');
$first->query('COMMIT;');
wait_at($second);
$node->safe_psql('postgres', 'DROP FUNCTION counter(jsonb, jsonb)');
$second->query('COMMIT;');

ok(!eval { $asker->receive; 1 }, 'the ask fails');
like($@, qr/entity type "counter" cannot run at node 1\nDETAIL:  .*handler/i, 'and says why');
is($node->safe_psql('postgres', 'SELECT state FROM shard_entity.counter'), 1, 'the message before it is not undone');
is($node->safe_psql('postgres', 'SELECT count(*) FROM shard_dead_letters'), 0, 'nor is it given up');

$node->log_is_clean;
done_testing();
