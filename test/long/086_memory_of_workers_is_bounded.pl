# What a region worker has in memory does not depend on how much there is to do: neither its entities, nor what
# one turn adds.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $limit = 4 * 1024 * 1024;
my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.cache_size = '4MB'");

$node->safe_psql('postgres', q{
CREATE TABLE closed (one int);
CREATE TABLE handled (pos bigserial, turn xid8 DEFAULT pg_current_xact_id(), entity text, cached int8);
CREATE FUNCTION large(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'wait' AND EXISTS (SELECT FROM closed) THEN
		RAISE EXCEPTION 'closed' USING ERRCODE = 'serialization_failure';
	END IF;
	INSERT INTO handled (entity, cached) SELECT (shard_self()).entity_id, cache_bytes FROM shard_stat_workers;
	RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1, 'text', repeat('x', 20000));
END $$;
CREATE FUNCTION batch(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO handled (entity, cached) SELECT 'batch', cardinality(messages);
	RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + cardinality(messages));
END $$;
SELECT shard_start('large', 'large', passivation_strategy => 'none', max_attempts => 1000, retry_backoff => '200 ms', max_retry_backoff => '200 ms'),
	shard_start('batch', 'batch');
INSERT INTO closed VALUES (1);
SELECT shard_tell('large', 'waiting', '{"wait": true}'), shard_tell('large', 'waiting', '{}'), shard_tell('batch', 'b', '{}');
});
$node->wait_for_value(q{SELECT count(*) FROM shard_inbox WHERE place = 'stash'}, 2, 'a stash');
$node->wait_for_value('SELECT count(*) FROM handled', 1, 'the batch');
$node->safe_psql('postgres', 'DELETE FROM handled');

# Each message makes an entity of 20 kB: a thousand are five times what fits, and some thirty what a turn may add.
$node->safe_psql('postgres', q{SELECT count(shard_tell('large', 'e' || i, '{}')) FROM generate_series(1, 1000) i});
$node->wait_for_value('SELECT count(*) FROM handled', 1000, 'all to be handled');
cmp_ok($node->safe_psql('postgres', 'SELECT max(cached) FROM handled'), '<=', $limit, 'memory for entities is bounded while there is more to do');
cmp_ok($node->safe_psql('postgres', 'SELECT cache_bytes FROM shard_stat_workers'), '<=', $limit, 'and when all was done');
cmp_ok($node->safe_psql('postgres', 'SELECT cache_bytes FROM shard_stat_workers'), '>', $limit / 2, 'but it is used');
cmp_ok($node->safe_psql('postgres', 'SELECT max(n) FROM (SELECT count(*) AS n FROM handled GROUP BY turn) t'),
	'<=', $limit / 8 / 20000 + 1, 'a turn ends when its states are large');
is($node->safe_psql('postgres', q{SELECT waiting FROM shard_region_state WHERE entity_id = 'waiting'}), 2, 'an entity with messages that wait stays');

# Messages of a batch are kept until all of the turn were collected.
$node->safe_psql('postgres', q{DELETE FROM handled;
SELECT count(shard_tell('batch', 'b', jsonb_build_object('text', repeat('x', 20000), 'n', i))) FROM generate_series(1, 200) i});
$node->wait_for_value(q{SELECT sum(cached) FROM handled WHERE entity = 'batch'}, 200, 'the batches');
cmp_ok($node->safe_psql('postgres', q{SELECT max(cached) FROM handled WHERE entity = 'batch'}), '<=', $limit / 8 / 20000 + 1, 'and when its messages are');
is($node->safe_psql('postgres', q{SELECT state->>'count' FROM shard_entity.batch}), 201, 'all of them are handled');

# States that left memory are read again.
$node->safe_psql('postgres', q{DELETE FROM closed; SELECT count(shard_tell('large', 'e' || i, '{}')) FROM generate_series(1, 1000) i});
$node->drain;
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_entity.large WHERE entity_id <> 'waiting' AND state->>'count' = '2'}), 1000, 'nothing is forgotten');
is($node->safe_psql('postgres', q{SELECT state->>'count' FROM shard_entity.large WHERE entity_id = 'waiting'}), 2, 'and what waited is handled');

