# A user who holds an entity's state row delays the messages of that entity, in their order, and no
# others; what the user changed is what the handler goes on from.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
$node->start_recorder;
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 1) . ShardCluster::tell_recorder('b', 1));
$node->wait_recorded('a', 1);

my $user = $node->session;
$user->query(q{BEGIN; UPDATE shard_entity.recorder SET state = '{"count": 11}' WHERE entity_id = 'a';});
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 2, 4) . ShardCluster::tell_recorder('b', 2, 4));
$node->wait_recorded('b', 1 .. 4);
pass('other entities go on');

# Also a worker that starts while the row is locked; and a sender that commits meanwhile.
my $late = $node->session;
$late->query('BEGIN; ' . ShardCluster::tell_recorder('a', 5));
$node->crash_process(($node->worker_pids('%region%'))[0]);
$node->safe_psql('postgres', ShardCluster::tell_recorder('b', 5));
$node->wait_recorded('b', 1 .. 5);
pass('and after a crash');
# Both sessions died with their server: lock again.
$_->close for $user, $late;
$node->wait_recorded('a', 1 .. 4);

$user = $node->session;
$user->query(q{BEGIN; UPDATE shard_entity.recorder SET state = '{"count": 14}' WHERE entity_id = 'a';});
$late = $node->session;
$late->query('BEGIN; ' . ShardCluster::tell_recorder('a', 5));
$node->safe_psql('postgres', ShardCluster::tell_recorder('b', 6));
$node->wait_recorded('b', 1 .. 6);
$late->query('COMMIT;');
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 6) . ShardCluster::tell_recorder('b', 7));
$node->wait_recorded('b', 1 .. 7);
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_inbox WHERE entity_id = 'a'}), 2,
	'messages of the locked entity are listed as waiting');

$user->query('COMMIT;');
$node->wait_for_value(ShardCluster::recorded('a'), '1 2 3 4 5 6 = 16', 'the locked entity to go on');
pass('in order, from the state that the user left');

$node->drain;
$node->log_is_clean(qr/due to lock timeout/);
done_testing();
