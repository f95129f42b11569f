# The control worker of a database: comes and goes with the region workers, keeps the node's
# identity, is replaced when it ends, and is in nobody's way.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = ShardCluster->create('coordinator', dbs => [qw(one two three)]);

# Processes of a kind in a database.
sub pids
{
	my ($kind, $db) = @_;
	return $node->safe_psql('postgres',
		qq{SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity
			WHERE backend_type = 'shard $kind' AND datname = '$db'});
}

# Who the node of a database is.
sub identity
{
	my ($db) = @_;
	return $node->safe_psql($db, q{SELECT cluster_id, node_id, inc_no, inc_uuid, voter_state, fenced FROM shard.node});
}

sub wait_known
{
	my ($db) = @_;
	$node->wait_until(q{SELECT count(*) > 0 FROM shard.control}, "$db to have a control plane", $db);
	$node->wait_until(q{SELECT count(*) = 1 AND bool_and(coordinator) FROM shard_members}, "$db to be a cluster of one", $db);
	return;
}

sub types
{
	my ($db) = @_;
	return $node->safe_psql($db, q{SELECT string_agg(type_id || ' ' || type_name, ', ' ORDER BY type_name) FROM shard.type});
}

$node->safe_psql($_, q{CREATE FUNCTION h(s int, m jsonb) RETURNS int LANGUAGE sql RETURN coalesce(s, 0) + 1}) for qw(one two three);
wait_known($_) for qw(one two three);

# --- it ends ---------------------------------------------------------------------------------------

{
	my $before = identity('one');
	my $region = pids('region', 'one');
	my $old = pids('control', 'one');

	like($before, qr/^[0-9a-f-]{36}\|1\|1\|[0-9a-f-]{36}\|ok\|$/, 'a new node is node 1 of its own cluster');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
	$node->wait_until(qq{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'shard control' AND datname = 'one' AND pid <> $old},
		'another control worker');
	$node->wait_until(q{SELECT bool_and(coordinator) FROM shard_members}, 'the office is held again', 'one');
	is(identity('one'), $before, 'the same incarnation goes on when only its control worker ended');
	is(pids('region', 'one'), $region, 'region workers run on meanwhile');
}

# --- the server restarts -----------------------------------------------------------------------------

{
	my ($cluster, $id, $inc, $uuid) = split /\|/, identity('one');

	$node->safe_psql('one', q{SELECT shard_start('kept', 'h')});
	$node->wait_until(q{SELECT count(*) = 2 FROM shard.control WHERE kind = 7 AND NOT deleted}, 'the type to be registered', 'one');
	$node->restart;
	$node->wait_until(q{SELECT inc_no > 1 FROM shard.node}, 'the new incarnation to be admitted', 'one');
	my ($cluster2, $id2, $inc2, $uuid2) = split /\|/, identity('one');
	is("$cluster2 $id2 $inc2", "$cluster $id " . ($inc + 1), 'the same node of the same cluster, one incarnation later');
	isnt($uuid2, $uuid, 'under a random number of its own');
	is($node->safe_psql('one', q{SELECT count(*) FROM shard.control WHERE kind = 7 AND NOT deleted}), 2, 'its types are still registered');
}

# --- it is killed ------------------------------------------------------------------------------------

{
	my ($cluster) = split /\|/, identity('one');

	$node->crash_process(pids('control', 'one'));
	wait_known('one');
	is((split /\|/, identity('one'))[0], $cluster, 'the node comes back after kill -9');
}

# --- idle ----------------------------------------------------------------------------------------------

{
	my $quiet = q{SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())};
	my $before = '';

	# Others write now and then: autovacuum, and what follows a checkpoint. An idle node looks around each second,
	# so if that wrote anything no four seconds would ever pass without.
	my $now = $node->safe_psql('postgres', $quiet);
	my $deadline = time + $ShardCluster::patience;
	while ($now ne $before && time < $deadline)
	{
		$before = $now;
		$node->safe_psql('postgres', 'SELECT pg_sleep(4)');
		$now = $node->safe_psql('postgres', $quiet);
	}
	is($now, $before, 'idle nodes write no WAL and take no transaction id');
}

# --- a copy ----------------------------------------------------------------------------------------------

{
	my $original = identity('one');

	$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE one');
	ShardCluster::wait_for_condition(sub { pids('control', 'copied') ne '' }, 'the workers of the copy');
	is(identity('copied'), $original, 'a copy does not change what it says it is');
	is($node->safe_psql('copied', q{SELECT shard_tell('kept', 'a', '1'); SELECT pg_sleep(1); SELECT count(*) FROM shard_entity.kept}) =~ s/\s//gr, '0',
		'and handles nothing');
	$node->safe_psql('copied', 'DROP EXTENSION shard CASCADE; CREATE EXTENSION shard');
	wait_known('copied');
	isnt((split /\|/, identity('copied'))[0], (split /\|/, $original)[0], 'made anew, it is a node of its own');
	$node->safe_psql('postgres', 'DROP DATABASE copied');
}

