# N1, N2, G07: a node that is lost is waited for, visibly, with a hint; given up by shard_write_off its
# shards begin anew elsewhere; messages that it may have handled become dead letters "in doubt", the others
# are handled at the new home. When it returns it is fenced, says so, and its data can be read.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1);
$cluster->start_recorder;
my ($one, $two, $three) = $cluster->nodes;
my ($lost) = grep { $_->n != $cluster->coordinator->n } $three, $two;
my ($sender, $other) = $cluster->others($lost->n);
my @there = $cluster->entities_at('recorder', $lost->n, 3);
my $elsewhere = $cluster->entity_at('recorder', $other->n);
$sender->sql(join '', map { ShardCluster::tell_recorder($_, 1, 3) } @there, $elsewhere);
$cluster->wait_recorded($_, $lost->n, 1 .. 3) for @there;
$cluster->drain;

# --- lost, with messages under way ---------------------------------------------------------------

# What the node answers is on its way for long. A call that was under way before would be, too, and hold up the next one.
sub hold_answers
{
	$sender->wait_until("SELECT outbox_messages = 0 AND oldest IS NULL FROM shard_peers WHERE node = @{[$lost->n]}", 'all to be received, and done');
	$cluster->proxy->hold($lost->n, $sender->n);
	return;
}

# It handles this, and its sender does not hear of it: it may have been handled.
hold_answers();
$sender->sql(ShardCluster::tell_recorder($there[0], 'doubtful'));
$cluster->wait_recorded($there[0], $lost->n, 1 .. 3, 'doubtful');
$lost->server->crash;
$cluster->proxy->cut($lost->n, $sender->n);
$cluster->proxy->heal;
$sender->sql(join '', map { ShardCluster::tell_recorder($_, 'late') } @there);
$sender->wait_until('SELECT NOT reachable FROM shard_members WHERE node = ' . $lost->n, 'the loss to be noticed');
$sender->wait_until("SELECT array_to_string(problems, '; ') ~ 'node @{[$lost->n]}' FROM shard_health()", 'health to name it');
pass('G07: shard_health names the node');
$sender->wait_until("SELECT (SELECT count(*) FROM shard_inbox) + (SELECT outbox_messages FROM shard_peers WHERE node = @{[$lost->n]}) >= 4",
	'what waits to be seen');
pass('N1: what is for it waits, visibly');
$sender->sql(ShardCluster::tell_recorder($elsewhere, 4));
$cluster->wait_recorded($elsewhere, $other->n, 1 .. 4);
pass('others go on');

# --- down, and back with everything --------------------------------------------------------------

$sender->sql('SELECT shard_down(' . $lost->n . ')');
$other->wait_value('SELECT status FROM shard_members WHERE node = ' . $lost->n, 'down', 'the node to be down');
$sender->wait_until(q{SELECT array_to_string(problems, '; ') ~ 'is down.*shard_write_off' FROM shard_health()}, 'the hint');
pass('N1: the hint says what to do');
$lost->server->recover;
$cluster->wait_up;
$cluster->drain;
$cluster->wait_recorded($there[0], $lost->n, 1 .. 3, 'doubtful', 'late');
$cluster->wait_recorded($_, $lost->n, 1 .. 3, 'late') for @there[ 1, 2 ];
pass('N1: a node that was down returns with everything; nothing is handled twice');

# --- written off ---------------------------------------------------------------------------------

$cluster->wait_reachable;
# It handles this, and nobody hears of it.
hold_answers();
$sender->sql(ShardCluster::tell_recorder($there[0], 'in doubt'));
$cluster->wait_recorded($there[0], $lost->n, 1 .. 3, 'doubtful', 'late', 'in doubt');
$lost->server->crash;
# With what was on its way.
$cluster->proxy->cut($lost->n, $sender->n);
$cluster->proxy->heal;
$sender->sql(join '', map { ShardCluster::tell_recorder($_, 'unsent') } @there);
$sender->eventually('SELECT shard_write_off(' . $lost->n . ')');
$sender->wait_until("SELECT count(*) = 3 FROM shard_homes WHERE node <> @{[$lost->n]} AND type_name = 'recorder'
	AND shard IN (@{[join ', ', map { $cluster->shard_of('recorder', $_) } @there]})", 'new homes');
$cluster->has_left($lost->n);
$cluster->drain;
for my $entity (@there)
{
	like($cluster->recorded($entity), qr/^unsent = 1 at \d$/, "N2: $entity begins empty, with what was never sent to the lost node");
}
my $dead = q{SELECT string_agg(entity_id || ' ' || (message->>'what'), ', ' ORDER BY id) FROM shard_dead_letters WHERE sqlstate = 'SH100'};
is($sender->sql($dead), "$there[0] in doubt", 'N2: what the lost node may have handled is a dead letter in doubt');
is($other->sql('SELECT count(*) FROM shard_dead_letters'), 0, 'and nothing else is');
cmp_ok($sender->sql(q{SELECT count(*) FROM shard_decisions WHERE what = 'state lost'}), '>=', 3, 'shard_decisions says which states are lost');

# --- and returns ---------------------------------------------------------------------------------

$lost->server->recover;
$lost->wait_until(q{SELECT array_to_string(problems, ' ') ~* 'written off|fenced' FROM shard_health()}, 'the node to be fenced');
like($lost->error_of(ShardCluster::tell_recorder($there[0], 'never')) // '', qr/HINT/, 'who was written off is fenced, and says so');
is($lost->sql(ShardCluster::recorded($there[1])), '1 2 3 late = 4', 'its data can be read');
$cluster->wait_recorded($elsewhere, $other->n, 1 .. 4);
is($cluster->recorded($there[1]), 'unsent = 1 at ' . $cluster->home_of('recorder', $there[1], $sender), 'and nobody took it for the home');
$_->server->log_is_clean(@ShardNodes::link_troubles) for $sender, $other;
done_testing();
