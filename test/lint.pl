# usage: perl lint.pl           lists the checks: name, tab, title
#        perl lint.pl NAME      runs one; prints findings as file:line: text, exit status 1 if any
#
# Checks of the source that need no compiler. Run from the root of the project, by lint.sh.

use strict;
use warnings FATAL => 'all';

# The rooms of extension/, the lowest first: a file includes files of its own room, or of one further down. Below all of
# them is shard.h, above all of them init.c. extension/README.md says what each room is for.
my @rooms = qw(
	core/base core/allocation core/map core/member core/home core/node core/flow core/entity
	base shared registry log entity link route copy process control hook
	sql/send sql/cluster sql/operate sql/type sql/view sql/plan
);
my %floor = map { $rooms[$_] => $_ + 1 } 0 .. $#rooms;

# Processes talk through tables, shared memory, rings and latches.
my %process = map { $_ => 1 } qw(process/launcher process/region control/control);

# What a pure file may use of the server: code that works in frontend programs, too.
my $pure_headers = qr{^(?:c|postgres|postgres_fe)\.h$|^(?:common|datatype|lib|port)/|^mb/pg_wchar\.h$};
my $pure_system_headers = qr{^(?:ctype|limits|math|stdarg|stddef|stdint|string)\.h$};

# A name in the install script, maybe with its schema.
my $sql_name = qr/(?:\@extschema\@|"?\w+"?)(?:\."?\w+"?)?/;

