# A server that is stopped says good-bye: the others take its node for unreachable at once, and do not wait for the
# failure detector. Started again it is heard, and nothing is lost.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use ShardNodes;
use Test::More;

for my $lingers (0, 1)
{
	my $conf = 'shard.shutdown_timeout = ' . ($lingers ? "'5s'" : 0);
	my $cluster = ShardNodes->create(2, conf => $conf, suffix => $lingers ? 'lingering' : 'plain');
	my ($one, $two) = $cluster->nodes;
	my $what = $lingers ? 'one that lingers' : 'one that ends at once';
	$cluster->start_recorder;
	my $entity = $cluster->entity_at('recorder', 2);
	$cluster->drain;

	# What it says has a moment to go out, which a slow machine may miss: then it is as for a node that is lost.
	my $said;
	for (1 .. 5)
	{
		$cluster->wait_reachable;
		$two->server->stop('fast');
		$said = $one->sql('SELECT NOT reachable FROM shard_members WHERE node = 2') eq 't';
		last if $said;
		$two->server->start;
		$cluster->wait_up;
	}
	ok($said, "$what is unreachable at once");
	$one->sql(ShardCluster::tell_recorder($entity, 1, 3));
	$two->server->start;
	$cluster->wait_up;
	$cluster->wait_reachable;
	$cluster->wait_recorded($entity, 2, 1 .. 3);
	pass('and is heard again');
	unlike(slurp_file($one->server->logfile), qr/no control link to node \d+\n(?![^\n]*DETAIL:  \S)/, "$what: of each link that ends the log says why");
	$cluster->logs_are_clean(@ShardNodes::link_troubles);
	$_->server->stop('immediate') for $one, $two;
}
done_testing();
