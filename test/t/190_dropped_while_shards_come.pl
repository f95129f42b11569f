# A type is not dropped at a node while a shard of it is staged there (D28): until the move is decided the shard is the
# old home's, with its states and what waits for it. Whoever drops it sees each copy, also one that ends while he waits
# for it, and one that was stored since his snapshot. A copy that can become home no more keeps nobody from it.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;
$cluster->start_counter(settings => q{, handoff_timeout => '60 s'});
$cluster->allocate('counter', 0 .. 11);
my @shards = split /\n/, $one->sql(q{SELECT shard FROM shard_homes WHERE type_name = 'counter' AND node = 1 ORDER BY shard});
my $drop = q{SELECT shard_drop_type('counter', force => true);};
my $refused = qr/55006.*because shards of it are being copied to this node.*: 1\.\n.*shard_rebalances/s;
$one->sql(qq{SELECT shard_tell('counter', '$_', '{"add": 7}') FROM generate_series(1, 2)}) for @shards;
$cluster->drain;

# A move of a shard to node 2, whose copy stands still at a fault point there.
sub move_until
{
	my ($shard, $point) = @_;
	$two->server->set_fault($point, 'freeze');
	my $mover = $one->session;
	$mover->send("SELECT shard_move('counter', $shard, 2);");
	ShardCluster::wait_for_condition(sub { $two->server->fault_happened }, "the copy to come to $point");
	return $mover;
}

# All of the shard is at its new home.
sub arrives
{
	my ($shard, $mover, $what) = @_;
	$two->server->clear_fault;
	$mover->close;
	$cluster->wait_home('counter', $shard, 2);
	$cluster->wait_settled;
	like($one->sql(qq{SELECT shard_ask('counter', '$shard', '{"add": 1}', '30 s')}), qr/"count": 15\b/, "$what: the shard moves, with its states");
	return;
}

# --- stored ----------------------------------------------------------------------------------------

my $snapshot = $two->session;
$snapshot->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM shard_types;');
my $mover = move_until($shards[0], 'import_after_commit');
is($two->sql(q{SELECT count(*) FROM shard.own WHERE state = 'staged'}), 1, 'a shard is staged');
like($two->error_of("SET client_min_messages = warning; $drop"), $refused, 'its type is not dropped there');
ok(!eval { $snapshot->query($drop); 1 }, 'nor by a transaction that looked before');
like($@, qr/because shards of it are being copied to this node/, 'for the same reason');
$snapshot->query('ROLLBACK;');
arrives($shards[0], $mover, 'stored');

# --- being stored ----------------------------------------------------------------------------------

$mover = move_until($shards[1], 'import_before_commit');
my $dropper = $two->session;
$dropper->send($drop);
$two->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^SELECT shard_drop_type' AND wait_event_type = 'Lock'}, 'the copy to be waited for');
# Nor does it go on from there before that: the coordinator is frozen for the moment.
my ($coordinator) = $one->server->worker_pids('%control%');
$one->server->stop_idle($coordinator);
$two->server->thaw_fault;
ok(!eval { $dropper->receive; 1 }, 'nor while one is being stored');
like($@, qr/because shards of it are being copied to this node/, 'a copy that is stored meanwhile is seen');
kill 'CONT', $coordinator;
arrives($shards[1], $mover, 'being stored');

# --- left ------------------------------------------------------------------------------------------

# All is undone, so no worker meets these rows.
my $type = $two->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'counter'});

sub copy_of
{
	my ($epoch, @route) = @_;
	my $sql = "SET client_min_messages = warning; BEGIN; "
		. "INSERT INTO shard.own (type_id, shard, epoch, state, move_id) VALUES ($type, $shards[2], $epoch, 'staged', 1); "
		. "DELETE FROM shard.route WHERE type_id = $type AND shard = $shards[2];";
	$sql .= " INSERT INTO shard.route (type_id, shard, node, epoch, lost, n) VALUES ($type, $shards[2], $route[0], $route[1], $route[2], 1);" if @route;
	return $sql;
}

sub is_dropped
{
	my ($sql, $what) = @_;
	is($two->error_of("$sql $drop ROLLBACK;"), undef, "it can be dropped beside a copy $what");
	return;
}

like($two->error_of(copy_of(5) . $drop), $refused, 'a copy of which nothing is known bars it');
like($two->error_of(copy_of(5, 1, 4, 0) . $drop), $refused, 'and one of an epoch that is not decided');
like($two->error_of(copy_of(5, 2, 5, 0) . $drop), $refused, 'and one that was decided for this node');
is_dropped(copy_of(5, 1, 5, 0), 'whose epoch has another home');
is_dropped(copy_of(5, 1, 6, 6), 'of a state that was given up');
is_dropped(copy_of(5, 2, 6, 6), 'of a shard that began anew here');
is_dropped(copy_of(5) . " UPDATE shard.control SET a = a + 100 WHERE store = 4 AND kind = 7 AND a = $type;", 'of a type that ended in the cluster');

# --- its own ---------------------------------------------------------------------------------------

$two->sql("SET client_min_messages = warning; $drop");
is($two->sql(q{SELECT count(*) FROM shard_types}), 0, 'it can be dropped when they are its own');
done_testing();
