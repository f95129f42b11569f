# What a user changes by SQL in the state table of a type with replicas is in the records of its shards (Q33): once for an entity and
# transaction, as it was committed, over crashes, and not if it was undone. At a home that is alone in its set.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use PostgreSQL::Test::Utils;
use ShardMutant;
use Test::More;
use Time::HiRes qw(time);

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nmax_prepared_transactions = 4");
my $db = 'postgres';

sub sql { my ($sql) = @_; return $node->safe_psql($db, $sql) }

# The SQLSTATE and the text of the error.
sub fails { my ($sql) = @_; return ($node->psql($db, "\\set VERBOSITY verbose\n$sql", on_error_stop => 1))[2] }

$node->create_owners(qw(ann bob));
sub ann { my ($sql) = @_; return $node->as(ann => $sql) }
my $handler = q{CREATE OR REPLACE FUNCTION ann.does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'sql' THEN EXECUTE message->>'sql'; END IF;
	IF message ? 'look' THEN RETURN state; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
END $$};
ann($handler);
my $start = q{SELECT shard_start('alone', 'ann.does', 4, replicas => 1, max_attempts => 1, max_retry_backoff => '200 ms')};
ann($start);
ann(q{SELECT shard_ask('alone', i::text, '{}') FROM generate_series(1, 20) i});
my $type = sql(q{SELECT type_id FROM shard.type WHERE type_name = 'alone'});

# Where the records of all shards end, and what they have behind that: entities, and which of them are gone.
sub mark { return { map { $_ => sql("SELECT coalesce(max(turn), 0) FROM shard.turn_records($type, $_)") } 0 .. 3 } }

