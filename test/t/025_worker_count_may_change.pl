# The number of region workers may change under load, with kill -9 between: every lane keeps its
# position, whoever owns it next.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardLedger;
use Test::More;

my $node   = ShardCluster->create('resized', conf => 'shard.region_workers = 4');
my $ledger = ShardLedger->new(node => $node, seed => ShardLedger::seed());
$ledger->install;
$ledger->prove(
	seconds      => ShardLedger::seconds(20),
	disturbances => [ ShardLedger::disturbances('another number of workers') ]);

done_testing();
