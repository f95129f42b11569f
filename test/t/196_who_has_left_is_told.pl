# A node that has left its cluster is told so by each command that needs one, with the way to join again, and asks no
# former member any more.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, databases => 1);
$cluster->start_counter;
my ($one, $two, $three) = $cluster->nodes;
$_->sql(q{SELECT shard_tell('counter', '1', '{}')}) for $one, $three;
$cluster->drain;
is($three->sql('SELECT shard_leave()'), 't', 'a node leaves');
$cluster->has_left(3);
$three->wait_until(q{SELECT problems::text ~ 'it has left its cluster; read from it .* join an empty one' FROM shard_health()}, 'it to know it, and the way back');

# --- commands --------------------------------------------------------------------------------------

my $left = qr/55000: this node has left its cluster\nDETAIL:  It was node 3 there.*\nHINT:  Call it at a member\. To join again, .*DROP EXTENSION shard CASCADE.*shard_join\(\)/s;
for my $call (
	"shard_rebalance()", "shard_rebalance('counter')", 'shard_rebalance_plan()', "shard_move('counter', 1, 1)", "shard_pin('counter', 1, 1)",
	"shard_unpin('counter', 1)", "shard_give_up('counter', 1)", 'shard_evacuate(1)', 'shard_evacuate(3)', 'shard_down(2)', 'shard_write_off(2)',
	'shard_admit(3, 1)', 'shard_force_voters(ARRAY[3])', 'shard_force_voters(ARRAY[3], true)', "shard_set_address('" . $three->dsn . "')")
{
	my $error = $three->error_of("SELECT $call");
	like($error, $left, "$call says so");
	unlike($error, qr/force_voters|coordinator/, 'and nothing of voters');
}
is($three->sql('SELECT shard_leave()'), 't', 'who has left may leave again');

# --- former members --------------------------------------------------------------------------------

is($three->sql('SELECT count(*) FROM shard_cluster_stats() WHERE node <> 3'), 0, 'shard_cluster_stats() has rows of the node itself only');
is($three->sql('SELECT node, type_name, error IS NULL FROM shard_current_regions'), '3|counter|t', 'so has shard_current_regions');
is($one->sql('SELECT string_agg(DISTINCT node::text, $$ $$ ORDER BY node::text) FROM shard_current_regions'), '1 2', 'members have those of members');
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/has left its cluster/);
done_testing();
