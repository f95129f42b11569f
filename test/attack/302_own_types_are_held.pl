# M01, M02: the owner of a type alters what its states are made of, in a handler or between turns, and hopes that the worker
# reads a value by another definition than it was made under: others' memory, or a pointer of his choice.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together);
$node->safe_psql('postgres', q{
CREATE ROLE mallory LOGIN;
CREATE ROLE alice LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory, alice;
});

sub as { return $node->as(@_) }
sub mallory { return as('mallory', @_) }

# The error of a statement of hers.
sub refused
{
	my ($sql) = @_;
	my (undef, undef, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', 'mallory', '-v', 'VERBOSITY=verbose' ]);
	return $err;
}

# What others keep in the same worker.
as('alice', q{
CREATE SCHEMA alice;
CREATE FUNCTION alice.keep(s jsonb, m jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce(m->'set', s);
SELECT shard_start('vault', 'alice.keep');
SELECT shard_ask('vault', 'v' || i, jsonb_build_object('set', repeat('alice', 100))) FROM generate_series(1, 50) i;
});

# A varlena of 60 kB, and a pointer to an expanded object, as the bytes of a uuid.
my %uuid = (M01 => '90a90300-4141-4141-4141-414141414141', M02 => '01023713-3713-3713-0000-414141414141');
my @workers = $node->worker_pids('%region%');

# Her states tell nothing, and the worker lives.
sub is_safe
{
	my ($table, $column, $what) = @_;
	$node->drain;
	is(mallory("SELECT count(*) FROM $table WHERE length(textsend($column\::text)) > 100 OR encode(textsend($column\::text), 'escape') LIKE '%alice%'"), 0, "$what: no others' memory");
	my @now = $node->worker_pids('%region%');
	is("@now", "@workers", "$what: the worker is the same");
	@workers = @now;
	is(as('alice', q{SELECT shard_ask('vault', 'v1', '{}') = to_jsonb(repeat('alice', 100))}), 't', "$what: others are served");
	$node->safe_psql('postgres', 'DELETE FROM shard.dead_letter');
	return;
}

mallory(q{CREATE SCHEMA mallory});

# --- as it was done ------------------------------------------------------------------------------

mallory(q{
CREATE TYPE mallory.st AS (a text, b text);
CREATE FUNCTION mallory.mk(v text) RETURNS mallory.st LANGUAGE plpgsql AS $$ BEGIN RETURN ROW(v::uuid, 'zz')::mallory.st; END $$;
CREATE FUNCTION mallory.morph(state mallory.st, message jsonb) RETURNS mallory.st LANGUAGE plpgsql AS $$ BEGIN
  EXECUTE 'ALTER TYPE mallory.st ALTER ATTRIBUTE a TYPE uuid'; RETURN mallory.mk(message->>'to'); END $$;
SELECT shard_start('morph', 'mallory.morph', max_attempts => 1);
});
for my $trick (sort keys %uuid)
{
	mallory(qq{SELECT shard_tell('morph', 'x', '{"to": "$uuid{$trick}"}')});
	$node->drain;
	is($node->safe_psql('postgres', q{SELECT DISTINCT sqlstate FROM shard_dead_letters}), '55006', "$trick: a handler cannot alter its own state type");
	is_safe('shard_entity.morph', 'a', $trick);
	like(refused(qq{SELECT shard_ask('morph', 'x', '{"to": "$uuid{$trick}"}')}), qr/ERROR:  55006:/, "$trick: nor in an ask");
	like(refused(qq{SELECT shard_try('morph', 'x', '{"to": "$uuid{$trick}"}')}), qr/ERROR:  55006:/, "$trick: nor when it is tried");
	is_safe('shard_entity.morph', 'a', "$trick, asked");
}

# --- what is compiled, or planned ------------------------------------------------------------------

# The type changes, and the table has had the columns for both all the time: nothing but the type tells that
# what a worker keeps compiled makes rows as they were.
mallory(qq{
CREATE TYPE mallory.inl AS (p uuid, b text);
CREATE FUNCTION mallory.inl(state mallory.inl, message jsonb) RETURNS mallory.inl LANGUAGE sql AS \$\$ SELECT ROW((message->>'to')::uuid, 'zz')::mallory.inl \$\$;
CREATE TYPE mallory.folded AS (p uuid, b text);
CREATE FUNCTION mallory.constant(n text) RETURNS mallory.folded LANGUAGE plpgsql AS \$\$ BEGIN
	IF n = 'M01' THEN RETURN ROW('$uuid{M01}'::uuid, 'zz')::mallory.folded; END IF;
	RETURN ROW('$uuid{M02}'::uuid, 'zz')::mallory.folded; END \$\$;
CREATE FUNCTION mallory.folded(state mallory.folded, message jsonb) RETURNS mallory.folded LANGUAGE plpgsql AS \$\$ BEGIN RETURN mallory.constant(message->>'n'); END \$\$;
SELECT shard_start(t, 'mallory.' || t, max_attempts => 1) FROM unnest('{inl,folded}'::text[]) t;
ALTER TABLE shard_entity.inl ADD COLUMN q text;
ALTER TABLE shard_entity.folded ADD COLUMN q text;
});
my @messages = map { (qq{SELECT shard_tell('inl', '$_', '{"to": "$uuid{$_}"}');}, qq{SELECT shard_tell('folded', '$_', '{"n": "$_"}');}) } sort keys %uuid;
mallory("@messages");
$node->drain;
is(mallory('SELECT count(*) FROM shard_entity.inl WHERE p IS NOT NULL'), 2, 'rows of uuids are made');
is(mallory('SELECT count(*) FROM shard_entity.folded WHERE p IS NOT NULL'), 2, 'and constant ones');
mallory(qq{BEGIN; ALTER TYPE mallory.$_ RENAME ATTRIBUTE p TO q; ALTER TYPE mallory.$_ ALTER ATTRIBUTE q TYPE text; COMMIT;}) for qw(inl folded);
# The pointer first: it would be followed where a row that is too large would be stored.
for my $trick (reverse sort keys %uuid)
{
	mallory(qq{SELECT shard_tell('inl', '$trick', '{"to": "$uuid{$trick}"}')});
	is_safe('shard_entity.inl', 'q', "$trick: a handler that was inlined");
	mallory(qq{SELECT shard_tell('folded', '$trick', '{"n": "$trick"}')});
	is_safe('shard_entity.folded', 'q', "$trick: a constant of a plan");
}

# --- what else a type is altered by ----------------------------------------------------------------

mallory(q{
CREATE TYPE mallory.part AS (n int, t text);
CREATE DOMAIN mallory.dom AS mallory.part;
CREATE DOMAIN mallory.word AS text;
CREATE TABLE mallory.base (n int, t text);
CREATE TABLE mallory.tab (w mallory.word) INHERITS (mallory.base);
CREATE TYPE mallory.nested AS (d mallory.dom, a mallory.part[], w mallory.word);
CREATE TYPE mallory.span AS RANGE (subtype = int4);
CREATE FUNCTION mallory.do(message jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF message ? 'do' THEN EXECUTE message->>'do'; END IF; END $$;
CREATE FUNCTION mallory.arr(state mallory.part[], message jsonb) RETURNS mallory.part[] LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.do(message); RETURN ARRAY[ROW(1, 'first')::mallory.part]; END $$;
CREATE FUNCTION mallory.dm(state mallory.dom, message jsonb) RETURNS mallory.dom LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.do(message); RETURN ROW(1, 'first')::mallory.part::mallory.dom; END $$;
CREATE FUNCTION mallory.tb(state mallory.tab, message jsonb) RETURNS mallory.tab LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.do(message); RETURN ROW(1, 'first', 'word')::mallory.tab; END $$;
CREATE FUNCTION mallory.ns(state mallory.nested, message jsonb) RETURNS mallory.nested LANGUAGE plpgsql AS $$
BEGIN PERFORM mallory.do(message); RETURN ROW(ROW(1, 'first')::mallory.part, ARRAY[ROW(2, 'second')::mallory.part], 'word')::mallory.nested; END $$;
SELECT shard_start(t, 'mallory.' || t, max_attempts => 1) FROM unnest('{arr,dm,tb,ns}'::text[]) t;
SELECT shard_ask(t, 'x', '{}') FROM unnest('{arr,dm,tb,ns}'::text[]) t;
});
my $states = q{SELECT (SELECT state::text FROM shard_entity.arr), (SELECT state::text FROM shard_entity.dm), (SELECT (n, t, w)::text FROM shard_entity.tb), (SELECT (d, a, w)::text FROM shard_entity.ns)};
my $before = mallory($states);
for my $trick (
	[ arr => 'ALTER TYPE mallory.part ADD ATTRIBUTE x text' ],
	[ arr => 'ALTER TYPE mallory.part DROP ATTRIBUTE t' ],
	[ arr => 'DROP TYPE mallory.part CASCADE' ],
	[ dm  => 'ALTER TYPE mallory.part ADD ATTRIBUTE x text' ],
	[ dm  => 'DROP TYPE mallory.part CASCADE' ],
	[ ns  => 'ALTER TYPE mallory.nested ALTER ATTRIBUTE w TYPE uuid' ],
	[ ns  => 'ALTER TYPE mallory.nested DROP ATTRIBUTE a' ],
	[ ns  => 'ALTER TYPE mallory.part ADD ATTRIBUTE x text' ],
	[ ns  => 'DROP SCHEMA mallory CASCADE' ],
	[ tb  => 'ALTER TABLE mallory.tab ADD COLUMN x text' ],
	[ tb  => 'ALTER TABLE mallory.base ADD COLUMN x text' ],
	[ tb  => 'ALTER TABLE mallory.base ALTER COLUMN t TYPE int USING 1' ],
	[ tb  => 'ALTER TABLE mallory.base DROP COLUMN n CASCADE' ],
	[ tb  => 'DROP TABLE mallory.base CASCADE' ],
	[ ns  => 'DROP OWNED BY mallory CASCADE' ],
	[ ns  => 'ALTER TABLE shard_entity.ns ADD COLUMN y int DEFAULT 1' ],
	[ ns  => 'ALTER TABLE shard_entity.ns ALTER COLUMN w TYPE varchar' ],
	[ ns  => 'ALTER TABLE shard_entity.ns SET UNLOGGED' ],
	[ ns  => 'CLUSTER shard_entity.ns USING ns_pkey' ])
{
	my ($type, $statement) = @$trick;
	like(refused(qq{SELECT shard_ask('$type', 'x', '{"do": "$statement"}')}), qr/ERROR:  (?:55006|0A000):/, "M01: in a handler: $statement");
	like(refused(qq{SELECT shard_try('$type', 'x', '{"do": "$statement"}')}), qr/ERROR:  (?:55006|0A000):/, "M01: in a trial: $statement");
}
is(mallory($states), $before, 'M01: nothing came of it');
is(mallory(q{SELECT count(*) FROM shard_types WHERE problem IS NOT NULL}), 0, 'M01: the types run');

# By code that runs when the state is written, also by another type's handler, which is in the same turn.
mallory(q{
CREATE FUNCTION mallory.meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF current_setting('mallory.armed', true) = 'on' OR EXISTS (SELECT FROM mallory.armed) THEN EXECUTE 'ALTER TYPE mallory.nested ALTER ATTRIBUTE w TYPE uuid'; END IF;
	RETURN NEW; END $$;
CREATE TABLE mallory.armed ();
CREATE TRIGGER before BEFORE INSERT OR UPDATE ON shard_entity.ns FOR EACH ROW EXECUTE FUNCTION mallory.meddle();
CREATE TRIGGER after AFTER INSERT OR UPDATE ON shard_entity.ns FOR EACH ROW EXECUTE FUNCTION mallory.meddle();
SELECT shard_ask('ns', 'y', '{}');
INSERT INTO mallory.armed DEFAULT VALUES;
});
like(refused(q{SELECT shard_ask('ns', 'z', '{}')}), qr/ERROR:  55006:/, 'M01: in a trigger of the state table');
mallory(q{BEGIN; SELECT shard_tell('ns', 'z', '{}'); SELECT shard_tell('tb', 'z', '{"do": "ALTER TYPE mallory.nested ALTER ATTRIBUTE w TYPE uuid"}'); COMMIT;});
is_safe('shard_entity.ns', 'w', 'M01: by another handler of the turn');
mallory(q{DROP TRIGGER before ON shard_entity.ns; DROP TRIGGER after ON shard_entity.ns;});
# If that was possible, since nothing was held of the type at that time, its table does not fit any more.
if (mallory(q{SELECT atttypid::regtype FROM pg_attribute WHERE attrelid = 'mallory.nested'::regclass AND attname = 'w'}) eq 'uuid')
{
	mallory(q{ALTER TYPE mallory.nested ALTER ATTRIBUTE w TYPE mallory.word; ALTER TABLE shard_entity.ns SET (fillfactor = 51)});
	$node->wait_for_value(q{SELECT count(*) FROM shard_types WHERE problem IS NOT NULL}, 0, 'the type to run again');
	$node->drain;
}
is(mallory(q{SELECT shard_ask('ns', 'y', '{}')->>'w'}), 'word', 'M01: the type goes on');

# A domain may go: its values are of a type that stays, and who uses them is told.
mallory(q{SELECT shard_tell('ns', 'x', '{"do": "DROP DOMAIN mallory.word CASCADE"}')});
is_safe('shard_entity.ns', 'd', 'M01: a domain is dropped in a handler');

# --- who looks -------------------------------------------------------------------------------------

# The key is of another type than ours, in a transaction of hers: what she looks at is not read as text.
mallory(q{
CREATE FUNCTION mallory.fail(s jsonb, m jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now' USING ERRCODE = 'serialization_failure'; END $$;
SELECT shard_start('fail', 'mallory.fail', max_attempts => 1000, retry_backoff => '1 h', max_retry_backoff => '1 h');
INSERT INTO shard_entity.fail (shard, entity_id, state) SELECT shard_shard_id('fail', e), e, '{}' FROM (SELECT E'\x01\x02ABCDEF' AS e) s;
SELECT shard_tell('fail', E'\x01\x02ABCDEF', '{}');
});
$node->wait_for_value(q{SELECT count(*) FROM shard.held}, 1, 'the message to wait in the stash');
mallory(q{BEGIN; ALTER TABLE shard_entity.fail ALTER COLUMN entity_id TYPE name; SELECT count(*), max(blocked_by) FROM shard_inbox; ROLLBACK;});
pass('M02: an entity id that is no text is not read as one');

$node->log_is_clean;
done_testing();
