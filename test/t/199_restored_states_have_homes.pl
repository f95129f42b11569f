# States that a dump brought, of shards without homes: by the documented call each such shard gets its home where they are, so a node
# that joins later takes none of them for new.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, join => 0, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;
$cluster->start_counter_at($one);
$one->sql(q{INSERT INTO shard_entity.counter (shard, entity_id, state)
	SELECT shard_shard_id('counter', i::text), i::text, '{"count": 1}' FROM generate_series(1, 100) i});
is($one->sql('SELECT count(*) FROM shard_homes'), 0, 'states without homes');
is($one->sql(q{SELECT count(shard_start_entity('counter', e)) FROM (SELECT min(entity_id) FROM shard_entity.counter GROUP BY shard) s(e)}), 12, 'an entity of each shard is started');
is($one->sql(q{SELECT shard_drain('60 s')}), 't', 'which is handled');
is($one->sql('SELECT count(*), max(node) FROM shard_homes'), '12|1', 'so each shard has its home where its states are');

$cluster->join_node(2);
$cluster->wait_up;
$cluster->start_counter_at($two);
$two->sql(q{SELECT count(shard_tell('counter', i::text, '{"add": 1}')) FROM generate_series(1, 100) i});
$one->wait_value(q{SELECT count(*) FROM shard_entity.counter WHERE state->>'count' = '2'}, 100, 'all states to have the message');
pass('messages from a node that has joined find the states');
is($two->sql('SELECT count(*) FROM shard_entity.counter'), 0, 'and none begins anew');

done_testing();
