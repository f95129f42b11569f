# P37: a server at the address of a member answers the check of who calls as it should, and then sends notifications, or settings
# that it reports, without end. libpq would keep the latter until the connection ends. Workers of the others keep none of them,
# close the connection, and say why. P74: one that answers with the beginning of a copy, of which libpq says so again at each look,
# without an end.

use strict;
use warnings FATAL => 'all';

use IO::Select;
use IO::Socket::INET;
use POSIX ();
use ShardNodes;
use Test::More;

# What a worker may grow by.
my $megabytes = 30;

my $cluster = ShardNodes->create(3);
my ($evil) = grep { $_->n != $cluster->coordinator->n } reverse $cluster->nodes;
my @good = grep { $_->n != $evil->n } $cluster->nodes;

$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', $evil->n);

# Memory of the workers that call others, in megabytes.
sub memory
{
	my ($node) = @_;
	my $megabytes = 0;
	for my $pid ($node->server->worker_pids('shard %'))
	{
		my ($kb) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ m{^RssAnon:\s+(\d+) kB}m;
		$megabytes += int($kb / 1024);
	}
	return $megabytes;
}

sub packet { my ($kind, $bytes) = @_; return $kind . pack('N', 4 + length $bytes) . $bytes }

my $welcome = packet('R', pack 'N', 0) . packet('S', "server_version\0" . "15.0\0") . packet('S', "client_encoding\0UTF8\0")
  . packet('K', pack 'NN', 1, 1) . packet('Z', 'I');
# The check is answered with two columns of one row.
my $check = packet('T', pack('n', 2) . join '', map { "c$_\0" . pack('NnNnNn', 0, 0, 16, 1, 0xffffffff, 0) } 1 .. 2)
  . packet('D', pack('n', 2) . pack('N', 1) . 't' . pack('N', 1) . 'f') . packet('C', "SELECT 1\0") . packet('Z', 'I');
my $number = 0;
my %flood = (
	notifications => sub { packet('A', pack('N', 1) . "x\0" . ('y' x 8000) . "\0") x 32 },
	settings => sub { join '', map { packet('S', 'a' . $number++ . "\0" . ('y' x 8000) . "\0") } 1 .. 32 });

# In either direction, or both.
my %copy = map { $_ => packet($_, pack 'Cn', 0, 0) } qw(H G W);

# In a process of its own, without end.
sub serve
{
	my ($listener, $answer, $bytes_of_flood) = @_;
	my (%state, %in, %left);
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
				syswrite $s, $answer;
				$state{$s} = 'flood';
				$write->add($s) if $bytes_of_flood;
			}
		}
		for my $s (@{ $writable // [] })
		{
			next unless defined fileno $s;
			$left{$s} = $bytes_of_flood->() if $left{$s} eq '';
			my $n = syswrite $s, $left{$s};
			if (!defined $n) { next if $!{EAGAIN}; $write->remove($s); $read->remove($s); close $s; next }
			substr($left{$s}, 0, $n) = '';
		}
	}
	return;
}

# Nor does it outlive this test.
my $pid;

sub end_server
{
	return unless $pid;
	kill 'KILL', $pid;
	waitpid $pid, 0;
	undef $pid;
	return;
}

END { my $status = $?; end_server(); $? = $status }

my %before = map { $_->n => memory($_) } @good;
$evil->server->stop('fast');
$_->sql(ShardCluster::tell_recorder($entity, 7, 7)) for @good;
for my $what (sort keys %copy, keys %flood)
{
	my $words = $copy{$what} ? 'began a copy' : 'sends what was not asked for';
	my $listener = IO::Socket::INET->new(LocalAddr => $evil->{host}, LocalPort => $evil->{port}, Listen => 50, ReuseAddr => 1)
	  or die "listen: $!";
	$pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		$SIG{PIPE} = 'IGNORE';
		eval { serve($listener, $copy{$what} // $check, $flood{$what}); 1 } or warn $@;
		POSIX::_exit(1);
	}
	close $listener;
	for (@good)
	{
		$_->wait_until("SELECT last_error LIKE '%$words%' FROM shard_peers WHERE node = @{[$evil->n]}",
			"node @{[$_->n]} to say who does not stop with $what");
		cmp_ok(memory($_) - $before{ $_->n }, '<', $megabytes, 'P37 and keeps none of it');
	}
	end_server();
	$_->wait_until("SELECT last_error NOT LIKE '%$words%' FROM shard_peers WHERE node = @{[$evil->n]}",
		'nobody to be there any more') for @good;
}
$evil->server->start;
$cluster->wait_up;
$cluster->wait_recorded($entity, $evil->n, 7, 7);
pass('P37 the member is one again when its own server is there, and has its messages');
done_testing();
