# Backends in which nodes call are no client's, either (S05): what runs there of a type - triggers, defaults, domains of the states
# that are copied, allocation functions - runs in a session of its owner's, whoever the node has logged in as, and leaves no advisory
# lock there.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(<<'SQL');
CREATE ROLE alice LOGIN;
GRANT CREATE ON DATABASE postgres TO alice;
CREATE SCHEMA AUTHORIZATION alice;
SET ROLE alice;
SET search_path = alice, public;
CREATE TABLE seen (place text, who text);
CREATE TABLE target (node int);
INSERT INTO target VALUES (1);
CREATE FUNCTION who() RETURNS text LANGUAGE sql AS $$ SELECT concat_ws(' ', current_user, session_user, current_setting('is_superuser')) $$;
CREATE FUNCTION see(place text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
	IF current_setting('transaction_read_only') = 'off' THEN INSERT INTO seen VALUES (place, who()); END IF; RETURN true; END $$;
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM see('trigger'); RETURN NEW; END $$;
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM see('handler'); RETURN message; END $$;
-- all to the target, if it is she who is asked
CREATE FUNCTION put(shard int, requester int, allocations jsonb, strategy text, settings jsonb, members jsonb) RETURNS int
LANGUAGE plpgsql AS $$ BEGIN
	IF who() <> 'alice alice off' THEN RAISE 'asked as %', who(); END IF;
	RETURN (SELECT node FROM target); END $$;
CREATE FUNCTION shift(allocations jsonb, strategy text, settings jsonb, members jsonb, in_progress int[]) RETURNS TABLE (shard int, from_node int) LANGUAGE sql AS $$
	SELECT 1, 1 WHERE false $$;
SQL
for my $node ($cluster->nodes)
{
	$node->sql(q{SET ROLE alice; SET search_path = alice, public;
		SELECT shard_start('keep', 'keep(jsonb,jsonb)', 4, allocation_strategy => 'function', allocation_settings => '{"allocate": "put", "rebalance": "shift"}');
		CREATE TRIGGER fire BEFORE INSERT ON shard_entity.keep FOR EACH ROW EXECUTE FUNCTION fire();
		ALTER TABLE shard_entity.keep ENABLE ALWAYS TRIGGER fire;
		ALTER TABLE shard_entity.keep ADD CHECK (see('check'));});
}
$cluster->wait_registered;

# The strategy is asked; what it cannot say because it is asked as somebody else, the server's log has.
$one->sql(q{SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series(1, 20) i});
$cluster->drain;
is($one->sql(q{SELECT string_agg(DISTINCT node::text, ' ') FROM shard_homes WHERE type_name = 'keep'}), '1', 'S05 allocation functions are asked in her session');
is($one->sql(q{SELECT string_agg(DISTINCT place || ': ' || who, ', ') FROM alice.seen WHERE place = 'handler'}), 'handler: alice alice off', 'so are handlers');

# Ownership moves, and with it the states: they are read there and written here.
$cluster->sql_everywhere('DELETE FROM alice.seen');
for my $shard (0 .. 3)
{
	$cluster->move('keep', $shard, 2);
	$cluster->wait_home('keep', $shard, 2);
}
$two->wait_value('SELECT count(*) FROM shard_entity.keep', 20, 'the states');
is($two->sql(q{SELECT string_agg(DISTINCT place || ': ' || who, ', ' ORDER BY place || ': ' || who) FROM alice.seen}), 'check: alice alice off, trigger: alice alice off',
	'S05 what runs for a copied state runs in her session');
is($one->sql(q{SELECT string_agg(DISTINCT who, ', ') FROM alice.seen WHERE who <> 'alice alice off'}), '', 'nor where it came from');
is($one->sql(q{SELECT shard_ask('keep', 'e1', '"asked"')}), '"asked"', 'asked from the other node');
$cluster->drain;
is($two->sql(q{SELECT string_agg(DISTINCT who, ', ') FROM alice.seen}), 'alice alice off', 'too');
$cluster->logs_are_clean;

# --- locks of the session -------------------------------------------------------------------------

# What an owner's code leaves is not the next one's, nor is it waited for.
my $lock = q{pg_advisory_lock(4711)};
$cluster->sql_everywhere(<<"SQL");
CREATE TABLE alice.locks (pid int, place text);
GRANT ALL ON alice.locks TO alice;
CREATE TABLE alice.fails (fails boolean);
INSERT INTO alice.fails VALUES (false);
GRANT ALL ON alice.fails TO alice;
CREATE OR REPLACE FUNCTION alice.fire() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
	PERFORM $lock;
	IF (SELECT fails FROM alice.fails) THEN RAISE 'fire fails'; END IF;
	INSERT INTO alice.locks SELECT pid, 'trigger' FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
	RETURN NEW; END \$\$;
CREATE OR REPLACE FUNCTION alice.put(shard int, requester int, allocations jsonb, strategy text, settings jsonb, members jsonb) RETURNS int
LANGUAGE plpgsql AS \$\$ BEGIN
	PERFORM $lock;
	IF (SELECT fails FROM alice.fails) THEN RAISE 'put fails with % locks', (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()); END IF;
	RETURN (SELECT node FROM alice.target); END \$\$;
SQL
sub left { my ($node) = @_; return $node->sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}) }

for my $shard (0 .. 3)
{
	$cluster->move('keep', $shard, 1);
	$cluster->wait_home('keep', $shard, 1);
}
$one->wait_value('SELECT count(*) FROM shard_entity.keep', 20, 'the states, back again');
is($one->sql(q{SELECT count(*) FROM alice.locks}), 20, 'a trigger has a lock of the session when a state is copied');
is($one->sql(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE pid IN (SELECT pid FROM alice.locks)}), 't', 'its backend is there still');
is(left($one), 0, 'nothing of it is left there');

$two->sql('UPDATE alice.fails SET fails = true');
$one->server->psql($one->db, q{SELECT shard_move('keep', 0, 2)}, stdout => \my $out, stderr => \my $err);
like($err, qr/fire fails/i, 'it fails');
is(left($two), 0, 'nor is then');

# New homes are given by allocation functions.
my $coordinator = $cluster->coordinator($one);
for my $fails (0, 1)
{
	$coordinator->sql("UPDATE alice.fails SET fails = ($fails = 1)");
	my $type = "other$fails";
	$_->sql(qq{SET ROLE alice; SET search_path = alice, public;
		SELECT shard_start('$type', 'keep(jsonb,jsonb)', 4, allocation_strategy => 'function', allocation_settings => '{"allocate": "put"}');}) for $cluster->nodes;
	$cluster->wait_registered;
	$one->sql(qq{SELECT shard_tell('$type', 'e' || i, '{}') FROM generate_series(1, 20) i});
	$cluster->drain;
	is(left($coordinator), 0, 'an allocation function leaves none' . ($fails ? ', also with an error' : ''));
}
like(PostgreSQL::Test::Utils::slurp_file($coordinator->server->logfile), qr/put fails with 1 locks/, 'it had one');

# A client's are his own, whatever runs in his session.
my $session = $one->session;
$session->query("SELECT $lock; SELECT shard_tell('keep', 'e1', '{}'); SELECT shard_try('keep', 'e1', '{}');");
is(left($one), 1, 'a client keeps his');
$session->close;

done_testing();
