# Another number of region workers while messages flow between two nodes: streams belong to lanes, and
# go on with whoever owns the lane.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;
use Time::HiRes qw(usleep);

my $cluster = ShardNodes->create(2, conf => "shard.region_workers = 4\nmax_worker_processes = 32");
my ($here, $there) = $cluster->nodes;
$cluster->start_recorder;
my @far = $cluster->entities_at('recorder', 2, 16);
my @near = $cluster->entities_at('recorder', 1, 4, 'n');
$cluster->drain;

my $told = 0;
my @workers = (1, 8, 3, 2, 5, 4);
for my $round (0 .. 11)
{
	my $node = $round % 2 ? $there : $here;
	$here->sql(join '', map { ShardCluster::tell_recorder($_, $told + 1, $told + 15) } @far);
	$there->sql(join '', map { ShardCluster::tell_recorder($_, $told + 1, $told + 15) } @near);
	$told += 15;
	$node->server->append_conf('postgresql.conf', "shard.region_workers = $workers[$round / 2]");
	$node->server->reload;
	usleep(300_000);
}
$cluster->wait_recorded($_, 2, 1 .. $told) for @far;
$cluster->wait_recorded($_, 1, 1 .. $told) for @near;
pass('every message was handled once, in order');

$cluster->drain;
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
