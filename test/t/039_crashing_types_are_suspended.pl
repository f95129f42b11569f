# A handler that crashes the server does so twice: then its type is suspended, and all others go on. Who kills the server, or
# crashes it elsewhere, has no type suspended.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = ShardCluster->create('crashing', conf => "shard.region_workers = 1\n");
my $file = $node->data_dir . '/shard_crashes';

# A number is no address of a text: a function in C that is called with what it does not expect.
$node->safe_psql('postgres', q{
CREATE TABLE pause AS SELECT 1000 AS seconds;
CREATE FUNCTION segfault(i int) RETURNS text STRICT VOLATILE LANGUAGE internal AS 'upper';
CREATE FUNCTION breaks(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message = '"crash"' THEN PERFORM segfault(5); END IF;
	IF message = '"sleep"' THEN PERFORM pg_sleep(seconds) FROM pause; END IF;
	RETURN coalesce(state, '[]') || message;
END $$;
CREATE FUNCTION sound(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce(state, '[]') || message;
SELECT shard_start('breaks', 'breaks', handler_timeout => '1 h'), shard_start('sound', 'sound'), shard_start('touched', 'sound');
});

sub crashes { return scalar(() = slurp_file($node->logfile) =~ /region.*was terminated by signal \d+/g) }
sub marks { return slurp_file($node->logfile) =~ /(the server crashed by signal .*)/g }

sub wait_crashes
{
	my ($count) = @_;
	ShardCluster::wait_for_condition(sub { crashes() >= $count }, "crash $count");
	return $node->wait_up;
}

sub start_breaks { return $node->safe_psql('postgres', q{SELECT shard_start('breaks', 'breaks', handler_timeout => '1 h')}) }

my $is_suspended = sub { return qq{SELECT problem LIKE '%crashed the server twice%' FROM shard_types WHERE type_name = '$_[0]'} };

# --- what must not be held against a type ------------------------------------------------------------

my $sleeps = q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'shard region' AND wait_event = 'PgSleep'};
$node->safe_psql('postgres', q{SELECT shard_tell('breaks', 'a', '"sleep"')});
for (1 .. 10)
{
	$node->wait_until($sleeps, 'the handler to run');
	if ($_ % 2) { $node->crash_process(($node->worker_pids('%region%'))[0]) }
	else { $node->crash; $node->recover }
}
# Somebody else's signal, and another process that crashes.
for my $signal ('SEGV', 'ABRT')
{
	$node->wait_until($sleeps, 'the handler to run');
	my $before = crashes();
	kill $signal, ($node->worker_pids('%region%'))[0];
	wait_crashes($before + 1);
}
$node->wait_until($sleeps, 'the handler to run');
$node->psql('postgres', 'SELECT segfault(5)');
$node->wait_up;
# An error of ours, outside of any type's code.
for (1 .. 2)
{
	$node->wait_until($sleeps, 'the handler to run');
	$node->set_fault('inbox_listed', 'abort');
	my $before = crashes();
	$node->crash_process(($node->worker_pids('%region%'))[0]);
	wait_crashes($before + 1);
	$node->clear_fault;
}
$node->wait_until($sleeps, 'the handler to run, as always');
ok(!-e $file, 'nothing is noted') or diag(marks());
is($node->safe_psql('postgres', 'SELECT count(problem) FROM shard_types'), 0, 'no type is suspended');
$node->safe_psql('postgres', q{UPDATE pause SET seconds = 0});
$node->crash_process(($node->worker_pids('%region%'))[0]);
$node->drain;

# --- a handler that crashes ------------------------------------------------------------------------

my $before = crashes();
# Who sends may hear of the crash before he hears that he has sent.
$node->psql('postgres', q{SELECT shard_tell('breaks', 'b', '"crash"'), shard_tell('breaks', 'b', '1'), shard_tell('breaks', 'c', '2'), shard_tell('sound', 'a', '1')});
wait_crashes($before + 2);
$node->wait_until($is_suspended->('breaks'), 'the type to be suspended');
is($node->safe_psql('postgres', q{SELECT shard_ask('sound', 'a', '2', '60 s')}), '[1, 2]', 'another type goes on');
my ($ok, $output, $error) = $node->psql('postgres', q{SELECT shard_ask('breaks', 'c', '3')});
like($error, qr/crashed the server twice/, 'who asks hears why not');
like($node->safe_psql('postgres', 'SELECT problems FROM shard_health()'), qr/entity type \\?"breaks\\?" is suspended: code of the type crashed the server twice.*SELECT shard_alter\('breaks', 'handler', 'public\.breaks\(jsonb,jsonb\)'\)/, 'shard_health says what to do');
is(crashes() - $before, 2, 'two crashes, not more');
my @marks = marks();
is(@marks, 2, 'each is told once');
like($marks[$_ - 1], qr/signal 11 .*entity type "breaks" ran, for entity "b", message \d+ \(crash $_ of the same code\)/, "crash $_ is told with type and entity") for 1, 2;
is($node->safe_psql('postgres', q{SELECT array_agg(message ORDER BY seq) FROM shard_inbox WHERE type_name = 'breaks'}), '{"\"crash\"",1,2}', 'messages wait');
$node->crash;
$node->recover;
is($node->safe_psql('postgres', $is_suspended->('breaks')), 't', 'it is suspended after a restart');

# Begun again without being mended, the count is begun again, too.
start_breaks();
wait_crashes($before + 4);
$node->wait_until($is_suspended->('breaks'), 'the type to be suspended again');

# A handler that raises for the message makes a dead letter of it.
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION segfault(i int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$});
($ok, $output, $error) = $node->psql('postgres', q{SELECT shard_start('breaks', 'breaks')});
like($error, qr/HINT:  The type is suspended: once its code is mended, (shard_alter\('breaks', 'handler', '[^']*'\)) lets the type go on.*shard_alter\('breaks', 'handler_timeout', '5 s'\)/, 'with other settings the hint has the call, too');
# The call that the problem ends with
my ($call) = $node->safe_psql('postgres', q{SELECT problem FROM shard_types WHERE type_name = 'breaks'}) =~ /(SELECT shard_alter.*)/;
$node->safe_psql('postgres', $call);
is($node->safe_psql('postgres', q{SELECT problem IS NULL, settings->>'handler_timeout' FROM shard_types WHERE type_name = 'breaks'}), 't|1 h', 'it ends the problem and keeps the settings');
$node->drain;
is($node->safe_psql('postgres', q{SELECT string_agg(entity_id || state, ' ' ORDER BY entity_id) FROM shard_entity.breaks}), 'a["sleep"] b[1] c[2]', 'all others are handled');
is($node->safe_psql('postgres', q{SELECT message, error FROM shard_dead_letters}), '"crash"|not this one', 'that one is a dead letter');
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION segfault(i int) RETURNS text LANGUAGE sql RETURN ''; SELECT shard_redrive()});
$node->drain;
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.breaks WHERE entity_id = 'b'}), '[1, "crash"]', 'mended, it is handled, too');

