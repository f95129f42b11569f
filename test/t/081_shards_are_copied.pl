# What a shard has moves with it: states, of whatever types; messages that wait, with their failures and in
# their order. Of the triggers of a state table those fire that are made for copies.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1);
my ($here, $there) = $cluster->nodes;

# The node at which a shard is not, in this test.
sub other { my ($node) = @_; return $node->n == 1 ? $there : $here; }

# Moves a shard to the other node, and waits until nothing is left of it at the first.
sub move_away
{
	my ($type, $shard) = @_;
	my $from = $cluster->node($here->sql("SELECT node FROM shard_homes WHERE type_name = '$type' AND shard = $shard"));
	my $to = other($from);
	# The coordinator may not have heard yet that the type was started there.
	ShardCluster::wait_for_condition(sub { eval { $cluster->move($type, $shard, $to->n); 1 } }, "type $type at node " . $to->n);
	$cluster->wait_home($type, $shard, $to->n);
	$cluster->wait_settled;
	return $to;
}

# --- states of many types --------------------------------------------------------------------------

# In another order of columns, and with types that have other numbers there.
$there->sql('CREATE TYPE filler AS ENUM (\'x\'); CREATE TABLE filling (f filler)');
$cluster->sql_everywhere(<<'SQL');
CREATE TYPE colour AS ENUM ('red', 'green');
CREATE DOMAIN small AS int CHECK (VALUE < 1000);
CREATE TYPE point3 AS (x float8, y float8, z small);
CREATE TYPE named AS (n int, rel regclass);
CREATE TABLE kinds (id int PRIMARY KEY, name text);
INSERT INTO kinds VALUES (1, 'one');
CREATE TYPE thing AS (
	n small, t text, j jsonb, b bytea, ts timestamptz, d numeric(20, 5), a int[], c colour, cs colour[],
	p point3, r int4range, u uuid, i interval, v varchar(7), k int, rel regclass,
	rels regclass[], nm named, nms named[], nothing text);
CREATE FUNCTION thing(state thing, message jsonb) RETURNS thing LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'noop' THEN
		RETURN state;
	END IF;
	RETURN (coalesce((state).n, 0) + 1, E'tab\t"quote"\\', '{"a": [1, null]}', '\x00ff', '2026-01-02 03:04:05.678901+00',
		1234567.00005, '{{1,2},{3,4}}', 'green', '{red,green}', (0.1, 'Infinity', 7), '[2,5)',
		'6d1a1b74-36a5-4f0f-8f55-7a2cf9a4b52c', '1 mon 2 days 03:04:05', 'seven..', 1, 'kinds',
		'{kinds,fired}', (1, 'kinds'), ARRAY[(2, 'fired')::named], NULL)::thing;
END $$;
SELECT shard_start('thing', 'thing', 8);
ALTER TABLE shard_entity.thing ADD CONSTRAINT kind FOREIGN KEY (k) REFERENCES kinds;
SQL
$here->sql(q{ALTER TABLE shard_entity.thing ADD own text DEFAULT 'mine', ADD twice int GENERATED ALWAYS AS (n * 2) STORED});
$there->sql(q{ALTER TABLE shard_entity.thing ADD twice int GENERATED ALWAYS AS (n * 2) STORED, ADD own text DEFAULT 'theirs'});
$cluster->sql_everywhere(<<'SQL');
CREATE TABLE fired (what text);
CREATE TABLE fired_again (what text);
CREATE FUNCTION note_fired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO fired VALUES (TG_NAME);
	RETURN coalesce(NEW, OLD);
END $$;
CREATE FUNCTION note_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO fired_again VALUES (NEW.what);
	RETURN NEW;
