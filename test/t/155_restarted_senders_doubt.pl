# N2, H10, I4: a node sends a message to one that is written off, learns that, and crashes before it has dealt with it. After its start it
# does so before it is admitted, and remembers that the message was possibly sent: it is in doubt, and not handled again. What had not
# left it is handled at the new home.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1);
$cluster->start_recorder;
my $coordinator = $cluster->coordinator->n;
my ($sender, $lost) = grep { $_->n != $coordinator } $cluster->nodes;
my $other = $cluster->node($coordinator);
my $entity = $cluster->entity_at('recorder', $lost->n);
my $shard = $cluster->shard_of('recorder', $entity);
$sender->sql(ShardCluster::tell_recorder($entity, 1, 3));
$cluster->wait_recorded($entity, $lost->n, 1 .. 3);
$cluster->drain;

# It is handled, and nobody hears of it.
$cluster->proxy->hold($lost->n, $sender->n);
$sender->sql(ShardCluster::tell_recorder($entity, 'sent'));
$cluster->wait_recorded($entity, $lost->n, 1 .. 3, 'sent');
$lost->server->crash;
$cluster->proxy->cut($lost->n, $sender->n);
$cluster->proxy->heal;

# Its control worker learns of the new home, its region workers do not come to it.
kill 'STOP', $sender->workers('shard region');
$sender->sql(ShardCluster::tell_recorder($entity, 'unsent'));
$other->eventually('SELECT shard_write_off(' . $lost->n . ')');
$cluster->has_left($lost->n);
$sender->wait_until("SELECT node = @{[$other->n]} OR node = @{[$sender->n]} FROM shard_homes WHERE type_name = 'recorder' AND shard = $shard",
	'the new home to be known');
$sender->sql('CHECKPOINT');
$sender->server->crash;

# They do when nobody can admit it.
$cluster->proxy->partition([ $sender->n ], [ $other->n ], 'cut');
$sender->server->recover;
$sender->wait_until("SELECT r.node <> @{[$lost->n]} FROM shard.route r JOIN shard.type USING (type_id) WHERE type_name = 'recorder' AND shard = $shard",
	'the fact to be taken');
$sender->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'admitted' FROM shard_health()}, 'health to say that it is not admitted');
$cluster->proxy->heal;
$cluster->wait_up;
$cluster->drain;
is($cluster->recorded($entity), 'unsent = 1 at ' . $cluster->home_of('recorder', $entity), 'what was sent is not handled again, what was not is');
is($sender->sql(q{SELECT string_agg(message->>'what', ', ') FROM shard_dead_letters WHERE sqlstate = 'SH100' AND message->>'what' LIKE '%sent'}), 'sent', 'but in doubt');
$_->server->log_is_clean(@ShardNodes::link_troubles) for $sender, $other;
done_testing();
