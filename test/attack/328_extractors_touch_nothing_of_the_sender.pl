# Extractors run in the session of whoever sends, and a handler on trial in that of whoever tries. Cursors that are open there, large
# objects, advisory locks, deferred triggers and all else that a session keeps stay the sender's, and nothing of the guest's is left in it.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together);
my $system = $node->safe_psql('postgres', 'SELECT current_user');
$node->create_owners('mallory', 'alice');

sub as { return $node->as(@_) }

# What a session of that role prints, and what it is told beside that.
sub both
{
	my ($role, $sql) = @_;
	my (undef, $out, $notes) = $node->psql('postgres', $sql, extra_params => [ '-U', $role ]);
	return ($out, $notes);
}

as('mallory', q{
CREATE FUNCTION mallory.evil() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	IF current_setting('is_superuser') = 'on' THEN ALTER ROLE mallory SUPERUSER; END IF;
	RETURN 'evil as ' || current_user;
END $$;
GRANT EXECUTE ON FUNCTION mallory.evil() TO PUBLIC;
-- those that a session may have
CREATE FUNCTION mallory.names() RETURNS text[] LANGUAGE sql AS $$
	SELECT array_agg(n) FROM (SELECT unnest('{c,d,held}'::text[]) UNION ALL SELECT format('<unnamed portal %s>', i) FROM generate_series(1, 20) i) t (n) $$;
-- takes the place of each cursor
CREATE FUNCTION mallory.replace() RETURNS text LANGUAGE plpgsql AS $$
DECLARE r refcursor; result text := 'replaced:'; n text;
BEGIN
	FOREACH n IN ARRAY mallory.names() || array(SELECT name FROM pg_cursors) LOOP
		r := n;
		BEGIN
			CLOSE r; OPEN r FOR SELECT mallory.evil(); result := result || ' ' || n;
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
	RETURN result;
END $$;
-- reads from each cursor, and moves it
CREATE FUNCTION mallory.steal() RETURNS text LANGUAGE plpgsql AS $$
DECLARE r refcursor; result text := 'stolen:'; n text; x text;
BEGIN
	FOREACH n IN ARRAY mallory.names() LOOP
		r := n;
		BEGIN
			FETCH r INTO x; MOVE r; result := result || ' ' || x;
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
		BEGIN
			x := cursor_to_xml(r, 1, true, true, '')::text; result := result || ' ' || x;
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
	RETURN result;
END $$;
CREATE FUNCTION mallory.leave() RETURNS text LANGUAGE plpgsql AS $$
DECLARE r refcursor;
BEGIN
	FOR i IN 1 .. 20 LOOP
		r := 'left' || i;
		OPEN r FOR SELECT mallory.evil();
	END LOOP;
	FETCH r INTO r;
	RETURN 'left';
END $$;
-- his code: what he is told to run, and what came of it
CREATE FUNCTION mallory.run(q text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
	EXECUTE q INTO r;
	RAISE NOTICE '% gave %', q, coalesce(r, 'nothing');
	RETURN 'x';
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE '% failed %', q, SQLSTATE;
	RETURN 'x';
END $$;
CREATE FUNCTION mallory.id(message jsonb) RETURNS text LANGUAGE sql AS $$ SELECT mallory.run(message->>'q') $$;
CREATE FUNCTION mallory.body(message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.run(message->>'q'); RETURN '{}'; END $$;
CREATE FUNCTION mallory.shard(id text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.run(id); RETURN 1; END $$;
CREATE FUNCTION mallory.keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
CREATE FUNCTION mallory.try(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.run(message->>'q'); RETURN message; END $$;
CREATE FUNCTION mallory.plain(message jsonb) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
CREATE SEQUENCE mallory.numbers;
SELECT shard_start('by_id', 'mallory.keep', entity_id_extractor => 'mallory.id');
SELECT shard_start('by_body', 'mallory.keep', entity_id_extractor => 'mallory.plain', message_extractor => 'mallory.body');
SELECT shard_start('by_shard', 'mallory.keep', shard_id_extractor => 'mallory.shard', number_of_shards => 4);
SELECT shard_start('tried', 'mallory.try');
});

# Ways to have a query of his run in one's session.
my %ways = (
	entity_id_extractor => sub { return "shard_tell('by_id', jsonb_build_object('q', \$q\$$_[0]\$q\$))" },
	message_extractor => sub { return "shard_tell('by_body', jsonb_build_object('q', \$q\$$_[0]\$q\$))" },
	shard_id_extractor => sub { return "shard_tell('by_shard', \$q\$$_[0]\$q\$, '{}')" },
	shard_shard_id => sub { return "shard_shard_id('by_shard', \$q\$$_[0]\$q\$)" },
	shard_try => sub { return "shard_try('tried', 'e', jsonb_build_object('q', \$q\$$_[0]\$q\$))" },
);

# Whether he is what he was.
sub is_nobody { is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'; ALTER ROLE mallory NOSUPERUSER}), 'f', "$_[0]: he is no superuser") }

for my $way (sort keys %ways)
{
	my $do = sub { return 'SELECT count(*) FROM ' . $ways{$way}->(@_) . ' HAVING count(*) > 1000' };
	my ($out, $notes);

	# --- F1: cursors that are open --------------------------------------------------------------

	($out, $notes) = both($system, 'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT g FROM generate_series(1, 5) g; FETCH c; DECLARE held CURSOR WITH HOLD FOR SELECT 7; '
			. $do->('SELECT mallory.replace()') . '; FETCH c; FETCH held; COMMIT; BEGIN; ' . $do->('SELECT mallory.replace()') . '; FETCH held; COMMIT');
	is($out, "1\n2\n7", "$way: F1 cursors of a superuser are his");
	like($notes, qr/gave replaced:$/m, "$way: none was replaced");
	is_nobody("$way, F1");

	# In a block, the loop, in a cursor of a name, and in an exception block.
	my $call = $ways{$way}->('SELECT mallory.replace()');
	($out, $notes) = both($system, qq{DO \$\$
DECLARE c refcursor := 'c'; x text; seen text := '';
BEGIN
	OPEN c FOR SELECT g FROM generate_series(1, 3) g;
	FOR x IN SELECT g FROM generate_series(1, 100) g LOOP
		BEGIN
			PERFORM 1 FROM $call;
			PERFORM 1 / (CASE x WHEN '50' THEN 0 ELSE 1 END);
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
	END LOOP;
	LOOP
		FETCH c INTO x; EXIT WHEN NOT FOUND; seen := seen || x;
	END LOOP;
	CLOSE c;
	RAISE NOTICE 'seen %', seen;
END \$\$});
	like($notes, qr/seen 123$/m, "$way: F1 in a block");
	is_nobody("$way, F1 in a block");

	# What he opens is closed, and in nobody's way.
	($out, $notes) = both($system, 'BEGIN; ' . $do->('SELECT mallory.leave()') . q{; DECLARE left1 CURSOR FOR SELECT 'mine'; FETCH left1; SELECT count(*) FROM pg_cursors; FETCH left2; COMMIT});
	is($out, "mine\n1", "$way: F1 nothing is left open");
	like($notes, qr/cursor "left2" does not exist/, "$way: no cursor of his");
	is_nobody("$way, F1 left open");

	# --- F2: what a session keeps -----------------------------------------------------------------

	($out, $notes) = both($system, q{BEGIN; DECLARE c CURSOR FOR SELECT 'secret' || g FROM generate_series(1, 5) g; } . $do->('SELECT mallory.steal()') . '; FETCH c; COMMIT');
	is($out, 'secret1', "$way: F2 rows are not skipped");
	like($notes, qr/gave stolen:$/m, "$way: F2 nor read");
	$call = $ways{$way}->('SELECT mallory.steal()');
	($out, $notes) = both($system, qq{DO \$\$
DECLARE n int := 0; x text;
BEGIN
	FOR x IN SELECT 'secret' || g FROM generate_series(1, 200) g LOOP n := n + 1; PERFORM 1 FROM $call; END LOOP;
	RAISE NOTICE 'rows %', n;
END \$\$});
	like($notes, qr/rows 200$/m, "$way: F2 nor those of a loop");
	unlike($notes, qr/secret/, "$way: F2 nor read");
	($out, $notes) = both($system, 'BEGIN; DECLARE c CURSOR FOR SELECT 1 AS secret; ' . $do->('SELECT string_agg(statement, $$;$$) FROM pg_cursors') . '; COMMIT');
	unlike($notes, qr/gave .*secret/, "$way: F2 he does not see their queries");

	($out, $notes) = both($system, q{BEGIN; SELECT lo_from_bytea(4711, 'private'); SELECT lo_open(4711, 393216); }
			. join('; ', map { $do->($_) } 'SELECT loread(0, 7)', q{SELECT lowrite(0, 'forged!')}, 'SELECT lo_lseek(0, 0, 2)', 'SELECT lo_lseek64(0, 0, 2)', 'SELECT lo_tell(0)', 'SELECT lo_tell64(0)',
				'SELECT lo_truncate(0, 0)', 'SELECT lo_truncate64(0, 0)', 'SELECT lo_close(0)', 'SELECT lo_unlink(4711)', 'SELECT lo_open(4711, 262144)')
			. q{; SELECT convert_from(loread(0, 100), 'UTF8'); ROLLBACK});
	is($out, "4711\n0\nprivate", "$way: F2 descriptors of large objects");
	is(scalar(() = $notes =~ /failed 42501/g), 11, "$way: F2 he has none");

	($out, $notes) = both($system, 'SELECT pg_advisory_lock(7); ' . join('; ', map { $do->($_) } 'SELECT pg_advisory_unlock_all()', 'SELECT pg_advisory_unlock(7)', 'SELECT pg_advisory_lock(8)', 'SELECT pg_try_advisory_lock_shared(1, 2)')
			. q{; SELECT string_agg(objid::text, ' ') FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()});
	is($out, "\n7", "$way: F2 advisory locks");
	is(scalar(() = $notes =~ /failed 42501/g), 4, "$way: F2 refused");

	($out, $notes) = both($system, q{SELECT setseed(0.25); CREATE TEMP TABLE r AS SELECT random(); SELECT setseed(0.25); } . $do->('SELECT setseed(0.5)') . '; SELECT random() = (SELECT random FROM r)');
	is($out, "\n\nt", "$way: F2 the seed");
	($out, $notes) = both($system, q{PREPARE mine AS SELECT 'secret'; } . $do->('SELECT string_agg(name, $$;$$) FROM pg_prepared_statements') . '; ' . $do->('EXECUTE mine') . '; '
			. $do->('CREATE TABLE mallory.stolen AS EXECUTE mine') . '; ' . $do->('EXPLAIN ANALYZE EXECUTE mine') . '; ' . $do->('DEALLOCATE mine') . '; EXECUTE mine');
	is($out, 'secret', "$way: F2 prepared statements");
	is(scalar(() = $notes =~ /failed 42501/g), 5, "$way: F2 not his");
	($out, $notes) = both($system, "/* secret */ " . $do->('SELECT current_query()') . '; LISTEN secret; ' . $do->('SELECT pg_listening_channels()'));
	is(scalar(() = $notes =~ /failed 42501/g), 2, "$way: F2 what the client runs");

	# --- F3: deferred triggers --------------------------------------------------------------------

	$node->safe_psql('postgres', q{
CREATE TABLE ledger (i int); CREATE TABLE fired (who text, path text); GRANT ALL ON fired TO PUBLIC;
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.fired VALUES (current_user, current_setting('search_path')); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fire()});
	($out, $notes) = both($system, 'BEGIN; INSERT INTO ledger VALUES (1); ' . $do->('SET CONSTRAINTS ALL IMMEDIATE') . '; SELECT count(*) FROM fired; COMMIT; SELECT who, path FROM fired');
	is($out, "0\n$system|\"\$user\", public", "$way: F3 deferred triggers are the sender's");
	like($notes, qr/failed 42501/, "$way: F3 refused");
	$node->safe_psql('postgres', 'DROP TABLE ledger, fired; DROP FUNCTION fire');

	# --- what a trial takes back, and a query does not ------------------------------------------------

	next if $way eq 'shard_try';
	($out, $notes) = both($system, "CREATE TEMP SEQUENCE own; SELECT nextval('own'); " . join('; ', map { $do->($_) } q{SELECT nextval('mallory.numbers')}, q{SELECT setval('mallory.numbers', 5)}, 'SELECT lastval()',
				'SELECT pg_advisory_xact_lock(9)', q{SELECT pg_notify('x', 'y')}, 'SELECT pg_export_snapshot()', q{SET work_mem = '1MB'}, 'CREATE TABLE mallory.t (i int)', 'LOCK TABLE mallory.numbers', q{DO 'BEGIN END'}, 'FETCH c', 'CLOSE ALL', 'NOTIFY x', 'LISTEN x', 'DISCARD ALL',
				'PREPARE p AS SELECT 1', 'EXPLAIN SELECT 1', 'VACUUM', 'DECLARE d CURSOR FOR SELECT 1') . '; SELECT lastval()');
	is($out, "1\n1", "$way: F2 what nextval() has given last");
	is(scalar(() = $notes =~ /failed 42501/g), 19, "$way: an extractor runs queries only");
}

# --- what somebody less strict has prepared -------------------------------------------------------

# PL/pgSQL keeps a prepared expression until the transaction ends. A handler on trial may call these, an extractor may not.
as('mallory', q{
CREATE FUNCTION mallory.draw() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN nextval('mallory.numbers'); END $$;
CREATE FUNCTION mallory.notify() RETURNS text LANGUAGE plpgsql AS $$ DECLARE x text; BEGIN x := pg_notify('x', 'y'); RETURN 'told'; END $$;
CREATE FUNCTION mallory.hold() RETURNS text LANGUAGE plpgsql AS $$ DECLARE x text; BEGIN x := pg_advisory_xact_lock(9); RETURN 'held'; END $$;
});
for my $way (grep { $_ ne 'shard_try' } sort keys %ways)
{
	for my $function ('draw', 'notify', 'hold')
	{
		my $query = "SELECT mallory.$function()";
		my $again = 'SELECT count(*) FROM ' . $ways{$way}->($query) . ' HAVING count(*) > 1000';
		my (undef, $notes) = both($system, 'BEGIN; SELECT count(*) FROM ' . $ways{shard_try}->($query) . "; $again; COMMIT");
		like($notes, qr/gave (?:told|held|\d+)$/m, "$way: a handler on trial may call mallory.$function()");
		is(scalar(() = $notes =~ /failed 42501/g), 1, "$way: what it has prepared is refused to an extractor behind it");
	}
}

# The extractor runs within the trial, whose owner is its own.
as('mallory', q{
CREATE FUNCTION mallory.deep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	PERFORM mallory.draw(); PERFORM shard_tell('by_id', '{"q": "SELECT mallory.draw()"}'::jsonb); RETURN message; END $$;
SELECT shard_start('deep', 'mallory.deep')});
my (undef, $within) = both($system, q{SELECT state FROM shard_try('deep', 'e', '{}')});
like($within, qr/SELECT mallory.draw\(\) failed 42501/, 'nor to one within the trial');

# --- in a handler ---------------------------------------------------------------------------------

as('alice', q{
CREATE TABLE alice.marks (who text);
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE c refcursor := 'c'; first text; second text; n int := 0; x text; object oid; lo int;
BEGIN
	OPEN c FOR SELECT 'hers ' || g FROM generate_series(1, 9) g;
	FETCH c INTO first;
	object := lo_from_bytea(0, 'private');
	lo := lo_open(object, 262144);
	FOR x IN SELECT g FROM generate_series(1, 120) g LOOP
		n := n + 1;
		IF n % 20 = 0 THEN EXECUTE message->>'do'; END IF;
	END LOOP;
	FETCH c INTO second;
	CLOSE c;
	RETURN jsonb_build_array(first, second, n, convert_from(loread(lo, 100), 'UTF8'));
END $$;
SELECT shard_start('alice', 'alice.h', max_attempts => 1);
});
for my $way (grep { $_ ne 'shard_try' } sort keys %ways)
{
	for my $query ('SELECT mallory.replace()', 'SELECT mallory.steal()', 'SELECT mallory.leave()', 'SELECT loread(0, 3)', 'SELECT lo_close(0)')
	{
		my $do = 'SELECT 1 FROM ' . $ways{$way}->($query);
		my $got = eval { as('alice', qq{SELECT shard_ask('alice', 'a', jsonb_build_object('do', \$d\$$do\$d\$))}) } // $@;
		is($got, '["hers 1", "hers 2", 120, "private"]', "a handler has what is hers: $way, $query");
	}
}
# What her handler has prepared in her worker, an extractor of another owner's does not run.
as('mallory', 'GRANT USAGE ON SEQUENCE mallory.numbers TO alice; ALTER SEQUENCE mallory.numbers RESTART');
my $both = q{DO $d$ BEGIN PERFORM mallory.draw(); PERFORM shard_tell('by_id', '{"q": "SELECT mallory.draw()"}'::jsonb); END $d$};
as('alice', qq{SELECT shard_ask('alice', 'a', jsonb_build_object('do', \$q\$$both\$q\$))});
is($node->safe_psql('postgres', 'SELECT last_value FROM mallory.numbers'), 6, 'a handler draws six numbers, and the extractor none');
is_nobody('in the end');
$node->drain;
$node->log_is_clean;

done_testing();
