# Games whose events come in at another node than before, while those of before have not left yet: later events
# wait at the game's home. They wait on while the shard moves, while its old and its new home are killed, and
# after that; then the missing ones come, and each game has all its events in order.

use strict;
use warnings FATAL => 'all';

use ShardGames;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.region_workers = 2');
my ($one, $two, $three) = $cluster->nodes;
my @games = map { "g$_" } 1 .. 6;
ShardGames::start($cluster);

$one->sql(ShardGames::events(1, 10, @games));
$cluster->drain;
is(join(' ', map { $cluster->home_of('game', $_) } @games), '1 1 1 1 1 1', 'games live where their first events came in');

# What node 2 sends stays in its inbox: its workers stand still.
my @frozen = $two->workers('%region%');
$two->server->stop_idle(@frozen);
$two->sql(ShardGames::events(11, 20, @games));
$three->sql(ShardGames::events(21, 30, @games));
$one->wait_value($ShardGames::waiting, 60, 'later events to wait');
is($one->sql(q{SELECT string_agg(DISTINCT concat_ws(' ', expected, waiting, first_waiting), '; ') FROM shard_ordered}), '11 10 21',
	'they wait for the ones between');
is($one->sql(q{SELECT shard_drain('100 ms')}), 'f', 'and count as not handled');

my @moving = @games[ 0 .. 2 ];
my @shards = map { $cluster->shard_of('game', $_) } @moving;
$cluster->move('game', $_, 3) for @shards;
$cluster->wait_home('game', \@shards, 3, $one, $three);
$three->wait_value($ShardGames::waiting, 30, 'half of them to be at node 3');
$one->wait_value('SELECT count(*) FROM shard.held', 30, 'the others to be at node 1 alone');
$one->wait_value('SELECT count(*) FROM shard.ordered', 3, 'half of the positions to have left');

$one->sql(ShardGames::events(31, 40, @games));
$three->wait_value($ShardGames::waiting, 60, 'new ones to wait there, too');
for my $node ($three, $one)
{
	$node->server->crash;
	$node->server->recover;
}
$cluster->wait_reachable($one, $three);
is($_->sql($ShardGames::waiting), 60, 'they wait on after the crash of node ' . $_->n) for $one, $three;
is($one->sql(q{SELECT max(cardinality(state)) FROM shard_entity.game}), 10, 'and nothing was handled before its turn');

kill 'CONT', @frozen;
$cluster->drain;
$cluster->wait_settled;
ShardGames::check($cluster, 40, @games);
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
