# What keeps a shard from being copied is found before anything moves, and said: tables that differ, a type
# that does not run there. Whoever changes a state in a transaction of his own is waited for. A process that
# dies in the midst of a copy, on either side, leaves nothing behind, and the move goes on.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1);
my ($here, $there) = $cluster->nodes;
my $server = $here->server;
$cluster->start_recorder(settings => q{, handoff_timeout => '2 s'});
my ($id) = $cluster->entity_at('recorder', 1);
my $shard = $cluster->shard_of('recorder', $id);
$here->sql(ShardCluster::tell_recorder($id, 1, 3));
$cluster->drain;

# The error of a move that does not begin.
sub refused
{
	my ($what, $expected) = @_;
	my (undef, undef, $error) = $here->server->psql($here->db, "SELECT shard_move('recorder', $shard, 2)");
	like($error, $expected, $what);
	is($here->sql("SELECT state || epoch FROM shard.own WHERE shard = $shard AND type_id = (SELECT type_id FROM shard.type WHERE type_name = 'recorder')"),
		'active0', '... the shard is where it was');
	return;
}

# --- tables that differ ------------------------------------------------------------------------------

$here->sql('ALTER TABLE shard_entity.recorder ADD extra numeric(5, 2)');
refused('a column that is missing', qr/state table "recorder" on node 2 lacks column "extra"/i);
$there->sql('ALTER TABLE shard_entity.recorder ADD extra int');
refused('a column of another type', qr/column "extra" of state table "recorder" is of type integer on node 2, and of type numeric\(5,2\) on node 1/i);
$cluster->sql_everywhere('ALTER TABLE shard_entity.recorder DROP extra');
$there->sql('ALTER TABLE shard_entity.recorder ADD wanted int NOT NULL');
refused('a column that only the new home has, and must not be null', qr/state table "recorder" on node 1 lacks column "wanted"/i);
$there->sql('ALTER TABLE shard_entity.recorder DROP wanted');
$there->sql('ALTER TABLE shard_entity.recorder DROP state');
refused('a table that is broken', qr/states of entity type "recorder" cannot be copied.*lacks column "state"/si);
$there->sql('ALTER TABLE shard_entity.recorder ADD state jsonb');
# An old refusal must not be the answer to a new question.
$cluster->bring('recorder', $shard, 2);
$cluster->wait_settled;
is($there->sql("SELECT state->>'count' FROM shard_entity.recorder WHERE entity_id = '$id'"), 3, 'mended, it moves');

# --- a table that somebody locks ---------------------------------------------------------------------

my $locker = $there->session;
$locker->query('BEGIN; LOCK TABLE shard_entity.recorder IN SHARE MODE;');
my (undef, undef, $locked) = $here->server->psql($here->db, "SELECT shard_move('recorder', $shard, 1)");
like($locked, qr/the table of entity type "recorder" is locked on node 2.*HINT: .*pg_locks/si, 'a lock is waited for not long');
my $waiting = $here->session;
$waiting->send("SELECT shard_move('recorder', $shard, 1);");
$there->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'ShardExport' OR
	query ~ 'shard_peer.export' AND wait_event_type = 'Extension'}, 'a copy that waits');
is($there->sql(q{SELECT count(*) FROM pg_stat_activity WHERE query ~ 'shard_peer.export' AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND wait_event_type = 'Lock'}),
	0, 'with no snapshot in hand, and in no queue for the lock');
$locker->query('COMMIT;');
$waiting->receive;
$_->close for $locker, $waiting;
$cluster->wait_home('recorder', $shard, 1);
$cluster->bring('recorder', $shard, 2);
$cluster->wait_settled;

# The same of the new home. Who is asked there before a move waits not at all, and says who has it locked.
$locker = $here->session;
my ($pid) = $locker->query('BEGIN; LOCK TABLE shard_entity.recorder IN SHARE MODE; SELECT pg_backend_pid();') =~ /(\d+)/;
(undef, undef, $locked) = $here->server->psql($here->db, "SELECT shard_move('recorder', $shard, 1)");
like($locked, qr/the table of entity type "recorder" is locked on node 1 by process $pid.*HINT: .*pg_locks/si, 'so is one at the new home, not at all');
$locker->query('COMMIT;');
$locker->close;
$cluster->bring('recorder', $shard, 1);

my $importer = q{query ~ 'shard_peer.import' AND state = 'active' AND pid <> pg_backend_pid()};
# When the shard is sealed already, the copy waits with nothing that others would wait for.
$_->sql(q{SELECT shard_start('patient', 'recorder(jsonb,jsonb)', 1, handoff_timeout => '60 s')}) for $here, $there;
$cluster->wait_registered;
$cluster->allocate('patient', 'e');
my ($old, $new) = $here->sql(q{SELECT node FROM shard_homes WHERE type_name = 'patient'}) == 1 ? ($here, $there) : ($there, $here);
$server->set_fault('export_begin', 'freeze');
$waiting = $here->session;
$waiting->send("SELECT shard_move('patient', 0, @{[$new->n]});");
ShardCluster::wait_for_condition(sub { $server->fault_happened }, 'the copy to begin');
$locker = $new->session;
$locker->query('BEGIN; LOCK TABLE shard_entity.patient IN SHARE MODE;');
$server->clear_fault;
$new->wait_until("SELECT count(*) > 0 AND bool_and(wait_event_type = 'Extension' AND backend_xmin IS NULL
			AND coalesce(granted AND NOT (mode = 'ExclusiveLock' AND locktype = 'object'), true))
		FROM pg_stat_activity LEFT JOIN pg_locks USING (pid) WHERE $importer",
	'the copy to wait with no snapshot, in no queue, and without the lock of the shard');
