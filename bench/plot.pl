# usage: perl plot.pl TSV TITLE [SECONDS=MARK]... >SVG
#
# Draws what a cluster looked like while a node joined: a panel each for the messages handled per second, for how
# long they waited, and for the shards of each node. Columns of the TSV: seconds, messages/s, p50 and longest wait in
# ms, shards of nodes 1, 2, 3. A mark is a vertical line with a name.

use strict;
use warnings FATAL => 'all';

my ($left, $right, $top, $height, $gap) = (80, 840, 64, 150, 56);
my @panels = (
	{ title => 'messages handled per second', columns => [ [ 1, 'a', 'all nodes' ] ] },
	{   title => 'from sent to handled, ms',
		columns => [ [ 3, 'c', 'longest in half a second' ], [ 2, 'a', 'median' ] ] },
	{   title => 'shards whose home is',
		columns => [ [ 4, 'a', 'node 1' ], [ 5, 'b', 'node 2' ], [ 6, 'c', 'node 3' ] ] });

my ($file, $title, @marks) = @ARGV;
die "usage: perl plot.pl TSV TITLE [SECONDS=MARK]...\n" unless defined $title;
open my $tsv, '<', $file or die "$file: $!\n";
my @rows = map { chomp; [ map { $_ eq '\N' ? undef : $_ } split /\t/ ] } <$tsv>;
close $tsv;
die "$file has no rows\n" unless @rows;
my $until = $rows[-1][0] || 1;

sub x { return sprintf '%.1f', $left + $_[0] / $until * ($right - $left); }

# The largest of 1, 2, 5, 10, … that divides an axis into four parts or more.
sub step
{
	my ($length) = @_;
	my $power = 10**int(log($length / 4) / log(10) + ($length < 4 ? -1 : 0));
	return (grep { $_ * 4 <= $length } map { $power * $_ } 10, 5, 2, 1)[0] // $power;
}

sub escape { return $_[0] =~ s/&/&amp;/gr =~ s/</&lt;/gr; }

my $bottom = $top + @panels * ($height + $gap);
print <<"END";
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 $bottom" width="860" height="$bottom" role="img">
<title>@{[escape($title)]}</title>
<style>
  .g { stroke: #d1d9e0; fill: none } .m { stroke: #57606a; stroke-dasharray: 4 3; fill: none }
  polyline { fill: none; stroke-width: 1.5 }
  .a { stroke: #1f6feb } .b { stroke: #1a7f37 } .c { stroke: #cf222e }
  text { font: 12px system-ui, sans-serif; fill: #57606a } .h { font-weight: 600; fill: #1f2328 }
  text.a { fill: #1f6feb; stroke: none } text.b { fill: #1a7f37; stroke: none } text.c { fill: #cf222e; stroke: none }
  \@media (prefers-color-scheme: dark) { .g { stroke: #3d444d } .m { stroke: #9198a1 } text { fill: #9198a1 }
    .h { fill: #f0f6fc } .a { stroke: #4493f8 } .b { stroke: #3fb950 } .c { stroke: #f85149 }
    text.a { fill: #4493f8 } text.b { fill: #3fb950 } text.c { fill: #f85149 } }
</style>
<text class="h" x="$left" y="20">@{[escape($title)]}</text>
END

for my $i (0 .. $#panels)
{
	my $panel = $panels[$i];
	my $base = $top + $height + $i * ($height + $gap);
	my ($most) = sort { $b <=> $a } map { my $row = $_; map { $row->[ $_->[0] ] // 0 } @{ $panel->{columns} } } @rows;
	my $step = step($most || 1);
	my $scale = $height / ($most * 1.05 || 1);
	my $legend = $right;

	for (my $value = 0; $value <= $most; $value += $step)
	{
		my $y = sprintf '%.1f', $base - $value * $scale;
		print qq{<path class="g" d="M$left ${y}H$right"/><text x="@{[$left - 6]}" y="@{[$y + 4]}" text-anchor="end">$value</text>\n};
	}
	print qq{<text class="h" x="$left" y="@{[$base - $height - 8]}">$panel->{title}</text>\n};
	for my $column (reverse @{ $panel->{columns} })
	{
		my ($index, $class, $name) = @$column;
		print qq{<text class="$class" x="$legend" y="@{[$base - $height - 8]}" text-anchor="end">$name</text>\n};
		$legend -= 7 * length($name) + 20;
	}
	for my $column (@{ $panel->{columns} })
	{
		my ($index, $class) = @$column;
		my $points = join ' ',
		  map { x($_->[0]) . ',' . sprintf('%.1f', $base - $_->[$index] * $scale) } grep { defined $_->[$index] } @rows;
		print qq{<polyline class="$class" points="$points"/>\n};
	}
	my $tick = step($until);
	for (my $second = 0; $second <= $until; $second += $tick)
	{
		print qq{<text x="@{[x($second)]}" y="@{[$base + 16]}" text-anchor="middle">$second s</text>\n};
	}
}
for my $mark (@marks)
{
	my ($second, $name) = split /=/, $mark, 2;
	my $x = x($second);
	print qq{<path class="m" d="M$x 40V@{[$bottom - $gap]}"/><text x="@{[$x + 4]}" y="42">@{[escape($name)]}</text>\n};
}
print "</svg>\n";
