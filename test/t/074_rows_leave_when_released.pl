# With its gate at the standbys a node sends nothing that they do not have (V8): rows and marks wait at
# the origin and at the home, and go on when the standby is there, or is not asked for any more.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "max_wal_senders = 2\nsynchronous_commit = local\nshard.region_workers = 2");
my ($here, $there) = $cluster->nodes;
$cluster->start_recorder;
my $far  = $cluster->entity_at('recorder', 2);
my $near = $cluster->entity_at('recorder', 2, 'n');
$cluster->drain;
$here->sql(ShardCluster::tell_recorder($far, 1));
$cluster->wait_recorded($far, 2, 1);

# The checkpointer tells all others of it; it has taken up the setting when it has done what it is asked
# for.
sub set_standby
{
	my ($node, $name) = @_;
	$node->sql("ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$node->server->reload;
	$node->wait_until("SELECT setting = '$name' FROM pg_settings WHERE name = 'synchronous_standby_names'", 'the setting');
	$node->sql('CHECKPOINT');
	return;
}

# There is no such standby. Senders do not wait for it, we ask for what they have sent.
set_standby($here, 'nobody');
$here->sql(ShardCluster::tell_recorder($far, 2, 20));
$here->wait_value('SELECT outbox_messages FROM shard_peers WHERE node = 2', '19', 'messages in the outbox');

# Node 2 would have them after the time of several round trips; a message of its own goes through it.
for my $round (1 .. 5)
{
	$there->sql(ShardCluster::tell_recorder($near, $round));
	$cluster->wait_recorded($near, 2, 1 .. $round);
}
is($there->sql(ShardCluster::recorded($far)), '1 = 1', 'rows that no standby has do not leave');
is($here->sql('SELECT outbox_messages FROM shard_peers WHERE node = 2'), '19', 'they wait');
is($here->sql('SELECT state FROM shard_peers WHERE node = 2'), 'open', 'on a link that is open');

set_standby($here, '');
$cluster->wait_recorded($far, 2, 1 .. 20);
pass('then they come');
$cluster->drain;

# A home whose commits are not released handles what came, but tells nobody that it did: the message
# stays with its origin.
set_standby($there, 'nobody');
$here->sql(ShardCluster::tell_recorder($far, 21));
$cluster->wait_recorded($far, 2, 1 .. 21);
is($here->sql(q{SELECT shard_drain('1 s')}), 'f', 'what its home cannot confirm is not known to be done');
set_standby($there, '');
$cluster->drain;

$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