pass('a copy of a sealed shard waits with nothing that others would wait for');
$locker->query('COMMIT;');
$waiting->receive;
$_->close for $locker, $waiting;
$cluster->wait_home('patient', 0, $new->n);

# --- states that somebody changes --------------------------------------------------------------------

# As long as the move's time is not over, whoever holds a row may take his.
$new->sql(q{SELECT shard_tell('patient', 'e', '{"what": "1"}')});
$cluster->drain;
my $writer = $new->session;
my $mover = $here->session;
$writer->query(q{BEGIN; UPDATE shard_entity.patient SET state = state || '{"by": "hand"}' WHERE entity_id = 'e';});
$mover->send("SELECT shard_move('patient', 0, @{[$old->n]});");
$new->wait_until(q{SELECT count(*) = 1 FROM shard.own JOIN shard.type USING (type_id) WHERE type_name = 'patient' AND state = 'sealed'},
	'the shard to be sealed');
$writer->query('COMMIT;');
$mover->receive;
$_->close for $writer, $mover;
$cluster->wait_home('patient', 0, $old->n);
is($old->sql(q{SELECT state->>'by' FROM shard_entity.patient WHERE entity_id = 'e'}), 'hand', 'a change that was on its way is not lost');
$cluster->wait_settled;

# The shard is at a node in the end, and nothing of it anywhere else.
sub arrive
{
	my ($to) = @_;
	$cluster->wait_up;
	$cluster->wait_settled;
	return if $here->sql("SELECT node FROM shard_homes WHERE type_name = 'recorder' AND shard = $shard") == $to;
	$cluster->bring('recorder', $shard, $to);
	$cluster->wait_settled;
	return;
}

# --- ends of processes -------------------------------------------------------------------------------

$here->sql("INSERT INTO shard_entity.recorder (shard, entity_id, state) SELECT $shard, 'bulk' || i, jsonb_build_object('x', repeat('x', 1000)) FROM generate_series(1, 2000) i");
my $at = 1;
my $told = 3;
for my $fault (map { my $point = $_; map { [ $point, $_ ] } qw(error exit crash) }
	qw(export_begin export_chunk import_begin import_chunk import_before_commit import_after_commit staged_reported))
{
	my ($point, $action) = @$fault;
	# What fails in the control worker itself ends it; and a crash is no other thing for each point.
	next if $point eq 'staged_reported' && $action eq 'error';
	next if $action eq 'crash' && $point !~ /_commit$|^export_chunk$/;
	my $to = 3 - $at;
	$server->set_fault($point, $action);
	# Who has not heard of the fault yet passes: then once more, the other way.
	ShardCluster::wait_for_condition(
		sub {
			$here->server->psql($here->db, "SELECT shard_move('recorder', $shard, 3 - node) FROM shard_homes
				WHERE type_name = 'recorder' AND shard = $shard AND phase = 'stable'") unless $server->fault_happened;
			return $server->fault_happened;
		},
		"$action at $point");
	$server->clear_fault;
	# The server may not have noticed yet that it is to begin anew; and an abort is as good an end as any.
	ShardCluster::wait_for_condition(sub { eval { arrive($to); 1 } }, "the shard to come to node $to");
	$at = $to;
	$here->sql(ShardCluster::tell_recorder($id, $told + 1));
	$told++;
	$cluster->drain;
	is($cluster->node($at)->sql("SELECT (SELECT state->>'count' FROM shard_entity.recorder WHERE entity_id = '$id'), count(*) FROM shard_entity.recorder WHERE shard = $shard"),
		"$told|2001", "$action at $point: all is there, once");
}

# --- a copy that nobody wants any more ------------------------------------------------------------------

# It stands still before its commit, with the lane's turn lock, until the move is given up; then it commits.
my $to = 3 - $at;
my $copier = $cluster->node($to);
my $epoch = $here->sql("SELECT epoch FROM shard_homes WHERE type_name = 'recorder' AND shard = $shard");
$server->set_fault('import_before_commit', 'freeze');
$mover = $here->session;
$mover->send("SELECT shard_move('recorder', $shard, $to);");
ShardCluster::wait_for_condition(sub { $server->fault_happened }, 'the copy to stand still');
$_->wait_until("SELECT epoch > $epoch AND phase = 'stable' FROM shard_homes WHERE type_name = 'recorder' AND shard = $shard", 'the move to be given up')
  for $here, $there;
$server->clear_fault;
$cluster->wait_settled;
is($cluster->node($at)->sql("SELECT state FROM shard.own WHERE shard = $shard AND type_id = (SELECT type_id FROM shard.type WHERE type_name = 'recorder')"), 'active',
	'the shard stays where it is');
is($copier->sql("SELECT count(*) FROM shard_entity.recorder WHERE shard = $shard"), 0, 'nothing is left of a copy that came too late');

done_testing();
