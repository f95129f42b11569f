# What a node was to send, and had not, survives kill -9 of the node; what it had sent and nobody had
# confirmed yet is not handled twice. Also when both die, again and again, while messages flow.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.region_workers = 2', fsync => 1);
my ($here, $there) = $cluster->nodes;
$cluster->start_recorder;
my $far = $cluster->entity_at('recorder', 2);
$cluster->drain;

$there->server->stop('immediate');
$here->sql(ShardCluster::tell_recorder($far, 1, 200));
$here->wait_until('SELECT sum(outbox_messages) >= 200 FROM shard_peers WHERE node = 2', 'packets in the outbox');
$here->server->crash;
$here->server->recover;
$here->sql(ShardCluster::tell_recorder($far, 201, 220));
$here->server->crash;
$here->server->recover;
$there->server->start;
$cluster->wait_recorded($far, 2, 1 .. 220);
pass('what waited in a node that was killed twice arrives once, in order');

my $told = 220;
for my $round (1 .. 6)
{
	$here->sql(ShardCluster::tell_recorder($far, $told + 1, $told + 100));
	$told += 100;
	my $victim = $round % 2 ? $here : $there;
	$victim->server->crash;
	$victim->server->recover;
}
$cluster->wait_recorded($far, 2, 1 .. $told);
pass('and so does what was on its way when origin or home was killed');

$cluster->drain;
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
