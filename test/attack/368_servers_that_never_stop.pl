# P37: a server at the address of a member answers the check of who calls as it should, and then sends notifications without end.
# Workers of the others keep none of them.

use strict;
use warnings FATAL => 'all';

use IO::Select;
use IO::Socket::INET;
use POSIX ();
use ShardNodes;
use Test::More;

# What it says, at most; twice what a worker may grow by.
my $megabytes = 200;

my $cluster = ShardNodes->create(3);
my ($evil) = grep { $_->n != $cluster->coordinator->n } reverse $cluster->nodes;
my @good = grep { $_->n != $evil->n } $cluster->nodes;

# Memory of coordinator workers, in megabytes.
sub memory
{
	my ($node) = @_;
	my ($pid) = $node->server->worker_pids('%coordinator%');
	my ($kb) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ m{^RssAnon:\s+(\d+) kB}m;
	return int($kb / 1024);
}

sub packet { my ($kind, $bytes) = @_; return $kind . pack('N', 4 + length $bytes) . $bytes }

my $welcome = packet('R', pack 'N', 0) . packet('S', "server_version\0" . "15.0\0") . packet('S', "client_encoding\0UTF8\0")
  . packet('K', pack 'NN', 1, 1) . packet('Z', 'I');
# The check is answered with two columns of one row.
my $check = packet('T', pack('n', 2) . join '', map { "c$_\0" . pack('NnNnNn', 0, 0, 16, 1, 0xffffffff, 0) } 1 .. 2)
  . packet('D', pack('n', 2) . pack('N', 1) . 't' . pack('N', 1) . 'f') . packet('C', "SELECT 1\0") . packet('Z', 'I');
my $notification = packet('A', pack('N', 1) . "x\0" . ('y' x 8000) . "\0") x 32;

# In a process of its own. Writes a byte when it has said all.
sub serve
{
	my ($listener, $done) = @_;
	my (%state, %in, %left);
	my $said = 0;
	my $read = IO::Select->new($listener);
	my $write = IO::Select->new;

	while (1)
	{
		my ($readable, $writable) = IO::Select->select($read, $write, undef, 1);
		for my $s (@{ $readable // [] })
		{
			if ($s == $listener)
			{
				my $c = $listener->accept or next;
				$c->blocking(0);
				$read->add($c);
				($state{$c}, $in{$c}, $left{$c}) = ('start', '', '');
				next;
			}
			my $n = sysread $s, my $bytes, 65536;
			if (!$n) { $read->remove($s); $write->remove($s); close $s; next }
			$in{$s} .= $bytes;
			if ($state{$s} eq 'start' && length $in{$s} >= 8)
			{
				my ($length, $code) = unpack 'NN', $in{$s};
				if ($code == 80877103) { substr($in{$s}, 0, 8) = ''; syswrite $s, 'N'; next }
				next if length $in{$s} < $length;
				substr($in{$s}, 0, $length) = '';
				syswrite $s, $welcome;
				$state{$s} = 'check';
			}
			if ($state{$s} eq 'check' && $in{$s} =~ s/^Q.*//s)
			{
				syswrite $s, $check;
				$state{$s} = 'flood';
				$write->add($s);
			}
		}
		for my $s (@{ $writable // [] })
		{
			next unless defined fileno $s;
			$left{$s} = $notification if $left{$s} eq '';
			my $n = syswrite $s, $left{$s};
			if (!defined $n) { next if $!{EAGAIN}; $write->remove($s); $read->remove($s); close $s; next }
			substr($left{$s}, 0, $n) = '';
			$said += $n;
			if ($said > $megabytes * 1024 * 1024) { syswrite $done, 'x'; $write = IO::Select->new; $said = 0 }
		}
	}
	return;
}

my %before = map { $_->n => memory($_) } @good;
$evil->server->stop('fast');
pipe my $told, my $done or die "pipe: $!";
my $listener = IO::Socket::INET->new(LocalAddr => $evil->{host}, LocalPort => $evil->{port}, Listen => 50, ReuseAddr => 1)
  or die "listen: $!";
my $pid = fork() // die "fork: $!";
if ($pid == 0)
{
	$SIG{PIPE} = 'IGNORE';
	eval { serve($listener, $done); 1 } or warn $@;
	POSIX::_exit(1);
}
close $done;
ok(IO::Select->new($told)->can_read($ShardCluster::patience), 'a server says much that nobody has asked for') or diag('it was not listened to');
cmp_ok(memory($_) - $before{ $_->n }, '<', $megabytes / 2, 'node ' . $_->n . ' keeps none of it') for @good;
kill 'KILL', $pid;
waitpid $pid, 0;
done_testing();
