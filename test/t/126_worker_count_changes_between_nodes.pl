# The number of region workers of a node may change while messages come and go between nodes: streams
# belong to lanes, not to workers.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.region_workers = 1');
$cluster->start_recorder;
my ($one, $two) = $cluster->nodes;
my @here = $cluster->entities_at('recorder', 1, 5);
my @there = $cluster->entities_at('recorder', 2, 5);
$cluster->drain;

my $sent = 0;
for my $workers (3, 2, 4, 1)
{
	for my $node ($one, $two)
	{
		my @sessions = map { $_->session } $one, $two;
		$sessions[0]->send(join '', map { my $i = $_; map { ShardCluster::tell_recorder($_, $i) } @there } $sent + 1 .. $sent + 30);
		$sessions[1]->send(join '', map { my $i = $_; map { ShardCluster::tell_recorder($_, $i) } @here } $sent + 1 .. $sent + 30);
		$_->receive for @sessions;
		$sent += 30;
		$node->sql("ALTER SYSTEM SET shard.region_workers = $workers");
		$node->server->stop($workers % 2 ? 'fast' : 'immediate');
		$node->server->recover;
	}
	$cluster->wait_up;
	$cluster->drain;
	$cluster->wait_recorded($_, 2, 1 .. $sent) for @there;
	$cluster->wait_recorded($_, 1, 1 .. $sent) for @here;
	pass("$workers workers");
}
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
