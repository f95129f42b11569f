# One turn is one transaction of many owners in one session. What one leaves open there is gone before the next one's code
# runs: cursors, large objects (O10), the seed of random() (O11).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together);
$node->create_owners('mallory', 'alice');

sub as { return $node->as(@_) }

# alice leaves all of it open, as she may.
as('alice', q{
CREATE TABLE alice.secrets (i int, secret text);
INSERT INTO alice.secrets SELECT i, 'secret ' || i FROM generate_series(1, 100) i;
SELECT lo_from_bytea(4711, 'secret object');
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'alice_' || (message->>'c');
	result jsonb := '[]';
	line text;
	object int;
BEGIN
	IF message ? 'c' THEN
		OPEN c FOR SELECT secret FROM alice.secrets ORDER BY i;
		FETCH c INTO line;
	END IF;
	IF message ? 'lo' THEN object := lo_open(4711, 262144); END IF;
	IF message ? 'tell' THEN PERFORM shard_tell('mallory', jsonb_build_object('tell', message->'tell')); END IF;
	IF message ? 'c' THEN FETCH c INTO line; END IF;
	IF message ? 'lo' THEN line := line || ', ' || convert_from(loread(object, 6), 'utf8'); END IF;
	IF message ? 'seed' THEN PERFORM setseed(0.25); END IF;
	IF message ? 'fail' THEN RAISE 'failed'; END IF;
	RETURN jsonb_build_object('line', line, 'random', random());
END $$;
SELECT shard_start('alice', 'alice.h', max_attempts => 1);
});
as('mallory', q{
CREATE FUNCTION mallory.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	n name;
	names name[] := ARRAY(SELECT name FROM pg_cursors WHERE name ~ '^alice' OR statement ~ 'secret FROM alice');
	c refcursor;
	v text;
	got text[] := '{}';
BEGIN
	FOREACH n IN ARRAY names || 'alice_1'::name LOOP
		BEGIN
			c := n; FETCH c INTO v; got := got || v;
		EXCEPTION WHEN invalid_cursor_name THEN NULL;
		END;
	END LOOP;
	FOR fd IN 0 .. 8 LOOP
		BEGIN
			got := got || convert_from(loread(fd, 100), 'utf8');
		EXCEPTION WHEN undefined_object THEN NULL;
		END;
	END LOOP;
	IF message ? 'seed' THEN PERFORM setseed((message->>'seed')::float8); END IF;
	IF message ? 'fail' THEN RAISE 'failed'; END IF;
	RETURN jsonb_build_object('got', got, 'random', random());
END $$;
CREATE FUNCTION mallory.id(message jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	BEGIN PERFORM setseed(0.5); EXCEPTION WHEN insufficient_privilege THEN NULL; END;
	RETURN message->>'tell';
END $$;
SELECT shard_start('mallory', 'mallory.h', entity_id_extractor => 'mallory.id', max_attempts => 1);
});
sub state_of { my ($role, $entity, $field) = @_; return $node->safe_psql('postgres', "SELECT state->>'$field' FROM shard_entity.$role WHERE entity_id = '$entity'") }

# --- O10: cursors and large objects ---------------------------------------------------------------

# In one turn, hers before his, and again behind.
$node->safe_psql('postgres', q{BEGIN;
SELECT shard_tell('alice', 'a', '{"c": 1, "lo": 1}'), shard_tell('mallory', 'a', '{}'), shard_tell('alice', 'b', '{"c": 2, "lo": 1}'), shard_tell('mallory', 'b', '{}');
COMMIT});
$node->drain;
is(state_of('alice', 'a', 'line'), 'secret 2, secret', 'her cursor and her object work');
is(state_of('alice', 'b', 'line'), 'secret 2, secret', 'another time, too');
is(state_of('mallory', 'a', 'got'), '[]', 'O10 he finds nothing of them');
is(state_of('mallory', 'b', 'got'), '[]', 'O10 nor later');

# The same after a failure, in careful turns, and asked.
$node->safe_psql('postgres', q{BEGIN;
SELECT shard_tell('alice', 'c', '{"c": 3, "lo": 1}'), shard_tell('mallory', 'c', '{"fail": 1}'), shard_tell('mallory', 'd', '{}'),
	shard_tell('alice', 'd', '{"c": 4, "lo": 1}'), shard_tell('mallory', 'e', '{}'), shard_tell('alice', 'e', '{"c": 5, "lo": 1, "fail": 1}'), shard_tell('mallory', 'f', '{}');
COMMIT});
$node->drain;
is(state_of('alice', $_, 'line'), 'secret 2, secret', 'hers work in careful turns') for qw(c d);
is(state_of('mallory', $_, 'got'), '[]', 'O10 nothing in careful turns') for qw(d e f);
as('alice', q{SELECT shard_tell('alice', 'g', '{"c": 6, "lo": 1}')});
is(as('mallory', q{SELECT shard_ask('mallory', 'g', '{}')->>'got'}), '[]', 'O10 nothing for an ask');

# Code of his within her handler comes back to what she has open.
as('alice', q{SELECT shard_tell('alice', 'h', '{"c": 7, "lo": 1, "tell": "x"}')});
$node->drain;
is(state_of('alice', 'h', 'line'), 'secret 2, secret', 'her cursor outlives his extractor');

# --- O11: setseed ---------------------------------------------------------------------------------

my %known = map { $_ => $node->safe_psql('postgres', "SELECT setseed($_); SELECT random()") =~ s/^\n//r } (0.5, 0.25);
$node->safe_psql('postgres', q{BEGIN;
SELECT shard_tell('alice', 's0', '{}'), shard_tell('mallory', 's1', '{"seed": 0.5}'), shard_tell('alice', 's2', '{}'), shard_tell('alice', 's3', '{"seed": 1}'), shard_tell('mallory', 's4', '{}');
COMMIT});
$node->drain;
is(state_of('mallory', 's1', 'random'), $known{0.5}, 'a seed is good for who sets it');
is(state_of('alice', 's3', 'random'), $known{0.25}, 'hers, too');
# What comes next after a known number is known, too.
my %next = map { $_ => $node->safe_psql('postgres', "SELECT setseed($_); SELECT random() FROM generate_series(1, 20)") } (0.5, 0.25);
sub is_unknown { my ($number, $why) = @_; return ok($number ne '' && $next{0.5} !~ /^\Q$number\E$/m && $next{0.25} !~ /^\Q$number\E$/m, $why) }
is_unknown(state_of('alice', 's2', 'random'), 'O11 her numbers are not those of his seed');
is_unknown(state_of('mallory', 's4', 'random'), 'O11 nor his those of hers');
as('mallory', q{SELECT shard_tell('mallory', 's5', '{"seed": 0.5, "fail": 1}')});
is_unknown(as('alice', q{SELECT shard_ask('alice', 's5', '{}')->>'random'}), 'O11 nor after a failure, in a later turn');
as('mallory', q{SELECT shard_ask('mallory', 's6', '{"seed": 0.5}')});
is_unknown(as('alice', q{SELECT shard_ask('alice', 's6', '{}')->>'random'}), 'O11 nor after an ask');
is_unknown(as('alice', q{SELECT shard_ask('alice', 's7', '{"tell": "x"}')->>'random'}), 'O11 nor after his extractor within her handler');

$node->log_is_clean;

done_testing();
