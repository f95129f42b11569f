# G09, G11: a rolling update by nodes that join and nodes that leave: shards go to the newest version
# that there is (shard.app_version), not to those that will leave next, so each moves once.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $old = q{shard.app_version = '1.0.0'};
my $new = q{shard.app_version = '1.0.1'};
my $cluster = ShardNodes->create(2, conf => q{shard.rebalance_interval = '1s'}, confs => { 1 => $old, 2 => $old, 3 => $new, 4 => $new });
$cluster->start_counter;
my ($one, $two) = $cluster->nodes;
my %at;
for my $id (1, 2)
{
	$one->add($id, $id);
	($at{$id}) = $one->get($id) =~ /from (\S+)/;
}
is(join(' ', sort values %at), 'node1 node2', 'G09: one on each');
is($one->sql(q{SELECT string_agg(DISTINCT app_version, ' ') FROM shard_members}), '1.0.0', 'of the old version');

for my $n (3, 4)
{
	$cluster->add_node;
	$cluster->start_counter_at($cluster->node($n));
	$cluster->join_node($n);
	$cluster->wait_up;
}
$cluster->wait_registered;
my ($three, $four) = ($cluster->node(3), $cluster->node(4));
is($three->sql(q{SELECT string_agg(app_version, ' ' ORDER BY node) FROM shard_members}), '1.0.0 1.0.0 1.0.1 1.0.1', 'both versions are members');
# New shards go to the new version while both are there.
$two->add($_, $_) for 3 .. 8;
my @fresh = map { $two->get($_) } 3 .. 8;
is(scalar(grep { !/from node[34]$/ } @fresh), 0, 'G09: new shards go to the new version') or diag("@fresh");

for my $leaver ($one, $two)
{
	is($leaver->sql(q{SELECT shard_leave('60 s')}), 't', 'G11: node ' . $leaver->n . ' leaves');
	$cluster->has_left($leaver->n);
	$cluster->wait_up;
	$cluster->wait_settled;
	like($four->get($_), qr/^$_ from node/, "G11: entity $_ answers") for 1 .. 8;
}
like($three->get($_), qr/^$_ from node[34]$/, "G11: entity $_ has come to the new version") for 1 .. 8;
is($three->sql(q{SELECT string_agg(shard::text, ' ') FROM shard_homes WHERE type_name = 'counter' AND epoch > 1}), '',
	'G11: no shard moved twice');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
