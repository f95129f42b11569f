# Allocation strategy "function": a type's own functions say where its shards go and which move. They run as
# the type's owner at the coordinator, for a limited time; whatever goes wrong with them is in the log, and
# shards get homes all the same.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;
use feature q(state);

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->nodes;
$cluster->sql_everywhere(<<'SQL');
CREATE ROLE shop LOGIN;
GRANT CREATE ON DATABASE postgres TO shop;
CREATE SCHEMA AUTHORIZATION shop;
CREATE TABLE shop.wish (node int, note text);
ALTER TABLE shop.wish OWNER TO shop;
INSERT INTO shop.wish VALUES (2);
SET ROLE shop;
SET search_path = shop, public;
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
-- All to the node of the table; the requester and who else is there are known.
CREATE FUNCTION put(shard int, requester int, allocations jsonb, strategy text, settings jsonb, members jsonb) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
	IF current_user <> 'shop' OR strategy <> 'function' OR jsonb_array_length(members) <> 3
		OR NOT allocations ? '1' OR NOT settings ? 'allocate' OR current_setting('transaction_read_only') <> 'on' THEN
		RAISE 'called in a wrong way: %, %, %, %', current_user, strategy, members, allocations;
	END IF;
	IF (SELECT note FROM shop.wish) = 'fail' THEN
		RAISE 'no idea where to put shard %', shard;
	ELSIF (SELECT note FROM shop.wish) = 'write' THEN
		DELETE FROM shop.wish;
	ELSIF (SELECT note FROM shop.wish) = 'loop' THEN
		LOOP PERFORM 1; END LOOP;
	END IF;
	RETURN (SELECT node FROM shop.wish);
END $$;
CREATE FUNCTION shift(allocations jsonb, strategy text, settings jsonb, members jsonb, in_progress int[])
RETURNS TABLE (shard int, from_node int) LANGUAGE sql AS $$
	SELECT s::int, a.key::int FROM jsonb_each(allocations) a, jsonb_array_elements_text(a.value) s
	WHERE a.key::int <> (SELECT node FROM shop.wish) AND s::int <> ALL (in_progress) ORDER BY 1 LIMIT 2
$$;
SQL
for my $node ($cluster->nodes)
{
	$node->sql(q{SET ROLE shop; SET search_path = shop, public;
		SELECT shard_start('keep', 'keep(jsonb,jsonb)', 12, allocation_strategy => 'function',
			allocation_settings => '{"allocate": "put", "rebalance": "shift"}')});
}
$cluster->wait_registered;

sub wish
{
	my ($set) = @_;
	$cluster->sql_everywhere("UPDATE shop.wish SET $set");
	return;
}

sub send_to { my (@ids) = @_; $one->sql("SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series($ids[0], $ids[1]) i"); return }
sub entities { my $sum = 0; $sum += $_->sql('SELECT count(*) FROM shard_entity.keep') for $cluster->nodes; return $sum }
my $homes = q{SELECT string_agg(DISTINCT node::text, ' ' ORDER BY node::text) FROM shard_homes};

# --- where shards go ------------------------------------------------------------------------------

send_to(1, 3);
ShardCluster::wait_for_condition(sub { entities() == 3 }, 'the entities');
is($one->sql($homes), 2, 'shards go where the function says, run as the owner, read only');

# --- which move -----------------------------------------------------------------------------------

wish('node = 3');
# It is in force after a reload.
for my $node ($cluster->nodes)
{
	$node->sql(q{ALTER SYSTEM SET shard.rebalance_interval = '1s'});
	$node->server->reload;
}
$one->wait_value($homes, 3, 'all shards to move');
pass('shards move when the function says so');
$three->wait_value(q{SELECT sum((state->>'n')::int) FROM shard_entity.keep}, 3, 'the states');
pass('with their states');

# --- what goes wrong ------------------------------------------------------------------------------

