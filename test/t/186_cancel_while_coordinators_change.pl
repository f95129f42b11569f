# The coordinator that was asked to cancel a leave is lost before it answers. Who waits for the leave hears that it was cancelled;
# so does who cancels it, from the next coordinator, and not that nobody knows.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
my ($one, $two, $three) = $cluster->nodes;
is($cluster->coordinator->n, 1, 'the oldest is coordinator');

# The next coordinator may be there before the leave is asked for: with a shard that cannot move it is not over before it is cancelled.
$cluster->start_recorder;
$cluster->entity_at('recorder', 3);
$cluster->drain;
$three->sql('ALTER TABLE shard_entity.recorder ADD COLUMN note text');

my ($worker) = $one->workers('shard control');
my $leaves = $three->session;
my $cancels = $three->session;
$one->server->stop_idle($worker);
$leaves->send(q{SELECT shard_leave('1000 s');});
$three->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^SELECT shard_leave' AND state = 'active' AND wait_event_type = 'Extension'}, 'somebody to wait');
$cancels->send(q{SELECT shard_leave(cancel => true);});
ok(!eval { $leaves->receive; 1 }, 'who waits for the leave hears of it');
like($@, qr/cancelled/, 'by an error');
is(eval { $cancels->receive } // $@, 't', 'and who cancels it that it is cancelled');
is($two->sql('SELECT status FROM shard_members WHERE node = 3'), 'up', 'which it is');
kill 'CONT', $worker;
$cluster->wait_up;
is($one->sql('SELECT status FROM shard_members WHERE node = 3'), 'up', 'for all');
done_testing();
