package ShardClusterLedger;

=head1 NAME

ShardClusterLedger - ShardLedger for several nodes: each keeps its own books, the audit is of all of them

=head1 SYNOPSIS

  my $ledger = ShardClusterLedger->new(cluster => $cluster, seed => 42);
  $ledger->install;
  $ledger->prove(seconds => 30);

=head1 DESCRIPTION

Clients send on every node, each to entities that live anywhere; a node enters in its C<sent> what was
sent there and in its C<handled> what was handled there. After a round the books of all nodes are put
together in a database without the extension, and audited there as those of one node are. Order is
only asked for among what was sent on one node; and an entity must have run on one node only (P4), as
long as no shard moves.

Other clients ask registers, from every node; their answers must be those of one copy (ShardHistory).

=cut

use strict;
use warnings FATAL => 'all';
use parent 'ShardLedger';

use POSIX ();
use PostgreSQL::Test::Utils;
use ShardHistory;
use ShardLives;
use ShardLoad;
use ShardNemesis;
use Test::More;
use Time::HiRes qw(time usleep);

my $patience = $PostgreSQL::Test::Utils::timeout_default // 180;

# Arguments: cluster, seed; senders and askers: of each per node; quiet: numbers of nodes without any;
# moves: shards may move; light: little load.
sub new
{
	my ($class, %arg) = @_;
	my $self = bless { db => 'audit', rounds => 0, sent => 0, moved => 0, senders => 2, askers => 1, %arg,
		chance => ShardLoad::random_stream($arg{seed}) }, $class;
	$self->{node} = $arg{cluster}->node(1)->server;
	$self->{clients} = [ map { ($self->_clients_of($_)) } $arg{cluster}->others(@{ $arg{quiet} // [] }) ];
	return $self;
}

sub _clients_of
{
	my ($self, $node) = @_;
	my $n = $node->n;
	my @names = ((map { "n${n}c$_" } 1 .. $self->{senders}), (map { "n${n}a$_" } 1 .. $self->{askers}));
	my $place = 0;
	return map {
		my $seed = $self->{seed} * 100 + $n * 10 + $place++;
		{
			name => $_, node => $node, txn => 0, asks => 0, light => $self->{light},
			asker => scalar($_ =~ /a/),
			chance => ShardLoad::random_stream($seed),
			file => "$PostgreSQL::Test::Utils::tmp_check/cluster_$_",
		}
	} @names;
}

sub install
{
	my ($self) = @_;
	$self->install_at($_) for $self->{cluster}->nodes;
	$self->{cluster}->wait_registered;
	$self->_install_audit;
	return;
}

# Books and entity types at a node.
sub install_at
{
	my ($self, $node) = @_;
	my $n = $node->n;
	$node->sql($self->books);
	$node->sql("ALTER TABLE sent ALTER node SET DEFAULT $n; ALTER TABLE handled ALTER node SET DEFAULT $n;
		ALTER TABLE lives ALTER node SET DEFAULT $n;");
	$node->sql($_) for $self->entity_type, $ShardHistory::type;
	return;
}

# A database with books and imitations of what the audit reads of the extension.
sub _install_audit
{
	my ($self) = @_;
	$self->{node}->safe_psql('postgres', "CREATE DATABASE $self->{db}");
	$self->{node}->safe_psql($self->{db}, $self->books . <<'SQL');
CREATE TABLE shard_inbox (type_name text, entity_id text, message jsonb);
CREATE TABLE shard_dead_letters (type_name text, entity_id text, message jsonb, sqlstate text);
CREATE SCHEMA shard_entity;
CREATE TABLE shard_timers (type_name text, entity_id text, name text);
CREATE TABLE shard_entity.ledger (entity_id text, state jsonb);
CREATE TABLE shard_entity.alive (entity_id text, state jsonb, remembered boolean);
CREATE FUNCTION ledger_states() RETURNS SETOF shard_entity.ledger STABLE LANGUAGE sql AS 'SELECT * FROM shard_entity.ledger';
CREATE FUNCTION ledger_lives() RETURNS SETOF shard_entity.alive STABLE LANGUAGE sql AS 'SELECT * FROM shard_entity.alive';
SQL
	return;
}

# --- a round -------------------------------------------------------------------------------------

# One round: new books, load on every node while the nemesis does its work, recovery, all drained.
# Options: seconds, seed of the nemesis, kinds, every.
sub round
{
	my ($self, %opt) = @_;
	my $cluster = $self->{cluster};
	$self->_open_books;

	my $nemesis = ShardNemesis->new(cluster => $cluster, entities => [ $self->entities ], %opt);
	note("faults of seed $opt{seed}:\n" . $nemesis->story);
	$nemesis->run(sub { $self->_keep_busy });
	my $healed = time;
	$nemesis->heal;
	$self->{times} = { $self->_recovery($healed) };
	$nemesis->finish;
	$_->sql(q{CALL ledger_alter('bigint')}) for $cluster->nodes;
	$self->{commanded} += $nemesis->{moved} // 0;
	$self->_wait_for_clients;
	$self->_close_books;
	$self->{times}{drained} = time - $healed;
	return;
}

sub _open_books
{
	my ($self) = @_;
	$_->sql('TRUNCATE sent, handled') for $self->{cluster}->all_nodes;
	$self->{rounds}++;
	for my $client (@{ $self->{clients} })
	{
		unlink "$client->{file}.out";
	}
	return;
}

# Waits until all is handled where it belongs, and puts the books together. Rebalancing may begin at any time, also
# when all had settled, and then a state is read at both of its homes or at neither: so the books count if no shard
# has moved from before they were read till after.
sub _close_books
{
	my ($self) = @_;
	my $cluster = $self->{cluster};
	my $deadline = time + $ShardCluster::patience;
	my ($before, $after);
	$self->_resolve_everywhere;
	do
	{
		die "shards do not stop moving: $before, then $after" if time > $deadline;
		# A build that is broken on purpose may have lost what it would have to drain.
		my $drained = eval {
			$self->_settle_lives;
			$cluster->drain;
			$cluster->wait_settled if $self->{moves};
			$before = $self->_ownership;
			$self->_settle_lives;
			1;
		};
		die $@ unless $drained || $ENV{SHARD_MUTANT};
		$self->{undrained} = !$drained;
		$self->_collect;
		$after = $self->_ownership;
	} until ($before eq $after || !$self->{moves} || $self->{undrained});
	$self->{sent} += $self->{node}->safe_psql($self->{db}, 'SELECT count(*) FROM sent');
	$self->{moved} += $self->{node}->safe_psql($self->{db},
		'SELECT count(*) FROM (SELECT FROM handled GROUP BY entity HAVING count(DISTINCT node) > 1) e');
	return;
}

sub _place
{
	my ($node) = @_;
	return sub { my ($status, $out) = $node->try(@_); return $status == 0 ? $out : undef };
}

sub _places { my ($self) = @_; return map { _place($_) } $self->{cluster}->nodes }

sub _settle_lives { my ($self) = @_; return ShardLives::settle($self->_places) }

# Entities of this round that get most of its messages, as "type entity".
sub entities
{
	my ($self) = @_;
	my $round = "r$self->{rounds}";
	return map({ "ledger $round-hot$_" } 0, 1), map({ "register $round-$_" } 0 .. 3), map({ ("ledger $round-e$_", "alive $round-l$_") } 0 .. 9);
}

# --- load beside a test --------------------------------------------------------------------------

# New books, and load that goes on by itself, in a process of its own, while the test does other things.
sub begin_load
{
	my ($self) = @_;
	$self->_open_books;
	my $test = $$;
	my $pid = fork // die "cannot fork: $!";
	if ($pid)
	{
		$self->{driver} = $pid;
		return;
	}
	my $ends = 0;
	local $SIG{TERM} = sub { $ends = 1 };
	# Not exit nor die: those would run the test's END blocks, which stop the servers.
	my $done = eval {
		until ($ends || getppid() != $test) { $self->_keep_busy }
		$self->_wait_for_clients;
		1;
	};
	print STDERR $@ unless $done;
	POSIX::_exit($done ? 0 : 1);
}

# Ends it, and closes the books.
sub end_load
{
	my ($self) = @_;
	my $pid = delete $self->{driver} or return;
	kill 'TERM', $pid;
	waitpid $pid, 0;
	die 'the clients of the load did not come back' if $?;
	$self->_close_books;
	return;
}

# One test: the books of a load that has ended are in order, asks were answered.
sub is_in_order
{
	my ($self, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$self->end_load;
	# Before the name is made: it is the audit that counts the asks.
	my @violations = $self->violations;
	$self->has_none("$what: no violation after $self->{sent} messages and $self->{asks} asks", @violations);
	is(join("\n", $self->_unexpected_client_errors), '', "$what: clients met only what the faults explain");
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@, $!);
	my $pid = delete $self->{driver} or return;
	kill 'TERM', $pid;
	waitpid $pid, 0;
	return;
}

# Starts what is idle, takes the ends of what has ended.
sub _keep_busy
{
	my ($self) = @_;
	for my $client (@{ $self->{clients} })
	{
		my $server = $client->{node}->server;
		next if $client->{pid} || !defined $server->{_pid} || $server->{frozen} || time < ($client->{pause} // 0);
		$client->{pid} = $self->_start_script($client);
		$client->{pause} = time + 0.2;
	}
	$self->_reap_ended;
	usleep(20_000);
	return;
}

sub _reap_ended
{
	my ($self) = @_;
	for my $client (@{ $self->{clients} })
	{
		next unless $client->{pid} && waitpid($client->{pid}, POSIX::WNOHANG()) != 0;
		$client->{pid} = undef;
	}
	return;
}

sub _wait_for_clients
{
	my ($self) = @_;
	my $deadline = time + $patience;
	while (grep { $_->{pid} } @{ $self->{clients} })
	{
		die 'clients did not come back: ' . join ' ', map { $_->{name} } grep { $_->{pid} } @{ $self->{clients} }
		  if time > $deadline;
		$self->_reap_ended;
		usleep(20_000);
	}
	return;
}

sub script_of
{
	my ($self, $client) = @_;
	return ShardHistory::script($client, 12, 'r' . $self->{rounds}) if $client->{asker};
	return ShardLoad::script('r' . $self->{rounds}, $client);
}

sub connstr_of { my ($self, $client) = @_; return $client->{node}->server->connstr($client->{node}->db) }

# Times from healing until: every node answers; every node sees all the others; an entity at each node
# is asked from each node; a new shard gets a home; all remembered entities have started.
sub _recovery
{
	my ($self, $healed) = @_;
	my $cluster = $self->{cluster};
	my %at;
	$_->wait_until('SELECT true', 'node ' . $_->n) for $cluster->nodes;
	$at{up} = time - $healed;
	for my $node ($cluster->nodes)
	{
		for my $i (0 .. 3)
		{
			$node->wait_until("SELECT shard_ask('register', 'r$self->{rounds}-$i', '{}', '2 s') IS NOT NULL",
				'an answer to node ' . $node->n);
		}
	}
	$at{answers} = time - $healed;
	my $fresh = "fresh-$self->{rounds}";
	$_->wait_until("SELECT shard_ask('register', '$fresh', '{}', '2 s') IS NOT NULL",
		'a new shard, from node ' . $_->n) for $cluster->nodes;
	$at{'new shard'} = time - $healed;
	$cluster->wait_reachable;
	$at{reachable} = time - $healed;
	ShardLives::wait_awake($self->_places);
	$at{awake} = time - $healed;
	return %at;
}

sub _resolve_everywhere
{
	my ($self) = @_;
	for my $node ($self->{cluster}->nodes)
	{
		for my $gid (split /\n/, $node->sql('SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid'))
		{
			$node->sql(($self->{chance}->(2) ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$gid'");
		}
	}
	return;
}

# --- the audit -----------------------------------------------------------------------------------

# What the audit reads of each node: table there, query here.
my %collected = (
	'sent' => 'SELECT * FROM sent',
	'handled' => 'SELECT * FROM handled',
	'shard_inbox' => q{SELECT type_name, entity_id, message FROM shard_inbox WHERE type_name IN ('ledger', 'owned', 'alive')},
	'shard_dead_letters' => q{SELECT type_name, entity_id, message, sqlstate FROM shard_dead_letters WHERE type_name IN ('ledger', 'owned', 'alive')},
	'shard_timers' => q{SELECT type_name, entity_id, name FROM shard_timers WHERE type_name = 'alive'},
	'shard_entity.ledger' => 'SELECT entity_id, state FROM ledger_states()',
	'lives' => 'SELECT * FROM lives',
	'commanded' => 'SELECT * FROM commanded',
	'shard_entity.alive' => 'SELECT * FROM ledger_lives()',
);

# Homes as each node knows them, and the ownership rows that it has.
sub _ownership
{
	my ($self) = @_;
	return join '; ', map { $_->sql(<<'SQL') } $self->{cluster}->nodes;
SELECT string_agg(concat_ws(' ', type_name, h.shard, node, h.epoch, phase, o.epoch, state), ', ' ORDER BY type_name, h.shard)
FROM shard_homes h LEFT JOIN shard.type t USING (type_name) LEFT JOIN shard.own o USING (type_id, shard)
SQL
}

sub _collect
{
	my ($self) = @_;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/collected";
	$self->{node}->safe_psql($self->{db}, 'TRUNCATE committed, ' . join ', ', sort keys %collected);
	for my $table (sort keys %collected)
	{
		# Those that have left keep their books.
		for my $node ($self->{cluster}->all_nodes)
		{
			$node->sql("\\copy ($collected{$table}) to '$file'");
			$self->{node}->safe_psql($self->{db}, "\\copy $table from '$file'");
		}
	}
	$self->_load_committed;
	return;
}

# Those of the audit, and asks that contradict one another.
sub violations
{
	my ($self) = @_;
	my $history = ShardHistory->new;
	$history->read_file("$_->{file}.out") for grep { $_->{asker} } @{ $self->{clients} };
	my ($asks, $answered) = $history->counts;
	$self->{asks} += $asks;
	$self->{answered} += $answered;
	my @violations = $self->SUPER::violations;
	# What is on its way between two nodes is in neither's inbox.
	@violations = grep { !/^P1: a message is lost/ } @violations if $self->{undrained};
	return (@violations, $history->violations);
}

# What recovery may take, in seconds (I6): crash recovery of a server, then suspicion, admission and
# back-off of connections. Draining depends on the load.
our %bound = (answers => 45, 'new shard' => 45, reachable => 60, awake => 60);

# Rounds for some seconds, each audited; with SHARD_MUTANT the audit has to find something, as in
# ShardLedger. first: the faults of the first round; those of the others come
# from the seed of the load. kinds, every: as the nemesis takes them; moving: moves are among the kinds.
sub prove
{
	my ($self, %opt) = @_;
	my $mutant = $ENV{SHARD_MUTANT};
	my $length = $mutant ? 6 : $opt{length} // 20;
	my $until = time + $opt{seconds};
	my @seeds = defined $opt{first} ? $opt{first} : ();
	my $next = $self->{seed} + $self->{rounds};
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @violations;

	while (!@violations && time < $until)
	{
		my $left = $until - time;
		my $seed = @seeds ? shift @seeds : $next++;
		$self->round(
			kinds => $opt{kinds}, moves => $opt{moving}, every => $opt{every} // 2, seed => $seed,
			seconds => $left < $length ? ($left > 3 ? $left : 3) : $length);
		@violations = $self->violations;
		next if $mutant;
		my $what = $opt{what} ? "$opt{what}: " : '';
		$self->has_none("${what}no violation after $self->{sent} messages and $self->{asks} asks", @violations);
		my %times = %{ $self->{times} };
		note('recovery: ' . join ', ', map { sprintf '%s %.1f s', $_, $times{$_} } sort keys %times);
		my @late = grep { $times{$_} > $bound{$_} } sort keys %bound;
		is("@late", '', "${what}recovered within the bounds");
	}
	if ($mutant)
	{
		ok(@violations, "the audit finds fault with $mutant") and note(join "\n", @violations);
		return;
	}
	cmp_ok($self->{answered}, '>', 0, 'asks were answered');
	is(join("\n", $self->_unexpected_client_errors), '', 'clients met only what the faults explain');
	return;
}

1;