# --- joining -----------------------------------------------------------------------------------------------

my $seed = sprintf "host=%s port=%d user=%s dbname=one", $node->host, $node->port, $node->safe_psql('postgres', 'SELECT current_user');
{
	$node->safe_psql('one', q{SELECT shard_start('other', 'h')});
	$node->safe_psql('two', q{SELECT shard_start('other', 'h'); SELECT shard_start('third', 'h'); SELECT shard_start('kept', 'h')});
	# numbers of one owner are eight apart
	is(types('two'), '17 kept, 1 other, 9 third', 'a node alone numbers its types itself');
	is($node->safe_psql('two', "SELECT shard_join('$seed')"), 2, 'it joins');
	is(types('one'), '1 kept, 9 other', 'the cluster keeps its numbers');
	$node->wait_until(q{SELECT string_agg(type_id || ' ' || type_name, ', ' ORDER BY type_name) = '1 kept, 9 other, 17 third' FROM shard.type},
		'the joiner to have the numbers of the cluster', 'two');
	$node->safe_psql('one', q{SELECT shard_start('third', 'h')});
	$node->safe_psql('two', q{SELECT shard_start('fourth', 'h')});
	is(types('one') . '; ' . types('two'), '1 kept, 9 other, 17 third; 25 fourth, 1 kept, 9 other, 17 third', 'later types are numbered by the cluster');
	my ($status, undef, $err) = $node->psql('one', q{SELECT shard_start('fourth', 'h', number_of_shards => 5)});
	like($err, qr/the cluster has entity type "fourth" with other settings.*"number_of_shards" is 1000 in the cluster, 5 on the node/s, 'other settings are refused');
	(undef, undef, $err) = $node->psql('one', q{SELECT shard_start('fourth', 'h', worker => 'own')});
	like($err, qr/"worker" is "shared" in the cluster, "own" on the node/, 'also about the workers');
	$node->safe_psql('one', q{SELECT shard_start('fifth', 'h', worker => 'own')});
	is($node->safe_psql('one', q{SELECT type_id % 8 <> 1 FROM shard.type WHERE type_name = 'fifth'}), 't', 'a type of its own group is numbered so by the cluster');
	$node->safe_psql('one', q{SELECT shard_drop_type('fifth')});
}
{
	$node->safe_psql('three', q{SELECT shard_start('kept', 'h', number_of_shards => 5)});
	my (undef, undef, $err) = $node->psql('three', "SELECT shard_join('$seed')");
	like($err, qr/type "kept" has other settings in the cluster: "number_of_shards" is 1000 in the cluster, 5 on the node/, 'a node with other settings may not join');
	is($node->safe_psql('three', 'SELECT dsn FROM shard.node'), '', 'and has the address again that it had');
	$node->safe_psql('three', q{SELECT shard_drop_type('kept')});
	$node->safe_psql('three', q{INSERT INTO shard.dead_letter (type_id, shard, entity, kind, mid_node, mid_seq, payload, sqlstate, error, attempts)
		VALUES (99, 0, 'a', 1, 1, 1, '', '42704', 'dropped', 0)});
	(undef, undef, $err) = $node->psql('three', "SELECT shard_join('$seed')");
	like($err, qr/the database has dead letters/, 'nor one that has dead letters, which would become those of another type');
	$node->safe_psql('three', q{DELETE FROM shard.dead_letter; SELECT shard_start('full', 'h')});
	$node->safe_psql('three', q{SELECT shard_tell('full', 'a', '1')});
	$node->drain('three');
	(undef, undef, $err) = $node->psql('three', "SELECT shard_join('$seed')");
	like($err, qr/the database has entities of type|hosts shards/, 'nor one that has entities');
	is($node->safe_psql('three', q{SELECT shard_tell('full', 'a', '1')}), '', 'which goes on as before');
}
{
	my $address = $node->safe_psql('two', 'SELECT dsn FROM shard.node');
	my $sender = $node->session('two');

	$sender->query(q{BEGIN; SELECT shard_tell('kept', 'a', '1')});
	my (undef, undef, $err) = $node->psql('two', "SELECT shard_join('" . $seed =~ s/dbname=one/dbname=three/r . "')");
	like($err, qr/own cluster has other members/, 'a member of a cluster is refused, and waits for no sender');
	is($node->safe_psql('two', 'SELECT dsn FROM shard.node'), $address, 'it keeps its address');
	$sender->query('ROLLBACK');
}

# --- in nobody's way ---------------------------------------------------------------------------------------

{
	$node->safe_psql('postgres', 'DROP DATABASE two');
	ok(1, 'a member that others are connected to can be dropped');
	$node->safe_psql('one', 'DROP EXTENSION shard CASCADE');
	ok(1, 'and the extension');
	ShardCluster::wait_for_condition(sub { pids('control', 'one') eq '' }, 'its control worker to leave');
}

$node->stop;
done_testing();
