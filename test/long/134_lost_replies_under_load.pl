# Connections between nodes are reset and replies lost after their COMMIT, all the time, under random
# load: P1 to P5 hold. SHARD_SEED repeats a run, SHARD_SECONDS makes it longer.

use strict;
use warnings FATAL => 'all';

use ShardClusterLedger;
use ShardLedger;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1, conf => "shard.region_workers = 2\nshard.rebalance_interval = 0");
my $ledger  = ShardClusterLedger->new(cluster => $cluster, seed => ShardLedger::seed());
$ledger->install;
$ledger->prove(seconds => ShardLedger::seconds(20), length => 10, every => 0.4,
	kinds => [ 'reply lost', 'connections reset', 'partition by reset' ]);
$cluster->logs_are_clean(qr/ledger: told to fail/, qr/due to lock timeout/, @ShardNodes::link_troubles);
done_testing();
