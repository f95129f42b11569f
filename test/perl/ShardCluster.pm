package ShardCluster;

=head1 NAME

ShardCluster - a PostgreSQL::Test::Cluster whose server preloads shard

=head1 SYNOPSIS

  my $node = ShardCluster->create('first', fsync => 1, conf => 'shard.region_workers = 2');
  $node->safe_psql('postgres', q{SELECT shard_tell('counter', '42', '{"delta": 1}')});
  $node->drain;
  $node->crash;        # kill -9 of every process of the server
  $node->recover;
  $node->log_is_clean;

=cut

use strict;
use warnings FATAL => 'all';
use parent 'PostgreSQL::Test::Cluster';

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

# Bounds a wait for a condition. A test that meets it has failed; none relies on its value.
our $patience = $PostgreSQL::Test::Utils::timeout_default // 180;

# What ends a test stands in its own log only, which is not what a runner shows first.
$SIG{__DIE__} = sub { diag("died: $_[0]") if defined $^S && !$^S };

my $common_conf = q{
shared_preload_libraries = 'shard'
# The log scan needs to know which process spoke.
log_line_prefix = '%m [%p] %b %q%a '
log_statement = none
log_checkpoints = off
# As an installation has it: the death of one process must bring all of them back.
restart_after_crash = on
wal_level = replica
max_prepared_transactions = 50
max_connections = 60
max_worker_processes = 24
# Ours only: somebody else's machine should not be asked for more.
shared_buffers = 32MB
};

