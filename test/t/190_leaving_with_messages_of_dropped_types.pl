# What waits at a leaving member for a type that was dropped there (D28) is for whoever may host the type, also if
# that one is only away, and the coordinator has never heard of it (M20, C9). If nobody can host it, it stays, and
# who leaves is told how much that is.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->nodes;
my $drop = q{SET client_min_messages = warning; SELECT shard_drop_type('recorder', force => true)};

$cluster->start_recorder(proxy => 1);
my ($at_two) = $cluster->entities_at('recorder', 2, 1);
my ($at_three) = $cluster->entities_at('recorder', 3, 1);
$cluster->drain;

# --- the host is away ------------------------------------------------------------------------------

$three->server->crash;
$two->sql($drop);
$one->wait_until(q{SELECT NOT reachable FROM shard_members WHERE node = 3}, 'node 3 to be missed');
$one->server->stop('fast');
$one->server->start;
$_->wait_until('SELECT count(*) = 1 FROM shard_members WHERE coordinator', 'a coordinator that has not heard of node 3') for $one, $two;
$one->sql(ShardCluster::tell_recorder($at_two, 1, 3));
$two->wait_value('SELECT count(*) FROM shard.held', 3, 'messages to wait at node 2');
my ($status, $out, $said) = $two->try(q{SELECT shard_leave('10 s')});
is("$status $out", '0 f', 'a member does not leave with messages of a type whose host is away');
like($said, qr/WARNING:  this node still has shards: \d+ of entity type "recorder"/, 'and says what it waits for');
$three->server->start;
$cluster->wait_reachable;
($status, $out, $said) = $two->try(q{SELECT shard_leave('120 s')});
is("$status $out", '0 t', 'when that one is back it leaves');
unlike($said, qr/messages that stay/, 'with nothing left behind');
$cluster->has_left(2);
$cluster->wait_recorded($at_two, 3, 1 .. 3);
pass('what waited is handled');

# --- there is no host ------------------------------------------------------------------------------

$three->sql($drop);
$cluster->wait_registered;
$one->sql(ShardCluster::tell_recorder($at_two, 4, 5) . ShardCluster::tell_recorder($at_three, 1));
$three->wait_value('SELECT count(*) FROM shard.held', 3, 'messages to wait at node 3');
# One that was parked behind the back of who dropped.
$three->sql(q{INSERT INTO shard.parked (type_id, shard, rseq, arrival, kind, sent, entity, mid_node, mid_seq, payload)
	SELECT type_id, shard, 9223372036854775807, seq, kind, false, entity, mid_node, mid_seq, payload FROM shard.held LIMIT 1});
($status, $out, $said) = $three->try(q{SELECT shard_leave('120 s')});
is("$status $out", '0 t', 'a member leaves that has homes of a type that nobody can host');
like($said, qr/NOTICE:  messages that stay on this node: 4 of entity type "recorder"/, 'and says what stays there');
is($three->sql('SELECT (SELECT count(*) FROM shard.held) + (SELECT count(*) FROM shard.parked)'), 4, 'as it does');
$cluster->has_left(3);
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/was dropped on this node/, qr/terminating|shutting down/);
done_testing();
