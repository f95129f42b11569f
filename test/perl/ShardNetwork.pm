package ShardNetwork;

=head1 NAME

ShardNetwork - a network namespace for each node, on a bridge: real packets that can be lost

=head1 SYNOPSIS

  plan skip_all => $reason if my $reason = ShardNetwork::missing();
  my $network = ShardNetwork->new(3);
  my $cluster = ShardNodes->create(3, network => $network);
  $network->drop(1, 2);          # packets from 1 to 2 vanish; those from 2 to 1 do not
  $network->delay(1, 2, 200);    # where the kernel has netem
  $network->heal;

=head1 DESCRIPTION

What a proxy cannot show: connections whose other end is silent, without a word from its kernel. The
namespaces belong to a user namespace of ours, so this needs no root, but a kernel that lets users
have them. They are gone with the processes that hold them, which end with this one.

Packets are dropped by a wrong hardware address in the sender's table of neighbours: they go to
nobody. That needs no module of the kernel.

=cut

use strict;
use warnings FATAL => 'all';

use IPC::Run;
use PostgreSQL::Test::Utils;

# Why there can be no networks of our own here; nothing if there can.
sub missing
{
	my $out;
	return 'no program "ip" (package iproute2)' unless grep { -x "$_/ip" } split(/:/, $ENV{PATH}), '/usr/sbin', '/sbin';
	return 'this system gives users no network namespaces'
	  unless IPC::Run::run([ qw(unshare --user --map-root-user --net ip link show lo) ], '>', \$out, '2>&1');
	return;
}

sub new
{
	my ($class, $count) = @_;
	my $self = bless { count => $count, nodes => {} }, $class;
	local $ENV{PATH} = "$ENV{PATH}:/usr/sbin:/sbin";

	# Whoever owns the namespaces; a cat that ends when we do.
	$self->{hub} = _hold(qw(unshare --user --map-root-user --net cat));
	$self->_in_hub('ip link set lo up; ip link add bridge type bridge; ip link set bridge up');
	for my $n (1 .. $count)
	{
		$self->{nodes}{$n} = _hold($self->_enter_hub, qw(unshare --net cat));
		my $pid = $self->{nodes}{$n}{pid};
		$self->_in_hub("ip link add port$n type veth peer name eth0 netns $pid; ip link set port$n master bridge up");
		$self->_at($n, 'ip link set lo up; ip address add ' . $self->address($n) . '/24 dev eth0; '
			. "ip link set eth0 address @{[_hardware($n)]} up");
	}
	return $self;
}

# A process that holds a namespace: it has it when it has answered.
sub _hold
{
	my (@command) = @_;
	my $self = { in => "ready\n", out => '' };
	$self->{run} = IPC::Run::start(\@command, '<', \$self->{in}, '>', \$self->{out}, IPC::Run::timeout(60));
	$self->{run}->pump until $self->{out} =~ /ready/;
	$self->{pid} = $self->{run}{KIDS}[0]{PID};
	return $self;
}

sub _enter_hub
{
	my ($self) = @_;
	return ('nsenter', '--target', $self->{hub}{pid}, '--user', '--net', '--preserve-credentials', '--');
}

sub _in_hub
{
	my ($self, $script) = @_;
	return _run($self->_enter_hub, 'sh', '-ec', $script);
}

sub _at
{
	my ($self, $n, $script) = @_;
	return _run('nsenter', '--target', $self->{nodes}{$n}{pid}, '--user', '--net', '--preserve-credentials', '--',
		'sh', '-ec', $script);
}

sub _run
{
	my (@command) = @_;
	local $ENV{PATH} = "$ENV{PATH}:/usr/sbin:/sbin";
	my ($out, $err) = ('', '');
	IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err) or die "$command[-1]: $err";
	return $out;
}

sub address { my ($self, $n) = @_; return "10.77.0.$n" }
sub _hardware { my ($n) = @_; return sprintf '02:77:00:00:00:%02x', $n }

# A command that runs another one in the network of node n, as ourselves: servers refuse to be root,
# even one of a namespace.
sub enter
{
	my ($self, $n) = @_;
	my ($user, $group) = ($<, $( + 0);
	return [ 'nsenter', '--target', $self->{nodes}{$n}{pid}, '--user', '--net', '--preserve-credentials', '--',
		'unshare', '--user', "--map-user=$user", "--map-group=$group", '--' ];
}

# --- what happens to packets ---------------------------------------------------------------------

# Packets from one node to another vanish.
sub drop
{
	my ($self, $from, $to) = @_;
	$self->_at($from, 'ip neighbour replace ' . $self->address($to) . ' lladdr 02:77:00:00:ff:ff dev eth0 nud permanent');
	return;
}

sub partition
{
	my ($self, $some, $others) = @_;
	for my $a (@$some) { for my $b (@$others) { $self->drop($a, $b); $self->drop($b, $a) } }
	return;
}

# The node's cable is pulled, or put back.
sub unplug { my ($self, $n) = @_; $self->_in_hub("ip link set port$n down"); return }
sub plug   { my ($self, $n) = @_; $self->_in_hub("ip link set port$n up"); return }

# Can this kernel delay and lose packets at random?
sub has_netem
{
	my ($self) = @_;
	return eval { $self->_at(1, 'tc qdisc add dev eth0 root netem delay 1ms; tc qdisc del dev eth0 root'); 1 };
}

# What leaves a node is treated so: "delay 50ms 20ms loss 10%".
sub netem
{
	my ($self, $n, $how) = @_;
	$self->_at($n, "tc qdisc replace dev eth0 root netem $how");
	$self->{netem}{$n} = 1;
	return;
}

sub heal
{
	my ($self) = @_;
	for my $n (1 .. $self->{count})
	{
		$self->plug($n);
		$self->_at($n, 'tc qdisc del dev eth0 root') if delete $self->{netem}{$n};
		for my $m (grep { $_ != $n } 1 .. $self->{count})
		{
			$self->_at($n, 'ip neighbour replace ' . $self->address($m) . ' lladdr ' . _hardware($m) . ' dev eth0 nud reachable');
		}
	}
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@);
	for my $holder (values %{ $self->{nodes} }, $self->{hub})
	{
		eval { $holder->{run}->kill_kill } if $holder;
	}
	return;
}

1;