# --- a crash, a mended handler, a crash ------------------------------------------------------------

# The server stays down, and starts without workers, so that nothing happens by itself.
$node->append_conf('postgresql.conf', 'restart_after_crash = off');
$node->reload;
sub wait_down
{
	my $postmaster = $node->{_pid};
	ShardCluster::wait_for_condition(sub { !kill 0, $postmaster }, 'the server to end');
	$node->_update_pid(0);
	return;
}
sub start_without_workers
{
	$node->append_conf('postgresql.conf', 'shard.enabled = off');
	$node->start;
	return;
}
sub enable
{
	$node->append_conf('postgresql.conf', 'shard.enabled = on');
	$node->reload;
	return;
}
my $handler = q{CREATE OR REPLACE FUNCTION breaks(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN PERFORM upper_of(5); RETURN message; END $$;};
$node->safe_psql('postgres', "CREATE FUNCTION upper_of(i int) RETURNS text STRICT LANGUAGE internal AS 'upper'; $handler");
$node->psql('postgres', q{SELECT shard_tell('breaks', 'd', '1')});
wait_down();
# Were these crashes of the same code, the third one would not happen.
for (1 .. 2)
{
	start_without_workers();
	$node->safe_psql('postgres', $handler);
	enable();
	wait_down();
}

# A file that is damaged, or cannot be written, keeps nobody from anything.
open(my $damaged, '+<', $file) or die "could not open $file: $!";
print $damaged 'x' x 20_000;
close $damaged;
start_without_workers();
enable();
wait_down();
like(slurp_file($file), qr/breaks/, 'a damaged file is used again');
unlink $file or die "could not remove $file: $!";
mkdir $file or die "could not make $file: $!";
start_without_workers();
enable();
wait_down();
like(slurp_file($node->logfile), qr/no mark could be left/, 'a file that cannot be written is told');
rmdir $file or die "could not remove $file: $!";

start_without_workers();
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION breaks(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message});
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
enable();
$node->drain;
is($node->safe_psql('postgres', 'SELECT count(problem) FROM shard_types'), 0, 'each was the first crash of that code: no type is suspended');
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.breaks WHERE entity_id = 'd'}), '1', 'the message is handled');

# --- other code of a type --------------------------------------------------------------------------

$before = crashes();
$node->safe_psql('postgres', q{
CREATE FUNCTION touches() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM upper_of(5); RETURN new; END $$;
CREATE TRIGGER touches AFTER INSERT ON shard_entity.touched FOR EACH ROW EXECUTE FUNCTION touches()});
$node->psql('postgres', q{SELECT shard_tell('touched', 'a', '1')});
wait_crashes($before + 2);
$node->wait_until($is_suspended->('touched'), 'the type with the trigger to be suspended');
$node->safe_psql('postgres', q{DROP TRIGGER touches ON shard_entity.touched; SELECT shard_start('touched', 'sound')});
$node->drain;
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.touched}), '[1]', 'mended, its message is handled');
$node->stop;
done_testing();
