# S03, S04: a superuser, or a worker that is one, looks for rows of state tables and deletes some when an operator joins a
# node or resets it. Nothing of the tables' owner runs then: neither in planning nor by triggers, rules, views or children.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, join => 0, conf => "shard.rebalance_interval = 0\nshard.region_workers = 1");
my ($one, $two) = $cluster->nodes;

sub mallory
{
	my ($node, $sql) = @_;
	return $node->server->safe_psql($node->db, $sql, extra_params => [ '-U', 'mallory' ]);
}

my $handler = q{CREATE FUNCTION mallory.h(s jsonb, m jsonb) RETURNS jsonb LANGUAGE sql RETURN m};
for my $node ($one, $two)
{
	$node->sql(q{
CREATE ROLE mallory LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory;
CREATE TABLE ran (what text, who name, super bool);
GRANT ALL ON ran TO PUBLIC;
});
	mallory($node, qq{
CREATE SCHEMA mallory;
$handler;
CREATE FUNCTION mallory.strike(what text) RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE super bool := (SELECT rolsuper FROM pg_roles WHERE rolname = current_user);
BEGIN
	INSERT INTO public.ran VALUES (what, current_user, super);
	RAISE LOG 'strike: % as %, superuser: %', what, current_user, super;
	IF super THEN EXECUTE 'ALTER ROLE mallory SUPERUSER'; END IF;
END \$\$;
CREATE FUNCTION mallory.fold(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \$\$ BEGIN PERFORM mallory.strike('fold'); RETURN \$1; END \$\$;
CREATE FUNCTION mallory.fire() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN PERFORM mallory.strike(TG_NAME); RETURN coalesce(NEW, OLD); END \$\$;
SELECT shard_start(t, 'mallory.h', number_of_shards => 8) FROM unnest('{e,indexed,parent,locked}'::text[]) t;
});
}

# What was run as a superuser, also by who was rolled back.
sub is_safe
{
	my ($node, $what) = @_;
	my $log = PostgreSQL::Test::Utils::slurp_file($node->server->logfile);
	unlike($log, qr/strike: .* superuser: t/, "$what: nothing of hers ran as a superuser");
	is($node->sql(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f', "$what: she is no superuser");
	return;
}

# --- S03: shard_join -------------------------------------------------------------------------------

mallory($two, q{
CREATE STATISTICS mallory.st ON (mallory.fold(1)), (mallory.fold(2)) FROM shard_entity.e;
ALTER TABLE shard_entity.indexed SET SCHEMA mallory;
CREATE INDEX i ON mallory.indexed ((mallory.fold(1))) WHERE mallory.fold(2) = 2;
ALTER TABLE shard_entity.parent SET SCHEMA mallory;
CREATE TABLE mallory.child () INHERITS (mallory.parent);
CREATE INDEX c ON mallory.child ((mallory.fold(1)));
INSERT INTO mallory.child (shard, entity_id) VALUES (0, 'x');
ALTER TABLE mallory.parent ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON mallory.parent USING (mallory.fold(1) = 1);
});
# Something else where a type's table was: before 16 a table could be made a view.
my $views = $two->server->pg_version < 16;
mallory($two, q{
SELECT shard_start('view', 'mallory.h', number_of_shards => 8);
ALTER TABLE shard_entity.view DROP CONSTRAINT view_pkey;
VACUUM shard_entity.view;
CREATE RULE "_RETURN" AS ON SELECT TO shard_entity.view DO INSTEAD
	SELECT mallory.fold(1) AS shard, 'x'::text COLLATE "C" AS entity_id, '{}'::jsonb AS state, 1::int8 AS version, false AS remembered, now() AS updated_at;
}) if $views;
is($two->sql(q{SELECT relkind FROM pg_class WHERE oid = 'shard_entity.view'::regclass}), 'v', 'a state table is a view') if $views;

my $join = sprintf q{SELECT shard_join('%s', '%s')}, $one->dsn, $two->dsn;
mallory($two, q{INSERT INTO shard_entity.e (shard, entity_id, state) VALUES (0, 'x', '{}')});
like($two->error_of($join), qr/ERROR:  55000: .*the database has entities of type "e"/s, 'S03: a node with entities does not join');
is_safe($two, 'S03: refused');
mallory($two, q{DELETE FROM shard_entity.e});

# Nobody is waited for: the control worker would stand still.
my $keeper = $two->session;
$keeper->query('BEGIN; LOCK TABLE shard_entity.locked;');
like($two->error_of($join), qr/ERROR:  55000: .*the state table of entity type "locked" is locked.*HINT:  .*pg_locks/s, 'S03: a locked table is not waited for');
$keeper->query('COMMIT;');
$keeper->close;

$two->sql($join);
$cluster->wait_up;
pass('S03: an empty database joins');
is_safe($_, 'S03: joined') for $one, $two;

# Statements of the superuser below would run them.
mallory($two, 'DROP STATISTICS mallory.st');

# --- S04: shard_reset_cluster_data ------------------------------------------------------------------

my @entities = map { "e$_" } 1 .. 40;
my $list = join ',', map { "'$_'" } @entities;
$one->sql("SELECT shard_ask('e', e, '{\"n\": 1}', '60 s') FROM unnest(ARRAY[$list]) e");
my ($entity) = grep { $cluster->home_of('e', $_) == 1 } @entities;
my $shard = $one->sql("SELECT shard_shard_id('e', '$entity')");
$cluster->move('e', $shard, 2);
$cluster->wait_home('e', $shard, 2);
is($two->sql("SELECT shard_ask('e', '$entity', '{\"n\": 2}', '60 s')"), '{"n": 2}', 'a shard has moved to node 2');

# She keeps a row there when the shard moves back, and makes the most of whatever will delete it.
mallory($two, q{
CREATE TRIGGER always BEFORE DELETE ON shard_entity.e FOR EACH ROW EXECUTE FUNCTION mallory.fire();
CREATE TRIGGER after_always AFTER DELETE ON shard_entity.e FOR EACH ROW EXECUTE FUNCTION mallory.fire();
CREATE TRIGGER each_statement BEFORE DELETE ON shard_entity.e FOR EACH STATEMENT EXECUTE FUNCTION mallory.fire();
CREATE TRIGGER replica BEFORE DELETE ON shard_entity.e FOR EACH ROW EXECUTE FUNCTION mallory.fire();
CREATE CONSTRAINT TRIGGER late AFTER DELETE ON shard_entity.e DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION mallory.fire();
ALTER TABLE shard_entity.e ENABLE ALWAYS TRIGGER always, ENABLE ALWAYS TRIGGER after_always, ENABLE ALWAYS TRIGGER each_statement, ENABLE REPLICA TRIGGER replica, ENABLE ALWAYS TRIGGER late;
CREATE RULE r AS ON DELETE TO shard_entity.e DO ALSO SELECT mallory.strike('rule');
ALTER TABLE shard_entity.e ENABLE ALWAYS RULE r;
ALTER TABLE shard_entity.e ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON shard_entity.e USING (mallory.fold(1) = 1);
CREATE TABLE mallory.heir () INHERITS (shard_entity.e);
CREATE TRIGGER always BEFORE DELETE ON mallory.heir FOR EACH ROW EXECUTE FUNCTION mallory.fire();
ALTER TABLE mallory.heir ENABLE ALWAYS TRIGGER always;
});
mallory($two, "INSERT INTO mallory.heir (shard, entity_id) VALUES ($shard, 'heir')");
$keeper = $two->session;
$keeper->query("BEGIN; SELECT FROM ONLY shard_entity.e WHERE entity_id = '$entity' FOR KEY SHARE;");
$cluster->move('e', $shard, 1);
$cluster->wait_home('e', $shard, 1);
is($one->sql("SELECT shard_ask('e', '$entity', '{\"n\": 3}', '60 s')"), '{"n": 3}', 'it has moved back');
is($two->sql("SELECT count(*) FROM ONLY shard_entity.e WHERE entity_id = '$entity'"), 1, 'and the row is left behind');

sub enable
{
	my ($on) = @_;
	$two->sql("ALTER SYSTEM SET shard.enabled = $on");
	$two->server->reload;
	$two->wait_until('SELECT count(*) ' . ($on eq 'on' ? '> 1' : '= 0') . ' FROM pg_stat_activity WHERE backend_type LIKE $$shard%$$ AND datname IS NOT NULL', "workers to be $on");
	return;
}
enable('off');
$two->sql('TRUNCATE ran');
my $kept = $two->sql("SELECT count(*) FROM ONLY shard_entity.e WHERE shard <> $shard");
like($two->error_of('SELECT shard_reset_cluster_data(force => true)'), qr/ERROR:  55P03: .*states of shard $shard of entity type "e" are in use.*HINT:  .*pg_locks/s,
	'S04: a row that she holds is not waited for');
$keeper->query('COMMIT;');
$keeper->close;
is_safe($two, 'S04: refused');
$two->sql('SELECT shard_reset_cluster_data(force => true)');
is_safe($two, 'S04: reset');
is($two->sql(q{SELECT count(*) FROM ran}), 0, 'S04: nothing of hers ran at all');
is($two->sql("SELECT count(*) FROM ONLY shard_entity.e WHERE shard = $shard"), 0, 'S04: the row is gone');
is($two->sql("SELECT count(*) FROM ONLY shard_entity.e WHERE shard <> $shard"), $kept, 'S04: those of other shards are not');
is($two->sql(q{SELECT count(*) FROM mallory.heir}), 1, 'S04: what is in another table of hers neither');
enable('on');
$two->wait_value('SELECT string_agg(node || $$ $$ || status, $$, $$) FROM shard_members', '1 up', 'a cluster of one');
is_safe($two, 'S04: on its own');

done_testing();
