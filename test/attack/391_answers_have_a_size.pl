# P67: a member whose server answers a call without end: one value that is said to have a gigabyte, or, while its answer is awaited,
# the shortest settings that can be reported. libpq has each process that calls keep all of it, and walk the list of settings for each
# new one. No more is read than the call can have in answer; the connection is closed, and it is said why. What is as long as it
# may be passes.

use strict;
use warnings FATAL => 'all';

use IO::Select;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Utils;
use ShardNodes;
use ShardWire;
use Test::More;

my $cluster = ShardNodes->create(3);
my ($evil) = grep { $_->n != $cluster->coordinator->n } reverse $cluster->nodes;
my @good = grep { $_->n != $evil->n } $cluster->nodes;
$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', $evil->n);
$cluster->sql_everywhere(q{
CREATE FUNCTION long(state text, message jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shard_reply(to_jsonb(repeat('x', coalesce((message->>'reply')::int, 0))));
	RETURN repeat('y', coalesce((message->>'state')::int, 0));
END $$});
$_->sql(q{SELECT shard_start('long', 'long', 8)}) for $cluster->nodes;
$cluster->wait_registered;

# --- a server between ------------------------------------------------------------------------------

sub packet { my ($kind, $bytes) = @_; return $kind . pack('N', 4 + length $bytes) . $bytes }

# What begins an answer, and what goes on without end.
my $number = 0;
sub settings { return join '', map { packet('S', sprintf("%x\0\0", $number++)) } 1 .. 4096 }
my $row = packet('2', '') . packet('T', pack('n', 1) . "answer\0" . pack('NnNnNn', 0, 0, 17, 0xffff, 0xffffffff, 1));
my %flood = (
	answer => [ $row . 'D' . pack('NnN', 1 << 30, 1, (1 << 30) - 10), sub { 'x' x 65536 } ],
	rows => [ $row, sub { packet('D', pack('nN', 1, 60000) . 'x' x 60000) } ],
	settings => [ packet('2', ''), \&settings ],
	# What libpq has room for once it was sent a long notice is read in one go.
	notice => [ packet('2', '') . packet('N', 'M' . ('x' x (1 << 20)) . "\0\0") . join('', map { settings() } 1 .. 32), \&settings ]);

# Passes on what comes, but as the file says answers calls of one procedure: "answer control". In a process of its own, without end.
sub serve
{
	my ($listener, $port, $file) = @_;
	my (%other, %left, %asks, %flooded);
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
				next;
			}
			next unless defined fileno $s;
			my $n = sysread $s, my $bytes, 65536;
			next if !defined $n && $!{EAGAIN};
			if (!$n) { $close->($s); next }
			my $to = $other{$s};
			next if $flooded{$s} || $flooded{$to};
			my ($what, $procedure) = $asks{$s} ? split ' ', slurp_file($file) : ();
			if (defined $procedure && $bytes =~ /B.{4}\0\Q$procedure\E\0/s)
			{
				($left{$s}, $flooded{$s}) = @{ $flood{$what} };
				$write->add($s);
				next;
			}
			$left{$to} .= $bytes;
			$write->add($to);
		}
		for my $s (@{ $writable // [] })
		{
			next unless defined fileno $s;
			$left{$s} = $flooded{$s}->() if $left{$s} eq '' && $flooded{$s};
			my $n = syswrite $s, $left{$s};
			if (!defined $n) { next if $!{EAGAIN}; $close->($s); next }
			substr($left{$s}, 0, $n) = '';
			$write->remove($s) if $left{$s} eq '' && !$flooded{$s};
		}
	}
	return;
}

my $file = "$PostgreSQL::Test::Utils::tmp_check/flood";
sub flood { my ($what) = @_; unlink "$file.new"; append_to_file("$file.new", $what); rename "$file.new", $file or die "rename: $!"; return }
flood('');
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

# --- answers of any length -------------------------------------------------------------------------

# The most that a process has had since it was last asked to forget it, in megabytes; and what it has had of a processor, in seconds.
sub forget_peak { my ($process) = @_; open my $f, '>', "/proc/$process/clear_refs" or die "clear_refs: $!"; print $f '5'; close $f or die "clear_refs: $!"; return }
sub peak { my ($process) = @_; my ($kb) = slurp_file("/proc/$process/status") =~ /^VmHWM:\s+(\d+) kB/m; return int($kb / 1024) }
sub seconds { my ($process) = @_; my @stat = split ' ', slurp_file("/proc/$process/stat") =~ s/.*\) //sr; return ($stat[11] + $stat[12]) / POSIX::sysconf(&POSIX::_SC_CLK_TCK) }

# What a node says of its links to the evil one.
my %says = (control => "SELECT problems::text FROM shard_health()", receive => 'SELECT last_error FROM shard_peers WHERE node = ' . $evil->n);

