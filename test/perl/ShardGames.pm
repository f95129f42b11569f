package ShardGames;

=head1 NAME

ShardGames - games whose events come in at several nodes, and what their judges saw

=head1 SYNOPSIS

  ShardGames::start($cluster);
  $node->sql(ShardGames::events(1, 10, 'g1', 'g2'));    # events 1 to 10 of two games
  ShardGames::check($cluster, 10, @games);

=head1 DESCRIPTION

Type "game", on all nodes: an entity appends the numbers of its events to its state. Events are numbered
from 1 within each game, and handled in that order whoever sent them (ordered_by); a game lives where its
first event came in (locality).

=cut

use strict;
use warnings FATAL => 'all';

use Test::More;

my $type = q{
CREATE FUNCTION game(state int8[], message jsonb) RETURNS int8[] LANGUAGE sql
RETURN state || (message->>'n')::int8;
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'n')::int8;
};

sub start
{
	my ($cluster, $settings) = @_;
	$settings //= "ordered_timeout => '1 h'";
	$cluster->sql_everywhere($type);
	$_->sql("SELECT shard_start('game', 'game', ordered_by => 'number_of', ordered_from => 1,
		allocation_strategy => 'locality', $settings)") for $cluster->nodes;
	$cluster->wait_registered;
	return;
}

# SQL that sends events of games, one transaction.
sub events
{
	my ($first, $last, @games) = @_;
	my $list = join ', ', map { "'$_'" } @games;
	return "SELECT count(shard_tell('game', g, jsonb_build_object('n', n)))
		FROM generate_series($first, $last) n, unnest(ARRAY[$list]) g;\n";
}

# Messages that wait at a node for lower numbers.
our $waiting = q{SELECT count(*) FROM shard_inbox WHERE type_name = 'game' AND place = 'ordered'};

# Everything was handled once, in order, by one entity for each game; nothing was skipped or came late.
sub check
{
	my ($cluster, $last, @games) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (%found, @wrong);
	my $all = join ',', 1 .. $last;
	for my $node ($cluster->nodes)
	{
		for my $row (split /\n/, $node->sql('SELECT entity_id, array_to_string(state, \',\') FROM shard_entity.game'))
		{
			my ($game, $events) = split /\|/, $row;
			push @wrong, "$game has two judges, at node $found{$game} and at " . $node->n if $found{$game};
			push @wrong, "$game saw " . substr($events, 0, 200) if $events ne $all;
			$found{$game} = $node->n;
		}
		push @wrong, map { 'dead letter at node ' . $node->n . ": $_" }
		  split /\n/, $node->sql("SELECT entity_id, error FROM shard_dead_letters WHERE type_name = 'game'");
		push @wrong, map { 'position at node ' . $node->n . ": $_" } split /\n/, $node->sql(<<SQL);
SELECT * FROM shard_ordered WHERE (began, expected, skipped, late, waiting) IS DISTINCT FROM (1, $last + 1, 0, 0, 0)
SQL
	}
	push @wrong, map { "$_ has no judge" } grep { !$found{$_} } @games;
	is(@wrong, 0, 'each game was judged by one entity that saw all its events, in order');
	diag($_) for @wrong[ 0 .. (@wrong > 10 ? 9 : $#wrong) ];
	return;
}

1;
