# Servers of a cluster die under random load, one or several, without faults of the network: P1 to P5
# hold and asks are linearizable. SHARD_SEED repeats a run, SHARD_SECONDS makes it longer.

use strict;
use warnings FATAL => 'all';

use ShardClusterLedger;
use ShardLedger;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.region_workers = 2\nshard.rebalance_interval = 0");
my $ledger  = ShardClusterLedger->new(cluster => $cluster, seed => ShardLedger::seed());
$ledger->install;
$ledger->prove(seconds => ShardLedger::seconds(30), length => 15, every => 3);
$cluster->logs_are_clean(qr/ledger: told to fail/, qr/due to lock timeout/, @ShardNodes::link_troubles);
done_testing();
