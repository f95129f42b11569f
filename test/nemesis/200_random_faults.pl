# Three nodes under load while everything goes wrong that a seed can choose: servers die, freeze and
# stop, the network is cut, one way too, slow and lossy, replies are lost after their COMMIT, workers
# and backends are terminated, connections run out. Nothing is lost (P1), done twice (P2), out of
# order (P3), on two nodes (P4) or handled though it was rolled back (P5); asks are linearizable; and
# all recovers by itself within bounds (P6).
#
# One round has a fixed seed, the next ones are new; SHARD_SEED repeats a run, SHARD_SECONDS makes it
# longer.

use strict;
use warnings FATAL => 'all';

use ShardClusterLedger;
use ShardLedger;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1, conf => "shard.region_workers = 2\nshard.rebalance_interval = 0");
my $ledger  = ShardClusterLedger->new(cluster => $cluster, seed => ShardLedger::seed());
$ledger->install;
$ledger->prove(seconds => ShardLedger::seconds(50), first => $ENV{SHARD_SEED} // 4);
$cluster->logs_are_clean(qr/ledger: told to fail/, qr/due to lock timeout/, @ShardNodes::link_troubles);

done_testing();
