# usage: perl house.pl [DIR]      prints the figures of the house, of the tree DIR (default: this one)
#
# How large extension/ is, and how tidy: what a reader meets who looks for the place of a thing. "make house" runs it, so
# that a change can be measured before and after. lint.pl refuses what must not be; here is what should stay small.
#
# Units: a .c file with the header of its name; X_private.h and internal.h belong to no unit, their folder shares them.

use strict;
use warnings FATAL => 'all';

use File::Find;

my $root = shift // '.';
chdir $root or die "could not enter $root: $!\n";

sub slurp { my ($file) = @_; open(my $handle, '<', $file) or die "could not open $file: $!\n"; local $/; return scalar <$handle> }

sub blank { my ($text) = @_; $text =~ s/[^\n]/ /g; return $text }

# C without comments and literals; lines keep their numbers.
sub bare
{
	my ($text) = @_;
	$text =~ s{(/\*.*?\*/|//[^\n]*)|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')}{defined $1 ? blank($1) : '"' . blank(substr($2, 2)) . '"'}gse;
	return $text;
}

sub median { my @sorted = sort { $a <=> $b } @_; return @sorted ? $sorted[ @sorted / 2 ] : 0 }
sub per { my ($part, $all) = @_; return sprintf('%d of %d (%.0f %%)', $part, $all, $all ? 100 * $part / $all : 100) }

my @files;
find({ no_chdir => 1, wanted => sub { push @files, $_ if /\.[ch]$/ && -f } }, 'extension');
@files = sort @files;
my %text = map { $_ => slurp($_) } @files;
my %bare = map { $_ => bare($text{$_}) } @files;

# --- files and functions --------------------------------------------------------------------------

my (@sizes, @functions, @exported, $comments, $lines);
my ($longest_file, $longest_function) = ([ 0, '' ], [ 0, '' ]);
for my $file (@files)
{
	my @raw = split /\n/, $text{$file};
	my @lines = split /\n/, $bare{$file};
	push @sizes, scalar @raw if $file =~ /\.c$/;
	$longest_file = [ scalar @raw, $file ] if @raw > $longest_file->[0];
	$lines += @raw;
	$comments += grep { my $bare = $lines[$_] // ''; $raw[$_] =~ /\S/ && $bare !~ /\S/ } 0 .. $#raw;
	next unless $file =~ /\.c$/;
	my ($start, $name, $static);
	for my $number (0 .. $#lines)
	{
		my $line = $lines[$number];
		if ($line =~ /^(\w+)\(/ && $number > 0)
		{
			$name = $1;
			$static = $lines[ $number - 1 ] =~ /\bstatic\b|\binline\b/;
		}
		$start = $number if $line =~ /^\{/;
		next unless defined $start && $line =~ /^\}/;
		if (defined $name && $line !~ /;/)
		{
			my $size = $number - $start + 1;
			push @functions, $size;
			$longest_function = [ $size, "$file: $name" ] if $size > $longest_function->[0];
			push @exported, [ $file, $name ] unless $static || $name =~ /^_/ || $bare{$file} =~ /PG_FUNCTION_INFO_V1\($name\)/;
		}
		undef $start;
		undef $name;
	}
}

# --- names: shard_<file, or its first words, or its room>_<verb> -----------------------------------

sub obeys
{
	my ($file, $name) = @_;
	my ($stem) = $file =~ m{([^/]+)\.c$};
	my @rooms = $file =~ m{([^/]+)/}g;
	my @words = split /_/, $stem;
	my @prefixes = ((map { join '_', @words[ 0 .. $_ ] } 0 .. $#words), @rooms);
	push @prefixes, map { (my $one = $_) =~ s/s$//; $one } @prefixes;
	return scalar grep { $name eq "shard_$_" || index($name, "shard_${_}_") == 0 } @prefixes;
}
my @strangers = grep { !obeys(@$_) } @exported;

# --- includes --------------------------------------------------------------------------------------

sub unit_of { my ($file) = @_; $file =~ s{^extension/}{}; $file =~ s{\.[ch]$}{}; return $file }
sub is_shared { my ($unit) = @_; return $unit =~ m{_private$|(?:^|/)internal$} && !exists $text{"extension/$unit.c"} }
sub room_of { my ($unit) = @_; return $unit =~ m{^(.+)/} ? $1 : '' }

my @rooms = -e 'test/lint.pl' && slurp('test/lint.pl') =~ /my \@rooms = qw\((.*?)\)/s ? split(' ', $1) : ();
my %floor = map { $rooms[$_] => $_ + 1 } 0 .. $#rooms;
my (%uses, %users, %arrows);
my $upward = 0;
for my $file (@files)
{
	my $unit = unit_of($file);
	for my $header ($text{$file} =~ /^\s*#\s*include\s+"([^"]+)"/mg)
	{
		next unless exists $text{"extension/$header"};
		my $used = unit_of("extension/$header");
		next if $used eq $unit;
		$uses{$unit}{$used} = 1;
		$users{$used}{$unit} = 1;
		my ($from, $to) = (room_of($unit), room_of($used));
		$arrows{"$from $to"} = 1 if $from ne $to && $to ne '' && $from ne '';
		$upward++ if ($floor{$from} // 0) < ($floor{$to} // 0) && $from ne '';
	}
}

# Units that include each other, by way of others, too; headers that a folder shares are no step of the way.
my (%index, %low, @stack, %on, @circles);
my $next = 0;

sub visit
{
	my ($unit) = @_;
	$index{$unit} = $low{$unit} = $next++;
	push @stack, $unit;
	$on{$unit} = 1;
	for my $used (grep { !is_shared($_) } sort keys %{ $uses{$unit} // {} })
	{
		visit($used) unless defined $index{$used};
		$low{$unit} = $low{$used} if $on{$used} && $low{$used} < $low{$unit};
	}
	return if $low{$unit} != $index{$unit};
	my @circle;
	do { push @circle, pop @stack; $on{ $circle[-1] } = 0 } until $circle[-1] eq $unit;
	push @circles, [ sort @circle ] if @circle > 1;
}
my %units = map { unit_of($_) => 1 } @files;
no warnings 'recursion';
defined $index{$_} or is_shared($_) or visit($_) for sort keys %units;

my @headers = grep { /\.h$/ } @files;
my @lonely = grep { my $unit = unit_of($_); $unit ne 'shard' && !is_shared($unit) && keys %{ $users{$unit} // {} } <= (-e "extension/$unit.c" ? 0 : 1) } @headers;
my @for_one = grep { my $unit = unit_of($_); -e "extension/$unit.c" && keys %{ $users{$unit} // {} } == 1 } @headers;

# --- variables: what the compiler put into writable memory -------------------------------------------

my ($variables, $global) = ('build first', '');
my @objects = grep { -e } map { s/\.c$/.o/r } grep { /\.c$/ } @files;
if (@objects == grep { /\.c$/ } @files)
{
	my @symbols = grep { /^[0-9a-f]+ [bBdD] / && !/ [bd] (?:__|\.)/ } split /\n/, `nm --defined-only @objects`;
	$variables = @symbols;
	$global = grep { / [BD] / } @symbols;
	$global = ", $global of them exported";
}

my @rows = (
	[ 'files (.c, .h)' => scalar(@files) . ' (' . (@files - @headers) . ', ' . @headers . ')' ],
	[ 'lines' => "$lines, " . sprintf('%.1f %% of them comments', 100 * $comments / $lines) ],
	[ 'rooms, arrows between them' => @rooms . ', ' . keys %arrows ],
	[ 'includes that point upwards' => $upward ],
	[ 'units in circles' => @circles ? join('; ', map { "@$_" } @circles) : 0 ],
	[ 'file: median, longest' => median(@sizes) . ", $longest_file->[0] ($longest_file->[1])" ],
	[ 'functions' => scalar @functions ],
	[ 'function: median, longest' => median(@functions) . ", $longest_function->[0] ($longest_function->[1])" ],
	[ 'exported names by the rule' => per(@exported - @strangers, scalar @exported) ],
	[ 'headers that nobody else uses' => @lonely ? join(' ', map { unit_of($_) } @lonely) : 0 ],
	[ 'headers of one other unit' => scalar(@for_one) . ' of ' . @headers ],
	[ 'variables that change' => "$variables$global" ],
);
printf "%-30s %s\n", @$_ for @rows;
exit 0 unless $ENV{HOUSE_LISTS};
print "\nnames that do not follow the rule\n", map { "  $_->[0] $_->[1]\n" } @strangers;
print "\nheaders of one other unit\n", map { my $unit = unit_of($_); "  $unit: " . join(' ', keys %{ $users{$unit} }) . "\n" } @for_one;
