# Random load on every node of a healthy cluster: the audit of all books together finds nothing, asks
# are linearizable, and no server's log has a line that should not be there.

use strict;
use warnings FATAL => 'all';

use ShardClusterLedger;
use ShardLedger;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.region_workers = 2\nshard.rebalance_interval = 0");
my $ledger  = ShardClusterLedger->new(cluster => $cluster, seed => ShardLedger::seed());
$ledger->install;
$ledger->prove(seconds => ShardLedger::seconds(12), length => 12, kinds => []);
$cluster->logs_are_clean(qr/ledger: told to fail/, qr/due to lock timeout/);
done_testing();