# Nothing moves meanwhile: what is here is where it should be.
for my $case ([ 'fail', qr/no idea where to put shard/ ], [ 'write', qr/read-only transaction/ ], [ 'loop', qr/the allocation functions ran longer than 5 s/ ])
{
	my ($note, $error) = @$case;
	state $from = 100;
	wish("note = '$note'");
	send_to($from, $from + 3);
	ShardCluster::wait_for_condition(sub { entities() == 3 + 4 * $from / 100 }, "entities in spite of $note");
	ShardCluster::wait_for_condition(sub { grep { slurp_file($_->server->logfile) =~ $error } $cluster->nodes }, "the log to say why: $note");
	pass("$note: the shards got homes, and the log says why");
	$from += 100;
}
wish('note = NULL, node = 1');
like($two->error_of(q{CALL shard_peer.strategy('\x00', NULL)}), qr/08P01|42501/, 'nobody else may ask the functions');
$one->wait_value($homes, 1, 'all shards to come to node 1');
pass('and when the functions are well again they are followed');
is($one->sql(q{SELECT count(*) FROM shop.wish}), 1, 'nothing was written');

# --- slow functions -------------------------------------------------------------------------------

# Of somebody else, and several types of his; nothing is asked but for homes.
for my $node ($cluster->nodes)
{
	$node->sql(q{ALTER SYSTEM SET shard.rebalance_interval = 0});
	$node->server->reload;
}
$cluster->sql_everywhere(<<'SQL');
CREATE ROLE snail LOGIN;
GRANT CREATE ON DATABASE postgres TO snail;
CREATE SCHEMA AUTHORIZATION snail;
SET ROLE snail;
SET search_path = snail, public;
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
CREATE FUNCTION put(shard int, requester int, allocations jsonb, strategy text, settings jsonb, members jsonb) RETURNS int
LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3.5); RETURN 2; END $$;
CREATE FUNCTION shift(allocations jsonb, strategy text, settings jsonb, members jsonb, in_progress int[])
RETURNS TABLE (shard int, from_node int) LANGUAGE sql AS $$ SELECT 0, 0 WHERE false $$;
SQL
for my $node ($cluster->nodes)
{
	$node->sql(q{SET ROLE snail; SET search_path = snail, public;
		SELECT shard_start('slow' || i, 'keep(jsonb,jsonb)', 12, allocation_strategy => 'function',
			allocation_settings => '{"allocate": "put", "rebalance": "shift"}') FROM generate_series(1, 4) i});
	$node->sql(q{SET ROLE shop; SET search_path = shop, public;
		SELECT shard_start('quick', 'keep(jsonb,jsonb)', 12, allocation_strategy => 'function',
			allocation_settings => '{"allocate": "put", "rebalance": "shift"}')});
}
$cluster->wait_registered;
wish('node = 3');
$one->sql(q{SELECT shard_tell('slow' || i, 'e', '{}') FROM generate_series(1, 4) i});
$one->wait_value(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND application_name LIKE '%strategy%'},
	1, 'a slow function, one at a time');
$one->sql(q{SELECT shard_tell('quick', 'e', '{}')});
$one->wait_value(q{SELECT count(*) FROM shard_homes WHERE type_name = 'quick'}, 1, 'a home of the quick type');
is($one->sql(q{SELECT node FROM shard_homes WHERE type_name = 'quick'}), 3, 'the slow functions of others delay nobody');
cmp_ok($one->sql(q{SELECT count(*) FROM shard_homes WHERE type_name LIKE 'slow_'}), '<', 4, 'who were still asked');
$one->wait_value(q{SELECT count(*) FROM shard_homes WHERE type_name LIKE 'slow_'}, 4, 'homes of the slow types');
is($one->sql(q{SELECT string_agg(DISTINCT node::text, ' ') FROM shard_homes WHERE type_name LIKE 'slow_'}), 2,
	'each of them was asked, however long it had to wait for its turn');
done_testing();
