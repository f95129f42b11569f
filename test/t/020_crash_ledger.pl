# Through crashes of every kind, and what users do to a type that runs, under random load: nothing committed is lost (P1), nothing is handled
# twice (P2), order is kept (P3), nothing rolled back is handled (P5).
#
# SHARD_SEED repeats a run, SHARD_SECONDS makes it longer.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardLedger;
use Test::More;

my $node   = ShardCluster->create('crashing', conf => 'shard.region_workers = 2');
my $ledger = ShardLedger->new(node => $node, seed => ShardLedger::seed());
$ledger->install;
$ledger->prove(
	seconds      => ShardLedger::seconds(75),
	disturbances => [ ShardLedger::crashes(), ShardLedger::users() ]);

done_testing();
