# What an administrator may do to the tables of the extension loses no message: VACUUM FULL in the middle of a turn,
# beside another scan of the table, and of each table under load; another tablespace. What would is refused.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first',
	conf => "shard.region_workers = 1\nshard.handler_lock_timeout = '60 s'\nshared_buffers = 1MB\nautovacuum = off\nmax_wal_senders = 3");
$node->start_recorder;
# Its message fails two times, so that it comes from the stash, before the turn reads the inbox; then it waits for
# table gate.
$node->safe_psql('postgres', q{
	CREATE SEQUENCE attempt;
	CREATE FUNCTION held(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF nextval('attempt') <= 2 THEN RAISE EXCEPTION 'not yet' USING ERRCODE = 'serialization_failure'; END IF;
		PERFORM FROM gate FOR SHARE;
		RETURN message;
	END $$;
	SELECT shard_start('held', 'held(jsonb,jsonb)', 1, handler_timeout => '180 s', retry_backoff => '2 s')});

my $pad = q{repeat('x', 300)};
sub tells { my ($entity, $count) = @_; return qq{SELECT count(shard_tell('recorder', '$entity', jsonb_build_object('what', i, 'pad', $pad))) FROM generate_series(1, $count) i;} }
sub in_order { my ($entity) = @_; return "SELECT count(*), coalesce(array_agg(what::int ORDER BY pos) = array_agg(what::int ORDER BY what::int), false) FROM seen WHERE entity = '$entity'" }

# Holds the worker in a turn that has not read the inbox yet, but knows its files; runs something meanwhile.
sub in_a_turn
{
	my ($before, $meanwhile) = @_;
	my $keeper = $node->session;
	$keeper->query('BEGIN; SELECT FROM gate FOR UPDATE;');
	$node->safe_psql('postgres', q{SELECT setval('attempt', 1, false); SELECT shard_tell('held', 'e', '{}')});
	$node->wait_until("SELECT count(*) = 1 FROM shard_inbox WHERE type_name = 'held' AND attempts > 0", 'the message to be in the stash');
	$before->();
	$node->wait_until(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type LIKE 'shard%' AND wait_event_type = 'Lock'}, 'a turn to wait');
	$meanwhile->();
	$keeper->query('COMMIT;');
	$node->drain;
	return;
}

# The turn knows where it would go on: behind pages of messages that were rolled back.
my $rolled_back = 'BEGIN; ' . tells('never', 400) . 'ROLLBACK;';
my $sound = ShardMutant::prove({
	promise => 'VACUUM FULL in the middle of a turn loses nothing',
	broken_by => ['FILE_UNSEEN'],
	run => sub {
		$node->safe_psql('postgres', $rolled_back);
		$node->safe_psql('postgres', tells('begin', 1));
		$node->drain;
		in_a_turn(sub { }, sub { $node->safe_psql('postgres', tells('full', 1000)); $node->vacuum_inbox('FULL') });
		return ($node->safe_psql('postgres', in_order('full')), '1000|t');
	}});
if (!$sound)
{
	done_testing();
	exit;
}

my $size = "SELECT sum(pg_relation_size(s)) FROM ($ShardCluster::segments) AS t(s)";
# A file is cut only if nobody reads it just then.
my $shrunk = 0;
for my $attempt (1 .. 5)
{
	$node->safe_psql('postgres', "DELETE FROM seen WHERE entity = 'cut'");
	in_a_turn(
		sub {
			$node->safe_psql('postgres', $rolled_back);
			# It polls each second.
			$node->safe_psql('postgres', 'SELECT pg_sleep(1.2)');
		},
		sub {
			my $before = $node->safe_psql('postgres', $size);
			$node->vacuum_inbox('TRUNCATE on');
			$shrunk = $node->safe_psql('postgres', $size) < $before;
			$node->safe_psql('postgres', tells('cut', 3000));
		});
	last if $shrunk || $node->safe_psql('postgres', in_order('cut')) ne '3000|t';
}
ok($shrunk, 'a file is cut');
is($node->safe_psql('postgres', in_order('cut')), '3000|t', 'and nothing is lost when it grows again');

# A scan has left off in the middle, and VACUUM FULL would go on from there.
my @workers = $node->worker_pids;
$node->stop_idle(@workers);
$node->safe_psql('postgres', tells('ring', 3000));
my $segment = $node->safe_psql('postgres', "SELECT s FROM ($ShardCluster::segments) AS t(s) ORDER BY pg_relation_size(s) DESC LIMIT 1");
$node->safe_psql('postgres', "BEGIN; DECLARE c CURSOR FOR SELECT seq FROM $segment; MOVE 1500 IN c; ROLLBACK;");
$node->vacuum_inbox('FULL');
is($node->safe_psql('postgres', "SELECT count(*) > 2900 AND array_agg(seq ORDER BY ctid) = array_agg(seq ORDER BY seq) FROM $segment"),
	't', 'VACUUM FULL keeps the order of the rows beside another scan');
