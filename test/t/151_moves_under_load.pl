# Shards move all the time, there and back too, under random load, and nothing else happens: P1 to P5 hold and
# asks are linearizable. SHARD_SEED repeats a run, SHARD_SECONDS makes it longer.

use strict;
use warnings FATAL => 'all';

use ShardClusterLedger;
use ShardLedger;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.region_workers = 2');
my $ledger  = ShardClusterLedger->new(cluster => $cluster, seed => ShardLedger::seed(), moves => 1);
$ledger->install;
$ledger->prove(seconds => ShardLedger::seconds(20), length => 10, every => 0.4, kinds => [ 'moves', 'there and back', 'a pin', 'an evacuation' ]);
note(sprintf '%d messages, %d asks, %d moves by command, %d entities ran on several nodes', @$ledger{qw(sent asks commanded moved)});
cmp_ok($ledger->{moved}, '>', 0, 'entities ran on several nodes');
$cluster->logs_are_clean(qr/ledger: told to fail/, qr/due to lock timeout/, @ShardNodes::link_troubles);
done_testing();
