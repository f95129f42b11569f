# Three nodes take events of games, as the consumers of a group take the partitions of a stream: each partition
# comes in at one of them, and now and then at another one, which goes on where the last one stopped and waits for
# nobody. Shards move meanwhile, and of one node after the other the workers stand still, into the next round. Each game is judged by one
# entity with all events, in order: its home puts them in order by their numbers.
#
# Built with the mutant ORDER_IGNORED it has to find that they are not.

use strict;
use warnings FATAL => 'all';

use ShardGames;
use ShardNodes;
use Test::More;

my $partitions = 12;
my $rounds = 9;
my $events = 20;    # of a game in a round
my @games = map { "g$_" } 0 .. 35;

my $cluster = ShardNodes->create(3, conf => 'shard.region_workers = 2');
ShardGames::start($cluster);
my @nodes = $cluster->nodes;
my @sessions = map { $_->session } @nodes;

# Games whose partition comes in at a node in a round.
sub games_of
{
	my ($n, $round) = @_;
	return grep { my ($g) = /(\d+)/; ($g % $partitions + $round) % 3 + 1 == $n } @games;
}

# A shard of a game that lives at one of two nodes goes to the other one. Returns whether it does.
sub move_between
{
	my ($from, $to) = @_;
	for my $game (@games)
	{
		my $home = $cluster->home_of('game', $game, $from);
		my ($target) = grep { $_->n ne $home } $from, $to;
		next if $home ne $from->n && $home ne $to->n;
		$cluster->move('game', $cluster->shard_of('game', $game), $target->n, $target);
		push @games, shift @games;
		return 1;
	}
	return 0;
}

my $moves = 0;
my @frozen;
for my $round (0 .. $rounds - 1)
{
	# Who takes over the sleeper's partitions in the next round is awake then; the sleeper is not yet.
	my ($sleeper, $awake, $last) = @nodes[ map { $_ - $round % 3 } 2, 1, 0 ];
	my @before = @frozen;
	@frozen = $sleeper->workers('%region%');
	$sleeper->server->stop_idle(@frozen);
	for my $node (@nodes)
	{
		my $sql = '';
		for my $part (0 .. 3)
		{
			my $first = $round * $events + $part * $events / 4 + 1;
			$sql .= ShardGames::events($first, $first + $events / 4 - 1, games_of($node->n, $round));
		}
		$sessions[ $node->n - 1 ]->send($sql);
	}
	$_->receive for @sessions;
	$awake->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_inbox WHERE place = 'inbox')}, 'its events to leave') if $round > 0;
	kill 'CONT', @before;
	$moves += move_between($awake, $last) if $round > 0;
}
kill 'CONT', @frozen;
note("moves: $moves");
$cluster->drain;
$cluster->wait_settled;
if (($ENV{SHARD_MUTANT} // '') eq 'ORDER_IGNORED')
{
	my $wrong = 0;
	my $all = join ',', 1 .. $rounds * $events;
	$wrong += $_->sql("SELECT count(*) FROM shard_entity.game WHERE array_to_string(state, ',') <> '$all'") for @nodes;
	cmp_ok($wrong, '>', 0, 'it is noticed that numbers are not looked at');
	done_testing();
	exit;
}
cmp_ok($moves, '>', 0, 'shards moved meanwhile');
ShardGames::check($cluster, $rounds * $events, @games);
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