# What a message needs is given back, also if it was large: in the worker that reads it, and in the session that sends
# it. The worker says itself how much it has.
$node->safe_psql('postgres', q{
CREATE TABLE measured (pos bigserial, bytes int8);
CREATE FUNCTION meter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'wait' AND EXISTS (SELECT FROM closed) THEN
		RAISE EXCEPTION 'closed' USING ERRCODE = 'serialization_failure';
	END IF;
	INSERT INTO measured (bytes) SELECT sum(total_bytes) FROM pg_backend_memory_contexts;
	RETURN NULL;
END $$;
CREATE FUNCTION number_of(message jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE RETURN (message->>'number')::bigint;
SELECT shard_start('meter', 'meter', max_message_size => 60000000, max_attempts => 1000, retry_backoff => '20 ms', max_retry_backoff => '20 ms'),
	shard_start('numbered', 'meter', ordered_by => 'number_of', ordered_from => 1, ordered_timeout => '1 hour');
SELECT shard_tell('meter', 'a', '{}'), shard_tell('meter', 'a', '{}')});
$node->drain;
my $before = $node->safe_psql('postgres', 'SELECT max(bytes) FROM measured');

sub is_little
{
	my ($query, $what) = @_;
	cmp_ok($node->safe_psql('postgres', $query), '<', $before + 8 * 1024 * 1024, $what);
	$node->safe_psql('postgres', 'DELETE FROM measured');
	return;
}

my $large = q{jsonb_build_object('text', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000000) i))};
$node->safe_psql('postgres', "DELETE FROM measured; SELECT shard_tell('meter', 'a', $large)");
$node->drain;
$node->safe_psql('postgres', q{SELECT shard_tell('meter', 'a', '{}')});
$node->drain;
is_little('SELECT bytes FROM measured ORDER BY pos DESC LIMIT 1', 'a large message leaves nothing in the worker');

# Many that wait are not read all at once: 40 MB in the stash, behind the first one, and for their number.
my $many = q{FROM (SELECT string_agg(md5(i::text), '') AS text FROM generate_series(1, 12500) i) t, generate_series(2, 101) n};
$node->safe_psql('postgres', qq{INSERT INTO closed VALUES (1); SELECT shard_tell('meter', 'b', '{"wait": true}');
	SELECT count(shard_tell('meter', 'b', jsonb_build_object('text', text))) $many});
$node->wait_for_value(q{SELECT count(*) FROM shard_inbox WHERE place = 'stash'}, 101, 'a stash');
$node->safe_psql('postgres', 'DELETE FROM closed');
$node->drain;
is($node->safe_psql('postgres', 'SELECT count(*) FROM measured'), 101, 'a stash of large messages is handled');
is_little('SELECT max(bytes) FROM measured', 'piece by piece');
$node->safe_psql('postgres', qq{SELECT count(shard_tell('numbered', 'a', jsonb_build_object('number', n, 'text', text))) $many});
$node->wait_for_value(q{SELECT count(*) FROM shard_inbox WHERE place = 'ordered'}, 100, 'the first one to be waited for');
$node->safe_psql('postgres', q{SELECT shard_tell('numbered', 'a', '{"number": 1}')});
$node->drain;
is($node->safe_psql('postgres', 'SELECT count(*) FROM measured'), 101, 'large messages that waited for their number are handled');
is_little('SELECT max(bytes) FROM measured', 'piece by piece');

# Savepoints that are rolled back take along what was told in them.
cmp_ok($node->safe_psql('postgres', q{
BEGIN;
SELECT shard_tell('meter', 'a', '{}');
DO $$
BEGIN
	FOR i IN 1 .. 20000 LOOP
		BEGIN
			PERFORM shard_tell('meter', 'a', '{}');
			RAISE EXCEPTION 'back';
		EXCEPTION WHEN raise_exception THEN
		END;
	END LOOP;
END $$;
SELECT 'bytes ' || total_bytes FROM pg_backend_memory_contexts WHERE name = 'shard log batch';
COMMIT}) =~ s/.*bytes (\d+).*/$1/sr, '<', 1024 * 1024, 'tells that were rolled back leave nothing in a session');
$node->drain;

# What is shared is for types that are sent to: there is room for 1024, and more types than that harm nobody. It is
# given back with the types.
$node->safe_psql('postgres', q{CREATE FUNCTION brief(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message});
$node->safe_psql('postgres', "SELECT count(shard_start('brief_${_}_' || j, 'brief', number_of_shards => 1)) FROM generate_series(1, 100) j")
  for 1 .. 11;
is($node->safe_psql('postgres', 'SELECT ok FROM shard_health()'), 't', 'more types than there is room for are no problem');
for my $i (1 .. 11)
{
	$node->safe_psql('postgres', qq{
		SELECT count(shard_tell('brief_${i}_' || j, 'a', '{}')) FROM generate_series(1, 100) j;
		SET client_min_messages = warning;
		SELECT count(shard_drop_type('brief_${i}_' || j, force => true)) FROM generate_series(1, 100) j});
	$node->drain;
}
is($node->safe_psql('postgres', q{SELECT shard_start('last', 'brief'); SELECT shard_ask('last', 'a', '"here"')}), "\n\"here\"", 'types that are gone leave room for others');
$node->log_is_clean;
done_testing();
