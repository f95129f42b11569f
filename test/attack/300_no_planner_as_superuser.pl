# S01, S02: whatever a type's owner made of his state table, shard_drop_type() looks whether it has rows and runs none of
# his code: not what is computed while a statement is planned, nor what runs when a row is met. S09, S11: what does run,
# runs as the owner, restricted.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', q{
CREATE ROLE mallory LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory;
-- What was done as whom, in a table that anybody may write to.
CREATE TABLE ran (what text, who name, super bool, restricted bool);
GRANT ALL ON ran TO PUBLIC;
});

sub mallory
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', 'mallory' ]);
}

# strike() is what an attacker hopes for; fold(n), in whatever expression, calls it.
mallory(q{
CREATE SCHEMA mallory;
CREATE FUNCTION mallory.h(s jsonb, m jsonb) RETURNS jsonb LANGUAGE sql RETURN m;
CREATE FUNCTION mallory.strike(what text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	super bool := (SELECT rolsuper FROM pg_roles WHERE rolname = current_user);
	restricted bool := false;
BEGIN
	BEGIN
		EXECUTE 'CREATE TEMP TABLE free () ON COMMIT DROP';
		EXECUTE 'DROP TABLE free';
	EXCEPTION WHEN OTHERS THEN
		restricted := true;
	END;
	INSERT INTO public.ran VALUES (what, current_user, super, restricted);
	IF super THEN EXECUTE 'ALTER ROLE mallory SUPERUSER'; END IF;
EXCEPTION WHEN read_only_sql_transaction THEN
	NULL;
END $$;
CREATE FUNCTION mallory.fold(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('fold'); RETURN $1; END $$;
CREATE FUNCTION mallory.yes(anyelement) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('yes'); RETURN true; END $$;
CREATE FUNCTION mallory.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike(TG_NAME); RETURN coalesce(NEW, OLD); END $$;
CREATE FUNCTION mallory.less(jsonb, int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('operator'); RETURN true; END $$;
CREATE OPERATOR mallory.<<| (LEFTARG = jsonb, RIGHTARG = int, FUNCTION = mallory.less);
});

# Who ran what so far, if it was anybody but mallory, or he was free; then nothing was.
sub stolen
{
	my $bad = $node->safe_psql('postgres', q{SELECT string_agg(DISTINCT what || ' as ' || who || CASE WHEN restricted THEN '' ELSE ', free' END, '; ') FROM ran
		WHERE super OR who <> 'mallory' OR NOT restricted});
	$node->safe_psql('postgres', 'TRUNCATE ran');
	return $bad;
}

sub is_safe
{
	my ($trick, $what) = @_;
	is(stolen(), '', "$trick: $what: nothing ran but as its owner");
	is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f', "$trick: $what: she is no superuser");
	$node->safe_psql('postgres', 'ALTER ROLE mallory NOSUPERUSER');
	return;
}

# Each: what she does to the table of type "e", and whether it can be dropped then.
my @tricks = (
	[ S01 => 'statistics on constants', q{CREATE STATISTICS mallory.st ON (mallory.fold(1)), (mallory.fold(2)) FROM shard_entity.e;} ],
	[ S01 => 'statistics on an operator', q{CREATE STATISTICS mallory.st ON (state OPERATOR(mallory.<<|) 1), (state OPERATOR(mallory.<<|) 2) FROM shard_entity.e;} ],
	[ S02 => 'an index on a constant expression', q{ALTER TABLE shard_entity.e SET SCHEMA mallory; CREATE INDEX i ON mallory.e ((mallory.fold(1)));} ],
	[ S02 => 'a partial index', q{ALTER TABLE shard_entity.e SET SCHEMA mallory; CREATE INDEX i ON mallory.e (shard) WHERE mallory.fold(1) = 1;} ],
	[ S02 => 'an exclusion constraint', q{ALTER TABLE shard_entity.e SET SCHEMA mallory; ALTER TABLE mallory.e ADD EXCLUDE USING btree ((mallory.fold(1)) WITH =);} ],
	[ S02 => 'a unique index with an expression that includes a column', q{ALTER TABLE shard_entity.e SET SCHEMA mallory; CREATE UNIQUE INDEX i ON mallory.e ((mallory.fold(1)), entity_id) INCLUDE (version);} ],
	[ S02 => 'a check that planning may use', q{ALTER TABLE shard_entity.e ADD CHECK (mallory.fold(1) = 1) NOT VALID, ADD CHECK (mallory.yes(state)) NO INHERIT;} ],
	[ S02 => 'row security, forced', q{ALTER TABLE shard_entity.e ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY p ON shard_entity.e USING (mallory.yes(state) AND mallory.fold(1) = 1);} ],
	[ S02 => 'rules', q{CREATE RULE r AS ON DELETE TO shard_entity.e DO ALSO SELECT mallory.strike('rule'); CREATE RULE u AS ON UPDATE TO shard_entity.e DO ALSO SELECT mallory.strike('rule');} ],
	[ S02 => 'a generated column and a default', q{ALTER TABLE shard_entity.e ADD COLUMN g int GENERATED ALWAYS AS (mallory.fold(1)) STORED, ADD COLUMN d int DEFAULT mallory.fold(2);} ],
	[ S02 => 'triggers that fire always', q{CREATE TRIGGER a BEFORE INSERT OR UPDATE OR DELETE ON shard_entity.e FOR EACH ROW EXECUTE FUNCTION mallory.fire();
		CREATE TRIGGER t AFTER TRUNCATE ON shard_entity.e FOR EACH STATEMENT EXECUTE FUNCTION mallory.fire();
		ALTER TABLE shard_entity.e ENABLE ALWAYS TRIGGER a, ENABLE ALWAYS TRIGGER t;} ],
	[ S02 => 'a domain as a column', q{CREATE DOMAIN mallory.d AS int DEFAULT mallory.fold(3) CHECK (mallory.fold(VALUE) = VALUE); ALTER TABLE shard_entity.e ADD COLUMN d mallory.d;}, 'DROP DOMAIN mallory.d CASCADE' ],
	# What somebody else has made of the table does not go with it.
	[ S02 => 'a child with code', q{ALTER TABLE shard_entity.e SET SCHEMA mallory; CREATE TABLE mallory.child () INHERITS (mallory.e); CREATE INDEX c ON mallory.child ((mallory.fold(1)));
		INSERT INTO mallory.child (shard, entity_id) VALUES (0, 'x');}, 'DROP TABLE mallory.child', 1 ],
	[ S02 => 'a view on it', q{CREATE VIEW mallory.v AS SELECT mallory.yes(state) FROM shard_entity.e;}, 'DROP VIEW mallory.v', 1 ],
);
for my $trick (@tricks)
{
	my ($id, $what, $sql, $undo, $refused) = @$trick;
	mallory(q{SELECT shard_start('e', 'mallory.h'); SELECT shard_drain();});
	mallory("$sql");
	stolen();
	my (undef, undef, $err) = $node->psql('postgres', q{SELECT shard_drop_type('e')}, extra_params => [ '-U', 'mallory', '-v', 'VERBOSITY=verbose' ]);
	if ($refused)
	{
		like($err, qr/ERROR:  2BP01:/, "$id: $what: the type is not dropped while something depends on its table");
		mallory("$undo; SELECT shard_drop_type('e')");
	}
	else
	{
		is($err, '', "$id: $what: the type is dropped");
		mallory($undo) if $undo;
	}
	is_safe($id, $what);
}

# --- by a superuser, and with rows ---------------------------------------------------------------

mallory(q{SELECT shard_start('e', 'mallory.h'); SELECT shard_ask('e', 'x', '{"n": 1}');
	CREATE STATISTICS mallory.st ON (mallory.fold(1)), (mallory.fold(2)) FROM shard_entity.e;
	CREATE RULE r AS ON DELETE TO shard_entity.e DO ALSO SELECT mallory.strike('rule');});
stolen();
my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT shard_drop_type('e')");
like($err, qr/ERROR:  2BP01: .*is not empty/s, 'a table with a row is found so');
is_safe('S01', 'a superuser drops it, in vain');
$node->safe_psql('postgres', q{SELECT shard_drop_type('e', force => true)});
is_safe('S01', 'a superuser drops it by force');
is($node->safe_psql('postgres', q{SELECT to_regclass('shard_entity.e') IS NULL}), 't', 'and the table is gone');

# A row that was deleted is none, and one that was inserted after the caller's snapshot is one.
mallory(q{SELECT shard_start('e', 'mallory.h'); SELECT shard_ask('e', 'x', '{"n": 1}'); SELECT shard_drain();});
my $old = $node->session;
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM ran;');
mallory(q{INSERT INTO shard_entity.e (shard, entity_id, state) SELECT shard_shard_id('e', 'y'), 'y', '{}'; DELETE FROM shard_entity.e WHERE entity_id = 'x'});
ok(!eval { $old->query(q{SELECT shard_drop_type('e');}); 1 }, 'an old snapshot does not hide a row');
$old->query('ROLLBACK;');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_entity.e}), 1, 'which is still there');
mallory(q{DELETE FROM shard_entity.e; SELECT shard_drop_type('e')});
is($node->safe_psql('postgres', q{SELECT to_regclass('shard_entity.e') IS NULL}), 't', 'a table with dead rows only is empty');
$old->close;