# What belongs to a table of users - indexes, statistics, triggers, rules, policies, defaults, children - is code of
# theirs, and planning or executing anything on the table runs it. So one file does that, as the table's owner; who
# compiles a handler does it as the type's. Others read rows through the table access method, and their SQL names
# our own tables only.
my %plans = map { $_ => 1 } qw(entity/state_door entity/handler registry/statement);
my $plans = qr{\b(?:
	(?:standard_)?planner | pg_plan_quer(?:y|ies) | expression_planner\w* | eval_const_expressions | GetCachedExpression |
	build_column_default | CreateQueryDesc | Executor(?:Start|Run|Finish|End) | ExecSimpleRelation\w+ | ExecOpenIndices |
	ExecInsertIndexTuples | ExecConstraints | ExecInitExpr\w* | ExecPrepareExpr | ExecPrepareQual |
	Exec[BAI][RSR](?:Insert|Update|Delete|Truncate)Triggers | AfterTrigger(?:Begin|End)Query | BuildIndexInfo |
	RelationGetIndexExpressions | RelationGetIndexPredicate | RelationGetStatExtList | (?:simple_)?table_tuple_(?:insert|update)\w* |
	DefineRelation | DefineIndex | AlterTable\w* | CreateTrigger\w* | CreateStatistics | RI_Initial_Check | cluster_rel |
	vacuum | analyze_rel | index_build | reindex_\w+
)\s*\(}x;

# SQL with the name of a table that is not written out: state tables are made and dropped so, when they have no rows.
my %names_tables = ('sql/type/admin_table' => qr{^(?:CREATE TABLE %s \(|COMMENT ON TABLE %s|ALTER TABLE %s OWNER TO|ALTER TABLE %s ENABLE ALWAYS TRIGGER|(?:GRANT|REVOKE) ALL ON TABLE %s|DROP TABLE %s$)});
my $named_later = qr{\b(?:FROM|ONLY|INTO|UPDATE|JOIN|USING|TABLE|TRUNCATE|LOCK|COPY|INDEX\s+ON|ANALYZE|VACUUM)\s+(?:%\w+(?!\s*\()|$)};

# Functions of users have names that are not written out, too.
my %quotes_names = map { $_ => 1 } qw(sql/type/admin_table registry/routine sql/type/strategy);

# Where SQL is not run by registry/statement.h: that file itself, a cursor, and functions of users.
my %runs_sql = map { $_ => 1 } qw(registry/statement link/outbox_table sql/type/strategy);

my $file_limit = 700;
my $function_limit = 120;

my @checks = (
	[ includes => 'includes never point upwards, and each file is in a room', \&check_includes ],
	[ ladders => 'calls within a room go downwards, where its internal.h says in which order', \&check_ladders ],
	[ pure => 'pure files use no server headers', \&check_pure ],
	[ versions => 'only compat.h tests the server version', \&check_versions ],
	[ errcodes => 'errors have an error code', \&check_errcodes ],
	[ sizes => 'files and functions are of readable size', \&check_sizes ],
	[ privileges => 'SQL functions have a privilege line', \&check_privileges ],
	[ comments => 'SQL functions have a comment', \&check_comments ],
	[ ascii => 'the install script is ASCII, for databases of any encoding', \&check_ascii ],
	[ door => 'one file plans and executes on tables of users', \&check_door ],
	[ statements => 'the extension runs its own SQL by registry/statement.h', \&check_statements ],
	[ faults => 'tests drive all fault points, and no others', \&check_faults ],
	[ documents => 'documents lead somewhere, and tell each trick once', \&check_documents ],
	[ masks => 'sets of lanes, groups and workers have bits by functions of their width', \&check_masks ],
	[ positions => 'one file asks for the next position of the WAL, which may be none to flush', \&check_positions ],
);

my $findings = 0;

if (!@ARGV)
{
	print "$_->[0]\t$_->[1]\n" foreach @checks;
	exit 0;
}
my ($check) = grep { $_->[0] eq $ARGV[0] } @checks;
die "unknown check \"$ARGV[0]\"\n" unless $check;
$check->[2]->();
exit($findings ? 1 : 0);

sub finding
{
	my ($file, $line, $text) = @_;
	print "$file:$line: $text\n";
	$findings++;
}

sub slurp
{
	my ($file) = @_;
	open(my $handle, '<', $file) or die "could not open $file: $!\n";
	local $/;
	return scalar <$handle>;
}

sub source_files { return sort(glob('extension/*.[ch] extension/*/*.[ch] extension/*/*/*.[ch]')); }

sub test_files { return sort(glob('test/sim/*.[ch] test/unit/*.[ch] test/fuzz/*.[ch]')); }

# Replaces what a pattern matches by blanks, so that lines keep their numbers.
sub blank
{
	my ($text) = @_;
	$text =~ s/[^\n]/ /g;
	return $text;
}

# C without comments and without what stands in literals.
sub bare_c
{
	my ($text) = @_;
	$text =~ s{(/\*.*?\*/|//[^\n]*)|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')}
		{defined $1 ? blank($1) : '"' . blank(substr($2, 2)) . '"'}gse;
	return $text;
}

sub line_of
{
	my ($text, $offset) = @_;
	return 1 + (substr($text, 0, $offset) =~ tr/\n//);
}

# How far up the room of a file is; 0 is below all rooms.
sub floor_of
{
	my ($name) = @_;
	return 0 if $name eq 'shard';
	return @rooms + 1 if $name eq 'init';
	return $name =~ m{^(.+)/} ? $floor{$1} : undef;
}

# Calls back with file, line number, delimiter and header for each #include.
sub each_include
{
	my ($files, $callback) = @_;
	for my $file (@$files)
	{
		my $number = 0;
		for my $line (split /\n/, slurp($file))
		{
			$number++;
			$callback->($file, $number, $1, $2) if $line =~ /^\s*#\s*include\s+(["<])([^">]+)[">]/;
		}
	}
}

# A room's internal.h may list its files in the order of calls, as indented lines of its first comment. Each file of the room
# has a place there, and none uses a function of one before it.
sub check_ladders
{
	for my $header (glob('extension/*/internal.h extension/*/*/internal.h'))
	{
		my ($comment) = slurp($header) =~ m{^(/\*.*?\*/)}s;
		$comment =~ s{^/\*\n[^\n]*\n[^\n]*\n}{};
		my @ladder = map { split } $comment =~ /^ \*\t\t(.+)$/mg or next;
		(my $room = $header) =~ s{/internal\.h$}{};
		my %place = map { $ladder[$_] => $_ } 0 .. $#ladder;
		-e "$room/$_.c" or finding($header, 1, "there is no $_.c") foreach @ladder;
		my (%bare, %home);
		for my $file (glob("$room/*.c"))
		{
			my ($stem) = $file =~ m{([^/]+)\.c$};
			exists $place{$stem} or finding($header, 1, "$stem.c has no place in the order of the room"), next;
			$bare{$stem} = bare_c(slurp($file));
			$home{$1} = $stem while $bare{$stem} =~ /^(?!static)\w[^\n;]*\n(shard_\w+)\([^;{]*\)\n\{/mg;
		}
		for my $stem (sort keys %bare)
		{
			while ($bare{$stem} =~ /\b(shard_\w+)\b/g)
			{
				my $other = $home{$1} // next;
				finding("$room/$stem.c", line_of($bare{$stem}, $-[0]), "$1() is up in $other.c") if $place{$other} < $place{$stem};
			}
		}
	}
}

# A file's name without what all have: log/cursor.
sub concept
{
	my ($path) = @_;
	$path =~ s{^extension/}{};
	$path =~ s{\.[ch]$}{};
	return $path;
}

# The strings of C code with their offsets, neighbours joined.
sub strings_of
{
	my ($text) = @_;
	$text =~ s{(/\*.*?\*/|//[^\n]*)|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')}{defined $1 ? blank($1) : $2}gse;
	my @strings;
	while ($text =~ /("(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*)/g)
	{
		my ($offset, $joined) = ($-[0], substr($1, 1, -1));
		$joined =~ s/(?<!\\)"\s*"//g;
		push @strings, [ $offset, $joined ];
	}
	return @strings;
}

sub check_door
{
	for my $file (grep { /\.c$/ } source_files())
	{
		my $concept = concept($file);
		my $source = slurp($file);
		my $text = bare_c($source);
		while (!$plans{$concept} && $text =~ /$plans/g)
		{
			finding($file, line_of($text, $-[0]), 'plans or executes; state_door.c does that on a table of users');
		}
		while (!$quotes_names{$concept} && $text =~ /\bquote_qualified_identifier\s*\(/g)
		{
			finding($file, line_of($text, $-[0]), 'makes a name for SQL; state_door.c is the way to a table of users');
		}
		for my $string (strings_of($source))
		{
			next if $names_tables{$concept} && $string->[1] =~ $names_tables{$concept};
			finding($file, line_of($source, $string->[0]), 'SQL on a table that is not named; state_door.c is the way to a table of users')
			  if $string->[1] =~ /$named_later/;
		}
	}
}

sub check_statements
{
	for my $file (grep { /\.c$/ } source_files())
	{
		my $text = bare_c(slurp($file));
		my $runs = 0;
		while ($text =~ /\bSPI_(?:exec|prepare|keepplan|saveplan|cursor)\w*\s*\(/g)
		{
			$runs = 1;
			finding($file, line_of($text, $-[0]), 'runs SQL; see registry/statement.h')
			  unless $runs_sql{concept($file)};
		}
		finding($file, 1, 'is listed as one that runs SQL, and does not') if $runs_sql{concept($file)} && !$runs;
	}
}

# A point that no test drives proves nothing; a test of one that is gone waits in vain.
sub check_faults
{
	my $tests = join '', map { slurp($_) } glob('test/t/*.pl test/long/*.pl test/attack/*.pl test/isolation/specs/*.spec sql/*.sql');
	my %point;
	for my $file (source_files())
	{
		my $text = slurp($file);
		# One name, or several of which a condition chooses.
		while ($text =~ /\bshard_fault(?:_step)?\(([^;]*"[^;]*)\);/g)
		{
			my ($names, $line) = ($1, line_of($text, $-[0]));
			for my $name ($names =~ /"(\w+)"/g)
			{
				finding($file, $line, "no test drives fault point \"$name\"") unless $tests =~ /\b$name\b/;
				$point{$name} = 1;
			}
		}
	}
	my $matrix = 'test/t/150_moves_survive_a_crash_at_each_step.pl';
	my $text = slurp($matrix);
	while ($text =~ /^\t\[ M\d+ => '[a-z ]+', '(\w+)' \]/mg)
	{
		finding($matrix, line_of($text, $-[0]), "there is no fault point \"$1\"") unless $point{$1};
	}
}

sub check_includes
{
	for my $file (source_files())
	{
		finding($file, 1, 'is in no room; test/lint.pl has the list of them') unless defined floor_of(concept($file));
	}
	for my $room (@rooms)
	{
		finding('test/lint.pl', 1, "the room \"$room\" is empty") unless () = glob("extension/$room/*.[ch]");
		finding("extension/$room", 1, 'has no README.md') unless -e "extension/$room/README.md";
	}
	each_include(
		[ source_files() ],
		sub {
			my ($file, $line, $delimiter, $header) = @_;
			return unless -e "extension/$header";
			my ($from, $to) = (concept($file), concept($header));
			my ($above, $below) = (floor_of($from), floor_of($to));
			return unless defined $above && defined $below;
			finding($file, $line, "includes \"$header\", which is further up")
			  if $below > $above;
			finding($file, $line, "one process includes another, \"$header\"")
			  if $process{$from} && $process{$to} && $from ne $to;
			finding($file, $line, 'compat.h is for .c files only')
			  if $header eq 'base/compat.h' && $file =~ /\.h$/;
		});
}

sub check_pure
{
	each_include(
		[ sort(glob('extension/core/*/*.[ch]')) ],
		sub {
			my ($file, $line, $delimiter, $header) = @_;
			return if $header =~ $pure_headers || $header =~ $pure_system_headers;
			return if $delimiter eq '"' && -e "extension/$header" && $header ne 'base/compat.h';
			finding($file, $line, "includes \"$header\", which pure files must not");
		});
}

# A one that is shifted is an int: what it is shifted by may be 63. What lint.sh asks the compiler is whether sets of
# lanes stay as wide as they are.
sub check_masks
{
	for my $file (grep { $_ ne 'extension/shard.h' } source_files())
	{
		my $text = bare_c(slurp($file));
		while ($text =~ /\b1[uUlL]*\s*<<\s*\(?\s*\w*(?:lane|group|worker|place)/g)
		{
			finding($file, line_of($text, $-[0]), 'shifts a bit; shard_lane_bit(), shard_group_bit() and shard_worker_bit() do');
		}
	}
}

sub check_versions
{
	for my $file (grep { $_ ne 'extension/base/compat.h' } source_files())
	{
		my $text = bare_c(slurp($file));
		finding($file, line_of($text, $-[0]), 'tests the server version')
		  while $text =~ /\bPG_(?:VERSION_NUM|MAJORVERSION_NUM)\b/g;
	}
}

sub check_positions
{
	for my $file (grep { $_ ne 'extension/shared/gate.c' } source_files())
	{
		my $text = bare_c(slurp($file));
		finding($file, line_of($text, $-[0]), 'use shard_gate_newest()') while $text =~ /\bGetXLogInsertRecPtr\b/g;
	}
}

sub check_errcodes
{
	for my $file (source_files())
	{
		my $text = bare_c(slurp($file));
		while ($text =~ /\bereport(?:_domain)?\s*(\((?:[^()]|(?1))*\))/g)
		{
			my ($call, $offset) = ($1, $-[0]);
			finding($file, line_of($text, $offset), 'error without errcode')
			  if $call =~ /^\(\s*(?:ERROR|FATAL|PANIC)\b/ && $call !~ /\berrcode\w*\s*\(/;
		}
	}
}

sub check_sizes
{
	for my $file (source_files(), test_files())
	{
		my @lines = split /\n/, bare_c(slurp($file));
		my $start;
		finding($file, scalar(@lines), @lines . " lines, $file_limit are the limit")
		  if @lines > $file_limit;
		for my $number (1 .. @lines)
		{
			my $line = $lines[ $number - 1 ];
			$start = $number if $line =~ /^\{/;
			next unless defined $start && $line =~ /^\}/;
			my $size = $number - $start + 1;
			finding($file, $start, "function of $size lines, $function_limit are the limit")
			  if $size > $function_limit && $line !~ /;/;
			undef $start;
		}
	}
}

# SQL without comments, function bodies and literals.
sub bare_sql
{
	my ($text) = @_;
	$text =~ s{(/\*.*?\*/|--[^\n]*)|('(?:[^']|'')*')|(\$(\w*)\$.*?\$\4\$)}{blank($&)}gse;
	return $text;
}

sub each_sql_statement
{
	my ($callback) = @_;
	for my $file (sort(glob('extension/install/*.sql')))
	{
		my $text = bare_sql(slurp($file));
		while ($text =~ /([^;]+);/g)
		{
			my ($statement, $offset) = ($1, $-[1]);
			$offset += length($1) if $statement =~ s/^(\s+)//;
			$callback->($file, line_of($text, $offset), $statement);
		}
	}
}

# Overloads are told apart by number only: each needs a line of its own.
sub check_functions
{
	my ($what, $pattern) = @_;
	my (%created, %seen);

	each_sql_statement(
		sub {
			my ($file, $line, $statement) = @_;
			if ($statement =~ /^CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE|AGGREGATE)\s+($sql_name)/i)
			{
				push @{ $created{$1} }, [ $file, $line ];
			}
			elsif ($statement =~ $pattern)
			{
				my $list = substr($statement, $+[0]);
				# A list of names, each with its argument types.
				$seen{$1}{ $2 // '' } = 1
				  while $list =~ /\G\s*($sql_name)\s*(\((?:[^()]|\([^()]*\))*\))?\s*(?:,|\b|$)/gc;
			}
		});

	for my $name (sort keys %created)
	{
		my @places = @{ $created{$name} };
		my $have = keys %{ $seen{$name} // {} };
		next if $have >= @places;
		finding(@{ $places[$have] }, "function $name has no $what");
	}
}

sub check_privileges
{
	check_functions('REVOKE or GRANT',
		qr/^(?:GRANT|REVOKE)\b.*?\bON\s+(?:FUNCTION|PROCEDURE|ROUTINE)\b/is);
}

sub check_ascii
{
	for my $file (glob('extension/install/*.sql extension/*.control'))
	{
		my $number = 0;
		for my $line (split /\n/, slurp($file))
		{
			$number++;
			finding($file, $number, 'a character that is not ASCII') if $line =~ /[^\x00-\x7f]/;
		}
	}
}

sub check_comments
{
	check_functions('COMMENT ON', qr/^COMMENT\s+ON\s+(?:FUNCTION|PROCEDURE|AGGREGATE)\b/is);
}

# The anchors of a document: its headings, as GitHub names them.
sub anchors_of
{
	my ($file) = @_;
	my (%anchor, $code);
	for my $line (split /\n/, slurp($file))
	{
		$code = !$code if $line =~ /^```/;
		next unless !$code && $line =~ /^#+\s+(.+?)\s*$/;
		my $name = lc $1;
		$name =~ s/\[([^\]]*)\]\([^)]*\)/$1/g;
		$name =~ s/[^\w\- ]//g;
		$name =~ s/ /-/g;
		$anchor{ exists $anchor{$name} ? "$name-1" : $name } = 1;
	}
	return \%anchor;
}

# Where a document leads, and that no trick of doc/security.md is told twice: two changes at once may bring it.
sub check_documents
{
	my %anchors;
	for my $file (sort(glob('*.md doc/*.md doc/*/*.md bench/*.md extension/*.md extension/*/*.md extension/*/*/*.md')))
	{
		my ($number, %told, $dir) = (0);
		($dir) = $file =~ m{^(.*/)} or $dir = '';
		for my $line (split /\n/, slurp($file))
		{
			$number++;
			for my $place ($line =~ /\]\((?![a-z]+:)([^)\s]+)/g)
			{
				my ($path, $anchor) = $place =~ /^([^#]*)(?:#(.*))?$/;
				my $target = $path eq '' ? $file : "$dir$path";
				1 while $target =~ s{[^/]+/\.\./}{};
				finding($file, $number, "leads nowhere: $place") unless -e $target;
				next unless defined $anchor && $target =~ /\.md$/ && -e $target;
				$anchors{$target} //= anchors_of($target);
				finding($file, $number, "leads to no heading: $place") unless $anchors{$target}{$anchor};
			}
			finding($file, $number, 'a table cell of more than 200 characters')
			  if $line =~ /^\|/ && $file =~ m{^(?:extension|doc/protocol)/} && grep { length > 202 } split(/(?<!\\)\|/, $line);
			next unless $file eq 'doc/security.md' && $line =~ /^\| (.+?) \|/;
			finding($file, $number, "told twice, first at line $told{$1}") if $told{$1};
			$told{$1} = $number unless $line =~ /^\|-|^\| +\|/;
		}
	}
}