# Procedures, whose workers call them, and what may come in answer, in megabytes.
for ([ answer => control => 'shard control%', 64 ], [ answer => receive => 'shard region%', 0 ],
	[ rows => control => 'shard control%', 64 ], [ rows => receive => 'shard region%', 0 ])
{
	my ($what, $procedure, $workers, $megabytes) = @$_;
	my @workers = map { $_->server->worker_pids($workers) } @good;
	forget_peak($_) for @workers;
	my %before = map { $_ => peak($_) } @workers;
	my %log = map { $_->n => -s $_->server->logfile } @good;
	flood("$what $procedure");
	$_->sql(ShardCluster::tell_recorder($entity, 1, 1)) for @good;
	for (@good)
	{
		ok($_->server->wait_for_log(qr/answer to shard_peer\.$procedure\(\) is longer than an answer may be/, $log{ $_->n }),
			'P67 the log of node ' . $_->n . " says whose answer to $procedure is too long, of $what");
		$_->wait_until("SELECT ($says{$procedure}) ~ 'answer to shard_peer.$procedure.. is longer than an answer may be'", 'node ' . $_->n . ' to say so, too');
	}
	flood('');
	cmp_ok(peak($_) - $before{$_}, '<', 2 * $megabytes + 30, "P67 with little more memory than an answer to $procedure has, of $what") for @workers;
	is_deeply([ sort map { $_->server->worker_pids($workers) } @good ], [ sort @workers ], 'and nothing has ended');
	$cluster->wait_reachable;
}

# --- settings while an answer is awaited -------------------------------------------------------------

for ([ settings => control => 'shard control%' ], [ settings => receive => 'shard region%' ], [ notice => receive => 'shard region%' ])
{
	my ($what, $procedure, $workers) = @$_;
	my @workers = map { $_->server->worker_pids($workers) } @good;
	my %before = map { $_ => seconds($_) } @workers;
	my %log = map { $_->n => -s $_->server->logfile } @good;
	flood("$what $procedure");
	$_->sql(ShardCluster::tell_recorder($entity, 1, 1)) for @good;
	ok($_->server->wait_for_log(qr/answer to shard_peer\.$procedure\(\) is longer than an answer may be|sends what was not asked for/, $log{ $_->n }),
		'P67 node ' . $_->n . " says who reports settings in answer to $procedure, after $what") for @good;
	flood('');
	cmp_ok(seconds($_) - $before{$_}, '<', 3, "P67 and hardly works for $procedure") for @workers;
	is_deeply([ sort map { $_->server->worker_pids($workers) } @good ], [ sort @workers ], 'and nothing has ended');
	$cluster->wait_reachable;
}

# --- questions whose answers are short -----------------------------------------------------------

# Whether an entity is in memory, or entities run: a byte or two, though others of the procedure's questions have answers of megabytes. (P71)
my $session = $good[0]->session;
my $backend = $session->query('SELECT pg_backend_pid();');
my $peak = peak($backend);
flood('answer stats');
is($session->query("SELECT running IS NULL FROM shard_location('recorder', '$entity');"), 't', 'P71 nobody can say whether an entity runs');
cmp_ok(peak($backend) - $peak, '<', 30, 'P71 and the session that asked has hardly grown');
$session->close;
my $witness = ShardWire::Member->new(@good[ 1, 0 ]);
# So many nodes, and which: asked about at a member, as by one that does not hear them.
sub witness { my @nodes = @_; return ($witness->call(call_sql('stats', $witness->head . join '', wire_int(7), wire_uint(scalar @nodes), map { wire_int($_) } @nodes)))[1] }
is(witness($evil->n), '', 'P71 a member is asked about another one');
is(witness(($evil->n) x 16), '08P01', 'P71 not sixteen times about the same');
is(witness($evil->n, $good[0]->n), '08P01', 'P71 nor about itself');
flood('');
$cluster->wait_reachable;

# --- what may be long --------------------------------------------------------------------------------

my $long = $cluster->entity_at('long', $evil->n);
is($good[0]->sql(qq{SELECT length(shard_ask('long', '$long', '{"reply": 20000000, "state": 30000000}', '120 s')::text)}), 20000002, 'a long reply comes back');
# So is what is asked, also with the first call of a connection, for which libpq makes room, too.
$_->sql(q{SELECT shard_alter('long', 'max_message_size', '8000000')}) for $cluster->nodes;
$evil->server->stop('fast');
$good[0]->sql(qq{SELECT shard_tell('long', '$long', jsonb_build_object('is', repeat('z', 6000000)))});
my $log = -s $good[0]->server->logfile;
$evil->server->start;
$cluster->wait_reachable;
is($good[0]->sql(qq{SELECT length(shard_ask('long', '$long', '{"reply": 1, "state": 30000000}', '120 s')::text)}), 3, 'a long message is taken by a new connection');
unlike(slurp_file($good[0]->server->logfile, $log), qr/longer than an answer may be|was not asked for/, 'which is not closed for it');
my $shard = $good[0]->sql(qq{SELECT shard_shard_id('long', '$long')});
$good[0]->eventually("SELECT shard_move('long', $shard, @{[$good[0]->n]})");
is($good[0]->sql(qq{SELECT length(state::text) FROM shard_entity.long WHERE entity_id = '$long'}), 30000000, 'and a state of that size moves');
done_testing();
