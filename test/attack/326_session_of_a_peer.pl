# Backends in which nodes call are no client's, either (S05): what runs there of a type - triggers, defaults, domains of the states
# that are copied, allocation functions - runs in a session of its owner's, whoever the node has logged in as.

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

done_testing();
