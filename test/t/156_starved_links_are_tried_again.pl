# X5: a process that stands still for seconds while it connects, as on a machine that has no time for it, has not waited for
# the system's resolver: an address without names of hosts is tried again as soon as any, and not after twenty times as long.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;
use Time::HiRes qw(time usleep);

my $cluster = ShardNodes->create(2, proxy => 1, conf => "shard.rebalance_interval = 0\nshard.region_workers = 1");
my ($one, $two) = $cluster->nodes;
plan skip_all => 'needs a build with fault points' unless $one->sql(q{SELECT count(*) FROM pg_settings WHERE name = 'shard.fault_point'});
$cluster->sql_everywhere(q{
CREATE FUNCTION counts(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN PERFORM shard_reply('{}'); RETURN message; END $$});
$_->sql(q{SELECT shard_start('kept', 'counts', 8, replicas => 1)}) for $one, $two;
$cluster->wait_registered;
my $entity = $cluster->entity_at('kept', 1);
is($one->sql("SELECT shard_ask('kept', '$entity', '{}', '60 s')"), '{}', 'an answer waits for the other node to have the turn');
my ($worker) = $one->workers('shard region');

sub stands_still
{
	my ($pid) = @_;
	return slurp_file("/proc/$pid/stat") =~ /\) T /;
}

# Until the worker that has a record for the other node connects, and stands there; others that do are in nobody's way.
sub wait_until_it_connects
{
	while (1)
	{
		$one->server->set_fault('peer_connects', 'freeze');
		ShardCluster::wait_for_condition(sub { $one->server->fault_happened }, 'a process to connect');
		return if stands_still($worker);
		go_on();
	}
	return;
}

sub go_on
{
	$one->server->thaw_fault;
	$one->server->clear_fault;
	return;
}

# It cannot connect, and has been kept from all else for seconds by then.
$cluster->proxy->partition([1], [2], 'cut');
my $asker = $one->session;
$asker->send("SELECT shard_ask('kept', '$entity', '{}', '100 s');");
my $still = 2.5;
wait_until_it_connects();
usleep(1_000_000 * $still);
go_on();
my $start = time;
wait_until_it_connects();
ShardCluster::in_time(time - $start, 15, 15 * $still, 'it tries again soon');
go_on();
$cluster->proxy->heal;
is($asker->receive, '{}', 'the answer comes when the other node has it');
$asker->close;
$cluster->wait_reachable;
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
