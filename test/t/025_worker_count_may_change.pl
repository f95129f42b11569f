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

$ledger->round(
	seconds      => ShardLedger::seconds(20),
	disturbances => [ ShardLedger::disturbances('another number of workers') ]);
is(join("\n", $ledger->violations), '', "no violation after @{[ $ledger->messages_sent ]} messages");
is(join("\n", $ledger->unexpected_client_errors), '', 'clients met only what a restart explains');
$node->log_is_clean(qr/ledger: told to fail/, qr/due to lock timeout/);

done_testing();
