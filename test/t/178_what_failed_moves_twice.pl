# What is left of failures moves with its shard as often as that moves: entities that cannot start and what waits behind
# them, more than are copied at once; a stop message that the worker itself has sent, while it waits for another attempt,
# and as a dead letter that is sent again; and the history, of which nothing is deleted while it is copied.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.region_workers = 1");
my ($one, $two) = $cluster->nodes;

$cluster->sql_everywhere(q{
CREATE TABLE closed (how text);
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION fragile(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'noop' THEN RETURN state; END IF;
	IF EXISTS (SELECT FROM closed) AND message->>'what' IN ('start', 'stop', 'fail') THEN
		RAISE EXCEPTION 'closed' USING ERRCODE = (SELECT how FROM closed LIMIT 1);
	END IF;
	INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
	RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
-- Each type has its shards by the first letter of an entity's id.
CREATE FUNCTION letter(id text) RETURNS int IMMUTABLE LANGUAGE sql RETURN ascii(id) - ascii('a');
SELECT shard_start('starter', 'fragile', number_of_shards => 2, shard_id_extractor => 'letter', remember_entities => true,
	start_message => '{"what": "start"}', max_attempts => 1, entity_restart_backoff => '10 ms');
SELECT shard_start('stopper', 'fragile', number_of_shards => 2, shard_id_extractor => 'letter', stop_message => '{"what": "stop"}',
	passivate_idle_after => '50 ms', retry_backoff => '1 h', max_retry_backoff => '1 h');
SELECT shard_start('failer', 'fragile', number_of_shards => 2, shard_id_extractor => 'letter', max_attempts => 1);
});
$cluster->wait_registered;

# Both shards of a type are at node 1 at first.
sub bring_home
{
	my ($type) = @_;
	$cluster->allocate($type, 'a', 'b');
	$cluster->drain;
	move_to($type, $_, 1) for 0, 1;
	$one->sql("SELECT shard_passivate('$type', 'a'), shard_passivate('$type', 'b')");
	$cluster->drain;
	return;
}

sub move_to
{
	my ($type, $shard, $n) = @_;
	$cluster->move($type, $shard, $n);
	$cluster->wait_home($type, $shard, $n);
	$cluster->wait_settled;
	return;
}

# Entities that cannot start: 250, each with two messages behind it. A copy takes 200 rows at once, so it ends at each of
# the three in turn.
bring_home('starter');
$cluster->sql_everywhere(q{INSERT INTO closed VALUES ('P0001')});
$one->sql(q{SELECT count(shard_tell('starter', 'a' || i, jsonb_build_object('what', m))) FROM generate_series(1, 250) i, generate_series(1, 2) m});
my $held = q{SELECT string_agg(place || ' ' || rows, ', ' ORDER BY place) FROM (SELECT place, count(*) AS rows FROM shard.held GROUP BY place) h};
my $quarantined = q{SELECT count(*) FROM shard_region_state WHERE state = 'quarantined'};
$one->wait_value($quarantined, 250, 'all to be quarantined');
is($one->sql($held), 'start 250, stash 500', 'messages wait behind entities that cannot start');
for my $n (2, 1, 2)
{
	my $node = $cluster->node($n);
	move_to('starter', 0, $n);
	$node->wait_value($quarantined, 250, 'all to be quarantined at the new home');
	is($node->sql($held), 'start 250, stash 500', "all of it has moved to node $n");
}
$cluster->sql_everywhere('TRUNCATE closed');
$two->sql(q{SELECT count(shard_start_entity('starter', 'a' || i)) FROM generate_series(1, 250) i});
$cluster->drain;
is($two->sql(q{SELECT count(*) FROM (SELECT string_agg(what, ' ' ORDER BY pos) AS all FROM seen GROUP BY entity) s WHERE s.all = 'start 1 2'}),
	250, 'mended, each starts once, and handles what waited, in order');
is($two->sql('SELECT count(*) FROM shard.held'), 0, 'and nothing is left of it');

# A stop message of the worker's own, which has an entity type but no sender.
bring_home('stopper');
$one->wait_value(q{SELECT count(*) FROM shard_region_state WHERE type_name = 'stopper'}, 0, 'those to leave that have brought the shards');
$cluster->sql_everywhere(q{TRUNCATE seen; INSERT INTO closed VALUES ('53100')});
$one->sql(q{SELECT shard_tell('stopper', 'a1', '{"what": "work"}')});
my $waits = q{SELECT count(*) FROM shard_inbox WHERE entity_id = 'a1' AND attempts = 1 AND place = 'stash'};
$one->wait_value($waits, 1, 'its stop message to wait for another attempt');
move_to('stopper', 0, 2);
$two->wait_value($waits, 1, 'it to wait at the new home');
$cluster->sql_everywhere(q{UPDATE closed SET how = 'P0001'});
$two->sql(q{SELECT shard_alter('stopper', 'retry_backoff', '10 ms'), shard_alter('stopper', 'max_retry_backoff', '10 ms')});
$two->wait_value(q{SELECT count(*) FROM shard_dead_letters WHERE type_name = 'stopper'}, 1, 'it to be given up there');
move_to('stopper', 0, 1);
$cluster->sql_everywhere('TRUNCATE closed');
is($two->sql(q{SELECT shard_redrive(array_agg(id)) FROM shard_dead_letters WHERE type_name = 'stopper'}), 1, 'sent again from where it was given up')
  or diag($two->sql('SELECT * FROM shard_dead_letters'));
$cluster->drain;
is($one->sql(q{SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = 'a1'}), 'work stop', 'it goes to its home, and is handled there, once');
$one->wait_value(q{SELECT count(*) FROM shard_region_state WHERE entity_id = 'a1'}, 0, 'its entity to leave');
is($_->sql('SELECT count(*) FROM shard_dead_letters'), 0, 'and is given up no more at node ' . $_->n) for $one, $two;

# The oldest of more than 50 000 failures of a type are deleted by its worker: those of shard 1, which stays, and none of
# shard 0, which is being copied: its rows are so large that the copy has read only some of them when it stops.
bring_home('failer');
$one->sql(q{
INSERT INTO shard.history (type_id, shard, entity, seq, at, sqlstate, error, attempts, decision, outcome)
SELECT type_id, 0, 'a', i, now() - interval '2 days', 'P0001', repeat('x', 200000), 1, 'restart', 'dead letter' FROM shard.type, generate_series(1, 10) i WHERE type_name = 'failer'
UNION ALL SELECT type_id, 1, 'b' || i, 1, now() - interval '1 day', 'P0001', repeat('x', 200000), 1, 'restart', 'dead letter' FROM shard.type, generate_series(1, 10) i WHERE type_name = 'failer'
UNION ALL SELECT type_id, 1, 'c' || i, 1, now(), 'P0001', 'new', 1, 'restart', 'dead letter' FROM shard.type, generate_series(1, 50000) i WHERE type_name = 'failer'});
$cluster->sql_everywhere(q{INSERT INTO closed VALUES ('P0001')});
$two->server->set_fault('import_begin', 'freeze');
my $mover = $one->session;
$mover->send(q{SELECT shard_move('failer', 0, 2);});
ShardCluster::wait_for_condition(sub { $two->server->fault_happened }, 'the copy to begin');
$one->wait_value(q{SELECT state FROM shard.own JOIN shard.type USING (type_id) WHERE type_name = 'failer' AND shard = 0}, 'sealed', 'the shard to be sealed');
$one->sql(q{SELECT shard_tell('failer', 'b', '{"what": "fail"}')});
$one->wait_value(q{SELECT count(*) FROM shard.history WHERE shard = 1 AND error = 'old'}, 0, 'the oldest to be deleted');
$two->server->clear_fault;
$cluster->wait_home('failer', 0, 2);
$cluster->wait_settled;
is($two->sql(q{SELECT count(*) FROM shard_history('failer', 'a')}), 10, 'none of the shard that moves is, though they are older');
$mover->close;
$cluster->logs_are_clean(qr/closed|frozen/);
done_testing();
