# N1, T7: the disk of a node that was written off is started again, at another address than the registered one, where
# a new node is now. Nobody calls it there; it hears of its end in the answers to its own calls.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
$cluster->start_recorder;
my ($one, $two, $three) = $cluster->nodes;
my ($lost) = grep { $_->n != $cluster->coordinator->n } $three, $two;
my ($sender, $other) = $cluster->others($lost->n);
my $there = $cluster->entity_at('recorder', $lost->n);
my $elsewhere = $cluster->entity_at('recorder', $other->n);
$sender->sql(ShardCluster::tell_recorder($there, 1, 3));
$cluster->wait_recorded($there, $lost->n, 1 .. 3);
$cluster->drain;

# --- written off, and its address given to a new node --------------------------------------------

my $port = $lost->server->port;
my $n = $lost->n;
$lost->server->crash;
$sender->eventually('SELECT shard_write_off(' . $lost->n . ')');
$cluster->has_left($lost->n);
my $new = $cluster->add_node(port => $port);
$cluster->join_node($new->n);
$cluster->wait_up;
is($new->sql('SELECT dsn FROM shard_members WHERE self'), $lost->dsn, 'a new node has the address of the one that was written off');

# --- the old disk ----------------------------------------------------------------------------------

# While it reaches nobody it cannot know.
$_->server->freeze for $sender, $other;
$lost->server->change_port;
$lost->server->recover;
$lost->eventually(ShardCluster::tell_recorder($_, 'late')) for $there, $elsewhere;
pass('before it reaches a member it takes messages');
$_->server->thaw for $sender, $other;

my $health = q{SELECT array_to_string(problems, '; ') FROM shard_health()};
$lost->wait_until("SELECT ($health) ~ 'this node is fenced.*it was written off'", 'the old disk to hear that it is over');
my $says = $lost->sql($health);
note($says);
like($says, qr/shard_reset_cluster_data/, 'shard_health says so, and the way out');
unlike($says, qr/shard_set_address|shard_write_off|shard_admit/, 'and none that leads nowhere');
my $error = $lost->error_of(ShardCluster::tell_recorder($elsewhere, 'never')) // '';
like($error, qr/55000: this node was written off and takes no messages/, 'it takes no more messages');
like($error, qr/DETAIL:.*HINT:/s, 'and says what to do');
like($lost->error_of(q{SELECT shard_ask('recorder', 'x', '{}', '5 s')}) // '', qr/55000: /, 'nor asks');
for my $command ("shard_admit($n, 2)", 'shard_down(' . $sender->n . ')', 'shard_write_off(' . $sender->n . ')', "shard_force_voters('{$n}')", 'shard_leave()',
	'shard_leave(cancel => true)', "shard_set_address('" . $lost->dsn . "')", 'shard_rebalance()')
{
	like($lost->error_of("SELECT $command") // 'nothing', qr/55000: this node was written off, for good\nDETAIL: .*HINT:  .*shard_reset_cluster_data/s, "nor is $command of use there");
}
like($sender->error_of("SELECT $_") // 'nothing', qr/55000: .*node $n was written off, for good\nDETAIL: .*\nHINT: .*empty/s, "nor $_ at a member")
  for "shard_admit($n, 2)", "shard_admit($n, 7)", "shard_down($n)";
my $kept = 'SELECT (SELECT count(*) FROM shard_inbox) + (SELECT coalesce(sum(outbox_messages), 0) FROM shard_peers)';
is($lost->sql($kept), 2, 'what it had taken is to be seen');
is($lost->sql(ShardCluster::recorded($there)), '1 2 3 = 3', 'it has handled nothing, and its data can be read');
is($lost->sql('SELECT status FROM shard_members WHERE self'), 'written_off', 'its row of shard_members says it, too');

$lost->server->stop('immediate');
$lost->server->recover;
$lost->wait_until("SELECT ($health) ~ 'this node is fenced.*it was written off'", 'the next start to know it');
like($lost->error_of(ShardCluster::tell_recorder($elsewhere, 'never')) // '', qr/55000: this node was written off/, 'the next start takes none either');
is($lost->sql($kept), 2, 'and still shows what there is');

# --- the others go on ------------------------------------------------------------------------------

$cluster->wait_up;
$sender->sql(ShardCluster::tell_recorder($_, 'on')) for $there, $elsewhere;
$cluster->drain;
like($cluster->recorded($there, $sender, $other), qr/^on = 1 at \d$/, 'its shards live at the others');
is($cluster->recorded($elsewhere, $sender, $other), 'on = 1 at ' . $other->n, 'who have had nothing of it');
is($new->sql('SELECT status FROM shard_members WHERE self'), 'up', 'and the new node is what it was');

# --- the way out -----------------------------------------------------------------------------------

sub enable
{
	my ($on) = @_;
	my $workers = q{FROM pg_stat_activity WHERE backend_type LIKE 'shard%' AND datname IS NOT NULL};
	$lost->sql("ALTER SYSTEM SET shard.enabled = $on");
	$lost->server->reload;
	$lost->wait_until($on eq 'on' ? "SELECT count(*) > 1 $workers" : "SELECT count(*) = 0 $workers", "workers to be $on");
	return;
}

enable('off');
$lost->sql('SELECT shard_reset_cluster_data(force => true)');
enable('on');
$lost->wait_value('SELECT string_agg(node || $$ $$ || status, $$, $$) FROM shard_members', '1 up', 'a cluster of one');
$lost->wait_value(ShardCluster::recorded($there), '1 2 3 late = 4', 'the entity to go on with its state');
$lost->wait_value(ShardCluster::recorded($elsewhere), 'late = 1', 'an entity of another node');
pass('as a node of its own it handles what it had taken');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
