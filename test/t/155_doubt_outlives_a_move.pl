# N2: a message was sent, and its sender does not know what became of it, when its shard moves; before it is sent to the new home,
# that is written off. It was possibly sent, to a home before: it is in doubt, and not handled again.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1);
$cluster->start_recorder;
my $lost = $cluster->coordinator;
my ($sender, $first) = $cluster->others($lost->n);
my $entity = $cluster->entity_at('recorder', $first->n);
my $shard = $cluster->shard_of('recorder', $entity);
$sender->sql(ShardCluster::tell_recorder($entity, 1, 3));
$cluster->wait_recorded($entity, $first->n, 1 .. 3);
$cluster->drain;

# It is handled, and its sender does not hear of it.
$cluster->proxy->hold($first->n, $sender->n);
$sender->sql(ShardCluster::tell_recorder($entity, 'sent'));
$cluster->wait_recorded($entity, $first->n, 1 .. 3, 'sent');

# The shard moves; its new home knows what it has brought along, and is lost before it tells. The sender's region workers hear of that
# home when it is gone.
my @stopped = $sender->workers('shard region');
$sender->server->stop_idle(@stopped);
$sender->sql(ShardCluster::tell_recorder($entity, 'unsent'));
$lost->server->set_fault('m6_after_commit', 'freeze');
$cluster->move('recorder', $shard, $lost->n, $lost);
$cluster->wait_home('recorder', $shard, $lost->n, $sender, $lost);
ShardCluster::wait_for_condition(sub { $lost->server->fault_happened }, 'the new home to begin');
$lost->server->crash;
$cluster->proxy->heal;
$cluster->has_left($lost->n);
$first->eventually('SELECT shard_write_off(' . $lost->n . ')');
kill 'CONT', @stopped;
$sender->wait_until("SELECT node <> @{[$lost->n]} FROM shard_homes WHERE type_name = 'recorder' AND shard = $shard", 'a new home');
$cluster->drain;
my $handled = 0;
$handled += $_->sql("SELECT count(*) FROM seen WHERE entity = '$entity' AND what = 'sent'") for $cluster->nodes;
is($handled, 1, 'what was sent is not handled again');
is($sender->sql(q{SELECT string_agg(message->>'what', ', ') FROM shard_dead_letters WHERE sqlstate = 'SH100' AND message->>'what' LIKE '%sent'}), 'sent', 'but in doubt');
my $home = $cluster->node($cluster->home_of('recorder', $entity));
is($home->sql("SELECT state->>'last' || ' ' || (state->>'count') FROM shard_entity.recorder WHERE entity_id = '$entity'"), 'unsent 1', 'what was not sent is handled there');
$_->server->log_is_clean(@ShardNodes::link_troubles) for $cluster->nodes;
done_testing();