# --- a table that is something else now ----------------------------------------------------------

mallory(q{SELECT shard_start('e', 'mallory.h'); SELECT shard_drain();
	DROP TABLE shard_entity.e; });
mallory(q{SELECT shard_drop_type('e')});
is_safe('S02', 'a table that its owner has dropped');

# --- what does run -------------------------------------------------------------------------------

# S11: all of it at once, under messages; S09: also a constraint trigger that would wait for the commit.
mallory(q{
CREATE FUNCTION mallory.number(m jsonb) RETURNS int8 LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('ordered_by'); RETURN NULL; END $$;
CREATE FUNCTION mallory.shard(e text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('shard_id_extractor'); RETURN 0; END $$;
CREATE FUNCTION mallory.entity(m jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('entity_id_extractor'); RETURN 'x'; END $$;
CREATE FUNCTION mallory.body(m jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('message_extractor'); RETURN m; END $$;
CREATE FUNCTION mallory.run(s jsonb, m jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('handler'); RETURN m; END $$;
SELECT shard_start('all', 'mallory.run', number_of_shards => 1, ordered_by => 'mallory.number', shard_id_extractor => 'mallory.shard', entity_id_extractor => 'mallory.entity', message_extractor => 'mallory.body');
CREATE DOMAIN mallory.dom AS int DEFAULT 1 CHECK (mallory.fold(VALUE) = VALUE);
ALTER TABLE shard_entity."all" ADD COLUMN d int DEFAULT mallory.fold(1), ADD COLUMN g int GENERATED ALWAYS AS (mallory.fold(shard)) STORED, ADD COLUMN dom mallory.dom DEFAULT 1,
	ADD CHECK (mallory.yes(state)) NOT VALID;
CREATE TRIGGER before BEFORE INSERT OR UPDATE OR DELETE ON shard_entity."all" FOR EACH ROW EXECUTE FUNCTION mallory.fire();
CREATE TRIGGER after AFTER INSERT OR UPDATE OR DELETE ON shard_entity."all" FOR EACH ROW EXECUTE FUNCTION mallory.fire();
CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE OR DELETE ON shard_entity."all" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION mallory.fire();
CREATE TRIGGER replica AFTER INSERT OR UPDATE OR DELETE ON shard_entity."all" FOR EACH ROW EXECUTE FUNCTION mallory.fire();
ALTER TABLE shard_entity."all" ENABLE REPLICA TRIGGER replica, ENABLE ALWAYS TRIGGER late;
ALTER TABLE shard_entity."all" SET SCHEMA mallory;
CREATE INDEX i ON mallory."all" ((mallory.fold(shard))) WHERE mallory.fold(1) = 1;
});
$node->safe_psql('postgres', q{TRUNCATE ran; SELECT shard_tell('all', '{"n": 1}'); SELECT shard_tell('all', '{"n": 2}'); SELECT shard_ask('all', 'x', '{"n": 3}');});
$node->drain;
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT what, ' ' ORDER BY what) FROM ran}),
	'after before entity_id_extractor fold handler late message_extractor ordered_by shard_id_extractor yes', 'S11, S09: what is honest runs');
is_safe('S11, S09', 'a superuser sends');
$node->safe_psql('postgres', q{SELECT shard_try('all', 'x', '{"n": 4}')});
is_safe('S11', 'a superuser tries');
$node->safe_psql('postgres', q{SELECT * FROM shard_health(); SELECT * FROM shard_types; SELECT * FROM shard_inbox; SELECT * FROM shard_current_regions});
is_safe('S11', 'a superuser looks');
$node->safe_psql('postgres', q{SELECT shard_stop_type('all')});
$node->safe_psql('postgres', q{SELECT shard_drop_type('all', force => true)});
is_safe('S11', 'a superuser drops it');

$node->log_is_clean;
done_testing();
