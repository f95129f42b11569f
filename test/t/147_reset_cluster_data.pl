# shard_reset_cluster_data makes a database that has lost its cluster a node of its own: entities keep their
# states, messages that wait are handled, in order. Not while workers run, and not in silence where messages
# for other members would be lost.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->nodes;
$cluster->start_recorder;
my ($mine, $other) = ($cluster->entity_at('recorder', 2, 'm'), $cluster->entity_at('recorder', 1, 'o'));
$two->sql(ShardCluster::tell_recorder($mine, 1, 10));
$two->sql(ShardCluster::tell_recorder($other, 1, 10));
$cluster->wait_recorded($mine, 2, 1 .. 10);
$cluster->wait_recorded($other, 1, 1 .. 10);
$cluster->drain;

sub enable
{
	my ($node, $on) = @_;
	$node->sql("ALTER SYSTEM SET shard.enabled = $on");
	$node->server->reload;
	$node->wait_until($on eq 'on' ? 'SELECT count(*) > 1 FROM pg_stat_activity WHERE backend_type LIKE $$shard%$$ AND datname IS NOT NULL'
		: 'SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE $$shard%$$ AND datname IS NOT NULL', "workers to be $on");
	return;
}

# --- what is refused -----------------------------------------------------------------------------

like($two->error_of('SELECT shard_reset_cluster_data()'), qr/55006: .*while workers run.*HINT: .*shard.enabled = off/s, 'not while workers run');
enable($two, 'off');
like($two->error_of('SELECT shard_reset_cluster_data()'), qr/55000: .*other members.*HINT: .*shard_leave.*force/s, 'not while there are other members');
like($two->error_of(q{SELECT shard_reset_cluster_data('{recorder}')}), qr/55000: .*single entity types/s, 'nor one type of a cluster');
like($two->error_of(q{SELECT shard_reset_cluster_data('{nothing}')}), qr/42704: /, 'nor a type that is not there');

# --- a node whose cluster is lost ------------------------------------------------------------------

$two->sql(ShardCluster::tell_recorder($mine, 11, 20));
$two->sql(ShardCluster::tell_recorder($other, 11, 15));
my $before = $two->sql('SELECT cluster_id, node_id FROM shard.node');
my $ids = $two->sql('SELECT max(seq) FROM shard_inbox');
$two->sql('BEGIN; SELECT shard_reset_cluster_data(force => true); ROLLBACK');
is($two->sql('SELECT cluster_id, node_id FROM shard.node'), $before, 'rolled back it is what it was');
is($two->sql('SELECT count(*) FROM shard_inbox'), 15, 'with its messages');
$two->sql('SELECT shard_reset_cluster_data(force => true)');
is($two->sql('SELECT node_id FROM shard.node'), 1, 'the node is the first of another cluster');
isnt($two->sql('SELECT cluster_id, node_id FROM shard.node'), $before, 'which is a new one');
is($two->sql('SELECT count(*) FROM shard_inbox'), 15, 'messages wait as before');
is($two->sql("SELECT min(seq) > $ids FROM shard_inbox"), 't', 'under numbers that nobody has seen');
enable($two, 'on');
$two->wait_value('SELECT string_agg(node || $$ $$ || status, $$, $$) FROM shard_members', '1 up', 'a cluster of one');
$two->wait_value(ShardCluster::recorded($mine), join(' ', 1 .. 20) . ' = 20', 'the entity to go on with its state');
pass('an entity keeps its state, and has handled what waited, in order');
$two->wait_value(ShardCluster::recorded($other), join(' ', 11 .. 15) . ' = 5', 'an entity of a lost node');
pass('one of a lost node begins anew');
$two->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'the node to be well');

# --- a node that has left -------------------------------------------------------------------------

# The old cluster goes on without it.
$one->eventually('SELECT shard_write_off(2)');
$one->wait_value('SELECT status FROM shard_members WHERE node = 2', 'written_off', 'node 2 to be written off');
is($three->sql(q{SELECT shard_leave('60 s')}), 't', 'a node leaves');
enable($three, 'off');
$three->sql('SELECT shard_reset_cluster_data()');
enable($three, 'on');
$three->wait_value('SELECT string_agg(node || $$ $$ || status, $$, $$) FROM shard_members', '1 up', 'a cluster of one');
$three->sql(ShardCluster::tell_recorder('new', 1, 5));
$three->wait_value(ShardCluster::recorded('new'), '1 2 3 4 5 = 5', 'an entity there');
pass('one that has left needs no force, and is a node of its own');

# --- one type -------------------------------------------------------------------------------------

enable($three, 'off');
$three->sql(q{SELECT shard_reset_cluster_data('{recorder}')});
is($three->sql('SELECT count(*) FROM shard_homes'), 0, 'its homes are forgotten');
enable($three, 'on');
$three->sql(ShardCluster::tell_recorder('new', 6, 9));
$three->wait_value(ShardCluster::recorded('new'), '1 2 3 4 5 6 7 8 9 = 9', 'the entity to go on');
pass('and given anew');

# --- a copy -----------------------------------------------------------------------------------------

# In a copy nothing is handled; what was told to it before waits.
$three->server->safe_psql('template1', 'CREATE DATABASE twin TEMPLATE postgres');
$three->server->wait_until(q{SELECT problems::text ~ 'copy.*shard_reset_cluster_data' FROM shard_health()}, 'the copy to be recognized', 'twin');
$three->server->safe_psql('twin', ShardCluster::tell_recorder('new', 10, 12));
enable($three, 'off');
$three->server->safe_psql('twin', 'SELECT shard_reset_cluster_data()');
enable($three, 'on');
$three->server->wait_until("SELECT 't' WHERE (" . ShardCluster::recorded('new') . ") = '1 2 3 4 5 6 7 8 9 10 11 12 = 12'", 'the copy to be a node of its own', 'twin');
pass('a copy becomes a node of its own');
is($three->sql(ShardCluster::recorded('new')), '1 2 3 4 5 6 7 8 9 = 9', 'which has nothing to do with the original');
isnt($three->server->safe_psql('twin', 'SELECT cluster_id FROM shard.node'), $three->sql('SELECT cluster_id FROM shard.node'), 'nor its cluster');
done_testing();
