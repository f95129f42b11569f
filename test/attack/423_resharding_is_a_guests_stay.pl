# shard_reshard() writes rows of a state table in the session of whoever calls it: what the table's owner has there for them,
# triggers, constraints, expressions of indexes, runs as a guest, as extractors and handlers on trial do.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.handler_lock_timeout = 300ms\n");
my $system = $node->safe_psql('postgres', 'SELECT current_user');
$node->create_owners('mallory');

sub as { return $node->as(@_) }

# What a session of a superuser prints, and what it is told beside that. psql goes on after an error.
sub both
{
	my ($sql) = @_;
	my (undef, $out, $notes) = $node->psql('postgres', "SET lock_timeout = '30s'; $sql", on_error_stop => 0, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	return ($out, $notes);
}

as('mallory', q{
CREATE TABLE mallory.orders (q text);
CREATE TABLE mallory.seen (q text, what text);
CREATE FUNCTION mallory.steal() RETURNS text LANGUAGE plpgsql AS $$ DECLARE c refcursor := 'c'; x text; BEGIN FETCH c INTO x; RETURN x; END $$;
-- runs what is ordered, and notes what came of it
CREATE FUNCTION mallory.fire() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE o record; r text;
BEGIN
	FOR o IN SELECT q FROM mallory.orders LOOP
		BEGIN
			EXECUTE o.q INTO r;
			r := coalesce(r, 'nothing');
		EXCEPTION WHEN OTHERS THEN r := SQLSTATE;
		END;
		INSERT INTO mallory.seen VALUES (o.q, r);
	END LOOP;
	RETURN NEW;
END $$;
CREATE FUNCTION mallory.sleep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(30); RETURN NEW; END $$;
CREATE FUNCTION mallory.slow(x text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
	IF current_setting('mallory.slow', true) = 'on' THEN PERFORM pg_sleep(30); END IF; RETURN true; END $$;
CREATE FUNCTION mallory.keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
});

# A stopped type with entities, and what its owner adds to the table.
sub type
{
	my ($name, $sql) = @_;
	as('mallory', "SELECT shard_start('$name', 'mallory.keep', number_of_shards => 1, handler_timeout => '300 ms'); SELECT count(shard_tell('$name', i::text, '{}')) FROM generate_series(1, 5) i");
	$node->drain;
	as('mallory', "SELECT shard_stop_type('$name'); $sql");
	return;
}

sub trigger
{
	my ($name, $when, $function) = @_;
	my $kind = $when =~ /DEFERRED/ ? 'CONSTRAINT TRIGGER' : 'TRIGGER';
	my $defer = $when =~ /DEFERRED/ ? 'DEFERRABLE INITIALLY DEFERRED' : '';
	$when =~ s/ DEFERRED//;
	return "CREATE $kind fire $when UPDATE ON shard_entity.$name $defer FOR EACH ROW EXECUTE FUNCTION mallory.$function(); ALTER TABLE shard_entity.$name ENABLE ALWAYS TRIGGER fire";
}

my $session = q{
CREATE TEMP SEQUENCE own; SELECT nextval('own'); SET app.tenant = 'mine';
BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 'secret' || g FROM generate_series(1, 50) g; COMMIT;
PREPARE mine AS SELECT 'secret';
SELECT pg_advisory_lock(7);
/* secret */ CALL shard_reshard('%s', 40);
FETCH c;
EXECUTE mine;
SELECT string_agg(objid::text, ' ') FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT currval('own'), current_setting('app.tenant'), current_setting('app.new', true);
};
my @refused = ('SELECT current_query()', 'SELECT lastval()', q{SELECT currval('pg_temp.own')}, 'SELECT statement FROM pg_prepared_statements', 'EXECUTE mine', 'DEALLOCATE mine', 'SELECT pg_advisory_unlock_all()', 'SELECT pg_advisory_unlock(7)',
	'SELECT pg_advisory_lock(8)', 'SET CONSTRAINTS ALL DEFERRED', 'SELECT setseed(0.5)', 'SELECT lo_open(1, 262144)', 'SELECT pg_listening_channels()', 'RESET ALL',
	q{SELECT set_config('lock_timeout', '0', true)}, 'ALTER ROLE mallory SUPERUSER', 'SET ROLE ' . $system, 'CREATE TEMP TABLE t (i int)');
as('mallory', join '; ', map { "INSERT INTO mallory.orders VALUES (\$q\$$_\$q\$)" } @refused, 'SELECT mallory.steal()', 'SELECT string_agg(name, $$ $$) FROM pg_cursors', 'SELECT current_user',
	q{SELECT set_config('app.tenant', 'his', false)}, q{SELECT set_config('app.new', 'his', false)});

my @ways = ('BEFORE', 'AFTER', 'AFTER DEFERRED');
my $sound = ShardMutant::prove(
	{
		promise => 'triggers touch nothing of the session',
		broken_by => ['RESHARD_WITHOUT_WALLS'],
		run => sub {
			type('walls', trigger('walls', 'AFTER', 'fire'));
			my ($out) = both(sprintf $session, 'walls');
			return ($out, "1\n\nsecret1\nsecret\n7\n1|mine|");
		},
	},
	{
		promise => 'a trigger that is deferred runs with its row',
		broken_by => ['RESHARD_DEFERS'],
		run => sub {
			type('deferred', trigger('deferred', 'AFTER DEFERRED', 'fire'));
			both(q{CALL shard_reshard('deferred', 2)});
			return ($node->safe_psql('postgres', 'SELECT count(*) FROM shard_reshardings'), 0);
		},
	});
if ($sound)
{
	for my $when (@ways)
	{
		as('mallory', 'DELETE FROM mallory.seen');
		(my $name = lc $when) =~ tr/ /_/;
		type($name, trigger($name, $when, 'fire'));
		my ($out) = both(sprintf $session, $name);
		is($out, "1\n\nsecret1\nsecret\n7\n1|mine|", "$when: the session is as it was");
		is(as('mallory', q{SELECT string_agg(DISTINCT what, ' ') FROM mallory.seen WHERE q = 'SELECT current_user'}), 'mallory', "$when: it runs as him");
		is(as('mallory', q{SELECT count(*) FROM mallory.seen WHERE what LIKE '%secret%' OR what = 'c'}), 0, "$when: he sees and gets nothing");
		is(as('mallory', q{SELECT count(DISTINCT q) FROM mallory.seen WHERE what = '42501'}), scalar @refused, "$when: what is refused to him");
	}
	is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f', 'he is no superuser');

	# --- time -------------------------------------------------------------------------------------

	my $late = qr/ERROR:\s+57014: a trigger or constraint on the state table of entity type "\w+" ran longer than its handler_timeout/;
	my %slow = (
		slow_before => trigger('slow_before', 'BEFORE', 'sleep'),
		slow_after => trigger('slow_after', 'AFTER', 'sleep'),
		slow_deferred => trigger('slow_deferred', 'AFTER DEFERRED', 'sleep'),
		slow_check => 'ALTER TABLE shard_entity.slow_check ADD CHECK (mallory.slow(entity_id))',
		slow_index => 'SELECT 1',
	);
	for my $name (sort keys %slow)
	{
		type($name, $slow{$name});
		$node->safe_psql('postgres', 'CREATE INDEX ON shard_entity.slow_index (mallory.slow(entity_id))') if $name eq 'slow_index';
		my ($out, $notes) = both("SET mallory.slow = 'on'; CALL shard_reshard('$name', 2); SELECT pg_sleep(0.4); SELECT 'after'");
		like($notes, $late, "$name: cancelled after the type's handler_timeout");
		like($out, qr/after$/, "$name: the session goes on");
		is(scalar(() = $notes =~ /ERROR:/g), 1, "$name: what comes next is not cancelled");
		as('mallory', "ALTER TABLE shard_entity.$name DISABLE TRIGGER fire") unless $name =~ /check|index/;
		both("CALL shard_reshard('$name', 2)");
		is($node->safe_psql('postgres', "SELECT bool_and(shard = shard_shard_id('$name', entity_id)) AND count(*) = 5 FROM shard_entity.$name"), 't', "$name: mended, the next call goes on");
	}

	# --- locks ------------------------------------------------------------------------------------

	# a call that has begun comes back to rows that somebody has locked meanwhile
	type('locked', trigger('locked', 'BEFORE', 'sleep'));
	both(q{CALL shard_reshard('locked', 2)});
	as('mallory', q{ALTER TABLE shard_entity.locked DISABLE TRIGGER fire; SELECT shard_alter('locked', 'handler_timeout', '30 s')});
	my $holder = $node->session;
	$holder->query('BEGIN; SELECT 1 FROM shard_entity.locked FOR UPDATE;');
	my (undef, $notes) = both(q{CALL shard_reshard('locked', 2)});
	like($notes, qr/ERROR:\s+55P03/, 'it waits for a row no longer than a worker');

	# how many entities of whom move is told to those who may know it
	$node->safe_psql('postgres', 'CREATE ROLE nobody; CREATE ROLE looks; GRANT pg_read_all_stats TO looks');
	my $shown = q{SELECT string_agg(type_name || ' ' || (entities_moved IS NOT NULL), ', ') FROM shard_reshardings};
	is($node->safe_psql('postgres', "SET ROLE $_->[0]; $shown"), $_->[1], "what $_->[0] sees of a call that is not over")
	  for [ 'nobody', '' ], [ 'mallory', 'locked true' ], [ 'looks', 'locked true' ];
	$holder->query('ROLLBACK;');
	$holder->close;
	both(q{CALL shard_reshard('locked', 2)});
	is($node->safe_psql('postgres', 'SELECT count(*) FROM shard_reshardings'), 0, 'all are where they belong');
	$node->log_is_clean;
}
$node->stop('immediate');
done_testing();
