# G13: a node that cannot hand off its shards in time says so and names them; it runs them as before, and is
# gone as soon as they can move. What keeps a shard from moving here: a state table
# that differs at the target, which is found before anything moves; and a handler that does not end.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $cluster = ShardNodes->create(2, databases => 1, conf => "shard.rebalance_interval = '1s'");
my ($one, $two) = $cluster->nodes;
$cluster->start_recorder(settings => q{, handoff_timeout => '2 s', max_attempts => 100000});
my $entity = $cluster->entity_at('recorder', 2);
my $shard = $cluster->shard_of('recorder', $entity);
$one->sql(ShardCluster::tell_recorder($entity, 1, 3));
$cluster->wait_recorded($entity, 2, 1 .. 3);

# --- a table that differs ------------------------------------------------------------------------

$two->sql('ALTER TABLE shard_entity.recorder ADD COLUMN note text');
my $error = $one->error_of("SELECT shard_move('recorder', $shard, 1)");
like($error // '', qr/note/, 'a move that cannot be is refused and says why');
is($two->sql("SELECT concat_ws(' ', node, phase) FROM shard_homes WHERE type_name = 'recorder' AND shard = $shard"), '2 stable',
	'nothing has begun');
my $start = time;
my ($status, $out, $warning) = $two->try(q{SELECT shard_leave('5 s')});
is("$status $out", '0 f', 'G13: it could not leave');
ShardCluster::in_time(time - $start, 9, 30, 'G13: and says so in time');
like($warning, qr/WARNING.*recorder/s, 'G13: naming what stays');
is($one->sql($ShardNodes::statuses), '1 up, 2 leaving', 'G13: it is still a member');
$one->sql(ShardCluster::tell_recorder($entity, 4, 6));
$cluster->wait_recorded($entity, 2, 1 .. 6);
pass('G13: and runs its shards');
$one->wait_until(q{SELECT concat((SELECT string_agg(DISTINCT reason, ' ') FROM shard_rebalances WHERE type_name = 'recorder'),
	(SELECT string_agg(DISTINCT why, ' ') FROM shard_decisions WHERE what = 'move refused')) ~ 'note'}, 'the reason to be seen');

# --- a handler that does not end -----------------------------------------------------------------

# Its turn holds the shard, until it has waited for its lock as long as a handler may; then it is undone, and tried
# again, and again. The shard is handed off all the same, or after handoff_timeout the worker is terminated; what
# was being handled is handled at the new home.
my $keeper = $two->session;
$keeper->query('BEGIN; SELECT FROM gate FOR UPDATE;');
$one->sql(qq{SELECT shard_tell('recorder', '$entity', '{"what": "held", "gate": true}')});
$one->sql(ShardCluster::tell_recorder($entity, 7, 9));
$two->wait_until(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()
	AND backend_type LIKE 'shard%' AND wait_event_type = 'Lock'}, 'a worker in the handler');
$start = time;
$one->sql('ALTER TABLE shard_entity.recorder ADD COLUMN note text');
$cluster->wait_home('recorder', $shard, 1, $one);
note(sprintf 'a shard in a handler that does not end moved within %.1f s', time - $start);
cmp_ok(time - $start, '<', 60, 'a handler that does not end delays a move, and does not keep it');
$one->wait_value(ShardCluster::recorded($entity), 'held 7 8 9 = 10', 'the rest at the new home');
$two->wait_value(ShardCluster::recorded($entity), '1 2 3 4 5 6', 'what was undone to leave no trace');
$keeper->close;

# --- after all -----------------------------------------------------------------------------------

$one->wait_value($ShardNodes::statuses, '1 up', 'the node to have left');
pass('G13: it leaves as soon as its shards can move');
$cluster->has_left(2);
$cluster->wait_settled;
$cluster->drain;
is($one->sql(q{SELECT count(*) FROM shard_homes WHERE type_name = 'recorder' AND node <> 1}), 0, 'with all that it had');
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/column|note|recorder/);
done_testing();
