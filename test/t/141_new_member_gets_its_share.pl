# C11, E19: a node that joins gets its share of the shards by rebalancing, so many in a round as the type
# allows; entities take their state along, answer all the while, and from their new home afterwards. The
# plan can be seen before, who moved what and why afterwards.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $cluster = ShardNodes->create(2, databases => 1, join => 0, conf => q{shard.rebalance_interval = '2s'});
$cluster->start_counter(settings => q{, allocation_settings => '{"rebalance_absolute_limit": 2}'});
my ($one, $two) = $cluster->nodes;
my $homes = q{SELECT count(*) FROM shard_homes WHERE type_name = 'counter' AND phase = 'stable' AND node = };

$one->add($_, $_) for 1 .. 10;
is($one->get($_), "$_ from node1", "C11: entity $_ lives at the only node") for 1 .. 10;
is($one->sql('SELECT count(*) FROM shard_rebalance_plan()'), 0, 'nothing to move in a cluster of one');

$cluster->join_all;
my $joined = time;
my $before = $one->sql('SELECT extract(epoch FROM now())');
$one->wait_until("SELECT ($homes 2) >= 2", 'two shards at the new member');
note(sprintf 'two shards were at the new member %.1f s after it was up', time - $joined);
# Everybody answers, wherever it is just now, with what it had.
for my $id (1 .. 10)
{
	like($_->get($id), qr/^$id from node[12]$/, "C11: entity $id answers node " . $_->n) for $cluster->nodes;
}
$one->wait_until("SELECT abs(($homes 1) - ($homes 2)) <= 2", 'balance');
cmp_ok(time - $joined, '<', 60, 'C11: balanced within 60 s');
# Within two of each other, one more may still be planned.
$one->wait_value('SELECT count(*) FROM shard_rebalance_plan()', '0', 'no more to be planned');
$cluster->wait_settled;
my %at = map { $_ => $two->get($_) } 1 .. 10;
my @moved = grep { $at{$_} =~ /node2/ } 1 .. 10;
cmp_ok(scalar @moved, '>=', 4, 'E19: replies come from another address');
is(join(' ', map { $at{$_} =~ /^(\d+)/ } 1 .. 10), join(' ', 1 .. 10), 'E19: with the same state');
$_->add($moved[0], 100) for $cluster->nodes;
$cluster->drain;
is($one->get($moved[0]), ($moved[0] + 200) . ' from node2', 'what both send afterwards counts there');

is($one->sql('SELECT count(*) FROM shard_rebalance_plan()'), 0, 'no more is planned');
is($one->sql("SELECT count(DISTINCT shard) FROM shard_decisions WHERE what = 'moved' AND from_node = 1 AND to_node = 2"),
	$one->sql("$homes 2"), 'each move is in shard_decisions');
is($two->sql("SELECT count(*) FROM shard_decisions WHERE what = 'moved'"), $one->sql("SELECT count(*) FROM shard_decisions WHERE what = 'moved'"),
	'which any node shows');
# No more than two of a round at once: between two beginnings of a third there is an interval.
is($one->sql(<<"SQL"), 0, 'C11: no more at once than the type allows');
SELECT count(*) FROM (SELECT at - lag(at, 2) OVER (ORDER BY at) AS apart FROM shard_decisions
	WHERE what = 'move begun' AND extract(epoch FROM at) > $before - 5) d WHERE apart < '1 s'
SQL
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