# A running node with the extension in database "postgres". Options: conf (text), fsync, dbs (more
# databases, each with the extension), extension => 0 (without it), tcp => address to listen at, too,
# port, install_path, within (see start).
sub create
{
	my ($class, $name, %opt) = @_;
	my $node = $class->new($name, map { defined $opt{$_} ? ($_ => $opt{$_}) : () } qw(port install_path));
	$node->{within} = $opt{within};

	$node->init(extra => ['--no-sync', '--encoding=UTF8']);
	# What all tests of the project share, where the runner says.
	$node->append_conf('postgresql.conf', slurp_file($ENV{SHARD_TEST_CONF})) if $ENV{SHARD_TEST_CONF};
	$node->append_conf('postgresql.conf', $common_conf);
	$node->append_conf('postgresql.conf', 'fsync = on') if $opt{fsync};
	if ($opt{tcp})
	{
		$node->append_conf('postgresql.conf', "listen_addresses = '$opt{tcp}'");
		$node->append_conf('pg_hba.conf', 'host all all samenet trust');
	}
	$node->append_conf('postgresql.conf', $opt{conf}) if $opt{conf};
	$node->start;
	# The server only warns of a value that it does not take, and goes on with another one.
	die "wrong setting: $1" if slurp_file($node->logfile) =~ /(WARNING: .*(?:outside the valid range|invalid value|unrecognized).*)/;

	$node->safe_psql('postgres', "CREATE DATABASE $_") for @{ $opt{dbs} // [] };
	return $node if defined $opt{extension} && !$opt{extension};
	$node->safe_psql($_, 'CREATE EXTENSION shard') for 'postgres', @{ $opt{dbs} // [] };
	return $node;
}

# --- waiting -------------------------------------------------------------------------------------

# Rests between two looks at what is waited for, by a tenth of the time that was waited: a look is a psql and a session, and
# those of a few tests that wait for long would take more of the processors than what they wait for.
sub pause_since
{
	my ($begun) = @_;
	my $rest = (time - $begun) / 10;
	usleep(1_000_000 * ($rest < 0.05 ? 0.05 : $rest > 1 ? 1 : $rest));
	return;
}

# True as soon as the query returns exactly this text ("t") and no error; false if it does not in time.
sub poll_query_until
{
	my ($self, $db, $query, $expected) = @_;
	$expected //= 't';
	my $begun = time;
	my ($out, $err);
	while (time - $begun < $patience)
	{
		# A psql that a starting server turns away may be gone before it was given its query.
		(undef, $out, $err) = eval { $self->psql($db, $query) };
		die $@ if $@ && $@ !~ /Broken pipe/;
		return 1 if !$@ && $out eq $expected && $err eq '';
		pause_since($begun);
	}
	diag "in vain: $query\nexpected $expected, got " . ($out // 'nothing') . ', ' . ($err // 'nothing');
	return 0;
}

# Waits until a query returns true; dies saying what was awaited.
sub wait_until
{
	my ($self, $query, $what, $db) = @_;
	$self->poll_query_until($db // 'postgres', $query) or die "timed out waiting for $what";
	return;
}

# Waits until the query returns exactly this text.
sub wait_for_value
{
	my ($self, $query, $value, $what) = @_;
	$self->poll_query_until('postgres', $query, $value) or die "timed out waiting for $what";
	return;
}

# Passes if something took less than so many seconds, of a machine that has time for it: where others keep the processors
# busy, so that what needs a second of them takes longer, it may take so many times longer; less than $wrong seconds always,
# which is what it takes if it waits for what it has not to wait for.
sub in_time
{
	my ($took, $seconds, $wrong, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	if ($took >= $seconds)
	{
		my $used = sub { my ($user, $system) = times; return $user + $system };
		my ($begin, $before) = (time, $used->());
		1 while $used->() - $before < 0.3;
		my $slowness = (time - $begin) / ($used->() - $before);
		diag(sprintf '%s: %.1f s, on a machine that takes %.1f s for one', $what, $took, $slowness);
		$seconds *= $slowness if $slowness > 1;
		$seconds = $wrong if $seconds > $wrong;
	}
	return cmp_ok($took, '<', $seconds, $what);
}

# Waits until every message is handled or given up, those that handlers sent included.
sub drain
{
	my ($self, $db) = @_;
	# A build that is broken on purpose may never get there, and its patience is counted in attempts.
	my $attempt = $ENV{SHARD_MUTANT} ? '100 ms' : '10 s';
	return $self->wait_until(
		qq{SELECT shard_drain('$attempt') AND NOT EXISTS (SELECT FROM shard_inbox)},
		'an empty inbox', $db);
}

# Waits until the server takes connections again by itself.
sub wait_up
{
	my ($self) = @_;
	return $self->wait_until('SELECT true', 'the server to be up');
}

# Waits for a condition that is not in the database.
sub wait_for_condition
{
	my ($condition, $what) = @_;
	my $deadline = time + $patience;
	until ($condition->())
	{
		die "timed out waiting for $what" if time > $deadline;
		usleep(10_000);
	}
	return;
}

# Returns when the server has read its settings, and who may log in: pg_ctl returns before. Sessions that begin then have them;
# processes that are there take them up at their next look, workers between two turns. A server that goes down is not waited for.
sub reload
{
	my ($self) = @_;
	my $loaded = $self->safe_psql('postgres', 'SELECT pg_conf_load_time()');
	$self->SUPER::reload;
	wait_for_condition(
		sub {
			my ($status, $out) = $self->psql('postgres', "SELECT pg_conf_load_time() > '$loaded'", timeout => $patience);
			return $status != 0 || $out eq 't';
		},
		'the settings to be read');
	return;
}

# The server, which is down, will listen at another port.
sub change_port
{
	my ($self) = @_;
	$self->{_port} = PostgreSQL::Test::Cluster::get_free_port();
	$self->append_conf('postgresql.conf', 'port = ' . $self->port);
	return;
}

# Waits until a process takes less than a twentieth of a processor's time: one that goes round and round never does, unless
# twenty others want the processor, too.
sub wait_for_rest
{
	my ($pid, $what) = @_;
	my $used = sub {
		open my $fh, '<', "/proc/$pid/stat" or die "process $pid is not there";
		my @of_both = (split ' ', (<$fh> =~ /\) (.*)/)[0])[ 11, 12 ];
		return ($of_both[0] + $of_both[1]) / 100;
	};
	wait_for_condition(
		sub {
			my ($begin, $before) = (time, $used->());
			usleep(1_000_000);    # the time that is looked at
			return $used->() - $before < (time - $begin) / 20;
		},
		$what);
	return;
}

# --- the processes of the server -----------------------------------------------------------------

# The extension's processes in pg_stat_activity; $like narrows it ('%region%').
sub worker_pids
{
	my ($self, $like) = @_;
	$like //= '%';
	return split /\n/, $self->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'shard%' AND backend_type LIKE '$like' ORDER BY pid");
}

# State letter and parent of a process, or nothing. Not kill 0: it finds zombies, too, which an
# init process may leave lying about for a while.
sub _process
{
	my ($pid) = @_;
	open my $fh, '<', "/proc/$pid/stat" or return;
	my $line = <$fh>;
	close $fh;
	return unless defined $line && $line =~ /\) (\S) (\d+) /;
	return ($1, $2);
}

sub _is_gone
{
	my ($pid) = @_;
	my ($state) = _process($pid);
	return !defined $state || $state =~ /[ZX]/;
}

sub _children
{
	my ($parent) = @_;
	opendir my $dir, '/proc' or die "cannot list /proc: $!";
	my @pids = grep { /^\d+$/ } readdir $dir;
	closedir $dir;
	return grep { my (undef, $ppid) = _process($_); defined $ppid && $ppid == $parent } @pids;
}

sub _wait_gone
{
	my (@pids) = @_;
	for my $pid (@pids)
	{
		wait_for_condition(sub { _is_gone($pid) }, "the end of process $pid");
	}
	return;
}

# The next server asks by kill 0 whether the postmaster in the lock file lives: until it is reaped,
# it does.
sub _wait_reaped
{
	my ($pid) = @_;
	wait_for_condition(sub { !kill 0, $pid }, "process $pid to be reaped");
	return;
}

# kill -9 of the whole server at one instant, as a power cut of the machine would end it: nobody
# has time to notice the death of another.
sub crash
{
	my ($self) = @_;
	my $postmaster = $self->{_pid};

	# Stopped, it can start no child between our look and our blow.
	kill 'STOP', $postmaster;
	_wait_stopped($postmaster);
	my @children = _children($postmaster);
	kill 'KILL', @children;
	delete $self->{frozen};
	$self->kill9;
	_wait_gone(@children);
	_wait_reaped($postmaster);
	return;
}

# kill -9 of the postmaster alone: the others, our workers included, have to notice and leave.
sub crash_postmaster
{
	my ($self) = @_;
	my $postmaster = $self->{_pid};
	kill 'STOP', $postmaster;
	_wait_stopped($postmaster);
	my @children = _children($postmaster);
	$self->kill9;
	_wait_gone(@children);
	_wait_reaped($postmaster);
	return;
}

# Stops every process of the server where it is, as a machine that hangs; nothing of it can tell.
sub freeze
{
	my ($self) = @_;
	my $postmaster = $self->{_pid};

	kill 'STOP', $postmaster;
	_wait_stopped($postmaster);
	$self->{frozen} = [ _children($postmaster) ];
	kill 'STOP', @{ $self->{frozen} };
	_wait_stopped(@{ $self->{frozen} });
	return;
}

# Lets them go on as if nothing had happened.
sub thaw
{
	my ($self) = @_;
	my $frozen = delete $self->{frozen} or return;
	kill 'CONT', @$frozen, $self->{_pid};
	return;
}

sub _wait_stopped
{
	my (@pids) = @_;
	for my $pid (@pids)
	{
		wait_for_condition(sub { my ($s) = _process($pid); !defined $s || $s =~ /[TZX]/ },
			"process $pid to stop");
	}
	return;
}

# Stops workers of this server where they wait for something to do: a process that is stopped elsewhere may have locks, of
# which those that guard the server's own memory would stop all others.
sub stop_idle
{
	my ($self, @pids) = @_;
	for my $pid (@pids)
	{
		wait_for_condition(
			sub {
				kill 'STOP', $pid;
				_wait_stopped($pid);
				my ($status, $idle) = $self->psql('postgres',
					"SELECT xact_start IS NULL AND wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid",
					timeout => 10, timed_out => \my $stuck);
				return 1 if !$stuck && $status == 0 && $idle eq 't';
				kill 'CONT', $pid;
				return 0;
			},
			"process $pid to be idle");
	}
	return;
}

# A frozen server would not hear that it is to stop.
sub stop
{
	my ($self, @args) = @_;
	$self->thaw;
	return $self->SUPER::stop(@args);
}

# Option within of create(): a command that runs another one elsewhere, such as in a network of its
# own.
sub start
{
	my ($self, %params) = @_;
	return $self->SUPER::start(%params) unless $self->{within};
	local %ENV = $self->_get_env(PGAPPNAME => undef);
	my $status = PostgreSQL::Test::Utils::system_log(@{ $self->{within} }, 'pg_ctl', '-w', '-D',
		$self->data_dir, '-l', $self->logfile, '-o', '--cluster-name=' . $self->name, 'start');
	die 'server ' . $self->name . ' does not start' if $status != 0;
	$self->_update_pid(1);
	return 1;
}

# Starts the server after a crash.
sub recover
{
	my ($self) = @_;
	$self->start unless defined $self->{_pid};
	return $self->wait_up;
}

# kill -9 of one process: the postmaster ends the others and starts them anew.
sub crash_process
{
	my ($self, $pid) = @_;
	my $witness = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'};
	my $before = $self->safe_psql('postgres', $witness);

	kill 'KILL', $pid;
	_wait_gone($pid);
	# The old server may take connections for another moment.
	return $self->wait_until("SELECT ($witness) <> $before", 'the server to restart itself');
}

# --- fault points (extension/fault.h) --------------------------------------------------------------

# The next process of this server that reaches the point dies (crash, exit), stops (freeze) or fails
# (error) there, once. Processes hear of it at their next look at the settings, so the first one to come
# by may still pass: have it come again until fault_happened.
sub set_fault
{
	my ($self, $point, $action) = @_;
	$self->{fault} = { point => $point, action => $action };
	unlink $self->_fault_file;
	$self->_tell_fault("$point $action");
	# A session that begins with it was begun by a postmaster that has sent on the signal.
	wait_for_condition(
		sub {
			my ($status, $out) = $self->psql('postgres', 'SHOW shard.fault_point', timeout => $patience);
			return $status != 0 || $out eq "$point $action";
		},
		"processes to be told of fault $point") if defined $self->{_pid};
	return;
}

sub _fault_file { my ($self) = @_; return $self->data_dir . '/shard_fault.' . $self->{fault}{point} }

# Not by SQL: the server may be down, or at its last process.
sub _tell_fault
{
	my ($self, $value) = @_;
	$self->append_conf('postgresql.conf', "shard.fault_point = '$value'");
	kill 'HUP', $self->{_pid} if defined $self->{_pid};
	return;
}

sub fault_happened
{
	my ($self) = @_;
	return unless -e $self->_fault_file;
	return 1 if $self->{fault}{action} ne 'freeze';
	return scalar $self->_stopped;
}

# Processes of this server that are stopped, while the server as a whole is not.
sub _stopped
{
	my ($self) = @_;
	return grep { my ($state) = _process($_); defined $state && $state eq 'T' } _children($self->{_pid});
}

# What froze at its fault point goes on.
sub thaw_fault
{
	my ($self) = @_;
	kill 'CONT', $self->_stopped if defined $self->{_pid};
	return;
}

sub clear_fault
{
	my ($self) = @_;
	return unless $self->{fault};
	# The file stays: processes may not have heard of it yet.
	$self->_tell_fault('');
	$self->thaw_fault;
	delete $self->{fault};
	return;
}

# --- a simple entity type ------------------------------------------------------------------------

# Type "recorder": enters what it handles in table seen, and counts in its state. A message with a
# gate waits until nobody holds the row of table gate: so a test can hold the worker in a turn, for
# which it sets shard.handler_lock_timeout to more than the test will take.
my $recorder = q{
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE TABLE gate AS SELECT 1 AS one;
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'gate' THEN
        PERFORM FROM gate FOR SHARE;
    END IF;
    INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
SELECT shard_start('recorder', 'recorder(jsonb,jsonb)', handler_timeout => '180 s');
};

sub start_recorder
{
	my ($self) = @_;
	$self->safe_psql('postgres', $recorder);
	return;
}

# SQL that sends the recorder messages named $from to $to, one by one.
sub tell_recorder
{
	my ($entity, $from, $to) = @_;
	return join '', map { qq{SELECT shard_tell('recorder', '$entity', '{"what": "$_"}');\n} } $from .. $to // $from;
}

# What an entity has handled, in its order, and the count in its state: "1 2 3 = 3".
sub recorded
{
	my ($entity) = @_;
	return qq{SELECT concat_ws(' = ', (SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$entity'),
		(SELECT state->>'count' FROM shard_entity.recorder WHERE entity_id = '$entity'))};
}

# Waits until an entity has handled exactly these.
sub wait_recorded
{
	my ($self, $entity, @what) = @_;
	return $self->wait_for_value(recorded($entity), join(' ', @what) . ' = ' . @what,
		"entity $entity to handle @what");
}

# Holds a worker inside a turn, at the message of entity "gate"; returns the session that holds it
# until its transaction ends.
sub close_gate
{
	my ($self) = @_;
	my $keeper = $self->session;
	$keeper->query('BEGIN; SELECT FROM gate FOR UPDATE;');
	$self->safe_psql('postgres', q{SELECT shard_tell('recorder', 'gate', '{"what": "gate", "gate": true}')});
	$self->wait_until(
		q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type LIKE 'shard%' AND wait_event_type = 'Lock'},
		'a worker at the gate');
	return $keeper;
}

# The segments of the inbox.
our $segments = q{SELECT c.oid::regclass FROM pg_class c
	WHERE c.relnamespace = 'shard'::regnamespace AND c.relkind = 'r' AND c.relname LIKE 'inbox%'};

# Its tables from the beginning on, and their rows with these columns.
our @inbox_tables = map { "shard.inbox_$_" } 0 .. 7;
sub inbox_rows { my ($columns) = @_; return '(' . join(' UNION ALL ', map { "SELECT $columns FROM $_" } @inbox_tables) . ') r' }

# VACUUM of the inbox as an administrator might do it; options like "FULL".
sub vacuum_inbox
{
	my ($self, $options) = @_;
	$options = $options ? "($options)" : '';
	$self->safe_psql('postgres', join '', map { "VACUUM $options $_;\n" }
		split /\n/, $self->safe_psql('postgres', $segments));
	return;
}

# --- the log -------------------------------------------------------------------------------------

# Lines nobody should ever see, whatever the test does.
my $alarming = qr/PANIC:|TRAP:|Assert|terminated\ by\ signal\ (?!9\b)|segfault|
	\bSanitizer\b|invalid\ memory\ alloc|cache\ lookup\ failed|stuck\ spinlock/x;

# The alarming lines of the log, and what workers of the extension reported as an error outside the
# allowed patterns.
sub alarming_log_lines
{
	my ($self, @allowed) = @_;
	my @found;
	for my $line (split /\n/, slurp_file($self->logfile))
	{
		my $by_worker = $line =~ /\[\d+\] shard.* (?:ERROR|FATAL):/;
		next unless $line =~ $alarming || $by_worker;
		next if grep { $line =~ $_ } @allowed;
		push @found, $line;
	}
	return @found;
}

# Being told to stop is no error of a worker's.
my $stopped = qr/FATAL:\s+terminating .* due to (?:administrator command|unexpected postmaster exit)/;

sub log_is_clean
{
	my ($self, @allowed) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @lines = $self->alarming_log_lines($stopped, @allowed);
	ok(!@lines, 'log of ' . $self->name . ' has no unexpected line')
	  or diag(join "\n", splice(@lines, 0, 20));
	return;
}

# --- sessions ------------------------------------------------------------------------------------

# Settings with which types of all owners run in one worker, as an administrator may allow it: so owners can meet at all.
our $together = "shard.region_workers = 1\nshard.max_region_workers = 1\nshard.owners_may_share_workers = on\n";

# Roles that may start types, each with a schema of its own that all may use.
sub create_owners
{
	my ($self, @roles) = @_;
	$self->safe_psql('postgres', "CREATE ROLE $_ LOGIN; GRANT CREATE ON DATABASE postgres TO $_;
		CREATE SCHEMA $_ AUTHORIZATION $_; GRANT USAGE ON SCHEMA $_ TO PUBLIC") for @roles;
	return;
}

# What a role is answered; dies with its error.
sub as
{
	my ($self, $role, $sql) = @_;
	return $self->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]);
}

# A session that stays open between statements. Not background_psql: its interface differs between
# the supported versions.
sub session
{
	my ($self, $db) = @_;
	return ShardCluster::Session->new($self->connstr($db // 'postgres'));
}

# One of this role.
sub session_as
{
	my ($self, $role, $db) = @_;
	return ShardCluster::Session->new($self->connstr($db // 'postgres') . " user=$role");
}

package ShardCluster::Session;

use strict;
use warnings FATAL => 'all';

sub new
{
	my ($class, $connstr) = @_;
	my $self = bless { in => '', out => '', err => '', statements => 0 }, $class;
	$self->{timer} = IPC::Run::timeout($ShardCluster::patience);
	$self->{psql} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $connstr, '-f', '-' ],
		'<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err},
		$self->{timer});
	return $self;
}

# Sends statements without waiting: they may block.
sub send
{
	my ($self, $sql) = @_;
	$self->{marker} = 'done ' . ++$self->{statements};
	# On both streams, so that no error line of the statement comes after it.
	$self->{in} .= "$sql\n\\echo $self->{marker}\n\\warn $self->{marker}\n";
	$self->{psql}->pump_nb;
	return;
}

# Waits for what was sent; returns its output, dies with its errors.
sub receive
{
	my ($self) = @_;
	$self->{timer}->start($ShardCluster::patience);
	my $done = qr/^\Q$self->{marker}\E\n/m;
	$self->{psql}->pump until $self->{out} =~ $done && $self->{err} =~ $done;
	my ($out, $err) = @$self{qw(out err)};
	@$self{qw(out err)} = ('', '');
	die "session failed: $err" if $err =~ /^(?:psql:.*)?(?:ERROR|FATAL):/m;
	$out =~ s/$done//;
	chomp $out;
	return $out;
}

sub query
{
	my ($self, $sql) = @_;
	$self->send($sql);
	return $self->receive;
}

# Leaves without a word: an open transaction is rolled back. Also for a session whose server died.
sub close
{
	my ($self) = @_;
	my $psql = delete $self->{psql} or return;
	$psql->kill_kill;
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@);
	eval { $self->close };
	return;
}

1;
