# A server that shuts down hands over its office in passing. With shard.shutdown_timeout it stays until what
# it has for others is delivered, and says in the log what it managed. A smart shutdown is not kept waiting
# by connections of other nodes, but by a client.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;
use Time::HiRes qw(time usleep);

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0");
my ($one, $two, $three) = $cluster->nodes;
$cluster->start_recorder;
my $there = $cluster->entity_at('recorder', 3);

# Asks a server to stop, and returns a function that says whether it has.
sub begin_stop
{
	my ($node, $mode) = @_;
	my $server = $node->server;
	my $pid = $server->{_pid};
	kill $mode eq 'smart' ? 'TERM' : 'INT', $pid;
	ShardCluster::wait_for_condition(sub { log_of($node) =~ /received $mode shutdown request(?!.*ready to accept)/s }, 'the server to hear it');
	return sub {
		return '' if -e $server->data_dir . '/postmaster.pid';
		$server->_update_pid(0) if defined $server->{_pid};
		return 1;
	};
}

sub log_of { my ($node) = @_; return slurp_file($node->server->logfile) }

# Begins a fast shutdown of node 2, and returns when it lingers.
sub begin_linger
{
	my $before = () = log_of($two) =~ /node 2 stays for up to/g;
	my $ended = () = log_of($two) =~ /node 2 goes down;/g;
	my $function = begin_stop($two, 'fast');
	ShardCluster::wait_for_condition(sub { (() = log_of($two) =~ /node 2 stays for up to/g) > $before }, 'node 2 to linger');
	is(scalar(() = log_of($two) =~ /node 2 goes down;/g), $ended, 'there is more to do');
	return $function;
}

# --- smart ---------------------------------------------------------------------------------------

is($cluster->coordinator($two)->n, 1, 'node 1 is the coordinator');
ok(scalar($one->peer_backends), 'others are connected to it');
my $client = $one->session;
$client->query('SELECT 1');
my $stopped = begin_stop($one, 'smart');
$two->sql(q{SELECT pg_sleep(2)});
ok(!$stopped->(), 'a smart shutdown waits for a client');
# The postmaster is as slow as on a busy machine: it ends the control worker long after a lease.
my $postmaster = $one->server->{_pid};
kill 'STOP', $postmaster;
$client->close;
$two->wait_until(q{SELECT count(*) = 1 FROM shard_members WHERE coordinator AND node <> 1}, 'another coordinator');
like(log_of($one), qr/hands over the office/, 'the office is handed over, and not lost');
kill 'CONT', $postmaster;
my $begin = time;
usleep(50_000) while !$stopped->() && time - $begin < 60;
ShardCluster::in_time(time - $begin, 10, 55, 'and not for other nodes');
$one->server->start;
$cluster->wait_up;

# --- fast, and a coordinator that is replaced at once ----------------------------------------------

my $former = $cluster->coordinator($three)->n;
my ($next) = grep { $_->n != $former } $two, $three, $one;
$begin = time;
$cluster->node($former)->server->stop('fast');
$next->wait_until("SELECT count(*) = 1 FROM shard_members WHERE coordinator AND node <> $former", 'another coordinator again');
ShardCluster::in_time(time - $begin, 10, 55, 'a fast shutdown does not wait');
$cluster->node($former)->server->start;
$cluster->wait_up;

# --- lingering -------------------------------------------------------------------------------------

$two->sql(q{ALTER SYSTEM SET shard.shutdown_timeout = '60s'});
$two->server->reload;
# Node 3 cannot be reached for a while.
$three->server->freeze;
$two->sql(ShardCluster::tell_recorder($there, 1, 50));
$stopped = begin_linger();
ok(!$stopped->(), 'it lingers while there are messages for others');
$three->server->thaw;
$begin = time;
usleep(50_000) while !$stopped->();
ShardCluster::in_time(time - $begin, 15, 55, 'and no longer: what is stored there needs it no more');
like(log_of($two), qr/node 2 goes down; \d+ shards stay here.*\n.*DETAIL:  Messages for other nodes were stored there/, 'it says what it managed');
$cluster->wait_recorded($there, 3, 1 .. 50);
pass('which it did');

$two->server->start;
$cluster->wait_up;
$two->sql(q{ALTER SYSTEM SET shard.shutdown_timeout = '1s'});
$two->server->reload;
$three->server->freeze;
$two->sql(ShardCluster::tell_recorder($there, 51, 60));
$begin = time;
$two->server->stop('fast');
ShardCluster::in_time(time - $begin, 8, 55, 'when the time is up it ends');
like(log_of($two), qr/shutdown_timeout was over before/, 'and says so');
$three->server->thaw;
$two->server->start;
$cluster->wait_up;
$cluster->wait_recorded($there, 3, 1 .. 60);
pass('what was not delivered is after the next start');

# --- a control worker that ends before its time ------------------------------------------------

$two->sql(q{ALTER SYSTEM SET shard.shutdown_timeout = '60s'});
$two->server->reload;
$three->server->freeze;
$two->sql(ShardCluster::tell_recorder($there, 61, 70));
my $worker = $two->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'shard control'});
$stopped = begin_linger();
ok(!$stopped->(), 'it lingers again');
kill 'TERM', $worker;
$begin = time;
usleep(50_000) while !$stopped->() && time - $begin < 90;
ShardCluster::in_time(time - $begin, 20, 55, 'without the control worker nobody lingers');
$three->server->thaw;
$two->server->start;
$cluster->wait_up;
$cluster->wait_recorded($there, 3, 1 .. 70);

# Even before it has looked at anything; and no handler is waited for then.
$two->sql(q{CREATE FUNCTION slow(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_sleep(1000); RETURN message; END $$});
$two->sql(q{SELECT shard_start('slow', 'slow(jsonb,jsonb)', 1, handler_timeout => '1 h')});
$two->sql(q{SELECT shard_tell('slow', 'e', '{}')});
my $in_handler = q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'shard region' AND wait_event = 'PgSleep'};
$two->wait_until($in_handler, 'the handler to run');
$two->server->set_fault('linger_begin', 'exit');
$begin = time;
$two->server->stop('fast');
ShardCluster::in_time(time - $begin, 20, 55, 'nor if it ends before its first look');
ok($two->server->fault_happened, 'as it did');
$two->server->clear_fault;
$two->server->start;
$cluster->wait_up;
$two->sql(q{ALTER SYSTEM SET shard.shutdown_timeout = '1s'});
$two->server->reload;

# --- a handler that takes long ---------------------------------------------------------------------

$two->wait_until($in_handler, 'the handler to run again');
$begin = time;
$two->server->stop('fast');
ShardCluster::in_time(time - $begin, 8, 55, 'a handler that takes long is not waited for');
done_testing();
