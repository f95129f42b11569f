# Whoever alters what a state is made of - its type, a type in it, its table - waits for the turn that uses it, and
# no copy in memory is read as something that it is not. A handler cannot alter it under its own feet.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.handler_lock_timeout = '60 s'");
$node->start_recorder;
$node->safe_psql('postgres', q{
CREATE TABLE never_used (a int);
CREATE TABLE second_gate ();
CREATE TYPE part AS (n int, t text);
CREATE TYPE whole AS (n int, t text, p part);
CREATE FUNCTION whole(state whole, message jsonb) RETURNS whole LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'gate' THEN PERFORM FROM gate FOR SHARE; END IF;
	IF message ? 'fail' THEN
		PERFORM FROM second_gate;
		RAISE 'as told';
	END IF;
	IF message ? 'do' THEN EXECUTE message->>'do'; END IF;
	IF message ? 'look' THEN INSERT INTO seen (entity, what) VALUES ('whole', left(to_jsonb(state)::text, 100)); END IF;
	RETURN state;
END $$;
-- a lock that the worker does not have yet: it hears there of what was committed meanwhile
CREATE FUNCTION other(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM never_used;
	RETURN message;
END $$;
-- keeps its state
CREATE FUNCTION kept(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce(state, message);
CREATE FUNCTION strict(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN message; END $$;
CREATE FUNCTION parts(state part[], message jsonb) RETURNS part[] LANGUAGE plpgsql AS $$ BEGIN RETURN state; END $$;
SELECT shard_start(t, t, handler_timeout => '180 s') FROM unnest('{whole,other,kept,strict,parts}'::text[]) t;
INSERT INTO shard_entity.whole (shard, entity_id, n, t, p) SELECT shard_shard_id('whole', e), e, 1073741820, 'text', (1073741820, 'inner')::part FROM unnest('{a,b}'::text[]) e;
INSERT INTO shard_entity.parts (shard, entity_id, state) SELECT shard_shard_id('parts', 'a'), 'a', '{"(1073741820,first)"}';
SELECT shard_ask('whole', e, '{}') FROM unnest('{a,b}'::text[]) e;
SELECT shard_ask('parts', 'a', '{}'), shard_ask('kept', 'a', '"first"'), shard_ask('strict', 'a', '"first"');
});
my @workers = $node->worker_pids('%region%');

# A statement beside a turn that waits at the gate: it waits, too, or is done.
sub beside
{
	my ($keeper, $sql) = @_;
	my $user = $node->session;
	my $pid = $user->query('SELECT pg_backend_pid();');
	$user->send($sql);
	my $what;
	ShardCluster::wait_for_condition(
		sub { $what = $node->safe_psql('postgres', qq{SELECT CASE WHEN wait_event_type = 'Lock' THEN 'waits' WHEN state = 'idle' THEN 'done' END FROM pg_stat_activity WHERE pid = $pid}) },
		'a statement to wait or end');
	$keeper->query('COMMIT;');
	$user->receive;
	return $what;
}

# The worker in the turn that goes on with these messages, in their order, when the keeper commits.
sub at_gate
{
	my (@messages) = @_;
	my $keeper = $node->session;
	$keeper->query('BEGIN; SELECT FROM gate FOR UPDATE;');
	$node->safe_psql('postgres', join '', 'BEGIN;', (map { "SELECT shard_tell('$_->[0]', '$_->[1]', '$_->[2]');" } @messages), 'COMMIT;');
	$node->wait_until(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type LIKE 'shard%' AND wait_event_type = 'Lock'}, 'a worker at the gate');
	return $keeper;
}

# --- its type ------------------------------------------------------------------------------------

my $keeper = at_gate([ 'whole', 'a', '{"gate": 1}' ], [ 'other', 'a', '{}' ], [ 'whole', 'a', '{"look": 1}' ], [ 'whole', 'b', '{"look": 1}' ]);
is(beside($keeper, 'ALTER TYPE whole ALTER ATTRIBUTE n TYPE text;'), 'waits', 'who alters the type of a state waits for the turn');
$node->safe_psql('postgres', 'ALTER TABLE shard_entity.whole ALTER COLUMN n TYPE text');
$node->safe_psql('postgres', q{SELECT shard_tell('whole', e, '{"look": 1}') FROM unnest('{a,b}'::text[]) e});
$node->drain;
# What comes behind the gate may be handled in the turn after it, which is another one for the type as well.
my $look = '{"n": 1073741820, "p": {"n": 1073741820, "t": "inner"}, "t": "text"}';
is($node->safe_psql('postgres', q{SELECT string_agg(replace(what, '"1073741820"', '1073741820'), ' ' ORDER BY pos) FROM seen WHERE entity = 'whole'}),
	join(' ', ($look) x 4), 'its states are read as what they are');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT (what::jsonb->'n')::text, ' ') FROM (SELECT what FROM seen WHERE entity = 'whole' ORDER BY pos DESC LIMIT 2) s}),
	'"1073741820"', 'and as what they have become');

