# Gate "local": a promoted standby may lack what others have seen, so it is refused, loudly, until
# shard_admit. If it lacks nothing, all goes on. If it lacks messages that others have, their link to
# it is quarantined on both sides until shard_link_accept, and what is wrong is told.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

for my $lag (0, 1)
{
	my $cluster = ShardNodes->create(2, standbys => [2], suffix => $lag ? 'lagging' : '');
	my ($one, $two) = $cluster->nodes;
	my $case = $lag ? 'with lag' : 'without lag';
	$cluster->start_recorder;
	my ($here, $there) = ($cluster->entity_at('recorder', 2), $cluster->entity_at('recorder', 1));
	$cluster->drain;
	$cluster->add_standby(2);
	my $incarnation = $one->sql('SELECT incarnation FROM shard_members WHERE node = 2');

	$two->sql(ShardCluster::tell_recorder($there, 1, 10));
	$cluster->wait_recorded($there, 1, 1 .. 10);
	$cluster->drain;
	$cluster->wait_standby(2);
	if ($lag)
	{
		$cluster->stop_replication(2);
		$two->sql(ShardCluster::tell_recorder($there, 11, 15));
		$cluster->wait_recorded($there, 1, 1 .. 15);
	}
	$two->server->crash;
	$cluster->promote(2);
	$two->server->wait_for_log(qr/node 2 is not admitted: .*shard_admit/);
	$two->wait_until(q{SELECT array_to_string(problems, '; ') ~ 'not admitted.*promoted standby of node 2.*shard_admit\(2, ' FROM shard_health()},
		'health to say why, and what to do');
	pass("$case: the promoted standby waits for the operator");
	is($one->sql("SELECT incarnation = $incarnation FROM shard_members WHERE node = 2"), 't', "$case: it is not admitted by itself");

	# The next one, as shard_health of the refused one says.
	my $inc = $incarnation + 1;
	$one->sql("SELECT shard_admit(2, $inc)");
	$one->wait_until("SELECT status = 'up' AND incarnation > $incarnation FROM shard_members WHERE node = 2", 'admission');
	pass("$case: admitted by shard_admit");
	$one->sql(ShardCluster::tell_recorder($here, 1, 5));
	if (!$lag)
	{
		$two->sql(ShardCluster::tell_recorder($there, 11, 15));
		$cluster->wait_recorded($there, 1, 1 .. 15);
		$cluster->wait_recorded($here, 2, 1 .. 5);
		pass("$case: messages flow both ways");
	}
	else
	{
		$two->sql(ShardCluster::tell_recorder($there, 'new'));
		$_->[0]->wait_until("SELECT state = 'quarantined' FROM shard_peers WHERE node = $_->[1]", 'quarantine')
		  for [ $one, 2 ], [ $two, 1 ];
		pass("$case: the link is quarantined on both sides");
		like($two->sql('SELECT last_error FROM shard_peers WHERE node = 1'), qr/./, "$case: with a reason");
		is($cluster->recorded($there, $one), join(' ', 1 .. 15) . ' = 15 at 1', "$case: nothing new arrives");
		$two->sql('SELECT shard_link_accept(1)');
		$one->sql('SELECT shard_link_accept(2)');
		$cluster->wait_recorded($there, 1, 1 .. 15, 'new');
		pass("$case: shard_link_accept lets it flow again");
	}
	$cluster->node(1)->server->log_is_clean(@ShardNodes::link_troubles, qr/quarantine/);
	$_->server->stop('immediate') for $cluster->nodes;
}
done_testing();
