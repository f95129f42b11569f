# C01, C03, C09: messages find the home of their entity wherever they are sent; the first message
# makes one; homes spread over the nodes; what an entity counts does not depend on who sent.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
$cluster->start_counter;
my ($one, $two) = $cluster->nodes;

# C01 is about one node: entity 1 gets a home when only node 1 has sent anything.
$one->add(1, 1, 1, 1, -1);
like($one->get(1), qr/^2 from node[12]$/, 'C01: counts what was told before');
like($two->get(1), qr/^2 from /, 'C01: from the other node, too');

# C03: the others go where there are fewer.
$two->add(2, 1, 1, 1);
my %where;
for my $id (2 .. 12)
{
	my ($from_one, $from_two) = ($one->get($id), $two->get($id));
	is($from_one, $from_two, "C03: entity $id is the same from both nodes");
	$where{ ($from_one =~ /from (\S+)/)[0] }++;
}
like($one->get(2), qr/^3 from /, 'C03: told from the other node');
is(join(' ', sort keys %where), 'node1 node2', 'C03: both nodes are homes');
cmp_ok(abs($where{node1} - $where{node2}), '<=', 2, 'C03: of about as many shards each');

# C09: shards have one home, known alike to both.
$one->add($_, 1) for 1, 11, 21;
$two->add($_, 1) for 1, 11, 21;
$cluster->drain;
is($one->get(21) =~ /^2 from (\S+)/ ? $1 : '', $one->get(9) =~ /from (\S+)/ ? $1 : 'none', 'C09: entities of one shard live together');
my $homes = q{SELECT string_agg(format('%s %s %s', shard, node, epoch), ', ' ORDER BY shard) FROM shard_homes WHERE type_name = 'counter'};
$two->wait_value($homes, $one->sql($homes), 'both nodes to know the same homes');
pass('C09: both nodes know the same homes');
is($one->sql(q{SELECT count(*) FROM shard_homes WHERE type_name = 'counter' AND node IS NULL}), 0, 'all shards have one');

# States are where the homes are, and nowhere else.
for my $node ($cluster->nodes)
{
	is($node->sql(q{SELECT count(*) FROM shard_entity.counter c, shard_homes h
		WHERE h.type_name = 'counter' AND h.shard = c.shard AND h.node <> } . $node->n), 0,
		'node ' . $node->n . ' has no state of others');
}
$cluster->logs_are_clean;
done_testing();
