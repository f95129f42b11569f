# Askers on other nodes than the entity's are told all that a handler's error says. One whose time is over is
# told what it waited for, for each cause. A proxy becomes a host
# by shard_start. Where an entity lives, whoever may send to it may know.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;

# ---- errors -------------------------------------------------------------------------------------

$cluster->sql_everywhere(q{
CREATE FUNCTION strict(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'refuse' THEN
		RAISE EXCEPTION USING ERRCODE = '23514', MESSAGE = 'refused', DETAIL = 'a detail', HINT = 'a hint',
			SCHEMA = 'a schema', TABLE = 'a table', COLUMN = 'a column', DATATYPE = 'a type', CONSTRAINT = 'a constraint';
	END IF;
	IF message ? 'fail' THEN
		RAISE EXCEPTION 'not now' USING ERRCODE = '40001';
	END IF;
	PERFORM pg_sleep((message->>'sleep')::float8);
	RETURN '1';
END $$;
CREATE FUNCTION told(entity text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text; hint text; of_schema text; of_table text; of_column text; of_type text; of_constraint text; place text;
BEGIN
	PERFORM shard_ask('strict', entity, '{"refuse": 1}', '60 s');
	RETURN 'no error';
EXCEPTION WHEN check_violation THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, of_schema = SCHEMA_NAME, of_table = TABLE_NAME,
		of_column = COLUMN_NAME, of_type = PG_DATATYPE_NAME, of_constraint = CONSTRAINT_NAME, place = PG_EXCEPTION_CONTEXT;
	RETURN concat_ws(', ', SQLERRM, detail, hint, of_schema, of_table, of_column, of_type, of_constraint,
		substring(place, 'ask of an entity at node \d'));
END $$;
SELECT shard_start('strict', 'strict', retry_backoff => '10 min', max_retry_backoff => '10 min', handler_timeout => '1 min');
});
$cluster->wait_registered;
my @at = (undef, map { $cluster->entity_at('strict', $_) } 1, 2);
my $all = 'refused, a detail, a hint, a schema, a table, a column, a type, a constraint';
is($one->sql("SELECT told('$at[1]')"), $all, 'an error of a handler comes with all its fields');
is($one->sql("SELECT told('$at[2]')"), "$all, ask of an entity at node 2", 'from another node, too');

# ---- locations ----------------------------------------------------------------------------------

$one->sql(q{CREATE ROLE sender; CREATE ROLE stranger; REVOKE ALL ON FUNCTION strict FROM PUBLIC; GRANT EXECUTE ON FUNCTION strict TO sender});
is($one->sql("SET ROLE sender; SELECT node || ' ' || running || ' ' || (dsn IS NULL) FROM shard_location('strict', '$at[2]')"),
	'2 true true', 'who may send may know where an entity lives, but no addresses');
like($one->error_of("SET ROLE stranger; SELECT shard_location('strict', '$at[2]')") // '', qr/42501.*strict/, 'nobody else may');

# ---- a proxy becomes a host ---------------------------------------------------------------------

# The state is of a type that is passed otherwise than a proxy's.
my $counter = q{
CREATE FUNCTION counting(state int, message jsonb) RETURNS int LANGUAGE sql RETURN coalesce(state, 0) + 1;
CREATE ROLE starter; GRANT CREATE ON DATABASE postgres TO starter};
$one->sql("$counter; SELECT shard_start('counting', 'counting', number_of_shards => 4, max_attempts => 7)");
$cluster->wait_registered($one);
$two->sql($counter);
$two->eventually(q{SELECT shard_start_proxy('counting', handler => 'counting')});
is($two->sql(q{SELECT shard_ask('counting', 'c' || i, '{}', '60 s') FROM generate_series(1, 20) i}) =~ s/\n/ /gr, join(' ', (1) x 20), 'a proxy asks');

like($two->error_of(q{SELECT shard_start('counting', 'counting', number_of_shards => 5)}) // '', qr/42710.*other settings/s,
	'it becomes no host with other settings than the cluster has');
like($two->error_of(q{SET ROLE starter; SELECT shard_start('counting', 'counting', number_of_shards => 4)}) // '', qr/42501/, 'nor by others than its owner');
is($two->sql(q{SELECT mode || ' ' || (settings->>'max_attempts') FROM shard_types WHERE type_name = 'counting'}), 'proxy 5', 'it still is one');
$two->sql(q{BEGIN; SELECT shard_start('counting', 'counting', number_of_shards => 4, max_attempts => 7); ROLLBACK});
is($two->sql(q{SELECT to_regclass('shard_entity.counting') IS NULL}), 't', 'nor if that was rolled back');

my $number = $two->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'counting'});
$two->sql(q{SELECT shard_start('counting', 'counting', number_of_shards => 4, max_attempts => 7)});
is($two->sql(q{SELECT mode || ' ' || (settings->>'max_attempts') || ' ' || handler FROM shard_types WHERE type_name = 'counting'}),
	'hosting 7 public.counting(integer,jsonb)', 'it becomes a host, with the settings given');
is($two->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'counting'}), $number, 'under its number');
$two->sql(q{SELECT shard_start('counting', 'counting', number_of_shards => 4, max_attempts => 7)});
$one->wait_until(q{SELECT bool_and(mode = 'hosting') FROM shard_current_regions WHERE type_name = 'counting'}, 'the other node to say so');
$cluster->wait_registered;
$cluster->move('counting', $_, 2) for map { $cluster->shard_of('counting', "c$_") } 1;
is($two->sql(q{SELECT shard_ask('counting', 'c1', '{}', '60 s')}), 2, 'a shard moves there');
is($two->sql(q{SELECT state FROM shard_entity.counting WHERE entity_id = 'c1'}), 2, 'with its state');
is($one->sql(q{SELECT string_agg(shard_ask('counting', 'c' || i, '{}', '60 s')::text, ' ' ORDER BY i) FROM generate_series(2, 20) i}), join(' ', (2) x 19), 'nothing was lost');

