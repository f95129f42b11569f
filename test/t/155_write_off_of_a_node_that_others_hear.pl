# N7: whom the operator's node does not reach, another member may hear, or reach though its coordinator worker stands still.
# shard_write_off() asks them, is refused, and names who says so; unless it is forced. One that has ended is given up as ever.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1);
my ($one, $two, $three) = $cluster->nodes;
my $refused = '55000: .*refused for node 3\n';
my $hint = '\nHINT:  .*shard_write_off\(3, force => true\)';

sub wait_missed
{
	my ($at, $node) = @_;
	$at->wait_until('SELECT NOT reachable FROM shard_members WHERE node = ' . $node->n, 'node ' . $node->n . ' to be missed');
	return;
}

# --- heard by another one --------------------------------------------------------------------------

is($cluster->coordinator->n, 1, 'the oldest is coordinator');
$cluster->proxy->partition([1], [3]);
wait_missed($one, $three);
is($two->sql('SELECT reachable FROM shard_members WHERE node = 3'), 't', 'node 2 hears node 3');
like($one->error_of('SELECT shard_write_off(3)') // 'nothing', qr/$refused\QDETAIL:  Node 2 hears it, though this node does not.\E$hint/s,
	'who is heard by another member is not written off');

# --- reached by another one ------------------------------------------------------------------------

my ($worker) = $three->workers('shard coordinator');
kill 'STOP', $worker;
wait_missed($two, $three);
like($one->error_of('SELECT shard_write_off(3)') // 'nothing', qr/$refused\QDETAIL:  Node 2 reaches it: its region workers run and handle messages.\E$hint/s,
	'nor whose entities run, as another member finds');
is($one->sql('SELECT status FROM shard_members WHERE node = 3'), 'up', 'nothing has changed');
kill 'CONT', $worker;
$cluster->proxy->heal;
$cluster->wait_reachable;

# --- not there -------------------------------------------------------------------------------------

$three->server->crash;
wait_missed($one, $three);
# Until the coordinator's office misses it, too.
$one->eventually('SELECT shard_write_off(3)');
pass('one that has ended is written off without force');
$cluster->has_left(3);
$one->wait_value('SELECT status FROM shard_members WHERE node = 3', 'written_off', 'node 3 to be written off');
$_->server->log_is_clean(@ShardNodes::link_troubles) for $one, $two;
done_testing();