# --- a type in it --------------------------------------------------------------------------------

# The rows stay as they are, so nothing but the definition tells that they mean something else.
$node->safe_psql('postgres', q{
BEGIN;
ALTER TABLE shard_entity.whole DROP COLUMN p;
ALTER TABLE shard_entity.parts DROP COLUMN state;
ALTER TYPE part ALTER ATTRIBUTE n TYPE text;
ALTER TABLE shard_entity.whole ADD COLUMN p part;
ALTER TABLE shard_entity.parts ADD COLUMN state part[];
ALTER TABLE shard_entity.kept DROP COLUMN state;
ALTER TABLE shard_entity.kept ADD COLUMN state jsonb;
COMMIT;
});
is($node->safe_psql('postgres', q{SELECT shard_ask('whole', 'a', '{}')}), '{"n": "1073741820", "p": null, "t": "text"}', 'a column that was made anew');
is($node->safe_psql('postgres', q{SELECT shard_ask('parts', 'a', '{}') IS NULL}), 't', 'and of an array');
is($node->safe_psql('postgres', q{SELECT shard_ask('kept', 'a', '"second"')}), '"second"', 'and of a simple type');

# --- by the handler itself -----------------------------------------------------------------------

# An ask and a tell, which is run carefully in the end; the state is no other than before.
my @own = ('ALTER TYPE whole ALTER ATTRIBUTE n TYPE int USING 0', 'ALTER TYPE whole ADD ATTRIBUTE x int', 'DROP TYPE whole CASCADE',
	'ALTER TABLE shard_entity.whole ADD COLUMN x int', 'TRUNCATE shard_entity.whole', 'ALTER TYPE part ADD ATTRIBUTE x int');
$own[0] = 'ALTER TYPE whole ALTER ATTRIBUTE n TYPE int';
for my $statement (@own)
{
	my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT shard_ask('whole', 'a', '{\"do\": \"$statement\"}')");
	like($err, qr/ERROR:  55006:/, "in an ask: $statement");
	$node->safe_psql('postgres', "SELECT shard_tell('whole', 'a', '{\"do\": \"$statement\"}')");
}
$node->drain;
is($node->safe_psql('postgres', 'SELECT sqlstate, count(*) FROM shard_dead_letters GROUP BY 1'), '55006|' . @own, 'and in a tell');
is($node->safe_psql('postgres', q{SELECT shard_ask('whole', 'a', '{}')}), '{"n": "1073741820", "p": null, "t": "text"}', 'nothing came of it');
is($node->safe_psql('postgres', q{SELECT problem IS NULL FROM shard_types WHERE type_name = 'whole'}), 't', 'its type runs');

# --- the handler ---------------------------------------------------------------------------------

# One that became STRICT would not be called for a new entity, whose message would be gone. The turn that was begun before has
# to come to that message. Whoever waits for long comes to no other one, but for a turn that goes up to a message that has failed,
# which does not look at the clock. So one of the same turn fails behind it, when we say so; the gate, open up to then, is closed
# before the next turn can pass it.
my $new;

