# A target may end to prepare a move when the coordinator has refused it long since: shard_rebalances says that it has
# failed, not that it is under way; nor when the shard has moved elsewhere, and nobody is left who has decided that.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
$cluster->start_counter;
my ($one, $two, $three) = $cluster->nodes;
$one->get($_) for 0 .. 7;
my ($shard) = grep { $cluster->home_of('counter', $_) == 1 } 0 .. 7;
$one->add($shard, 1);
$cluster->drain;
$cluster->wait_settled;

# Its backend stands still until the coordinator does not wait any more.
my $server = $two->server;
$server->set_fault('import_prepare', 'freeze');
my $error = $one->error_of("SELECT shard_move('counter', $shard, 2);") // 'none';
like($error, qr/has not answered whether it can have the shard/, 'the move is refused');
ok($server->fault_happened, 'while the target prepares it');
$server->clear_fault;
$two->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE query ~ 'shard_peer.import' AND state = 'active' AND pid <> pg_backend_pid()", 'the target to have ended');
for my $node ($one, $two)
{
	is($node->sql("SELECT phase FROM shard_rebalances WHERE shard = $shard"), 'failed', 'node ' . $node->n . ' says that it has failed');
}
is($two->sql("SELECT phase FROM shard.imports() WHERE shard = $shard"), 'preparing', 'though it is prepared at the target');

# As when the node that has asked the target was coordinator then, and has left.
$cluster->move('counter', $shard, 3);
$cluster->wait_home('counter', $shard, 3);
$cluster->wait_settled;
$_->sql('DELETE FROM shard.decision') for $one, $two, $three;
is($two->sql("SELECT phase FROM shard.imports() WHERE shard = $shard"), 'preparing', 'the target has not heard of a move to another node');
is($_->sql("SELECT count(*) FROM shard_rebalances WHERE shard = $shard"), 0, 'which is over: node ' . $_->n . ' shows nothing under way') for $one, $two, $three;
done_testing();
