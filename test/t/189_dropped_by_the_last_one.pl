# What a dropped type leaves for others (D28) goes when the cluster has the type no more: here, at a node whose only
# other member has left. What waits for it becomes dead letters then, and the name is free.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1);
my ($one, $two) = $cluster->nodes;
$cluster->start_counter;
$_->sql(q{SELECT shard_tell('counter', i::text, '{"add": 1}') FROM generate_series(1, 12) i}) for $one, $two;
$cluster->drain;
is($two->sql(q{SELECT shard_leave('60 s')}), 't', 'the other member leaves');
$cluster->has_left(2);
$cluster->wait_settled;

# A message that comes behind the back of who drops is kept, as long as others might have the type. The control
# worker is stopped, so that the cluster has it still.
my ($coordinator) = $one->workers('%control%');
my $dropper = $one->session;
$dropper->query(q{SET client_min_messages = warning; BEGIN; SELECT shard_drop_type('counter', force => true);});
$one->server->stop_idle($coordinator);
$one->sql(q{SELECT shard_tell('counter', '1', '{"add": 1}')});
$dropper->query('COMMIT;');
$one->wait_value(q{SELECT count(*) FROM shard.held}, 1, 'the message to wait');
is($one->sql('SELECT count(*) FROM shard_dead_letters'), 0, 'it is no dead letter');
is($one->sql('SELECT count(*) FROM shard_types'), 0, 'the type is not there');
kill 'CONT', $coordinator;
$one->wait_value(q{SELECT (SELECT count(*) FROM shard.type) || ' ' || (SELECT count(*) FROM shard.own) || ' ' || (SELECT count(*) FROM shard.route)
	|| ' ' || (SELECT count(*) FROM shard.shard_input) || ' ' || (SELECT count(*) FROM shard.ordered) || ' ' || (SELECT count(*) FROM shard.held)},
	'0 0 0 0 0 0', 'all that was left to go');
is($one->sql('SELECT sqlstate, error FROM shard_dead_letters'), '42704|the entity type of the message was dropped', 'what waited is a dead letter');
$one->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'the node to be well');
$one->eventually(q{SELECT shard_start('counter', 'counter(jsonb,jsonb)', 7)});
like($one->sql(q{SELECT shard_ask('counter', '1', '{"add": 2}')}), qr/"count": 2/, 'the name is free, with other settings');
done_testing();
