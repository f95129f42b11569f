# Y11: a node that joins while another one is unreachable is weakly up: it sends and asks, and gets no
# homes and no vote; when all are reachable it is up.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
$cluster->start_recorder(shards => 200);
my ($one, $two, $three) = $cluster->nodes;
my $frozen = $cluster->coordinator->n == 3 ? $two : $three;
$frozen->server->freeze;
$one->wait_until('SELECT NOT reachable FROM shard_members WHERE node = ' . $frozen->n, 'the frozen node to be missed');

my $late = $cluster->add_node;
# The call returns when it is up; that takes a while.
my $joining = $late->session;
$joining->send("SELECT shard_join('@{[$one->dsn]}', '@{[$late->dsn]}');");
$one->wait_value('SELECT status FROM shard_members WHERE node = 4', 'weakly_up', 'the joiner to be weakly up');
pass('Y11: weakly up');

my @fresh = map { "w$_" } 1 .. 60;
$one->sql(join '', map { ShardCluster::tell_recorder($_, 1) } @fresh);
ShardCluster::wait_for_condition(sub { $cluster->homeless('recorder', $one, @fresh) <= 30 }, 'homes');
is($one->sql('SELECT count(*) FROM shard_homes WHERE node = 4'), 0, 'Y11: it is home of nothing');
is($one->sql('SELECT voter FROM shard_members WHERE node = 4'), 'f', 'Y11: it has no vote');

$frozen->server->thaw;
eval { $joining->receive; 1 } or note("shard_join: $@");
$cluster->wait_up;
pass('it is up when all are reachable');
is($one->sql('SELECT count(*) FROM shard_members WHERE voter'), 3, 'three of four vote');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
