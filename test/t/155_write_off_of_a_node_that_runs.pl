# N7: a node of which the control worker alone stands still, stopped or behind somebody's lock, is not heard, and runs its
# entities. shard_health() says so and advises no write-off; shard_write_off() is refused, unless forced. Of a node that is
# down for real neither is so.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->nodes;
is($cluster->coordinator->n, 1, 'the oldest is coordinator');
$cluster->start_counter;
my ($at_two) = $cluster->entities_at('counter', 2, 1, '');
my ($at_three) = $cluster->entities_at('counter', 3, 1, '');
$cluster->drain;

my $health = q{(SELECT coalesce(string_agg(p, E'\n'), '') FROM shard_health(), unnest(problems) p)};

# What others say of a node that stands still so, and what they do.
sub stands_still
{
	my ($node, $entity, $how) = @_;
	my $n = $node->n;
	my ($count) = split / /, $one->get($entity);
	$one->wait_until("SELECT $health ~ 'node $n has not been heard .*its region workers run there and may handle messages: its control worker stands still'",
		"health to name the control worker: $how");
	my $said = $one->sql("SELECT $health");
	like($said, qr/SIGCONT/, "$how: what to do about it is said");
	like($said, qr/^entity type "counter": \d+ shards? at node $n, which runs them, and is not heard/m, "$how: nobody says that its shards wait");
	unlike($said, qr/write_off|unreachable/, "$how: no write-off is advised");
	$one->add($entity, 1);
	is($one->get($entity), $count + 1 . " from node$n", "$how: an entity there answers");
	like($_->error_of("SELECT shard_write_off($n)") // 'nothing',
		qr/55000: .*refused for node $n\nDETAIL:  Its region workers run.*control worker alone stands still\.\nHINT:  .*force => true/s,
		"$how: a write-off is refused at node " . $_->n)
	  for $one, grep { $_->n != $n } $two;
	is($one->sql("SELECT status FROM shard_members WHERE node = $n"), 'up', "$how: and changes nothing");
	return;
}

like($one->error_of('SELECT shard_write_off(3)') // 'nothing', qr/55000: .*refused for node 3\n.*HINT:  Call shard_leave\(\) there/s, 'a node that is heard');
like($one->error_of('SELECT shard_write_off(3, NULL)') // 'nothing', qr/22004/, 'force is not null');
for my $call ('shard_write_off(1)', 'shard_write_off(1, force => true)')
{
	like($one->error_of("SELECT $call") // 'nothing', qr/55000: .*refused for node 1\nDETAIL:  This is node 1,.*HINT:  Call shard_leave\(\) here/s, "nor the node itself: $call");
}
like($two->error_of('SELECT shard_write_off(1)') // 'nothing', qr/55000: .*refused for node 1\n/s, 'nor the coordinator');

# --- stopped -------------------------------------------------------------------------------------

my ($worker) = $three->workers('shard control');
$three->server->stop_idle($worker);
stands_still($three, $at_three, 'stopped');
kill 'CONT', $worker;
$cluster->wait_reachable($one);

# --- behind a lock -------------------------------------------------------------------------------

my $holder = $three->session;
$holder->query('BEGIN; LOCK TABLE shard.control;');
# something for it to write down
$one->sql("SELECT shard_pin('counter', " . $cluster->shard_of('counter', $at_two) . ', 2)');
stands_still($three, $at_three, 'locked out');
$holder->query('ROLLBACK;');
$cluster->wait_reachable($one);

# --- lost for real -------------------------------------------------------------------------------

my $shard = $cluster->shard_of('counter', $at_three);
my $pin = "SELECT coalesce(pinned_to, 0) FROM shard_homes WHERE type_name = 'counter' AND shard = $shard";
$one->sql("SELECT shard_pin('counter', $shard, 3)");
$one->wait_value($pin, 3, 'a pin to the node that will be lost');
$three->server->crash;
$one->wait_until("SELECT $health ~ 'wait for node 3 .unreachable.*shard_write_off.3.'", 'a write-off to be advised');
$two->add($at_three, 1);
$two->wait_until(q{SELECT sum(outbox_messages) > 0 FROM shard_peers WHERE node = 3}, 'a message for it to wait');
like($two->error_of('SELECT shard_write_off(2)') // 'nothing', qr/55000: .*refused for node 2\nDETAIL:  This is node 2,.*HINT: .*name that one: shard_write_off\(3\)/s, 'who mixes it up with the node itself is told which one');
$one->eventually('SELECT shard_write_off(3)');
pass('a node that is lost is written off without force');
$cluster->has_left(3);
$one->wait_value($pin, 0, 'its pins to end');
$one->wait_until("SELECT node < 3 AND phase = 'stable' FROM shard_homes WHERE type_name = 'counter' AND shard = $shard",
	'the shard that was pinned there to have another home');
my ($elsewhere) = grep { $_ != $cluster->home_of('counter', $shard) } 1, 2;
$one->eventually("SELECT shard_move('counter', $shard, $elsewhere)");
$cluster->wait_home('counter', $shard, $elsewhere);
pass('an operator can move the shard that was pinned there');

# --- forced --------------------------------------------------------------------------------------

($worker) = $two->workers('shard control');
$two->server->stop_idle($worker);
$one->wait_until("SELECT $health ~ 'node 2 has not been heard .*stands still'", 'node 2 to be missed');
like($one->error_of('SELECT shard_write_off(2, force => false)') // 'nothing', qr/55000: .*force => true/s, 'refused');
$one->sql('SELECT shard_write_off(2, force => true)');
$one->wait_value('SELECT status FROM shard_members WHERE node = 2', 'written_off', 'node 2 to be written off');
pass('who has fenced the node himself may say so');
kill 'CONT', $worker;
$two->wait_until("SELECT $health ~ 'this node is fenced.*written off'", 'node 2 to hear of it');
$cluster->has_left(2);
is($one->get($at_two), '0 from node1', 'its shards begin anew');
done_testing();
