# A node that had homes in a cluster of its own, and dropped their type, joins another cluster whose
# versions are lower: what its processes knew of the former homes must not hide those of the new one.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, join => 0);
my ($one, $two) = $cluster->nodes;

# Asks leave nothing in the inbox, so that the node may join afterwards.
my $start = q{SELECT shard_start('tally', 'tally(jsonb, jsonb)', number_of_shards => 8)};
for my $node ($one, $two)
{
	$node->sql(<<'SQL');
CREATE FUNCTION tally(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
  RETURN to_jsonb(coalesce((state #>> '{}')::int, 0) + (message #>> '{}')::int);
SQL
}
$two->sql($start);
for my $id (1 .. 40)
{
	$two->sql(qq{SELECT shard_ask('tally', '$id', '1')});
}
is($two->sql(q{SELECT count(DISTINCT shard) FROM shard_homes}), 8, 'a node alone gave homes');
$two->sql(q{SELECT shard_stop_type('tally')});
$two->sql(q{SELECT shard_drop_type('tally', true)});
$two->wait_value(q{SELECT count(*) FROM shard_homes}, 0, 'they went with their type');

$one->sql($start);
$one->sql(q{SELECT shard_tell('tally', g::text, '1') FROM generate_series(1, 40) g});
$one->wait_value(q{SELECT count(*) FROM shard_homes WHERE phase = 'stable'}, 8, 'homes at the first node, which is alone');
$cluster->join_all;
$two->sql($start);
$two->sql(q{SELECT shard_tell('tally', g::text, '1') FROM generate_series(1, 40) g});
$one->wait_value(q{SELECT sum((state #>> '{}')::int) FROM shard_entity.tally}, 80,
	'what it tells now comes to the homes of its cluster');
$cluster->logs_are_clean;
done_testing();
