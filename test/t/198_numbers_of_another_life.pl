# A node leaves, and its extension is made anew in the same server, or reset: it is another node from then on, whose incarnations are
# counted from the first one. What it sends is numbered anew, too: numbers that went on from its former life would be above those
# of its next start, and members would take what that sends for what they know (X9).

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;
my $expected = 0;
$cluster->start_counter;

sub start_again
{
	my $before = $two->sql('SELECT inc_no FROM shard.node');
	$two->server->restart;
	$two->wait_until("SELECT inc_no > $before FROM shard.node", 'the next start to be admitted');
	$cluster->wait_reachable;
	return;
}

# The type again, whose functions are still there.
sub started_again
{
	$two->sql('DROP FUNCTION counter(jsonb, jsonb), modulo_twelve(text)');
	$cluster->start_counter_at($two);
	return;
}

sub is_up
{
	my ($number) = @_;
	$_->wait_until("SELECT status = 'up' AND reachable FROM shard_members WHERE node = $number", "node $number to be up") for $one, $two;
	return;
}

# Messages of node 2 for an entity of node 1 arrive, all of them, once.
sub arrives
{
	my ($id, $what) = @_;
	$two->sql(qq{SELECT count(shard_tell('counter', '$id', '{"add": 1}')) FROM generate_series(1, 100)});
	$expected += 100;
	$two->wait_value(q{SELECT shard_drain('30 s')}, 't', 'what was sent to be gone');
	$one->wait_value("SELECT state->>'count' FROM shard_entity.counter WHERE entity_id = '$id'", $expected, $what);
	pass($what);
	return;
}

my $id = $cluster->entity_at('counter', 1, 1);
start_again() for 1 .. 2;
arrives($id, 'messages of a third start arrive');

is($two->sql(q{SELECT shard_leave('60 s')}), 't', 'the node leaves');
$two->sql('DROP EXTENSION shard CASCADE; DROP SCHEMA IF EXISTS shard_entity CASCADE; CREATE EXTENSION shard');
$two->sql("SELECT shard_allow_peer('$ShardNodes::peer_role')");
is($cluster->join_node(2), 3, 'an extension that is made anew joins as another node');
is_up(3);
started_again();
arrives($id, 'what it sends arrives');
start_again();
arrives($id, 'and what its next start sends');

# The same by a reset.
start_again();
is($two->sql(q{SELECT shard_leave('60 s')}), 't', 'the node leaves again');
$two->sql('SELECT shard_drop_type($$counter$$, true)');
for my $enabled ('off', 'on')
{
	$two->sql("ALTER SYSTEM SET shard.enabled = $enabled");
	$two->server->reload;
	$two->wait_until('SELECT count(*) ' . ($enabled eq 'on' ? '> 1' : '= 0') . ' FROM pg_stat_activity WHERE backend_type LIKE $$shard%$$ AND datname IS NOT NULL', "workers to be $enabled");
	$two->sql('SELECT shard_reset_cluster_data()') if $enabled eq 'off';
}
is($cluster->join_node(2), 4, 'one that was reset joins as another node');
is_up(4);
started_again();
arrives($id, 'what that sends arrives');
start_again();
arrives($id, 'and what its next start sends');

done_testing();
