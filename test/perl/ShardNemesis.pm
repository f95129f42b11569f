package ShardNemesis;

=head1 NAME

ShardNemesis - what goes wrong in a cluster, at random from a seed, and ends again

=head1 SYNOPSIS

  my $nemesis = ShardNemesis->new(cluster => $cluster, seed => 42, seconds => 30);
  note($nemesis->story);              # all of it, before it begins
  $nemesis->run(sub { ... });         # the function is called in between, often
  $nemesis->heal;

=head1 DESCRIPTION

The plan depends on seed, seconds and kinds alone: when each fault begins, how long it lasts, whom it
concerns. What it meets depends on how fast the machine is, so a seed does not repeat a history; but
it repeats the faults.

Faults of servers (dead, frozen) never overlap at one server. Faults of the network may. A cluster
without proxies has no faults of the network. Where shards may move, moves, pins and evacuations are
among the kinds: commands that no fault may hinder for ever.

=cut

use strict;
use warnings FATAL => 'all';

use IO::Socket::UNIX;
use POSIX ();
use PostgreSQL::Test::Utils;
use ShardCluster;
use ShardLoad;
use Test::More;
use Time::HiRes qw(time usleep);

# Kinds: weight; whom it needs: a server for itself (node), an ordered pair (edge), an unordered one
# (pair), nobody (none); seconds at least and at most; begin and end.
my %kind = (
	'kill -9' => {
		weight => 3, whom => 'node', length => [ 0.5, 4 ],
		begin => sub { my ($self, $f) = @_; $f->{node}->server->crash },
		end   => sub { my ($self, $f) = @_; $f->{node}->server->recover },
	},
	'immediate stop' => {
		weight => 2, whom => 'node', length => [ 0.2, 3 ],
		begin => sub { my ($self, $f) = @_; $f->{node}->server->stop('immediate') },
		end   => sub { my ($self, $f) = @_; $f->{node}->server->recover },
	},
	'fast restart' => {
		weight => 1, whom => 'node', length => [ 0, 0 ],
		begin => sub { my ($self, $f) = @_; $f->{node}->server->stop('fast') },
		end   => sub { my ($self, $f) = @_; $f->{node}->server->recover },
	},
	'freeze' => {
		weight => 3, whom => 'node', length => [ 0.5, 8 ],
		begin => sub { my ($self, $f) = @_; $f->{node}->server->freeze },
		end   => sub { my ($self, $f) = @_; $f->{node}->server->thaw },
	},
	# Who it is depends on the run.
	'coordinator killed' => {
		weight => 2, whom => 'all', length => [ 1, 5 ],
		begin => sub {
			my ($self, $f) = @_;
			$f->{node} = $self->_coordinator or return;
			$f->{node}->server->crash;
		},
		end => sub { my ($self, $f) = @_; $f->{node}->server->recover if $f->{node} },
	},
	'coordinator frozen' => {
		weight => 2, whom => 'all', length => [ 1, 6 ],
		begin => sub {
			my ($self, $f) = @_;
			$f->{node} = $self->_coordinator or return;
			$f->{node}->server->freeze;
		},
		end => sub { my ($self, $f) = @_; $f->{node}->server->thaw if $f->{node} },
	},
	'partition' => {
		weight => 3, whom => 'group', length => [ 1, 8 ], network => 1,
		begin => sub { my ($self, $f) = @_; $self->_rule('hold', $_, $f) for $self->_around($f) },
		end   => sub { my ($self, $f) = @_; $self->_unrule($f) },
	},
	'partition by reset' => {
		weight => 1, whom => 'group', length => [ 1, 5 ], network => 1,
		begin => sub { my ($self, $f) = @_; $self->_rule('cut', $_, $f) for $self->_around($f) },
		end   => sub { my ($self, $f) = @_; $self->_unrule($f) },
	},
	'one way' => {
		weight => 2, whom => 'edge', length => [ 1, 8 ], network => 1,
		begin => sub { my ($self, $f) = @_; $self->_rule('hold', $f->{edge}, $f) },
		end   => sub { my ($self, $f) = @_; $self->_unrule($f) },
	},
	# Two nodes do not reach each other, but both reach the others.
	'bridge' => {
		weight => 2, whom => 'edge', length => [ 1, 8 ], network => 1,
		begin => sub {
			my ($self, $f) = @_;
			$self->_rule('hold', $_, $f) for $f->{edge}, [ reverse @{ $f->{edge} } ];
		},
		end => sub { my ($self, $f) = @_; $self->_unrule($f) },
	},
	'delay' => {
		weight => 2, whom => 'edge', length => [ 1, 6 ], network => 1,
		begin => sub { my ($self, $f) = @_; $self->_rule('delay', $f->{edge}, $f, 5 + $f->{size} * 400) },
		end   => sub { my ($self, $f) = @_; $self->_unrule($f) },
	},
	'loss' => {
		weight => 2, whom => 'edge', length => [ 1, 6 ], network => 1,
		begin => sub { my ($self, $f) = @_; $self->_rule('stutter', $f->{edge}, $f, 200 + $f->{size} * 1500) },
		end   => sub { my ($self, $f) = @_; $self->_unrule($f) },
	},
	'connections reset' => {
		weight => 2, whom => 'edge', length => [ 0, 0 ], network => 1,
		begin => sub { my ($self, $f) = @_; $self->{cluster}->proxy->reset_links(@{ $f->{edge} }) },
		end   => sub { },
	},
	# A peer commits, and who called does not hear of it.
	'reply lost' => {
		weight => 3, whom => 'edge', length => [ 0, 0 ], network => 1,
		begin => sub {
			my ($self, $f) = @_;
			$self->{cluster}->proxy->cut_reply(@{ $f->{edge} }, 1 + int($f->{size} * 5), '.');
		},
		end => sub { },
	},
	'backends terminated' => {
		weight => 2, whom => 'free', length => [ 0, 0 ],
		begin => sub {
			my ($self, $f) = @_;
			_calm($f->{node}, q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shard%' OR usename = 'link'});
		},
		end => sub { },
	},
	'a worker terminated' => {
		weight => 2, whom => 'free', length => [ 0, 0 ],
		begin => sub {
			my ($self, $f) = @_;
			_calm($f->{node}, "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity
				WHERE backend_type LIKE 'shard%' ORDER BY hashint8(pid + " . int($f->{size} * 1000) . ') LIMIT 1) w');
		},
		end => sub { },
	},
	'no free connection' => {
		weight => 1, whom => 'free', length => [ 1, 5 ],
		begin => sub { my ($self, $f) = @_; $f->{held} = fill_connections($f->{node}->server) },
		end   => sub { my ($self, $f) = @_; close $_ for @{ delete $f->{held} // [] } },
	},
	# All lose their power at once.
	'all killed' => {
		weight => 1, whom => 'all', length => [ 0.5, 1 ],
		begin => sub { my ($self, $f) = @_; $_->server->crash for $self->{cluster}->nodes },
		end   => sub { my ($self, $f) = @_; $_->server->recover for $self->{cluster}->nodes },
	},
	# A transaction that sends, stays open with an old snapshot, and commits late, while what another one
	# has prepared waits for its decision, which comes with the end of the load.
	'old transactions' => {
		weight => 1, whom => 'free', length => [ 3, 8 ], answers => 1,
		begin => sub { my ($self, $f) = @_; $self->_open_old($f) },
		end   => sub { my ($self, $f) = @_; $self->_close_old($f) },
	},
	# There and back; what an end of the server leaves behind the next one mends, or the end of the round.
	'a state type altered' => {
		weight => 2, whom => 'free', length => [ 0, 0 ], still => 1,
		begin => sub { my ($self, $f) = @_; $self->_in_background($f->{node}, q{CALL ledger_alter('text');}, q{SELECT pg_sleep(0.1);}, q{CALL ledger_alter('bigint');}) },
		end   => sub { },
	},
	# From here on shards move, if the test allows it.
	'moves' => {
		weight => 10, whom => 'free', length => [ 0, 0 ], moves => 1,
		begin => sub {
			my ($self, $f) = @_;
			my $count = 1 + int($f->{size} * 6);
			$self->_in_background($f->{node}, map { $self->_move } 1 .. $count);
		},
		end => sub { },
	},
	'there and back' => {
		weight => 4, whom => 'free', length => [ 0, 0 ], moves => 1,
		begin => sub {
			my ($self, $f) = @_;
			my ($type, $entity) = split / /, $self->{entities}[ $f->{chance}->(3) ];
			my @n = map { $_->n } $self->{cluster}->nodes;
			my $first = $f->{chance}->(scalar @n);
			$self->_in_background($f->{node}, map { _move_to($type, $entity, $n[ ($first + $_) % @n ]) } 0, 1, 0, 1, 2, 0);
		},
		end => sub { },
	},
	'a pin' => {
		weight => 1, whom => 'free', length => [ 2, 6 ], moves => 1,
		begin => sub {
			my ($self, $f) = @_;
			$f->{pinned} = $self->{entities}[ $f->{chance}->(2) ];
			my ($type, $entity) = split / /, $f->{pinned};
			$self->_in_background($f->{node}, "SELECT shard_pin('$type', shard_shard_id('$type', '$entity'), " . $f->{node}->n . ');');
		},
		end => sub {
			my ($self, $f) = @_;
			my ($type, $entity) = split / /, $f->{pinned};
			$self->_in_background($f->{node}, "SELECT shard_unpin('$type', shard_shard_id('$type', '$entity'));");
		},
	},
	'an evacuation' => {
		weight => 2, whom => 'free', length => [ 2, 6 ], moves => 1,
		begin => sub { my ($self, $f) = @_; $self->_in_background($f->{node}, 'SELECT shard_evacuate(' . $f->{node}->n . ');') },
		end   => sub { my ($self, $f) = @_; $self->_in_background($f->{node}, 'SELECT shard_evacuate(' . $f->{node}->n . ', false);', 'SELECT shard_rebalance();') },
	},
);

sub kinds { return sort keys %kind }

# --- commands that take their time ---------------------------------------------------------------

# SQL that moves a shard somewhere; chance chooses both.
sub _move
{
	my ($self) = @_;
	my $entities = $self->{entities};
	my ($type, $entity) = split / /, $entities->[ $self->{moving}->(scalar @$entities) ];
	my @nodes = $self->{cluster}->nodes;
	return _move_to($type, $entity, $nodes[ $self->{moving}->(scalar @nodes) ]->n);
}

sub _move_to
{
	my ($type, $entity, $n) = @_;
	return "SELECT 'MOVED' FROM (SELECT shard_move('$type', shard_shard_id('$type', '$entity'), $n)) m;";
}

# Statements at a node, by a process of their own; each may fail. They end by themselves.
sub _in_background
{
	my ($self, $node, @statements) = @_;
	return unless defined $node->server->{_pid} && !$node->server->{frozen};
	my $file = "$PostgreSQL::Test::Utils::tmp_check/commands";
	my $pid = fork // die "cannot fork: $!";
	if ($pid)
	{
		$self->{background}{$pid} = 1;
		return;
	}
	open STDIN,  '<',  '/dev/null' or POSIX::_exit(126);
	open STDOUT, '>>', "$file.out" or POSIX::_exit(126);
	open STDERR, '>>', "$file.err" or POSIX::_exit(126);
	my @psql = ('psql', '-XAtq', '-d', $node->server->connstr($node->db), map { ('-c', $_) } "SET statement_timeout = '10 s'", @statements);
	{ exec { $psql[0] } @psql }
	POSIX::_exit(127);
}

# Waits for them, and counts the moves that were reported as done.
sub finish
{
	my ($self) = @_;
	waitpid $_, 0 for keys %{ delete $self->{background} // {} };
	my $file = "$PostgreSQL::Test::Utils::tmp_check/commands.out";
	return unless -e $file;
	$self->{moved} = () = PostgreSQL::Test::Utils::slurp_file($file) =~ /^MOVED$/mg;
	unlink $file;
	return;
}

sub _open_old
{
	my ($self, $f) = @_;
	my $name = 'old' . $f->{node}->n . '_' . ++$self->{old};
	my ($type, $entity) = split / /, $self->{entities}[0];
	my $note = sub { my ($txn, $n, $kind) = @_;
		"SELECT shard_tell('$type', '$entity', ledger_note('$name', $txn, $n, '$kind', '$entity', 'plain'));" };
	return if _calm($f->{node}, join "\n", 'BEGIN;', $note->(1, 0, 'prepared'), "PREPARE TRANSACTION '$name';") // 1;
	$f->{session} = $f->{node}->session;
	$f->{late} = $note->(2, 1, 'tell');
	$f->{session}->send(join "\n", 'BEGIN ISOLATION LEVEL REPEATABLE READ;', $note->(2, 0, 'tell'));
	return;
}

# The server may have died with it: then it has not happened.
sub _close_old
{
	my ($self, $f) = @_;
	my $session = delete $f->{session} or return;
	eval { $session->receive; $session->query("$f->{late}\nCOMMIT;"); 1 } or note("an old transaction ended before its time: $@");
	$session->close;
	return;
}

# --- helpers of the kinds ------------------------------------------------------------------------

# SQL at a server that may be dead or full: then this fault does not happen.
sub _calm
{
	my ($node, $sql) = @_;
	return unless defined $node->server->{_pid} && !$node->server->{frozen};
	my ($status) = $node->try($sql, timeout => 5, timed_out => \my $late);
	return $status;
}

# Takes all connections of a server and keeps them; returns their sockets. Without a psql for each.
sub fill_connections
{
	my ($server) = @_;
	my @held;
	my $start = join "\0", user => scalar getpwuid($<), database => 'postgres', '', '';
	while (@held < 200)
	{
		my $socket = IO::Socket::UNIX->new(Peer => $server->host . '/.s.PGSQL.' . $server->port) or last;
		print $socket pack('NN', 8 + length $start, 3 << 16) . $start;
		$socket->flush;
		push @held, $socket;
		# Authenticated; an error means that none is left.
		my $first = '';
		local $SIG{ALRM} = sub { die "no answer\n" };
		eval { alarm 5; sysread $socket, $first, 1; alarm 0; 1 } or last;
		alarm 0;
		last if $first ne 'R';
	}
	return \@held;
}

sub _coordinator
{
	my ($self) = @_;
	for my $node ($self->{cluster}->nodes)
	{
		next if $self->_is_disturbed($node->n) || !defined $node->server->{_pid} || $node->server->{frozen};
		my ($status, $n) = $node->try('SELECT node FROM shard_members WHERE coordinator', timeout => 5, timed_out => \my $late);
		next if !defined $status || $status != 0 || !$n || $self->_is_disturbed($n);
		return $self->{cluster}->node($n);
	}
	return;
}

# Is a fault of servers under way there?
sub _is_disturbed
{
	my ($self, $n) = @_;
	return scalar grep { $_->{node} && $_->{node}->n == $n && $kind{ $_->{kind} }{whom} =~ /node|all/ } @{ $self->{active} };
}

# All edges between a group and the others, both ways.
sub _around
{
	my ($self, $f) = @_;
	my %in = map { $_ => 1 } @{ $f->{group} };
	my @all = map { $_->n } $self->{cluster}->nodes;
	return map { my $a = $_; map { ([ $a, $_ ], [ $_, $a ]) } grep { !$in{$_} } @all } @{ $f->{group} };
}

# A rule of the proxy for as long as the fault lasts.
sub _rule
{
	my ($self, $verb, $edge, $f, @args) = @_;
	push @{ $f->{rules} }, [ $verb, $edge, @args ];
	$self->{cluster}->proxy->$verb(@$edge, map { int } @args);
	return;
}

# Ends the rules of one fault; those of others on the same edges go on.
sub _unrule
{
	my ($self, $f) = @_;
	my @others = grep { $_ != $f } @{ $self->{active} };
	my %healed;
	for my $rule (@{ $f->{rules} })
	{
		my $edge = $rule->[1];
		next if $healed{"@$edge"}++;
		my @still = grep { "@{ $_->[1] }" eq "@$edge" } map { @{ $_->{rules} // [] } } @others;
		my $proxy = $self->{cluster}->proxy;
		# Unless what goes on would be ended for a moment, too.
		next if grep { $_->[0] =~ /hold|cut/ } @still;
		$proxy->heal(@$edge);
		for my $rule (@still) { my ($verb, $e, @args) = @$rule; $proxy->$verb(@$e, map { int } @args) }
	}
	return;
}

# --- the plan ------------------------------------------------------------------------------------

# Arguments: cluster, seed, seconds; kinds (default: all that are possible); moves: shards may move;
# entities whose shards do, as "type entity", those with most messages first; every (mean seconds between
# beginnings, default 2).
sub new
{
	my ($class, %arg) = @_;
	my $self = bless { every => 2, active => [], %arg }, $class;
	$self->{kinds} //= [ grep { ($arg{cluster}->proxy || !$kind{$_}{network}) && ($arg{moves} ? !$kind{$_}{still} : !$kind{$_}{moves}) } kinds() ];
	# What is moved depends on the seed, too.
	$self->{moving} = ShardLoad::random_stream($self->{seed} * 11 + 5);
	$self->{plan} = [ $self->_make_plan ];
	return $self;
}

sub _make_plan
{
	my ($self) = @_;
	my $chance = ShardLoad::random_stream($self->{seed} * 7 + 3);
	my $uniform = sub { my ($from, $to) = @_; return $from + ($to - $from) * $chance->(1000) / 1000 };
	my @bag = map { ($_) x $kind{$_}{weight} } @{ $self->{kinds} };
	my @all = map { $_->n } $self->{cluster}->nodes;
	my %busy;    # server => until when
	my @plan;
	return unless @bag;

	for (my $at = 0.5; $at < $self->{seconds}; $at += $uniform->(0.2, 2 * $self->{every} - 0.2))
	{
		my $name = $bag[ $chance->(scalar @bag) ];
		my $kind = $kind{$name};
		my $fault = { kind => $name, at => $at, size => $uniform->(0, 1), chance => $self->{moving} };
		$fault->{until} = $at + $uniform->(@{ $kind->{length} });
		my $n = $all[ $chance->(scalar @all) ];
		my $m = (grep { $_ != $n } @all)[ $chance->(@all - 1) ];

		if ($kind->{whom} eq 'node')
		{
			next if ($busy{$n} // 0) > $at;
			$busy{$n} = $fault->{until} + 0.5;
			$fault->{node} = $self->{cluster}->node($n);
		}
		elsif ($kind->{whom} eq 'all')
		{
			next if grep { $_ > $at } values %busy;
			$busy{$_} = $fault->{until} + 0.5 for @all;
		}
		elsif ($kind->{whom} eq 'free') { $fault->{node} = $self->{cluster}->node($n) }
		elsif ($kind->{whom} eq 'edge') { $fault->{edge} = [ $n, $m ] }
		elsif ($kind->{whom} eq 'group') { $fault->{group} = [$n] }
		push @plan, $fault;
	}
	return @plan;
}

# The plan in words.
sub story
{
	my ($self) = @_;
	return join "\n", map { sprintf '%6.2f to %6.2f  %s', $_->{at}, $_->{until}, _describe($_) } @{ $self->{plan} };
}

sub _describe
{
	my ($f) = @_;
	my $text = $f->{kind};
	$text .= ' node ' . $f->{node}->n if $f->{node};
	$text .= " $f->{edge}[0] > $f->{edge}[1]" if $f->{edge};
	$text .= " @{ $f->{group} } | others" if $f->{group};
	return $text;
}

# --- the run -------------------------------------------------------------------------------------

# Runs the plan; calls the function in between, which should return soon.
sub run
{
	my ($self, $meanwhile) = @_;
	my $start = time;
	my @coming = @{ $self->{plan} };
	while (time < $start + $self->{seconds})
	{
		my $now = time - $start;
		my @over = grep { $_->{until} <= $now && !_hangs($_) } @{ $self->{active} };
		$self->_end($_) for @over;
		if (@coming && $coming[0]{at} <= $now)
		{
			my $fault = shift @coming;
			note(sprintf '%6.2f  %s', $now, _describe($fault));
			push @{ $self->{active} }, $fault;
			$self->{count}{ $fault->{kind} }++;
			$kind{ $fault->{kind} }{begin}->($self, $fault);
		}
		$meanwhile->();
	}
	return;
}

sub _end
{
	my ($self, $fault) = @_;
	$kind{ $fault->{kind} }{end}->($self, $fault);
	$self->{active} = [ grep { $_ != $fault } @{ $self->{active} } ];
	return;
}

# Does its end need an answer of a server that is frozen now?
sub _hangs
{
	my ($fault) = @_;
	return $kind{ $fault->{kind} }{answers} && $fault->{node}->server->{frozen};
}

# Ends everything that is under way; first what may keep servers from answering.
sub heal
{
	my ($self) = @_;
	my @under_way = sort { ($kind{ $a->{kind} }{answers} // 0) <=> ($kind{ $b->{kind} }{answers} // 0) } @{ $self->{active} };
	$self->_end($_) for @under_way;
	$self->{cluster}->proxy->heal if $self->{cluster}->proxy;
	$_->server->recover for $self->{cluster}->nodes;
	return;
}

1;
