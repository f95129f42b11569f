# The checker of asks finds each way in which a register can fail to be one, and lets pass what one
# copy of it can explain.

use strict;
use warnings FATAL => 'all';

use ShardHistory;
use ShardLoad;
use Test::More;

# Each ask is [id, value or '' to read, called, answered or undef, was].
sub verdict
{
	my (@asks) = @_;
	my $history = ShardHistory->new;
	for my $ask (@asks)
	{
		my ($id, $value, $from, $to, $was) = @$ask;
		$history->call($id, 'r', $value, $from);
		$history->answer($id, $was, $to) if defined $to;
	}
	return scalar(my @found = $history->violations) ? 'violated' : 'fine';
}

my @write = ([ 'a', 'a', 1, 2, 'none' ], [ 'b', 'b', 3, 4, 'a' ]);

is(verdict(), 'fine', 'nothing');
is(verdict(@write, [ 'r', '', 5, 6, 'b' ]), 'fine', 'one after the other');
is(verdict(@write, [ 'r', '', 2.5, 6, 'a' ]), 'fine', 'a read that overlaps a write sees what was before');
is(verdict(@write, [ 'r', '', 2.5, 6, 'b' ]), 'fine', 'or after');
is(verdict([ 'a', 'a', 1, 9, 'b' ], [ 'b', 'b', 1, 9, 'none' ]), 'fine', 'overlapping writes in either order');
is(verdict(@write, [ 'u', 'u', 2, undef ], [ 'r', '', 5, 6, 'b' ]), 'fine', 'a write without answer may not have been done');
is(verdict(@write, [ 'u', 'u', 2, undef ], [ 'r', '', 5, 6, 'b' ], [ 's', '', 7, 8, 'u' ]), 'fine', 'or late');
is(verdict([ 'a', 'a', 1, 2, 'none' ], [ 'u', 'u', 1, undef ], [ 'b', 'b', 3, 4, 'u' ]), 'fine', 'or early');

is(verdict(@write, [ 'r', '', 5, 6, 'a' ]), 'violated', 'a stale read');
is(verdict(@write, [ 'r', '', 5, 6, 'none' ]), 'violated', 'a write lost');
is(verdict([ 'a', 'a', 1, 2, 'none' ], [ 'b', 'b', 3, 4, 'none' ]), 'violated', 'two copies');
is(verdict(@write, [ 'c', 'c', 5, 6, 'a' ]), 'violated', 'an answered write undone');
is(verdict(@write, [ 'r', '', 5, 6, 'b' ], [ 's', '', 7, 8, 'a' ]), 'violated', 'a write done twice');
is(verdict([ 'a', 'a', 1, 2, 'b' ], [ 'b', 'b', 3, 4, 'none' ]), 'violated', 'reordered');
is(verdict([ 'a', 'a', 3, 4, 'none' ], [ 'r', '', 1, 2, 'a' ]), 'violated', 'seen before it was written');
is(verdict([ 'u', 'u', 3, undef ], [ 'r', '', 1, 2, 'u' ]), 'violated', 'the same of one without answer');
is(verdict(@write, [ 'u', 'u', 2, undef ], [ 'r', '', 5, 6, 'u' ], [ 's', '', 7, 8, 'b' ], [ 't', '', 9, 10, 'u' ]),
	'violated', 'a write without answer done twice');
is(verdict([ 'r', '', 1, 2, 'x' ]), 'violated', 'a value that nobody wrote');

# Histories of a true register under some seeds, some asks of which take effect unanswered; and the
# same with one answer changed. Changing an answer to one that another order explains is no violation,
# so the changed ones are counted.
sub simulate
{
	my ($seed, $spoil) = @_;
	my $chance = ShardLoad::random_stream($seed);
	my ($value, @asks) = ('none');
	for my $i (1 .. 60)
	{
		my $at = $i * 10;
		my $written = $chance->(3) ? "v$i" : '';
		my ($from, $to) = ($at - 1 - $chance->(25), $at + 1 + $chance->(25));
		my $lost = !$chance->(8);
		my $done = !$lost || $chance->(2);
		push @asks, [ "i$i", $written, $from, $lost ? undef : $to, $value ];
		$value = $written if $written ne '' && $done;
	}
	my @answered = grep { defined $_->[3] } @asks;
	my $victim = $answered[ 5 + $chance->(@answered - 5) ];
	# Something from long ago.
	$victim->[4] = 'none' if $spoil && $victim->[4] ne 'none';
	return verdict(@asks);
}

my $seeds = 100;
is(scalar(grep { simulate($_) eq 'fine' } 1 .. $seeds), $seeds, 'registers that work');
cmp_ok(scalar(grep { simulate($_, 1) eq 'violated' } 1 .. $seeds), '>=', $seeds - 5, 'registers with a stale answer');

done_testing();
