# A node that exits may have said that nothing is left, and been removed, before its server went down. When it comes up
# again nobody may send there, not even before its control worker has spoken (M20): nobody would take it.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;
$cluster->start_recorder;
my $mine = $cluster->entity_at('recorder', 2, 'm');
$one->sql(ShardCluster::tell_recorder($mine, 1, 10));
$cluster->wait_recorded($mine, 2, 1 .. 10);

# Somebody is sending, so that it goes on exiting.
my $open = $two->session;
$open->query('BEGIN;');
$open->query(ShardCluster::tell_recorder($mine, 11));
is($two->sql(q{SELECT shard_leave('1 s')}), 'f', 'a node leaves, and is not empty yet');
$two->wait_until(q{SELECT status = 'exiting' FROM shard_members WHERE node = 2}, 'it to hear that it exits');

like($two->error_of("SELECT shard_write_off(2$_)") // 'nothing', qr/55000: .*refused for node 2\nDETAIL:  This is node 2, which runs.*\nHINT: /s, "nor can it write itself off$_")
  for '', ', force => true';

# This lock is there again after a crash: the control worker cannot begin, and has said nothing yet.
$two->sql(q{BEGIN; LOCK TABLE shard.node IN SHARE MODE; PREPARE TRANSACTION 'no control worker'});
$two->server->crash;
$open->close;
$two->server->recover;
my $tell = ShardCluster::tell_recorder($mine, 12);
like($two->error_of($tell), qr/55000: .*leaving its cluster.*HINT: .*another member/s, 'after a crash it takes no messages from the first moment');
like($two->error_of(q{SELECT shard_ask('recorder', 'm', '{}')}), qr/55000: .*leaving its cluster/s, 'nor asks');
$two->sql(q{ROLLBACK PREPARED 'no control worker'});
is($two->eventually(q{SELECT shard_leave('60 s')}), 't', 'it leaves');
$one->sql(ShardCluster::tell_recorder($mine, 11, 20));
$cluster->has_left(2);
$one->wait_value("SELECT state->>'count' FROM shard_entity.recorder WHERE entity_id = '$mine'", 20, 'its entity to go on elsewhere');
pass('its entity goes on elsewhere');
done_testing();
