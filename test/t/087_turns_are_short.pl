# A turn ends in time, wherever its messages come from: each source has its share, and one message at least.
# What is left goes first in the next turn, and nothing newer of the same entity overtakes it.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

# Each sleeps for 10 ms while nobody is in a hurry: all of them are never handled before a test is through with them.
my $messages = 3000;
my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE closed (one int);
CREATE TABLE hurry (one int);
CREATE TABLE held (one int);
CREATE TABLE handled (pos bigserial, turn xid8 DEFAULT pg_current_xact_id(), entity text, n int, slow bool);
CREATE FUNCTION slow(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	slow bool := message ? 'slow' AND NOT EXISTS (SELECT FROM hurry);
BEGIN
	IF message ? 'bad' THEN
		RAISE EXCEPTION 'bad';
	END IF;
	IF message ? 'slow' AND EXISTS (SELECT FROM closed) THEN
		RAISE EXCEPTION 'closed' USING ERRCODE = 'serialization_failure';
	END IF;
	INSERT INTO handled (entity, n, slow) VALUES ((shard_self()).entity_id, (message->>'n')::int, slow);
	IF slow THEN
		PERFORM pg_sleep(0.01);
	END IF;
	WHILE (message ? 'hold' OR message->'n' = '1') AND EXISTS (SELECT FROM held) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN to_jsonb((SELECT count(*) FROM handled));
END $$;
CREATE FUNCTION number_of(message jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE RETURN (message->>'n')::bigint;
SELECT shard_start('slow', 'slow', handler_timeout => '180 s', max_attempts => 1000, retry_backoff => '100 ms', max_retry_backoff => '100 ms'),
	shard_start('other', 'slow', handler_timeout => '180 s'),
	shard_start('numbered', 'slow', handler_timeout => '180 s', ordered_by => 'number_of', ordered_from => 1, ordered_window => 10000, ordered_timeout => '1 hour');
SELECT shard_tell(t, e, '{}') FROM unnest('{slow,other,numbered}'::text[]) t, unnest('{a,b,c}'::text[]) e;
SQL
$node->drain;

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

# Tells an entity the messages $from to $to.
sub feed
{
	my ($type, $entity, $from, $to) = @_;
	sql(qq{SELECT count(shard_tell('$type', '$entity', jsonb_build_object('n', n, 'slow', true))) FROM generate_series($from, $to) n});
	return;
}

# The worker is in the message that holds it.
sub wait_held
{
	$node->wait_until(q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE backend_type = 'shard region'}, 'the worker to be held');
	return;
}

# An ask that waits for the worker.
sub ask
{
	my ($type, $entity, $count) = @_;
	my $session = $node->session;
	$session->send("SELECT shard_ask('$type', '$entity', '{}', '180 s');");
	$node->wait_until(qq{SELECT count(*) = $count FROM pg_stat_activity WHERE query LIKE 'SELECT shard_ask(%' AND state = 'active' AND wait_event_type = 'Extension'}, 'the ask to wait');
	return $session;
}

sub finish
{
	my ($what, $count) = @_;
	sql('INSERT INTO hurry VALUES (1)');
	$node->drain;
	is(sql('SELECT count(*) FROM handled WHERE n IS NOT NULL'), $count, "$what: all are handled");
	is(sql(q{SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY entity ORDER BY pos) AS before FROM handled WHERE n IS NOT NULL) h WHERE n < before}), 0, "$what: in order");
	# 10 ms each: 50, 75 or 100 of them, and the one before that, are much less than what waits
	cmp_ok(sql('SELECT max(n) FROM (SELECT count(*) FILTER (WHERE slow) AS n FROM handled GROUP BY turn) t'), '<=', 25, "$what: by short turns");
	sql('TRUNCATE handled, hurry, held, closed');
	return;
}

# Two entities with a stash. While the first message is held, others come: a message and an ask of another
# entity, and a message that fails.
sql('TRUNCATE handled; INSERT INTO closed VALUES (1); INSERT INTO held VALUES (1)');
feed('slow', $_, 1, $messages) for qw(a b);
$node->wait_for_value(q{SELECT count(*) FROM shard_inbox WHERE place = 'stash'}, 2 * $messages, 'a stash');
sql('DELETE FROM closed');
wait_held();
sql(q{SELECT shard_tell('other', 'a', '{"n": 0}'), shard_tell('other', 'b', '{"bad": 1}'), shard_tell('other', 'c', '{"n": 0}')});
my $asker = ask('other', 'a', 1);
sql('DELETE FROM held');
cmp_ok($asker->receive, '<', 100, 'a stash: an ask of another entity does not wait for all of it');
$node->wait_until('SELECT count(*) > 0 FROM shard_dead_letters', 'the message to be found that fails');
cmp_ok(sql(q{SELECT count(*) FROM handled WHERE slow}), '<', 2 * $messages, 'a stash: a message that fails is found behind it');
$node->wait_until(q{SELECT count(*) > 0 FROM handled h WHERE entity = 'c'}, 'the message after it');
$node->wait_until('SELECT count(DISTINCT entity) = 2 FROM handled WHERE slow', 'both to have their turn');
cmp_ok(sql(q{SELECT count(*) FROM handled WHERE slow}), '<', $messages, 'a stash: entities take turns');
sql(q{DELETE FROM handled WHERE n = 0});
feed('slow', 'a', $messages + 1, $messages + 10);
finish('a stash', 2 * $messages + 10);

# The same for messages that waited for their number. What is sent afterwards to the same entity comes after them.
sql('INSERT INTO held VALUES (1)');
feed('numbered', 'a', 2, $messages);
$node->wait_for_value(q{SELECT count(*) FROM shard_inbox WHERE place = 'ordered'}, $messages - 1, 'all to wait for the first one');
sql(q{SELECT shard_tell('numbered', 'a', '{"n": 1}'), shard_tell('numbered', 'a', '{"last": true}')});
wait_held();
my $other = ask('other', 'a', 1);
my $same = ask('numbered', 'a', 2);
sql('DELETE FROM held');
cmp_ok($other->receive, '<', 100, 'numbers: an ask of another entity does not wait for all of them');
feed('numbered', 'a', $messages + 1, $messages + 10);
sql('INSERT INTO hurry VALUES (1)');
cmp_ok($same->receive, '>=', $messages, 'numbers: an ask of the entity does');
is(sql(q{SELECT max(n) >= 3000 AND count(*) FILTER (WHERE n <= 3000) = 3000 FROM handled WHERE pos < (SELECT max(pos) FROM handled WHERE n IS NULL)}), 't', 'numbers: so does a message without one');
finish('numbers', $messages + 10);

# And for messages that waited for a home.
my $coordinator = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'shard control'});
sql(q{SELECT shard_start('homeless', 'slow', handler_timeout => '180 s', number_of_shards => 1)});
$node->stop_idle($coordinator);
feed('homeless', 'a', 1, 300);
$node->wait_for_value(q{SELECT count(*) FROM shard_inbox WHERE place = 'parked'}, 300, 'all to wait for a home');
kill 'CONT', $coordinator;
$node->wait_until('SELECT count(*) > 20 FROM handled', 'some to be handled');
finish('a home', 300);

is(sql('SELECT count(*) FROM shard_dead_letters'), 1, 'what failed is the only one that was given up');
$node->log_is_clean(qr/bad/);
done_testing();
