# P62: a member fails to copy a shard for reasons that have megabytes. What is kept of them is short (moves_test); and a text that was kept
# before, or is too long for its row, hides no other decision: shard_decisions shows all of them, also of other nodes.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
my @shown = map { "SELECT count(*) FROM shard_decisions WHERE node = $_" } 1, 2;
my ($first, $second) = map { $one->sql($_) } @shown;
cmp_ok($first, '>', 0, 'there are decisions of the coordinator');

# Compressed in its row, and outside of it.
my $long = q{INSERT INTO shard.decision (kind, why) SELECT 'member', %s FROM generate_series(1, 60000) i};
for my $node ($one, $two)
{
	$node->sql(sprintf $long, q{string_agg('x', '')});
	$node->sql(sprintf $long, q{string_agg(md5(i::text), '')});
}
for my $node ($one, $two)
{
	is($node->sql($shown[0]), $first + 2, 'P62 node ' . $node->n . ' shows all decisions of node 1');
	is($node->sql($shown[1]), $second + 2, 'P62 and of node 2');
	is($node->sql(q{SELECT string_agg(DISTINCT length(why)::text, ' ') FROM shard_decisions WHERE length(why) > 10000}), '1920000 60000', 'P62 whole');
}
done_testing;
