# The README tells the truth: its sql blocks, run in order on a fresh server, in one session as a reader has it, print
# what the lines marked "-->" behind a statement say. A line "\c name" goes to another database, until the next one.
# Then come the blocks of doc/handlers.md that have such lines.

use strict;
use warnings FATAL => 'all';

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $readme = dirname(__FILE__) . '/../../README.md';
plan skip_all => 'README.md was not copied beside the tests' unless -e $readme;

# The statements of a block: [ text, its expected lines ]. A statement ends with a line's ";" that
# is not inside of $$ … $$, a comment behind it does not count.
sub statements
{
	my ($block) = @_;
	my @statements;
	my $text = '';

	for my $line (split /\n/, $block)
	{
		if ($line =~ /^--> ?(.*)$/)
		{
			push @{ $statements[-1][1] }, $1;
			next;
		}
		$text .= "$line\n";
		my $quotes = () = $text =~ /\$\$/g;
		next if $quotes % 2 || $line !~ /(?:;\s*(?:--.*)?|^\\c \w+)$/;
		push @statements, [ $text, [] ];
		$text = '';
	}
	die "block ends in the midst of a statement: $text" if $text =~ /\S/;
	return @statements;
}

# Columns apart by " | ", as the README writes them; empty lines of void results left out.
sub printed
{
	my ($output) = @_;
	return join "\n", grep { /[^|\s]/ } map { s/\s*\|\s*/ | /gr } split /\n/, $output;
}

my $handlers = dirname($readme) . '/doc/handlers.md';

sub blocks { return slurp_file($_[0]) =~ /^```sql\n(.*?)^```$/msg; }

my @blocks = blocks($readme);
cmp_ok(scalar @blocks, '>=', 1, 'the README has sql blocks');
my @longer = grep { /^-->/m } blocks($handlers);
cmp_ok(scalar @longer, '>=', 1, 'so has doc/handlers.md');
push @blocks, @longer;

my $node = ShardCluster->create('reader', extension => 0);
my $quoted = 0;
my $session = $node->session;
for my $block (@blocks)
{
	for my $statement (statements($block))
	{
		my ($text, $expected) = @$statement;
		my $output = printed($session->query($text));
		$quoted += @$expected;

		# Of a statement whose output is not quoted only errors matter: query dies of them.
		is($output, printed(join "\n", @$expected), ($text =~ /(\S.*)/)[0]) if @$expected;
	}
}
$session->close;
cmp_ok($quoted, '>=', 3, 'the README quotes results');

$node->log_is_clean(qr/became a dead letter/);
done_testing();
