# The worked example keeps its word, in small: three servers, one cluster; the coordinator's server is
# killed while events come in, and comes back; the parts of the stream get other servers; a fourth one joins, one
# leaves; the judges' verdicts are those of plain SQL.

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $demo = dirname(abs_path(__FILE__));
my ($bindir, $said, $errors);
IPC::Run::run([ 'pg_config', '--bindir' ], '>', \$bindir) or die 'there is no pg_config';
chomp $bindir;

# A short path: sockets are in a folder below it.
my $folder = tempdir('demoXXXX', TMPDIR => 1, CLEANUP => 1);
local %ENV = (
	%ENV,
	DEMO_BINDIR => $bindir,
	DEMO_NOTE => "$folder/note",
	DEMO_EVENTS => 60000,
	DEMO_GAMES => 300,
	DEMO_SECONDS => 10,
	DEMO_PATIENCE => 60);

# Too few events for the games are refused before anything is begun.
{
	local $ENV{DEMO_EVENTS} = 11999;
	IPC::Run::run([ 'bash', "$demo/run.sh" ], '<', \undef, '>', \$said, '2>', \$errors);
	is($? >> 8, 2, 'too few events');
	like($errors, qr/DEMO_EVENTS is 11999: 300 games .* need 12000 events at least/, 'the least number is said');
	is($said, '', 'and nothing else');
}

# It gives up by itself when nothing happens any more, and says why.
my $ok = eval {
	IPC::Run::run([ 'bash', "$demo/run.sh" ],
		'>', \$said, '2>', \$errors, IPC::Run::timeout(3 * $PostgreSQL::Test::Utils::timeout_default));
};
ok($ok, 'the worked example ends well') or diag("$said\n$errors");
like($said, qr/---- kill -9: server \w+, the coordinator, is gone/, 'the coordinator was killed');
like($said, qr/---- server \w+ is the coordinator now/, 'another one took over');
like($said, qr/---- server \w+ is back; [1-9]\d* events/, 'events were handled meanwhile');
is(scalar(() = $said =~ /---- the events that came in at \w+ come in at \w+/g), 4, 'parts of the stream got other servers');
like($said, qr/---- server fourth has joined/, 'a fourth server joined');
like($said, qr/---- server second has left; its [1-9]\d* shards moved in \d+ ms/, 'one left with its shards');
like($said, qr/events that the judges saw +\| +60000 +\| +60000/, 'no event was lost');
like($said, qr/verdicts that differ +\| +0 /, 'the judges and plain SQL agree');

my @shares = $said =~ /^ (first|second|third|fourth) +\| +[1-9]\d* \| +\d+ \| +\d+$/mg;
is("@shares", 'first fourth third', 'the judges are on the members that are left');

# Servers run as long as somebody plays with them; whatever became of the run, these must end.
ok(IPC::Run::run([ 'bash', "$demo/stop.sh" ], '>', \$said, '2>', \$errors), 'it is removed again')
  or diag($errors);
done_testing();
