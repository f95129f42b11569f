# O07: shard_rebalances showed anybody which shards of a type are in use, and how many rows they have, while they moved.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;
$cluster->start_counter;
$cluster->allocate('counter', 0 .. 11);
$one->sql('CREATE ROLE nobody; CREATE ROLE looks; GRANT pg_monitor TO looks');
my $shard = $one->sql(q{SELECT min(shard) FROM shard_homes WHERE type_name = 'counter' AND node = 1});

$two->server->set_fault('import_before_commit', 'freeze');
my $mover = $one->session;
$mover->send("SELECT shard_move('counter', $shard, 2);");
$one->wait_until("SELECT count(*) = 1 FROM shard_rebalances WHERE shard = $shard", 'the move to begin');
for my $column ('shard', 'rows_copied', 'parked')
{
	is($one->sql("SET ROLE nobody; SELECT $column FROM shard_rebalances"), '', "O07: others see no $column of a move");
}
is($one->sql("SET ROLE looks; SELECT shard FROM shard_rebalances"), $shard, 'who watches the server does');
$two->server->clear_fault;
$mover->close;

# What the script revokes from all who have default privileges, it had granted to them.
for my $what ('shard_decisions', 'shard_current_regions', 'shard_cluster_stats()', 'shard_rebalance_plan()')
{
	is(($one->try("SET ROLE looks; SELECT count(*) FROM $what"))[0], 0, "and may read $what");
	like($one->error_of("SET ROLE nobody; SELECT count(*) FROM $what"), qr/42501/, 'as others may not');
}
done_testing();
