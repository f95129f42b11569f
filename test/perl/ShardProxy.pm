package ShardProxy;

=head1 NAME

ShardProxy - drives test/nemesis/proxy.pl: what happens on each directed edge between nodes

=head1 SYNOPSIS

  my $proxy = ShardProxy->start;
  $proxy->node(1, listen => $port, server => $node);
  $proxy->hold(1, 2);               # nothing from 1 reaches 2, both ways of connecting
  $proxy->partition([1], [2, 3]);   # both directions
  $proxy->cut_reply(1, 2, 1, '^receive$');
  $proxy->heal;

=cut

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename;
use IPC::Run;
use PostgreSQL::Test::Utils;

my $program = dirname(abs_path(__FILE__)) . '/../nemesis/proxy.pl';

sub start
{
	my ($class) = @_;
	my $self = bless { in => '', out => '' }, $class;
	$self->{timer} = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default // 180);
	$self->{run} = IPC::Run::start([ $^X, $program ], '<', \$self->{in}, '>', \$self->{out}, $self->{timer});
	return $self;
}

# One command, one answer.
sub command
{
	my ($self, $line) = @_;
	$self->{timer}->start($PostgreSQL::Test::Utils::timeout_default // 180);
	$self->{in} .= "$line\n";
	$self->{run}->pump until $self->{out} =~ /\n/;
	my $answer = $self->{out};
	$self->{out} = '';
	chomp $answer;
	die "proxy: $line: $answer" unless $answer =~ s/^ok ?//;
	return $answer;
}

# Node n is behind this port.
sub node
{
	my ($self, $n, %opt) = @_;
	my $server = $opt{server};
	return $self->command(join ' ', 'node', $n, $opt{listen}, $server->port, $server->data_dir . '/postmaster.pid');
}

sub hold      { my ($self, $from, $to) = @_; return $self->command("hold $from $to") }
sub cut       { my ($self, $from, $to) = @_; return $self->command("cut $from $to") }
sub delay     { my ($self, $from, $to, $ms) = @_; return $self->command("delay $from $to $ms") }
sub stutter   { my ($self, $from, $to, $ms) = @_; return $self->command("stutter $from $to $ms") }
sub spoil     { my ($self, $from, $to, $pattern) = @_; return $self->command("spoil $from $to $pattern") }
sub reset_links { my ($self, $from, $to) = @_; return $self->command("reset $from $to") }
sub fired     { my ($self) = @_; return $self->command('fired') }

# The nth query with this text from now on is executed, its answer gets lost.
sub cut_reply { my ($self, $from, $to, $n, $text) = @_; return $self->command("cutreply $from $to $n $text") }

# It gets lost itself.
sub cut_query { my ($self, $from, $to, $n, $text) = @_; return $self->command("cutquery $from $to $n $text") }

# Of one direction, or of all.
sub heal { my ($self, @edge) = @_; return $self->command("heal @edge") }

# Nothing passes between the two groups, in either direction; how: hold or cut.
sub partition
{
	my ($self, $some, $others, $how) = @_;
	$how //= 'hold';
	for my $a (@$some)
	{
		for my $b (@$others)
		{
			$self->$how($a, $b);
			$self->$how($b, $a);
		}
	}
	return;
}

# Ends with its standard input.
sub stop
{
	my ($self) = @_;
	my $run = delete $self->{run} or return;
	$run->kill_kill;
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@);
	eval { $self->stop };
	return;
}

1;