END $$;
CREATE TRIGGER again AFTER INSERT ON fired FOR EACH ROW EXECUTE FUNCTION note_again();
CREATE TRIGGER ordinary AFTER INSERT OR UPDATE OR DELETE ON shard_entity.thing FOR EACH ROW EXECUTE FUNCTION note_fired();
CREATE TRIGGER always AFTER INSERT OR DELETE ON shard_entity.thing FOR EACH ROW EXECUTE FUNCTION note_fired();
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON shard_entity.thing DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_fired();
ALTER TABLE shard_entity.thing ENABLE ALWAYS TRIGGER always;
ALTER TABLE shard_entity.thing ENABLE REPLICA TRIGGER late;
ALTER TABLE shard_entity.thing ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SQL
# Row security would hide rows even from the table's owner, and a copy must not care.
$cluster->sql_everywhere('ALTER TABLE shard_entity.thing DISABLE ROW LEVEL SECURITY');
$cluster->wait_registered;
my ($thing, $second) = $cluster->entities_at('thing', 1, 2);
$here->sql(qq{SELECT shard_tell('thing', e, '{}') FROM unnest(ARRAY['$thing', '$second', '$thing']) e});
$cluster->drain;
my $row = qq{SELECT entity_id, n, t, j, b, extract(epoch FROM ts), d, a, c, cs, p, r, u, i, v, k, rel, rels, nm, nms, nothing IS NULL, version, own, twice,
	extract(epoch FROM updated_at) FROM shard_entity.thing WHERE entity_id = '$thing'};
my $before = $here->sql($row);
like($before, qr/^\Q$thing\E\|2\|/, 'there is a state');
$cluster->sql_everywhere('DELETE FROM fired; DELETE FROM fired_again');
# A value that is not there any more would be no obstacle to its row, as it is for none of a subscription.
$there->sql('DELETE FROM kinds');
$cluster->sql_everywhere('ALTER TABLE shard_entity.thing ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY');
move_away('thing', $cluster->shard_of('thing', $thing));
$cluster->sql_everywhere('ALTER TABLE shard_entity.thing DISABLE ROW LEVEL SECURITY');
is($there->sql($row), $before, 'its row is the same at the new home, column by column');
my $count = $there->sql('SELECT count(*) FROM shard_entity.thing');
is($there->sql('SELECT string_agg(what, \' \' ORDER BY what) FROM (SELECT what, count(*) = ' . $count . ' AS good FROM fired GROUP BY what) f WHERE good'),
	'always late', 'triggers of replicas fired for each row, ordinary ones did not');
is($there->sql('SELECT string_agg(what, \' \' ORDER BY what) FROM (SELECT DISTINCT what FROM fired_again) f'), 'always late',
	'ordinary triggers of another table, to which these wrote, fired');
is($here->sql('SELECT count(*) FROM fired'), 0, 'and none for rows that left');
$there->sql("INSERT INTO kinds VALUES (1, 'one'); SELECT shard_tell('thing', '$thing', '{}')");
$there->wait_value("SELECT n || ' ' || twice FROM shard_entity.thing WHERE entity_id = '$thing'", '3 6', 'the entity to go on');

# --- large states, none at all ----------------------------------------------------------------------

$cluster->start_recorder;
my ($big) = $cluster->entity_at('recorder', 1, 'big');
my $shard = $cluster->shard_of('recorder', $big);
my $empty = move_away('recorder', $shard);
is($empty->sql("SELECT count(*) FROM shard_entity.recorder WHERE shard = $shard"), 0, 'a shard without states moves');
$empty->sql(<<SQL);
INSERT INTO shard_entity.recorder (shard, entity_id, state)
SELECT $shard, 'large' || i, jsonb_build_object('random', (SELECT string_agg(md5((i * 1000000 + j)::text), '') FROM generate_series(1, 5 * 32768) j))
FROM generate_series(1, 3) i;
INSERT INTO shard_entity.recorder (shard, entity_id, state)
SELECT $shard, 'small' || i, jsonb_build_object('i', i) FROM generate_series(1, 3000) i;
INSERT INTO shard_entity.recorder (shard, entity_id, state) VALUES ($shard, 'null', NULL);
SQL
my $sum = "SELECT count(*), sum(length(state::text)), md5(string_agg(entity_id || coalesce(md5(state::text), 'null'), ' ' ORDER BY entity_id)) FROM shard_entity.recorder WHERE shard = $shard";
$before = $empty->sql($sum);
my $full = move_away('recorder', $shard);
is($full->sql($sum), $before, 'states of 5 MB, and thousands of small ones, move in several calls');
is($empty->sql("SELECT count(*) FROM shard_entity.recorder WHERE shard = $shard"), 0, 'nothing of them stays');

