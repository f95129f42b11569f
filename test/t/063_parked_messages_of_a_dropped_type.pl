# A type that is dropped takes its parked messages along; one that was sent while that was not committed,
# and parked behind the back of who drops, becomes a dead letter. Nothing waits for ever.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('dropped');
$node->start_recorder;
$node->safe_psql('postgres', ShardCluster::tell_recorder('known', 1));
$node->drain;

my ($coordinator) = $node->worker_pids('%control%');
$node->stop_idle($coordinator);
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 1, 3));
$node->wait_until(q{SELECT count(*) = 3 FROM shard.parked}, 'messages to be parked');

my ($rc, $out, $err) = $node->psql('postgres', q{SELECT shard_drop_type('recorder')});
like($err, qr/waiting messages: 3/, 'parked messages keep a type from being dropped, unless it is forced');

my $dropper = $node->session;
$dropper->query(q{SET client_min_messages = warning; BEGIN; SELECT shard_drop_type('recorder', force => true);});
$node->safe_psql('postgres', ShardCluster::tell_recorder('b', 4));
$node->wait_until(q{SELECT count(*) = 4 FROM shard.parked}, 'another message to be parked');
$dropper->query('COMMIT;');
$node->wait_until(q{SELECT count(*) = 0 FROM shard.parked}, 'nothing to be parked');
is($node->safe_psql('postgres', q{SELECT entity_id, message, sqlstate, error FROM shard_dead_letters}),
	'b|{"what": "4"}|42704|the entity type of the message was dropped', 'the late one is a dead letter');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_inbox}), 0, 'nothing waits');
kill 'CONT', $coordinator;
$node->drain;
$node->wait_until('SELECT ok FROM shard_health()', 'all to be well with the control worker awake');
$node->log_is_clean;
done_testing();
