# P68: a member whose server answers calls of the control plane with messages by the hundred thousand, each of which has a voter say the
# whole map; or with as many as there may be. An answer has no more than a call: of more nothing is looked at, the link is closed, and it
# is said why. What is not more is served for a moment at a time.

use strict;
use warnings FATAL => 'all';

use IO::Select;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Utils;
use ShardNodes;
use ShardWire;
use Test::More;

use constant { FETCH => 5, PREPARE => 3 };

my $cluster = ShardNodes->create(3);
my ($evil) = grep { $_->n != $cluster->coordinator->n } reverse $cluster->nodes;
my @good = grep { $_->n != $evil->n } $cluster->nodes;
$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', $good[0]->n);
my $liar = ShardWire::Member->new($evil, $good[0]);

# --- a server between ------------------------------------------------------------------------------

sub packet { my ($kind, $bytes) = @_; return $kind . pack('N', 4 + length $bytes) . $bytes }

# A call's whole answer.
sub answer
{
	my ($bytes) = @_;
	return packet('2', '') . packet('T', pack('n', 1) . "answer\0" . pack('NnNnNn', 0, 0, 17, 0xffff, 0xffffffff, 1)) . packet('D', pack('nN', 1, length $bytes) . $bytes) . packet('C', "CALL\0") . packet('Z', 'I');
}

# Passes on what comes, but answers calls of control by the bytes of the file, if it has any. In a process of its own, without end.
sub serve
{
	my ($listener, $port, $file) = @_;
	my (%other, %left, %asks);
	my $read = IO::Select->new($listener);
	my $write = IO::Select->new;
	my $close = sub {
		for my $s (grep { defined } @_, map { $other{$_} } @_)
		{
			$_->remove($s) for $read, $write;
			close $s;
		}
	};

	while (1)
	{
		my ($readable, $writable) = IO::Select->select($read, $write, undef, 1);
		for my $s (@{ $readable // [] })
		{
			if ($s == $listener)
			{
				my $c = $listener->accept or next;
				my $to = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or do { close $c; next };
				$_->blocking(0) for $c, $to;
				$read->add($c, $to);
				@other{ $c, $to } = ($to, $c);
				@left{ $c, $to } = ('', '');
				$asks{$c} = 1;
				$asks{$to} = 0;
				next;
			}
			next unless defined fileno $s;
			my $n = sysread $s, my $bytes, 65536;
			next if !defined $n && $!{EAGAIN};
			if (!$n) { $close->($s); next }
			my $to = $other{$s};
			my $lie = $asks{$s} && $bytes =~ /B.{4}\0control\0/s ? slurp_file($file) : '';
			my $whom = $lie ne '' ? $s : $to;
			$left{$whom} .= $lie ne '' ? answer($lie) : $bytes;
			$write->add($whom);
		}
		for my $s (@{ $writable // [] })
		{
			next unless defined fileno $s;
			my $n = syswrite $s, $left{$s};
			if (!defined $n) { next if $!{EAGAIN}; $close->($s); next }
			substr($left{$s}, 0, $n) = '';
			$write->remove($s) if $left{$s} eq '';
		}
	}
	return;
}

my $file = "$PostgreSQL::Test::Utils::tmp_check/lie";
sub lie { my ($bytes) = @_; unlink "$file.new"; append_to_file("$file.new", $bytes); rename "$file.new", $file or die "rename: $!"; return }
lie('');
my $port = PostgreSQL::Test::Cluster::get_free_port();
$evil->server->stop('fast');
$evil->server->append_conf('postgresql.conf', "port = $port");
$evil->server->{_port} = $port;
$evil->server->start;
my $listener = IO::Socket::INET->new(LocalAddr => $evil->{host}, LocalPort => $evil->{port}, Listen => 50, ReuseAddr => 1) or die "listen: $!";
my $pid = fork() // die "fork: $!";
if ($pid == 0)
{
	$SIG{PIPE} = 'IGNORE';
	eval { serve($listener, $port, $file); 1 } or warn $@;
	POSIX::_exit(1);
}
close $listener;

# Nor does it outlive this test.
END { my $status = $?; if ($pid) { kill 'KILL', $pid; waitpid $pid, 0 } $? = $status }

$cluster->wait_up;

# --- answers of many messages ------------------------------------------------------------------------

# The most that a process has had since it was last asked to forget it, in megabytes.
sub forget_peak { my ($process) = @_; open my $f, '>', "/proc/$process/clear_refs" or die "clear_refs: $!"; print $f '5'; close $f or die "clear_refs: $!"; return }
sub peak { my ($process) = @_; my ($kb) = slurp_file("/proc/$process/status") =~ /^VmHWM:\s+(\d+) kB/m; return int($kb / 1024) }

# What a member says under a ballot of its own, which it has not yet, and so many times asks for the map.
sub asks
{
	my ($count, $round) = @_;
	my ($ballot) = $liar->decided;
	my $b = (($ballot >> 16) + $round) << 16 | $evil->n;
	return wire_bytes($liar->message(PREPARE, to => 0, b => $b)) . wire_bytes($liar->message(FETCH, to => 0, b => $b)) x $count;
}

my @workers = map { $_->server->worker_pids('shard control%') } @good;
forget_peak($_) for @workers;
my %before = map { $_ => peak($_) } @workers;
my %log = map { $_->n => -s $_->server->logfile } @good;
lie(asks(100_000, 100));
for (@good)
{
	ok($_->server->wait_for_log(qr/answer to shard_peer\.control\(\) has more messages than any may have, 1000/, $log{ $_->n }), 'P68 the log of node ' . $_->n . ' says whose answer has too many messages');
	$_->wait_until("SELECT (SELECT problems::text FROM shard_health()) ~ 'answer to shard_peer.control.. has more messages than any may have'", 'node ' . $_->n . ' to say so, too');
}
lie('');
$cluster->wait_reachable;
unlike(slurp_file($_->server->logfile, $log{ $_->n }), qr/did not answer in time/, 'P68 and the control worker of node ' . $_->n . ' does other things meanwhile') for @good;

# As many as there may be, again and again.
lie(asks(999, 200));
$_->sql(ShardCluster::tell_recorder($entity, $_->n)) for @good;
$good[0]->wait_until(sprintf(q{SELECT state->>'count' = '2' FROM shard_entity.recorder WHERE entity_id = '%s'}, $entity), 'messages while it says as much as it may');
lie('');
$cluster->wait_reachable;
note("peak " . (peak($_) - $before{$_}) . ' MB more') for @workers;
cmp_ok(peak($_) - $before{$_}, '<', 60, 'P68 with little memory') for @workers;
is_deeply([ sort map { $_->server->worker_pids('shard control%') } @good ], [ sort @workers ], 'and nothing has ended');
done_testing;
