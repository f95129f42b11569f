# Three nodes under load whose shards move all the time - by command, there and back, by pins, evacuations
# and rebalancing - while things go wrong. First the pairs of the fault matrix, each for itself, then
# everything at once, from a seed. Nothing is lost (P1), done twice (P2), out of order (P3), on two nodes
# at once (P4) or handled though it was rolled back (P5); asks are linearizable; in the end every shard has
# one home and nothing is left of it elsewhere; and all recovers by itself within bounds (P6).
#
# SHARD_SEED repeats a run, SHARD_SECONDS makes it longer.

use strict;
use warnings FATAL => 'all';

use ShardClusterLedger;
use ShardLedger;
use ShardNodes;
use Test::More;

my @moves = ('moves', 'there and back', 'a pin', 'an evacuation');
my @pairs = (
	[ '7 + 35, partitions and rebalancing', 'partition', 'partition by reset', 'bridge', @moves ],
	[ '4 + 36, frozen nodes and another coordinator', 'freeze', 'coordinator frozen', @moves ],
	[ '6 + 37, all lose their power at once', 'all killed', @moves ],
	[ '12 + 30, lost replies and handlers that fail', 'reply lost', @moves ],
	[ '24 + 35, old transactions and rebalancing', 'old transactions', @moves ]);

# A small inbox: its segments are emptied again and again. Not so small that handlers would be refused.
my $cluster = ShardNodes->create(3, proxy => 1,
	conf => "shard.region_workers = 2\nshard.rebalance_interval = '2s'\nshard.inbox_max_size = '64MB'");
my $ledger = ShardClusterLedger->new(cluster => $cluster, seed => ShardLedger::seed(), moves => 1, senders => 1);
$ledger->install;
my $seconds = ShardLedger::seconds(45);
my $each = $seconds / 2 / @pairs;
for my $pair (@pairs)
{
	my ($name, @kinds) = @$pair;
	note("pair $name");
	$ledger->prove(seconds => $each, length => $each, every => 0.8, kinds => \@kinds, what => "pair $name");
}
$ledger->prove(seconds => $seconds / 2, every => 1, moving => 1);
note(sprintf '%d messages, %d asks, %d entities that moved, %d moves by command', @$ledger{qw(sent asks moved commanded)});
cmp_ok($ledger->{moved}, '>', 0, 'entities moved');
$cluster->logs_are_clean(qr/ledger: told to fail/, qr/due to lock timeout/, @ShardNodes::link_troubles);
done_testing();