sub behind_failure
{
	my $second = $node->session;
	# Of a shard that has a home: a parked message comes in another turn.
	$new = $node->safe_psql('postgres', q{SELECT min('new' || i) FROM generate_series(1, 10000) i
		WHERE shard_shard_id('strict', 'new' || i) = shard_shard_id('strict', 'a') AND NOT EXISTS (SELECT FROM shard_entity.strict WHERE entity_id = 'new' || i)});
	$second->query('BEGIN; LOCK TABLE second_gate;');
	$node->safe_psql('postgres', qq{BEGIN; SELECT shard_tell('whole', 'a', '{"gate": 1}'); SELECT shard_tell('other', 'b', '{}');
		SELECT shard_tell('strict', '$new', '"first"'); SELECT shard_tell('whole', 'b', '{"fail": 1}'); COMMIT});
	$node->wait_until("SELECT count(*) > 0 FROM pg_locks WHERE relation = 'second_gate'::regclass AND NOT granted", 'the worker to come to the last one');
	my $session = $node->session;
	$session->send('BEGIN; LOCK TABLE gate;');
	$node->wait_until("SELECT count(*) > 0 FROM pg_locks WHERE relation = 'gate'::regclass AND mode = 'AccessExclusiveLock'", 'the gate to be asked for');
	my $same = $node->safe_psql('postgres', "SELECT bool_or(NOT granted) FROM pg_locks WHERE relation = 'gate'::regclass AND mode = 'AccessExclusiveLock'");
	$second->query('COMMIT;');
	$session->receive;
	$second->close;
	if ($same eq 't')
	{
		$node->wait_until("SELECT count(*) > 0 FROM pg_locks WHERE relation = 'gate'::regclass AND NOT granted", 'the next turn to come to the gate');
		return $session;
	}
	# The turn was over before it came to the last one.
	$session->query('COMMIT;');
	$session->close;
	$node->drain;
	return;
}

$node->safe_psql('postgres', q{SELECT shard_ask('other', 'b', '{}')});
ShardCluster::wait_for_condition(sub { $keeper = behind_failure() }, 'a turn that goes up to a message that has failed');
is(beside($keeper, 'BEGIN; DROP TABLE never_used; CREATE TABLE never_used (); ALTER FUNCTION strict STRICT; COMMIT;'), 'done', 'a function may be changed in mid-turn');
$node->wait_for_value(q{SELECT problem LIKE '%STRICT' FROM shard_types WHERE type_name = 'strict'}, 't', 'the type to be suspended');
$node->safe_psql('postgres', 'ALTER FUNCTION strict CALLED ON NULL INPUT');
$node->drain;
is($node->safe_psql('postgres', qq{SELECT state FROM shard_entity.strict WHERE entity_id = '$new'}),
	'"first"', 'no message is taken for handled by a handler that was not called');

# --- generated columns ---------------------------------------------------------------------------

$node->safe_psql('postgres', q{
CREATE TYPE doubled AS (n int, twice int);
CREATE FUNCTION doubled(state doubled, message jsonb) RETURNS doubled LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN message ? 'n' THEN ((message->'n')::int, NULL)::doubled ELSE state END;
END $$;
SELECT shard_start('doubled', 'doubled');
ALTER TABLE shard_entity.doubled DROP COLUMN twice, ADD COLUMN twice int GENERATED ALWAYS AS (n * 2) STORED;
SELECT shard_ask('doubled', 'a', '{"n": 21}');
SELECT shard_tell('doubled', 'b', '{"n": 22}');
SELECT shard_drain();
});
is($node->safe_psql('postgres', qq{SELECT shard_ask('doubled', '$_', '{}')->>'twice'}), $_ eq 'a' ? 42 : 44, "a generated column is a part of the state of $_")
  for 'a', 'b';

is(join(' ', $node->worker_pids('%region%')), "@workers", 'the worker is the same');
$node->log_is_clean;
done_testing();
