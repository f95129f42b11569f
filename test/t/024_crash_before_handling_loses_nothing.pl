# Messages committed but not yet handled when the server dies are handled once, in order, when it is
# back; those handled just before are not handled again.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', fsync => 1,
	conf => "shard.region_workers = 1\nshard.handler_lock_timeout = '60 s'");
$node->start_recorder;

my %death = (
	'kill -9 of everything'     => sub { $node->crash },
	'kill -9 of the postmaster' => sub { $node->crash_postmaster },
	'kill -9 of the worker'     => sub { $node->crash_process(($node->worker_pids('%region%'))[0]) },
	'immediate stop'            => sub { $node->stop('immediate') });

my $sent = 0;
for my $name (sort keys %death)
{
	# While the worker waits at the gate nothing behind it can have been handled.
	my $keeper = $node->close_gate;
	$node->safe_psql('postgres', ShardCluster::tell_recorder('a', $sent + 1, $sent + 20));
	$sent += 20;
	is($node->safe_psql('postgres', 'SELECT count(*) >= 20 FROM shard_inbox'), 't', "messages wait at $name");

	$death{$name}->();
	$keeper->close;
	$node->recover;
	$node->wait_recorded('a', 1 .. $sent);
	pass("handled once and in order after $name");

	# Now handled, and perhaps not yet flushed.
	$death{$name}->();
	$node->recover;
	$node->drain;
	$node->wait_recorded('a', 1 .. $sent);
	pass("handled once after $name behind it");
}

$node->log_is_clean;
done_testing();