# ---- a type that is stopped ------------------------------------------------------------------------

$two->sql(q{SELECT shard_stop_type('counting')});
like($one->error_of(q{SELECT shard_ask('counting', 'c1', '{}', '60 s')}),
	qr/55000: entity type "counting" is stopped at node 2\nHINT:  Start it there with shard_start\(\)/,
	'a type that is stopped at the home: the asker elsewhere hears where, and what to do');
$two->sql(q{SELECT shard_start('counting', 'counting', number_of_shards => 4, max_attempts => 7)});
$two->sql(q{ALTER FUNCTION counting(int, jsonb) RENAME TO renamed});
like($one->error_of(q{SELECT shard_ask('counting', 'c1', '{}', '60 s')}),
	qr/55000: entity type "counting" cannot run at node 2\nDETAIL:  Handler .*does not exist.*\nHINT:  See column problem of shard_types at that node/,
	'one that is suspended there: why, and where to look');
$two->sql(q{ALTER FUNCTION renamed(int, jsonb) RENAME TO counting});
$two->sql(q{SELECT shard_start('counting', 'counting', number_of_shards => 4, max_attempts => 7)});
is($one->eventually(q{SELECT shard_ask('counting', 'c1', '{}', '60 s')}), 3, 'mended, it answers');

# ---- time-outs ----------------------------------------------------------------------------------

# The error of an ask at a node. Of those for another node the answer that it was not executed may come too
# late on a slow machine, so these are repeated.
sub in_vain
{
	my ($node, $entity, $timeout, $expected) = @_;
	my $error;
	for (1 .. 5)
	{
		$error = $node->error_of("SELECT shard_ask('strict', '$entity', '{}', '$timeout')") // 'none';
		return $error if $error =~ $expected;
	}
	return $error;
}

# An ask for each cause, at node one and at node two.
sub told
{
	my ($what, $entity, $detail, @nodes) = @_;
	my $expected = qr/55P03: ask of entity "$entity" of type "strict" timed out after \d+(?:\.\d)? m?s, it was not executed\nDETAIL:\s+$detail/;
	like(in_vain($_, $entity, $_->n == 1 ? '1 s' : '2 s', $expected), $expected, "$what, at node " . $_->n) for @nodes;
	return;
}

# Entities of node 1: one in back-off, one whose row somebody holds, one whose worker is busy.
my ($rests, $locked, $busy) = grep { $_ ne $at[1] } $cluster->entities_at('strict', 1, 4);
$cluster->drain;
$one->sql("SELECT shard_tell('strict', '$rests', '{\"fail\": 1}')");
$one->wait_until("SELECT attempts = 1 FROM shard_inbox WHERE entity_id = '$rests'", 'a failure');
told('an entity rests', $rests, qr/The entity rests until 20\d\d-.*: its first message has failed in 1 attempt/, $one, $two);
my $holder = $one->session;
my $pid = $holder->query("BEGIN; SELECT pg_backend_pid() FROM shard_entity.strict WHERE entity_id = '$locked' FOR UPDATE;");
$one->sql("SELECT shard_tell('strict', '$locked', '{}')");
$one->wait_until("SELECT blocked_by = $pid FROM shard_inbox WHERE entity_id = '$locked'", 'the lock to be met');
told('its row is locked', $locked, qr/Process $pid holds the entity's state row\./, $one, $two);
$holder->query('ROLLBACK;');
$one->wait_until("SELECT count(*) = 0 FROM shard_inbox WHERE entity_id = '$locked'", 'its message to be handled');
my $table = $one->session;
$pid = $table->query('BEGIN; LOCK TABLE shard_entity.strict IN SHARE MODE; SELECT pg_backend_pid();');
$one->sql("SELECT shard_tell('strict', '$locked', '{}')");
$one->wait_until("SELECT blocked_by = $pid FROM shard_inbox WHERE entity_id = '$locked'", 'the lock of the table to be met');
told('its table is locked', $locked, qr/Process $pid has locked the table of the entity's states/, $one, $two);
$table->query('ROLLBACK;');
$table->close;
$one->sql("SELECT shard_tell('strict', '$busy', '{\"sleep\": 20}')");
told('its worker is busy', $busy, qr/Shard worker 0 was busy for \d+(?:\.\d)? m?s\.\nHINT:\s+See shard_health\(\), .* at node 1\./, $one, $two);

# Node 2 alone: of two members only one votes.
my ($homeless) = $cluster->homeless('strict', $two, map { "homeless$_" } 1 .. 20);
$one->server->stop('immediate');
$two->wait_until('SELECT count(*) = 0 FROM shard_members WHERE coordinator', 'no coordinator');
told('no home', $homeless, qr/Shard \d+ of its type has no home yet, and there is no coordinator to give it one\./, $two);
told('its home is away', $at[1], qr/Its home, node 1, cannot be reached for asks since 20\d\d-/, $two);

$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
