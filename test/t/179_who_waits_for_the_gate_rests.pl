# A home whose gate lets nothing pass has marks to tell the origins of its messages (H2). It waits for the gate, and does not
# go round and round meanwhile; when the gate opens, they are told.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.region_workers = 1\nshard.rebalance_interval = 0\nmax_wal_senders = 5");
my ($one, $two) = $cluster->nodes;
$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', 2);
$cluster->drain;

sub set_gate
{
	my ($gate) = @_;
	$two->server->safe_psql('postgres', "ALTER SYSTEM SET shard.gate = '$gate'");
	$two->server->reload;
	$two->wait_value(q{SELECT setting FROM pg_settings WHERE name = 'shard.gate'}, $gate, 'the gate');
	return;
}

set_gate('standby');    # there is none
$one->sql(ShardCluster::tell_recorder($entity, 1));
$two->wait_value(ShardCluster::recorded($entity), '1 = 1', 'the message to be handled at its home');
ShardCluster::wait_for_rest($_->server->worker_pids('%region%'), 'the worker of node ' . $_->n . ' to rest') for $two, $one;
is($one->sql(q{SELECT outbox_messages > 0 FROM shard_peers WHERE node = 2}), 't', 'the origin still has to be told');
set_gate('local');
$cluster->drain;
$one->wait_value(q{SELECT outbox_messages FROM shard_peers WHERE node = 2}, 0, 'it to be told');
pass('the origin is told once the gate is open');
$cluster->logs_are_clean;
done_testing();