# --- messages that wait ------------------------------------------------------------------------------

# It fails while there is a row in table broken. One retry now, the next ones much later.
$cluster->sql_everywhere(<<'SQL');
CREATE TABLE broken AS SELECT 1 AS one;
CREATE FUNCTION fragile(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'noop' THEN
		RETURN state;
	END IF;
	IF EXISTS (SELECT FROM broken) THEN
		RAISE EXCEPTION 'broken: %', message->>'what' USING errcode = '55P03';
	END IF;
	INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
	RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
SELECT shard_start('fragile', 'fragile', 8, retry_backoff => '10 ms', max_retry_backoff => '1 hour', max_attempts => 100);
SQL
$cluster->wait_registered;
my ($fragile) = $cluster->entity_at('fragile', 1);
$shard = $cluster->shard_of('fragile', $fragile);
# Of both nodes, so that some have a stamp and some have not.
for my $round (1 .. 3)
{
	for my $node ($here, $there)
	{
		$node->sql("SELECT shard_tell('fragile', '$fragile', jsonb_build_object('what', '" . $node->n . "-$round'))");
		$here->wait_value("SELECT count(*) FROM shard.held", 2 * $round + $node->n - 2, 'the message to wait');
	}
}
$here->wait_until('SELECT max(attempts) > 3 FROM shard.held', 'some attempts');
my $waiting = q{SELECT string_agg(concat_ws(' ', place, entity, kind, epoch, encode(stamp, 'hex'), mid_node, mid_seq, md5(payload), sqlstate, error), E'\n' ORDER BY seq) FROM shard.held};
# Nothing is tried for a while: what is compared stands still.
$cluster->sql_everywhere(q{SELECT shard_alter('fragile', 'retry_backoff', '1 hour')});
$here->wait_until(q{SELECT max(next_at) > now() + interval '20 min' FROM shard.held}, 'the next attempt to be far away');
my $attempts = $here->sql('SELECT max(attempts) FROM shard.held');
$before = $here->sql($waiting);
$cluster->move('fragile', $shard, 2);
$cluster->wait_home('fragile', $shard, 2);
is($there->sql($waiting), $before, 'messages that wait move with all that is known of them, in their order');
cmp_ok($there->sql('SELECT max(attempts) FROM shard.held'), '==', $attempts, 'their attempts count on');
is($there->sql(q{SELECT min(next_at) BETWEEN now() + interval '15 min' AND now() + interval '1 hour' FROM shard.held WHERE attempts > 0}), 't',
	'the next one is as far away as it was');
is($there->sql('SELECT max(seq) < -4000000000000000000 FROM shard.held'), 't', 'they go before all that comes after them');
$cluster->wait_settled;
is($here->sql('SELECT count(*) FROM shard.held'), 0, 'nothing waits at the old home');
$there->sql("SELECT shard_tell('fragile', '$fragile', jsonb_build_object('what', 'last'))");
$cluster->sql_everywhere('DELETE FROM broken');
$there->sql(q{UPDATE shard.held SET next_at = NULL});
$cluster->node($_)->server->restart for 1;
$there->wait_value(q{SELECT string_agg(what, ' ' ORDER BY pos) FROM seen}, '1-1 2-1 1-2 2-2 1-3 2-3 last', 'all of them to be handled in order');


# A worker that takes a shard in goes on with its messages by itself.
$cluster->sql_everywhere(q{SELECT shard_alter('fragile', 'retry_backoff', '10 ms'), shard_alter('fragile', 'max_retry_backoff', '100 ms'); INSERT INTO broken VALUES (1)});
$cluster->drain;
my $another = (grep { $cluster->shard_of('fragile', $_) != $shard } $cluster->entities_at('fragile', 1, 8))[0];
$here->sql("SELECT shard_tell('fragile', '$another', jsonb_build_object('what', 'a' || i)) FROM generate_series(1, 5) i");
$here->wait_until('SELECT max(attempts) > 1 FROM shard.held', 'some attempts');
move_away('fragile', $cluster->shard_of('fragile', $another));
$here->sql("SELECT shard_tell('fragile', '$another', jsonb_build_object('what', 'a6'))");
$there->wait_until('SELECT max(attempts) > 3 FROM shard.held', 'attempts at the new home');
$there->sql('DELETE FROM broken');
$there->wait_value("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$another'", 'a1 a2 a3 a4 a5 a6', 'them to be handled in order');

# Nor do messages that were sent while it was on its way, at the new home, overtake those that move.
$cluster->sql_everywhere('INSERT INTO broken VALUES (1)');
my $server = $here->server;
$another = (grep { $cluster->home_of('fragile', $_) == 1 } $cluster->entities_at('fragile', 1, 8))[0];
$shard = $cluster->shard_of('fragile', $another);
sub tell_another { my ($node, $what) = @_; $node->sql("SELECT shard_tell('fragile', '$another', jsonb_build_object('what', '$what'))"); return; }
tell_another($there, $_) for 'b1', 'b2';
$here->wait_until(q{SELECT count(*) = 2 AND max(attempts) > 1 FROM shard.held}, 'two to wait, one of them tried');
$server->set_fault('import_begin', 'freeze');
my $mover = $here->session;
$mover->send("SELECT shard_move('fragile', $shard, 2);");
ShardCluster::wait_for_condition(sub { $server->fault_happened }, 'the copy to stand still');
tell_another($there, $_) for 'b3', 'b4';
$server->clear_fault;
$mover->receive;
$mover->close;
$cluster->wait_home('fragile', $shard, 2);
tell_another($there, 'b5');
$there->wait_until('SELECT count(*) = 5 FROM shard.held', 'all five to wait');
$there->sql('DELETE FROM broken');
$there->wait_value("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$another' AND what LIKE 'b%'", 'b1 b2 b3 b4 b5', 'them to be handled in order');
$cluster->sql_everywhere('DELETE FROM broken');

# --- messages in the order of their numbers ------------------------------------------------------------

$cluster->sql_everywhere(<<'SQL');
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql IMMUTABLE RETURN (message->>'n')::int8;
CREATE FUNCTION numbered(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN jsonb_build_object('n', concat_ws(' ', state->>'n', message->>'n'));
END $$;
SELECT shard_start('numbered', 'numbered', 8, ordered_by => 'number_of', ordered_timeout => '1 hour');
SQL
sub tell_numbered { my ($node, @n) = @_; $node->sql(join '', map { qq{SELECT shard_tell('numbered', 'm', '{"n": $_}');\n} } @n); return; }
tell_numbered($here, 1, 2);
$here->wait_until(q{SELECT (shard_location('numbered', 'm')).node IS NOT NULL}, 'a home');
$shard = $cluster->shard_of('numbered', 'm');
my $home = $cluster->node($here->sql("SELECT node FROM shard_homes WHERE type_name = 'numbered' AND shard = $shard"));
tell_numbered($home, 5, 4, 7);
$home->wait_value(q{SELECT count(*) FROM shard.held WHERE place = 'ordered'}, 3, 'three to wait for lower numbers');
$home = move_away('numbered', $shard);
is($home->sql(q{SELECT (SELECT string_agg(number::text, ' ' ORDER BY number) FROM shard.held WHERE place = 'ordered'), (SELECT began || ' ' || expected FROM shard.ordered)}),
	'4 5 7|1 3', 'messages that wait for lower numbers move, and how far the entity is');
tell_numbered($home, 6, 3);
$home->wait_value(q{SELECT state->>'n' FROM shard_entity.numbered WHERE entity_id = 'm'}, '1 2 3 4 5 6 7', 'all of them in order');

done_testing();