sub images
{
	my ($mark) = @_;
	$node->drain;
	return sql(join(' UNION ALL ', map { "SELECT entity || coalesce(' ' || what, '') AS said FROM shard.turn_records($type, $_) WHERE section = 'images' AND turn > $mark->{$_}" } 0 .. 3)
		=~ s/^/SELECT string_agg(said, ', ' ORDER BY said) FROM (/r . ') r');
}

# What a change has in the records.
sub recorded { my ($sql) = @_; my $mark = mark(); ann($sql); return images($mark) }

sub updated { my ($entity) = @_; return "UPDATE shard_entity.alone SET state = '{\"n\": 7}' WHERE entity_id = '$entity';" }

# The state table gets a problem, or is mended, while its changes are told.
sub has_problem
{
	my ($name, $has) = @_;
	ann("ALTER TABLE shard_entity.$name " . ($has ? 'DISABLE' : 'ENABLE ALWAYS') . ' TRIGGER shard_truncated');
	$node->wait_until(q{SELECT problem IS } . ($has ? 'NOT ' : '') . qq{NULL FROM shard_types WHERE type_name = '$name'}, 'the type to ' . ($has ? 'be suspended' : 'go on'));
	return;
}

# What of keys of the stash is in the records behind a mark.
sub stash_keys
{
	my ($mark) = @_;
	return sql('SELECT ' . join(' + ', map { "(SELECT count(*) FROM shard.turn_records($type, $_) WHERE section = 'keys' AND what LIKE 'stash%' AND turn > $mark->{$_})" } 0 .. 3));
}

# SQL on an entity, whose row of the log is met while another session has locked what is said here.
sub behind_lock
{
	my ($entity, $lock) = @_;
	my $mark = mark();
	my $other = $node->session;
	$node->set_fault('outside_met', 'freeze');
	ShardCluster::wait_for_condition(sub { ann(updated($entity)); return $node->fault_happened }, 'the row to be met');
	$other->query("BEGIN; $lock;");
	$node->clear_fault;
	$node->wait_until(q{SELECT EXISTS (SELECT FROM shard.held WHERE kind = 24)}, 'the row to wait');
	$other->query('COMMIT;');
	$other->close;
	like(images($mark), qr/^$entity(, $entity)*$/, "$lock when the row is met");
	is(stash_keys($mark), 0, 'that it waited is in no record');
	return;
}

my @scenarios = (
	{
		promise => 'what a subtransaction has touched that was undone does not hide the next touch',
		broken_by => ['TOLD_NOT_UNDONE'],
		run => sub {
			return (recorded('BEGIN; SAVEPOINT s; ' . updated(3) . ' ROLLBACK TO s; ' . updated(3) . ' COMMIT'), '3');
		},
	},
	{
		promise => 'what is touched while the table has a problem is recorded when that is mended',
		broken_by => ['TOUCHED_NOT_HELD'],
		run => sub {
			my $mark = mark();
			has_problem('alone', 1);
			ann(updated(4) x 3);
			# A message behind it, for another entity, waits, so the row was met.
			ann(q{SELECT shard_tell('alone', '5', '{"look": true}')});
			$node->wait_until(q{SELECT EXISTS (SELECT FROM shard.held WHERE kind = 1)}, 'the message to wait');
			has_problem('alone', 0);
			return (images($mark), '4');
		},
	});
if (!ShardMutant::prove(@scenarios))
{
	done_testing();
	exit;
}

# --- which changes -----------------------------------------------------------------------------------

is(recorded(updated(1)), '1', 'an update');
like(recorded(updated(1) x 3), qr/^1(, 1)*$/, 'three transactions, which a turn may meet together');
is(recorded('BEGIN; ' . updated(1) x 3 . ' COMMIT'), '1', 'three in one');
is(recorded("INSERT INTO shard_entity.alone (shard, entity_id, state) SELECT shard_shard_id('alone', 'new'), 'new', '{}'"), 'new', 'an insert');
is(recorded(q{DELETE FROM shard_entity.alone WHERE entity_id = 'new'}), 'new gone', 'a delete');
is(recorded(q{WITH gone AS (DELETE FROM shard_entity.alone WHERE entity_id = '20' RETURNING *) SELECT count(*) FROM gone}), '20 gone', 'within a query');
my $moved = sql(q{SELECT i FROM generate_series(100, 200) i WHERE shard_shard_id('alone', i::text) = shard_shard_id('alone', '19') LIMIT 1});
is(recorded("UPDATE shard_entity.alone SET entity_id = '$moved' WHERE entity_id = '19'"), "$moved, 19 gone" =~ s/(.*), (.*)/join ', ', sort $1, $2/er, 'a key that is changed');
is(recorded(q{UPDATE shard_entity.alone SET state = state}), sql(q{SELECT string_agg(entity_id, ', ' ORDER BY entity_id) FROM shard_entity.alone}), 'all rows');
ann(q{SELECT shard_ask('alone', '5', '{}')});
is(recorded(q{SELECT shard_ask('alone', '5', '{}')}), '5', 'what a handler returns is recorded once');
is(recorded(q{SELECT shard_ask('alone', '5', '{"look": true}')}), '', 'and what it leaves as it is, not');
is(recorded(q{SELECT shard_tell('alone', '5', jsonb_build_object('sql', 'UPDATE shard_entity.alone SET state = ''{"n": 1}'' WHERE entity_id = ''6'''))}), '5, 6', 'SQL of a handler on another entity');
is(recorded('BEGIN; ' . updated(1) . ' ROLLBACK'), '', 'nothing of a transaction that was undone');
is(recorded('BEGIN; SAVEPOINT s; ' . updated(1) . ' ROLLBACK TO s; COMMIT'), '', 'nor of a subtransaction');
is(recorded('BEGIN; SAVEPOINT s; ' . updated(1) . ' RELEASE s; ' . updated(2) . ' COMMIT'), '1, 2', 'one that was not');
is(recorded(q{INSERT INTO shard_entity.alone (shard, entity_id, state) VALUES (9, 'far', '{}'), (0, '', '{}'), (0, repeat('x', 300), '{}');
	DELETE FROM shard_entity.alone WHERE shard = 9 OR length(entity_id) NOT BETWEEN 1 AND 255}), '', 'nothing of rows that are no entities');

my $mark = mark();
$node->as(ann => 'BEGIN; ' . updated(2) . q{ PREPARE TRANSACTION 'p'});
is(images($mark), '', 'nothing of a prepared transaction');
$node->crash_postmaster;
$node->recover;
is(images($mark), '', 'nor after a crash');
$node->as(ann => q{COMMIT PREPARED 'p'});
is(images($mark), '2', 'before its commit');

$mark = mark();
sql('SET session_replication_role = replica; ' . updated(3));
is(images($mark), '3', 'session_replication_role does not matter');
sql(q{COPY (SELECT shard, 'c' || entity_id, state, version, remembered, updated_at FROM shard_entity.alone WHERE entity_id = '1') TO '} . $node->data_dir . q{/copied'});
$mark = mark();
sql(q{COPY shard_entity.alone FROM '} . $node->data_dir . q{/copied'});
is(images($mark), 'c1', 'COPY');
sql(q{DELETE FROM shard_entity.alone WHERE entity_id = 'c1'});
sql(q{BEGIN; SELECT shard_start('frozen', 'ann.does', 4, replicas => 1); COPY shard_entity.frozen FROM '} . $node->data_dir . q{/copied' WITH (FREEZE); COMMIT});
is(sql('SELECT count(*) FROM ' . ShardCluster::inbox_rows('kind, type_id') . q{ WHERE kind = 24 AND type_id = (SELECT type_id FROM shard.type WHERE type_name = 'frozen')}), 1, 'COPY FREEZE, too');
sql(q{SELECT shard_drop_type('frozen', force => true)});

# --- while others have the row, or the table -----------------------------------------------------------

behind_lock(8, q{SELECT FROM shard_entity.alone WHERE entity_id = '8' FOR UPDATE});
behind_lock(9, 'LOCK TABLE shard_entity.alone');

# --- while the type does not run -------------------------------------------------------------------------

$mark = mark();
ann(q{SELECT shard_stop_type('alone')});
ann(updated(4));
ShardCluster::wait_for_condition(sub { return (images($mark) // '') eq '4' }, 'the table of a stopped type to be read');
ann($start);

ann(q{SELECT shard_start('small', 'ann.does', 4, replicas => 1, buffer_size => 2)});
ann(q{SELECT shard_ask('small', i::text, '{}') FROM generate_series(1, 5) i});
has_problem('small', 1);
my $small = q{SELECT count(*) FROM shard.held WHERE kind = 24 AND type_id = (SELECT type_id FROM shard.type WHERE type_name = 'small')};
ann(q{UPDATE shard_entity.small SET state = state}) for 1 .. 2;
$node->wait_until("SELECT ($small) >= 5", 'the rows to wait');
ann(q{SELECT shard_tell('small', '1', '{}')});
pass('rows that wait do not count for buffer_size');
$node->wait_until(q{SELECT EXISTS (SELECT FROM shard.held WHERE kind = 1)}, 'a message that waits behind them');
is(sql($small), 5, 'one waits for each entity');
ann(q{SELECT shard_drop_type('small', force => true)});

# --- crashes -------------------------------------------------------------------------------------------

for my $point (qw(outside_met turn_recorded turn_recorded_committed))
{
	$mark = mark();
	$node->set_fault($point, 'crash');
	my $n = 0;
	until ($node->fault_happened)
	{
		$n++;
		my ($status) = $node->psql($db, "UPDATE shard_entity.alone SET state = '{\"n\": $n}' WHERE entity_id = '10'");
		ShardCluster::wait_for_condition(sub { return $node->fault_happened || ($node->psql($db, q{SELECT shard_drain('1 s')}))[0] == 0 }, 'the turn') if $status == 0;
	}
	$node->clear_fault;
	$node->recover;
	like(images($mark), qr/^10(, 10)*$/, "a crash at $point");
}

# --- who may do what -----------------------------------------------------------------------------------

like(fails('TRUNCATE shard_entity.alone'), qr/0A000.*cannot truncate state table "alone".*HINT:  Use DELETE FROM shard_entity\.alone/s, 'TRUNCATE is refused');
ann('GRANT INSERT, UPDATE, DELETE, SELECT, TRIGGER ON shard_entity.alone TO bob');
$mark = mark();
$node->as(bob => updated(11));
is(images($mark), '11', 'who may write the table needs nothing else');
for my $attempt (
	'SELECT shard.state_touched()',
	'CREATE TABLE bob.t (shard int4, entity_id text); CREATE TRIGGER t AFTER INSERT ON bob.t FOR EACH ROW EXECUTE FUNCTION shard.state_touched()',
	'CREATE TRIGGER t AFTER INSERT ON shard_entity.alone FOR EACH ROW EXECUTE FUNCTION shard.state_touched()')
{
	like(($node->psql($db, $attempt, extra_params => [qw(-U bob)], on_error_stop => 1))[2], qr/permission denied for/, "$attempt is refused");
}
like(fails('SELECT shard.state_touched()'), qr/ERROR/, 'nor does a superuser call it');
$mark = mark();
sql(q{CREATE TABLE aside (shard int4, entity_id text); CREATE TRIGGER t AFTER INSERT ON aside FOR EACH ROW EXECUTE FUNCTION shard.state_touched();
	INSERT INTO aside VALUES (0, '1')});
is(images($mark), '', 'on another table it does nothing');
$mark = mark();
sql(q{CREATE SCHEMA fake; CREATE FUNCTION fake.eq(text, text) RETURNS bool LANGUAGE sql RETURN false; SET search_path = fake, pg_catalog; } . updated(12));
is(images($mark), '12', 'whatever the search_path');
like(fails('CREATE TRIGGER before BEFORE INSERT ON aside FOR EACH ROW EXECUTE FUNCTION shard.state_touched(); INSERT INTO aside VALUES (0, NULL)'), qr/39P01/, 'nor before rows');

# --- triggers that are gone ------------------------------------------------------------------------------

my $health = q{SELECT array_to_string(problems, ' ') FROM shard_health()};
for my $gone ('DROP TRIGGER shard_touched ON shard_entity.alone', 'ALTER TABLE shard_entity.alone DISABLE TRIGGER ALL', 'ALTER TABLE shard_entity.alone ENABLE TRIGGER shard_touched',
	'DROP TRIGGER shard_truncated ON shard_entity.alone')
{
	ann($gone);
	$node->wait_until(q{SELECT problem LIKE '%trigger "shard_%was dropped, or does not fire always%' FROM shard_types WHERE type_name = 'alone'}, "the type to be suspended after $gone");
	like(sql($health), qr/trigger "shard_t\w+" of state table "alone"/, 'health says so');
	$mark = mark();
	ann($start);
	is(ann(q{SELECT shard_ask('alone', '13', '{}', '60 s') IS NOT NULL}), 't', 'it goes on');
	is(recorded(updated(14)), '14', 'and changes are told');
}
ann('ALTER TABLE shard_entity.alone DISABLE TRIGGER shard_touched');
$node->wait_until(q{SELECT problem IS NOT NULL FROM shard_types WHERE type_name = 'alone'}, 'suspended');
ann('ALTER TABLE shard_entity.alone ENABLE ALWAYS TRIGGER shard_touched');
$node->wait_until(q{SELECT problem IS NULL FROM shard_types WHERE type_name = 'alone'}, 'the owner mends it without us');

# Other columns, another name.
ann('ALTER TABLE shard_entity.alone ADD COLUMN note text');
ann('ALTER TRIGGER shard_touched ON shard_entity.alone RENAME TO mine');
is(recorded(q{UPDATE shard_entity.alone SET note = 'x' WHERE entity_id = '15'}), '15', 'a column more, and a trigger of another name');

# --- a dump --------------------------------------------------------------------------------------------------

my $dump = $node->data_dir . '/alone.sql';
command_ok([ 'pg_dump', '--no-sync', '-d', $node->connstr($db), '-t', 'shard_entity.alone', '-f', $dump ], 'the table is dumped');
sql('CREATE DATABASE other');
my $restored = sub { my ($sql) = @_; return $node->safe_psql('other', $sql) };
$restored->(q{CREATE EXTENSION shard; CREATE SCHEMA ann; CREATE FUNCTION ann.does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message});
command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-q', '-d', $node->connstr('other'), '-f', $dump ], 'and restored');
my $triggers = q{SELECT string_agg(concat_ws(' ', tgname, tgenabled), ', ' ORDER BY tgname) FROM pg_trigger WHERE tgrelid = 'shard_entity.alone'::regclass};
is($restored->($triggers), 'mine A, shard_truncated A', 'with its triggers');
$restored->(q{UPDATE shard_entity.alone SET state = state; BEGIN; TRUNCATE shard_entity.alone; ROLLBACK});
pass('which do nothing without a type');
$restored->(q{BEGIN; ALTER TABLE shard_entity.alone RENAME TO saved; ALTER TABLE shard_entity.saved SET SCHEMA public;
	SELECT shard_start('alone', 'ann.does', 4, replicas => 1); INSERT INTO shard_entity.alone (shard, entity_id, state) SELECT shard, entity_id, state FROM saved; COMMIT});
is($restored->($triggers), 'shard_touched A, shard_truncated A', 'a type that is started again has its own');
$restored->(q{DROP TABLE saved});

# --- many rows, and types without replicas ----------------------------------------------------------------

ann(q{SELECT shard_start('plain', 'ann.does', 4)});
is(sql(q{SELECT count(*) FROM pg_trigger WHERE tgrelid = 'shard_entity.plain'::regclass}), 0, 'no trigger without replicas');
$mark = mark();
my $rows = 100_000;

# What an insert of so many rows takes, in seconds, and what it takes of the memory of its process, in kB.
sub fill
{
	my ($name) = @_;
	my $session = $node->session_as('ann');
	my $pid = $session->query('SELECT pg_backend_pid();');
	my $peak = sub { return slurp_file("/proc/$pid/status") =~ /VmHWM:\s+(\d+)/ ? $1 : 0 };
	my ($began, $before) = (time, $peak->());
	$session->query("INSERT INTO shard_entity.$name (shard, entity_id, state) SELECT shard_shard_id('$name', 'm' || i), 'm' || i, '{}' FROM generate_series(1, $rows) i;");
	return sprintf '%.1f s, %d kB more', time - $began, $peak->() - $before;
}
note("$rows rows without replicas: ", fill('plain'));
my $filled = fill('alone');
my $began = time;
images($mark);
note(sprintf "$rows rows with replicas: $filled; until they are recorded: %.1f s", time - $began);
is(sql('SELECT ' . join(' + ', map { "(SELECT count(*) FROM shard.turn_records($type, $_) WHERE section = 'images' AND turn > $mark->{$_} AND entity LIKE 'm%')" } 0 .. 3)), $rows, 'each of many rows');
ann(q{SELECT shard_drop_type('alone', force => true)});
is(sql(q{SELECT count(*) FROM pg_trigger WHERE tgfoid = 'shard.state_touched'::regproc AND tgrelid <> 'aside'::regclass}), 0, 'no trigger is left behind');
done_testing();
