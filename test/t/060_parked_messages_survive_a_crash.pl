# Messages for a shard without a home are parked, durably and visibly; after a crash they are still there,
# and flow on in their order when somebody gives the shard a home. Nothing of what waits counts as drained.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('parked');
$node->start_recorder;

# No home without the control worker: it stands still where it is.
$node->wait_until('SELECT ok FROM shard_health()', 'all workers to run');
my ($coordinator) = $node->worker_pids('%control%');
$node->stop_idle($coordinator);

# Each in a transaction of its own, so that turns meet them one by one; among them, one of a handler.
$node->safe_psql('postgres', $_) for map { ShardCluster::tell_recorder('a', $_) } 1 .. 40;
$node->wait_until(q{SELECT count(*) = 40 FROM shard_inbox WHERE place = 'parked'}, 'messages to be parked');
is($node->safe_psql('postgres', q{SELECT string_agg(message->>'what', ' ' ORDER BY seq) FROM shard_inbox}),
	join(' ', 1 .. 40), 'they are shown in their order');
$node->wait_for_value(q{SELECT sum(parked) FROM shard_region_stats}, 40, 'them to be counted, too');
is($node->safe_psql('postgres', q{SELECT shard_drain('100 ms')}), 'f', 'they count as not handled');

# The limit acts on what is parked as on what is stashed.
$node->safe_psql('postgres', q{SELECT shard_alter('recorder', 'buffer_size', '40')});
my ($rc, $out, $err) = $node->psql('postgres', ShardCluster::tell_recorder('a', 41));
like($err, qr/buffer of entity type "recorder" is full/, 'buffer_size counts them');

$node->crash;
$node->recover;
$node->drain;
is($node->safe_psql('postgres', ShardCluster::recorded('a')), join(' ', 1 .. 40) . ' = 40', 'after a crash they are handled in order, once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard.parked}), 0, 'nothing is left');
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 41));
$node->drain;
is($node->safe_psql('postgres', ShardCluster::recorded('a')), join(' ', 1 .. 41) . ' = 41', 'there is room again');
$node->log_is_clean;
done_testing();
