# Under random load a node joins and gets its share, and another one leaves while the coordinator is killed:
# P1 to P5 hold, asks are linearizable, and each shard has one home.

use strict;
use warnings FATAL => 'all';

use ShardClusterLedger;
use ShardLedger;
use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $cluster = ShardNodes->create(3, conf => "shard.region_workers = 2\nshard.rebalance_interval = '1s'");
# The one that leaves sends nothing: its own messages after that are nobody's business here.
my $ledger = ShardClusterLedger->new(cluster => $cluster, seed => ShardLedger::seed(), moves => 1, light => 1, quiet => [2]);
$ledger->install;
$ledger->begin_load;
my ($one, $two, $three) = $cluster->nodes;
$one->wait_until(q{SELECT count(*) > 20 FROM shard_homes WHERE type_name = 'ledger'}, 'homes');

my $start = time;
my $four = $cluster->add_node;
$ledger->install_at($four);
$cluster->join_node(4);
$cluster->wait_up;
$one->wait_until(q{SELECT count(*) > 0 FROM shard_homes WHERE type_name = 'ledger' AND node = 4 AND phase = 'stable'}, 'shards at the new node');
note(sprintf 'the new node had shards %.1f s after it was made', time - $start);
pass('a node that joins gets shards');

$start = time;
my $leaving = $two->session;
$leaving->send(q{SELECT shard_leave('60 s');});
$three->wait_until(q{SELECT status <> 'up' FROM shard_members WHERE node = 2}, 'the leaving to begin');
my $coordinator = $cluster->coordinator($three);
$coordinator->server->crash;
$coordinator->server->recover;
is($leaving->receive, 't', 'a node leaves, though the coordinator was killed');
note(sprintf 'it had left after %.1f s', time - $start);
$cluster->has_left(2);
$cluster->wait_up;
is($one->sql(q{SELECT count(*) FROM shard_homes WHERE node = 2}), 0, 'with all its shards');
$ledger->is_in_order('joining and leaving');
is($two->sql('SELECT (SELECT count(*) FROM shard_entity.ledger) + (SELECT count(*) FROM shard_entity.register)'), 0, 'nothing of them is left there');
cmp_ok($ledger->{moved}, '>', 0, 'entities moved');
$cluster->logs_are_clean(qr/ledger: told to fail/, qr/due to lock timeout/, @ShardNodes::link_troubles);
done_testing();
