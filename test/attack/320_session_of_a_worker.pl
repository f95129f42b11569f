# Users' code in a worker runs in a session of its owner's: SECURITY DEFINER functions and policies that ask
# session_user or is_superuser who is there are not deceived (S05, S06), whatever the code does to its transaction, and
# statements that would make it somebody else's stay refused (S08).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together . 'max_parallel_workers = 4');
my $system = $node->safe_psql('postgres', 'SELECT rolname FROM pg_roles WHERE oid = 10');

$node->safe_psql('postgres', q{
CREATE ROLE admin;
CREATE ROLE boss LOGIN SUPERUSER;
CREATE ROLE mallory LOGIN;
CREATE ROLE alice LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory, alice;
CREATE SCHEMA mallory AUTHORIZATION mallory;
CREATE SCHEMA alice AUTHORIZATION alice;
CREATE SCHEMA boss AUTHORIZATION boss;
GRANT USAGE ON SCHEMA mallory, alice, boss TO PUBLIC;
-- who it is, in a way that also parallel workers may tell
CREATE FUNCTION who() RETURNS text LANGUAGE sql PARALLEL SAFE AS $$
	SELECT concat_ws(' ', current_user, session_user, current_setting('is_superuser')) $$;

-- an application's own administration, that trusts the session
CREATE SCHEMA ops;
GRANT USAGE ON SCHEMA ops TO PUBLIC;
CREATE FUNCTION ops.make_superuser(r name) RETURNS text SECURITY DEFINER LANGUAGE plpgsql AS $$ BEGIN
	IF NOT pg_has_role(session_user, 'admin', 'MEMBER') THEN RAISE EXCEPTION 'not for %', session_user; END IF;
	EXECUTE format('ALTER ROLE %I SUPERUSER', r); RETURN 'done'; END $$;
CREATE TABLE ops.payroll (name text, pay int);
INSERT INTO ops.payroll VALUES ('mallory', 1), ('alice', 2), ('boss', 3);
ALTER TABLE ops.payroll ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON ops.payroll USING (name = session_user OR current_setting('is_superuser') = 'on');
GRANT SELECT ON ops.payroll TO PUBLIC;
});

# As that role, logged in as such.
sub as { return $node->as(@_) }

# The same of what is to fail; its error.
sub fails
{
	my ($role, $sql) = @_;
	my ($status, undef, $error) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose' ]);
	return $status == 0 ? "\"$sql\" was done" : $error;
}