kill 'CONT', @workers;
$node->drain;
is($node->safe_psql('postgres', in_order('ring')), '3000|t', 'nothing is lost by it');

# A worker begins while a segment is rewritten, which the next sender notes when the worker has it listed.
$node->set_fault('inbox_listed', 'freeze');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM shard_stat_workers");
ShardCluster::wait_for_condition(sub { $node->fault_happened }, 'the next worker to list the segments');
$node->vacuum_inbox('FULL');
$node->safe_psql('postgres', tells('next', 100));
$node->clear_fault;
$node->drain;
is($node->safe_psql('postgres', in_order('next')), '100|t', 'nothing is lost where a worker begins beside VACUUM FULL');
is(scalar(grep { /ERROR:.*emptied or rewritten/ } split /\n/, PostgreSQL::Test::Utils::slurp_file($node->logfile)), 0, 'and it does not fail');

# Every internal table, with messages coming in.
my @tables = split /\n/, $node->safe_psql('postgres',
	q{SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'shard'::regnamespace AND relkind = 'r' ORDER BY 1});
cmp_ok(scalar @tables, '>', 15, 'there are internal tables');
$node->safe_psql('postgres', "SET allow_in_place_tablespaces = on; CREATE TABLESPACE other LOCATION ''");
my $sender = $node->session;
my $sent = 0;
my $told = sub {
	my ($command) = @_;
	$sender->send(qq{SELECT count(shard_tell('recorder', 'load', jsonb_build_object('what', $sent + i))) FROM generate_series(1, 50) i;});
	$sent += 50;
	$node->safe_psql('postgres', $command);
	$sender->receive;
};
for my $table (@tables)
{
	$told->("VACUUM FULL $table");
	$told->("ALTER TABLE $table SET TABLESPACE other");
	$told->("ALTER TABLE $table SET (fillfactor = 90), RESET (fillfactor)");
}
$node->drain;
is($node->safe_psql('postgres', in_order('load')), "$sent|t", 'VACUUM FULL, SET TABLESPACE and parameters of each table lose nothing');

my $allowed = $node->safe_psql('postgres', q{
	CREATE TABLE other ();
	CREATE FUNCTION is_refused(command text) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE command;
		RETURN false;
	EXCEPTION WHEN feature_not_supported THEN RETURN SQLERRM ~ 'cannot .* which belongs to extension|segments of the inbox';
	END $$;
	SELECT command FROM pg_class c, LATERAL (SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum = 1) AS a,
		unnest(ARRAY['TRUNCATE %1$s', 'TRUNCATE other, %1$s', 'CLUSTER %1$s', 'ALTER TABLE %1$s SET UNLOGGED',
			'ALTER TABLE %1$s SET ACCESS METHOD heap', 'ALTER TABLE %1$s ADD extra int', 'ALTER TABLE %1$s ALTER %2$s TYPE text',
			'ALTER TABLE %1$s CLUSTER ON extra', 'CREATE UNIQUE INDEX extra ON %1$s (%2$s)']) AS pattern,
		LATERAL format(pattern, c.oid::regclass, attname) AS command
	WHERE relnamespace = 'shard'::regnamespace AND relkind = 'r' AND NOT is_refused(command)});
is($allowed, '', 'what would move rows, or lose them in a crash, is refused for each');
is($node->safe_psql('postgres', 'CREATE TABLE mine AS SELECT i FROM generate_series(1, 9) i; CREATE INDEX mine_i ON mine (i);
	CLUSTER mine USING mine_i; ALTER TABLE mine SET UNLOGGED; TRUNCATE mine; SELECT count(*) FROM mine'), 0, 'other tables are nobody\'s business');

# Segments that have rows of rolled back senders only are found empty by the next start, and are used again.
$node->safe_psql('postgres', "SET session_replication_role = replica; BEGIN;
	INSERT INTO $_ (seq, sender, type_id, shard, kind, flags, chunk, chunks, entity, payload)
	SELECT i, 3, 1, 0, 1, 0, 0, 1, 'never', convert_to($pad, 'UTF8') FROM generate_series(1, 100) i; ROLLBACK; VACUUM $_;")
  for grep { $_ ne $segment && /inbox_\d/ && $node->safe_psql('postgres', "SELECT pg_relation_size('$_')") == 0 } @tables;
$node->safe_psql('postgres', "ALTER SYSTEM SET shard.inbox_max_size = '4MB'");
$node->stop('fast');
$node->start;
$node->wait_up;
ShardCluster::wait_for_condition(sub {
	$node->safe_psql('postgres', tells('again', 500));
	$node->drain;
	return $node->safe_psql('postgres', 'SELECT count(*) FROM shard_stat_inbox WHERE rows > 0 AND current') == 1
		&& $node->safe_psql('postgres', "SELECT segment FROM shard_stat_inbox WHERE current") ne $segment =~ s/.*_//r },
	'another segment to be used');
pass('segments of rolled back messages are used after a restart');

$node->log_is_clean(qr/not yet/, qr/segments? \d of the inbox was emptied/);
done_testing();
