# What was kept for another node, and comes back when its type is gone from the cluster (D24, D28), becomes dead letters
# at once, as if it had been parked when the type went: nothing waits for ever, unseen.

use strict;
use warnings FATAL => 'all';

use File::Path qw(rmtree);
use PostgreSQL::Test::RecursiveCopy;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
$cluster->start_recorder;
my ($one, $two) = $cluster->nodes;
my $there = $cluster->entity_at('recorder', 2);
$cluster->drain;

# Node 2 is put back from a copy, so that the link is quarantined, with messages that node 1 keeps.
$two->server->stop('fast');
$two->server->backup_fs_cold('before');
$two->server->recover;
$cluster->wait_up;
$one->sql(ShardCluster::tell_recorder($there, 'a1', 'a3'));
$cluster->wait_recorded($there, 2, qw(a1 a2 a3));
$two->server->stop('fast');
rmtree($two->server->data_dir);
PostgreSQL::Test::RecursiveCopy::copypath($two->server->backup_dir . '/before', $two->server->data_dir);
chmod 0700, $two->server->data_dir;
$one->sql(ShardCluster::tell_recorder($there, 'a4', 'a6'));
$one->wait_until('SELECT outbox_messages >= 3 FROM shard_peers WHERE node = 2', 'the outbox');
my $before = -s $two->server->logfile;
$two->server->recover;
$two->server->wait_for_log(qr/node 2 is not admitted: .*shard_admit/, $before);
$one->sql('SELECT shard_admit(2, incarnation + 1) FROM shard_members WHERE node = 2');
$_->[0]->wait_until("SELECT state = 'quarantined' FROM shard_peers WHERE node = $_->[1]", 'quarantine') for [ $one, 2 ], [ $two, 1 ];

# Meanwhile its type goes.
$_->eventually(q{SET client_min_messages = warning; SELECT shard_drop_type('recorder', force => true)}) for $one, $two;
$_->wait_value('SELECT count(*) FROM shard.type', 0, 'the type to be gone') for $one, $two;
is($one->sql('SELECT count(*) FROM shard.parked'), 0, 'nothing is parked');

$one->sql('SELECT shard_link_accept(2)');
$one->wait_value('SELECT count(*) FROM shard.parked', 0, 'nothing to be parked');
like($one->sql(q{SELECT string_agg(message->>'what' || ' ' || sqlstate, ', ' ORDER BY id) FROM shard_dead_letters}),
	qr/a4 42704, a5 42704, a6 42704$/, 'what was kept is given up, in order');
$one->wait_until('SELECT ok FROM shard_health()', 'the node to be well');
done_testing();
