# Several databases of one server are a cluster, too: messages and asks between them, and all of them
# die and come back together.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, databases => 1);
$cluster->start_recorder;
my @entity = map { $cluster->entity_at('recorder', $_) } 1 .. 3;
$cluster->drain;
my $sent = 0;
for my $round (1, 2)
{
	for my $node ($cluster->nodes)
	{
		$node->sql(join '', map { ShardCluster::tell_recorder($_, $sent + 1, $sent + 10) } @entity);
		$sent += 10;
		$cluster->wait_recorded($entity[$_], $_ + 1, 1 .. $sent) for 0 .. 2;
		pass('round ' . $round . ': node ' . $node->n . ' reaches all');
		is($node->sql(qq{SELECT shard_ask('recorder', '$entity[$_]', '{"noop": 1}', '30 s')->>'count'}), $sent, 'and asks node ' . ($_ + 1)) for 0 .. 2;
	}
	next if $round > 1;
	$cluster->node(1)->server->crash;
	$cluster->node(1)->server->recover;
	$cluster->wait_up;
}
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
