# N7: whom the operator's node does not reach, another member may hear, or reach though its control worker stands still.
# shard_write_off() asks them, is refused, and names who says so; unless it is forced. So it is if the node's server is frozen:
# it takes connections. shard_health() says what it is, and advises no write-off. One that has ended is given up as ever.

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

my $health = q{(SELECT coalesce(string_agg(p, E'\n'), '') FROM shard_health(), unnest(problems) p)};
$cluster->start_counter;
my ($at_three) = $cluster->entities_at('counter', 3, 1, '');

# --- heard by another one --------------------------------------------------------------------------

# On a slow machine it may be another one than the oldest, which makes no difference.
note('the coordinator is node ' . $cluster->coordinator->n);
$cluster->proxy->partition([1], [3]);
wait_missed($one, $three);
is($two->sql('SELECT reachable FROM shard_members WHERE node = 3'), 't', 'node 2 hears node 3');
like($one->error_of('SELECT shard_write_off(3)') // 'nothing', qr/$refused\QDETAIL:  Node 2 hears it, though this node does not.\E$hint/s,
	'who is heard by another member is not written off');

$one->wait_until("SELECT $health ~ 'node 3 has not been heard .*, but node 2 hears it: the link between this node, node 1, and node 3 is cut'",
	'health to say which link is cut');
my $said = $one->sql("SELECT $health");
like($said, qr/^entity type "counter": .* for node 3, which node 2 hears:/m, 'and what its shards wait for');
unlike($said, qr/write_off|promote/, 'no write-off is advised');

# --- reached by another one ------------------------------------------------------------------------

my ($worker) = $three->workers('shard control');
$three->server->stop_idle($worker);
wait_missed($two, $three);
like($one->error_of('SELECT shard_write_off(3)') // 'nothing', qr/$refused\QDETAIL:  Node 2 reaches it: its region workers run and handle messages.\E$hint/s,
	'nor whose entities run, as another member finds');
is($one->sql('SELECT status FROM shard_members WHERE node = 3'), 'up', 'nothing has changed');
kill 'CONT', $worker;
$cluster->proxy->heal;
$cluster->wait_reachable;

# --- frozen ----------------------------------------------------------------------------------------

$three->server->freeze;
wait_missed($_, $three) for $one, $two;
like($one->error_of('SELECT shard_write_off(3)') // 'nothing',
	qr/$refused\QDETAIL:  The server of node 3 takes connections, and answers nothing: it may be frozen\E.*\nHINT:  .*SIGCONT.*end it for good.*shard_write_off\(3, force => true\)/s,
	'nor whose server is frozen');
$said = $one->sql("SELECT $health");
like($said, qr/^node 3 has not been heard .*may be frozen; have it go on \(SIGCONT\)/m, 'health says what it may be');
like($said, qr/^entity type "counter": .* for node 3, which may be frozen/m, 'and what its shards wait for');
unlike($said, qr/write_off/, 'no write-off is advised');
is($one->sql('SELECT status FROM shard_members WHERE node = 3'), 'up', 'nothing has changed');
$three->server->thaw;
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