# A handler that runs a query and keeps its result; and what is attached to its state.
my $run = q{
CREATE TABLE %1$s.seen (place text, who text);
CREATE FUNCTION %1$s.see(place text) RETURNS void LANGUAGE sql AS $$ INSERT INTO %1$s.seen VALUES (place, who()) $$;
CREATE FUNCTION %1$s.run(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
	IF message ? 'see' THEN PERFORM %1$s.see('handler, ' || (message->>'see')); END IF;
	IF message ? 'q' THEN EXECUTE message->>'q' INTO r; END IF;
	RETURN to_jsonb(coalesce(r, 'nothing'));
END $$;
CREATE FUNCTION %1$s.number(message jsonb) RETURNS int8 LANGUAGE plpgsql AS $$ BEGIN PERFORM %1$s.see('ordered_by'); RETURN NULL; END $$;
CREATE FUNCTION %1$s.id(message jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	IF message ? 'raise' THEN RAISE 'raised in the extractor'; END IF;
	PERFORM %1$s.see('extractor'); RETURN message->>'to'; END $$;
CREATE FUNCTION %1$s.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM %1$s.see('trigger ' || TG_WHEN); RETURN NEW; END $$;
CREATE FUNCTION %1$s.shard(id text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM %1$s.see('shard'); RETURN length(id) %% 4; END $$;
SELECT shard_start('%1$s', '%1$s.run', number_of_shards => 4, entity_id_extractor => '%1$s.id', shard_id_extractor => '%1$s.shard',
	ordered_by => '%1$s.number', max_attempts => 2, retry_backoff => '1 ms');
CREATE TRIGGER before BEFORE INSERT OR UPDATE ON shard_entity.%1$s FOR EACH ROW EXECUTE FUNCTION %1$s.fire();
CREATE TRIGGER after AFTER INSERT OR UPDATE ON shard_entity.%1$s FOR EACH ROW EXECUTE FUNCTION %1$s.fire();
CREATE FUNCTION %1$s.late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM %1$s.see('deferred'); RETURN NEW; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON shard_entity.%1$s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION %1$s.late();
};
for my $role (qw(mallory alice boss))
{
	(my $sql = $run) =~ s/%1\$s/$role/g;
	$sql =~ s/%%/%/g;
	as($role, $sql);
}

# What a handler of that role gets for a query.
sub ask
{
	my ($role, $query) = @_;
	return as($role, qq{SELECT shard_ask('$role', 'asked', jsonb_build_object('q', \$q\$$query\$q\$))#>>'{}'});
}
sub seen { my ($role) = @_; return as($role, "SELECT string_agg(DISTINCT place || ': ' || who, E'\\n' ORDER BY place || ': ' || who) FROM $role.seen; DELETE FROM $role.seen") }

# --- S05, S06: who the session says it is ---------------------------------------------------------

like(fails('mallory', q{SELECT ops.make_superuser('mallory')}), qr/not for mallory/, 'S05 outside');
like(fails('mallory', q{SELECT shard_ask('mallory', 'a', '{"q": "SELECT ops.make_superuser(''mallory'')"}')}), qr/not for mallory/,
	'S05 in a handler, asked');
as('mallory', q{SELECT shard_tell('mallory', 'b', '{"q": "SELECT ops.make_superuser(''mallory'')"}')});
$node->drain;
is($node->safe_psql('postgres', q{SELECT error FROM shard_dead_letters}), 'not for mallory', 'S05 in a handler, told');
is(as('mallory', 'SELECT rolsuper FROM pg_roles WHERE rolname = current_user'), 'f', 'S05 nobody became superuser');
is(ask('mallory', q{SELECT string_agg(name, ' ' ORDER BY name) FROM ops.payroll}), 'mallory', 'S06 a policy shows what is his');
is(ask('alice', q{SELECT string_agg(name, ' ' ORDER BY name) FROM ops.payroll}), 'alice', 'S06 and hers');
is(ask('boss', q{SELECT string_agg(name, ' ' ORDER BY name) FROM ops.payroll}), 'alice boss mallory', 'a superuser is one');
seen($_) for qw(mallory alice boss);

for my $role (qw(mallory alice boss))
{
	my $is = $role eq 'boss' ? 'on' : 'off';
	as($role, qq{SELECT shard_tell('$role', 'told', '{"see": "told"}'); SELECT shard_ask('$role', 'asked', '{"see": "asked"}')});
	$node->drain;
	is(seen($role), join("\n", map { "$_: $role $role $is" } 'deferred', 'handler, asked', 'handler, told', 'ordered_by', 'shard', 'trigger AFTER', 'trigger BEFORE'),
		"S05, S09 in all that runs for a type of $role in a worker");
}

# Owners take turns in one transaction.
$node->safe_psql('postgres', q{BEGIN; SELECT shard_tell(t, 'mixed' || i % 3, '{"see": "mixed"}') FROM generate_series(1, 20) i, unnest('{mallory,alice,boss}'::text[]) t; COMMIT});
$node->drain;
is(as('boss', q{SELECT string_agg(DISTINCT who, ', ') FROM mallory.seen}), 'mallory mallory off, mallory '.$system.' on',
	'S05 mixed with others; in the backend of a client the session is the client\'s');
is(as('boss', q{SELECT string_agg(DISTINCT who, ', ') FROM mallory.seen WHERE place <> 'shard'}), 'mallory mallory off', 'S05 but in no worker');
is(as('boss', q{SELECT string_agg(DISTINCT who, ', ') FROM boss.seen WHERE place <> 'shard'}), 'boss boss on', 'S05 the superuser\'s among them, too');
seen($_) for qw(mallory alice boss);

# --- code of another owner within a handler -------------------------------------------------------

is(ask('mallory', q{SELECT shard_tell('alice', '{"to": "x"}')::text || who()}), 'mallory mallory off', 'an extractor of others has run in a handler');
$node->drain;
is(as('alice', q{SELECT DISTINCT who FROM alice.seen WHERE place = 'extractor'}), 'alice alice off', 'as its owner, in his session');
is(ask('boss', q{SELECT shard_tell('mallory', '{"to": "x"}')::text || who()}), 'boss boss on', 'the same in a superuser\'s');
$node->drain;
is(as('mallory', q{SELECT DISTINCT who FROM mallory.seen WHERE place = 'extractor'}), 'mallory mallory off', 'it does not come to his session');

# --- a transaction level that ends early ----------------------------------------------------------

# The extractor raises, a subtransaction in a function of alice's ends: that goes on as alice, in mallory's session.
as('alice', q{CREATE FUNCTION alice.careful() RETURNS text SECURITY DEFINER LANGUAGE plpgsql AS $$
DECLARE before text := who();
BEGIN
	BEGIN
		PERFORM shard_tell('boss', '{"raise": 1}');
	EXCEPTION WHEN raise_exception THEN
		RETURN before || ', ' || who();
	END;
	RETURN 'nothing was raised';
END $$});
is(ask('mallory', q{SELECT alice.careful() || ', ' || who()}), 'alice mallory off, alice mallory off, mallory mallory off',
	'the end of a subtransaction puts back user and session');
as('mallory', q{CREATE FUNCTION mallory.deep(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text := '';
BEGIN
	FOR i IN 1 .. 3 LOOP
		BEGIN
			IF n > 0 THEN result := mallory.deep(n - 1); END IF;
			PERFORM shard_tell(CASE i WHEN 1 THEN 'boss' WHEN 2 THEN 'alice' ELSE 'mallory' END, CASE WHEN n % 2 = 0 THEN '{"raise": 1}' ELSE '{"to": "deep"}' END::jsonb);
			IF i = 3 THEN RAISE EXCEPTION 'away with it'; END IF;
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
		IF who() <> 'mallory mallory off' THEN RAISE 'became %', who(); END IF;
	END LOOP;
	RETURN who();
END $$});
is(ask('mallory', 'SELECT mallory.deep(4)'), 'mallory mallory off', 'many levels deep, too');
$node->drain;

# A turn that fails as a whole, at others' cost: the next ones know who they are.
as('mallory', q{SELECT shard_tell('mallory', 'fails', '{"q": "SELECT shard_tell(''boss'', ''{\"to\": \"y\"}''), 1/0"}')});
as('alice', q{SELECT shard_tell('alice', 'after', '{"see": "after a failure"}')});
$node->drain;
is(as('alice', q{SELECT DISTINCT who FROM alice.seen WHERE place ~ 'after'}), 'alice alice off', 'after a turn that failed');
is(ask('alice', 'SELECT who()'), 'alice alice off', 'and later');
my $end = $node->safe_psql('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type LIKE 'shard region%'});
is($end, 1, 'the worker is ended');
$node->wait_until(q{SELECT ok FROM shard_health()}, 'another one');
is(ask('mallory', 'SELECT who()'), 'mallory mallory off', 'in another worker, too');

# --- parallel workers -----------------------------------------------------------------------------

as('mallory', q{
CREATE TABLE mallory.wide AS SELECT i FROM generate_series(1, 20000) i; ANALYZE mallory.wide;
ALTER TABLE mallory.wide SET (parallel_workers = 2);
CREATE FUNCTION mallory.inside() RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN pg_backend_pid() || ': ' || who(); END $$;
CREATE FUNCTION mallory.spread() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; SET LOCAL min_parallel_table_scan_size = 0;
	SET LOCAL max_parallel_workers_per_gather = 2;
	-- Or it may have read all before they have started.
	SET LOCAL parallel_leader_participation = off;
	EXECUTE 'SELECT count(DISTINCT split_part(x, '': '', 1)) FILTER (WHERE split_part(x, '': '', 1) <> pg_backend_pid()::text) || '' processes, '' || string_agg(DISTINCT split_part(x, '': '', 2), '' and '')
		FROM (SELECT DISTINCT mallory.inside() AS x FROM mallory.wide) s' INTO result;
	RETURN result;
END $$});
like(ask('mallory', 'SELECT mallory.spread()'), qr/^[12] processes, mallory mallory off$/, 'workers of a query of his are no other\'s');

# --- who is superuser changes ---------------------------------------------------------------------

$node->safe_psql('postgres', 'ALTER ROLE boss NOSUPERUSER');
as('boss', 'SELECT 1');
is(ask('boss', 'SELECT who()'), 'boss boss off', 'a former superuser is none');
$node->safe_psql('postgres', 'ALTER ROLE boss SUPERUSER; ALTER ROLE mallory RENAME TO mallory2');
is($node->safe_psql('postgres', q{SELECT shard_ask('mallory', 'asked', '{"q": "SELECT who()"}')#>>'{}'}), 'mallory2 mallory2 off', 'a role of another name is the same');
$node->safe_psql('postgres', 'ALTER ROLE mallory2 RENAME TO mallory; CREATE SCHEMA other; GRANT ALL ON SCHEMA other TO mallory');

# --- S08: what stays refused ----------------------------------------------------------------------

my $worker = ($node->worker_pids('%region%'))[0];
my $coordinator = ($node->worker_pids('%control%'))[0];
$node->safe_psql('postgres', 'CREATE ROLE friend; GRANT friend TO mallory; CREATE EXTENSION dblink');
my ($port, $host) = ($node->port, $node->host);
my @refused = (
	[ 42501 => 'SET ROLE friend', 'SET LOCAL ROLE friend', 'SET ROLE NONE', 'RESET ROLE', 'SET ROLE boss',
		"SET SESSION AUTHORIZATION \"$system\"", 'SET SESSION AUTHORIZATION mallory', 'SET SESSION AUTHORIZATION DEFAULT', 'SET LOCAL SESSION AUTHORIZATION DEFAULT',
		'RESET SESSION AUTHORIZATION', q{SELECT set_config('role', 'friend', false)}, q{SELECT set_config('role', 'none', true)},
		"SELECT set_config('session_authorization', '$system', false)", "SELECT set_config('session_authorization', 'mallory', true)",
		q{SELECT set_config('session_authorization', NULL, false)},
		"SELECT pg_terminate_backend($coordinator)", "SELECT pg_cancel_backend($coordinator)", "SELECT pg_terminate_backend($worker)",
		q{SELECT pg_read_file('PG_VERSION')}, q{COPY (SELECT 1) TO '/tmp/shard_attack'}, q{COPY mallory.seen FROM PROGRAM 'id'},
		'CREATE TEMP TABLE t (i int)', 'LISTEN x', 'PREPARE p AS SELECT 1', 'CLOSE ALL', 'DISCARD ALL', 'DISCARD TEMP', 'DISCARD SEQUENCES', q{LOAD 'plpgsql'},
		'SET session_replication_role = replica', 'SELECT FROM shard.type', 'LOCK TABLE shard.inbox_0', 'GRANT SELECT ON shard.type TO mallory',
		'ALTER EXTENSION shard UPDATE', 'ALTER EXTENSION shard ADD FUNCTION mallory.see(text)',
		'CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION mallory.fire()', q{SELECT shard_start('more', 'mallory.run')},
		q{SELECT lo_export(lo_create(0), '/tmp/shard_attack')}, 'CREATE ROLE more', 'SET CONSTRAINTS ALL DEFERRED',
		q{DECLARE c CURSOR WITH HOLD FOR SELECT 1}, q{CREATE PUBLICATION p FOR TABLE shard.type} ],
	[ 55006 => 'ALTER TABLE shard_entity.mallory ADD x int', 'TRUNCATE shard_entity.mallory', 'DROP TABLE shard_entity.mallory' ],
	[ '55P02' => 'SET is_superuser = on', q{SELECT set_config('is_superuser', 'on', true)}, 'RESET is_superuser' ],
	[ '0A000|2D000|25001' => 'COMMIT', 'ROLLBACK', 'SAVEPOINT s', 'ALTER SYSTEM SET work_mem = 1', 'VACUUM', 'CREATE DATABASE more' ],
	[ '[0-9A-Z]{5}' => 'DROP EXTENSION shard', q{SELECT shard_ask('mallory', 'other', '{}')}, "SELECT * FROM dblink('host=$host port=$port dbname=postgres user=mallory', 'SELECT 1') x (i int)",
		"ALTER TABLE shard_entity.mallory OWNER TO friend", 'SELECT * FROM shard_region_state' ]);
for my $group (@refused)
{
	my ($state, @statements) = @$group;
	like(fails('mallory', qq{SELECT shard_ask('mallory', 'refused', jsonb_build_object('q', \$q\$$_\$q\$))}), qr/ERROR:\s+(?:$state):/, "S08 $_") for @statements;
}

# A function whose settings say so gets nowhere, either.
for my $set ('role = friend', 'session_authorization = mallory', "session_authorization = '$system'")
{
	$node->safe_psql('postgres', "CREATE OR REPLACE FUNCTION other.other() RETURNS text LANGUAGE sql SET $set AS \$\$ SELECT who() \$\$; ");
	like(fails('mallory', q{SELECT shard_ask('mallory', 'refused', '{"q": "SELECT other.other()"}')}), qr/ERROR:\s+42501:/, "S08 a function with SET $set");
}
# The right to end others' sessions does not reach ours, whoever the session is.
$node->safe_psql('postgres', 'GRANT pg_signal_backend TO mallory');
for my $pid ($worker, $coordinator)
{
	like(fails('mallory', "SELECT pg_terminate_backend($pid)"), qr/ERROR:\s+42501:/, 'S13 with pg_signal_backend');
	like(fails('mallory', qq{SELECT shard_ask('mallory', 'refused', '{"q": "SELECT pg_terminate_backend($pid)"}')}), qr/ERROR:\s+42501:/, 'S13 in a handler');
}
is(ask('mallory', 'SELECT who()'), 'mallory mallory off', 'nothing of it has changed anything');
is(as('mallory', 'SELECT rolsuper FROM pg_roles WHERE rolname = current_user'), 'f', 'and he is who he was');
is(ask('alice', 'SELECT who()'), 'alice alice off', 'so is she');
is(join(' ', $node->worker_pids('%region%')), $worker, 'the worker was not disturbed');

done_testing();
