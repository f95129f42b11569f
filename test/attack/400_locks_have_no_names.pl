# Nobody without rights on the extension holds up senders, turns or the coordinator by a lock: D01 takes the server's own
# lock on the extension, D02 waits for it to be refused later.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('locks', conf => 'shard.region_workers = 1');
$node->start_recorder;
$node->safe_psql('postgres', q{
	CREATE ROLE nobody LOGIN;
	CREATE FUNCTION adds(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM shard_reply(state);
		RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
	END $$;
	SELECT shard_start('adds', 'adds(jsonb,jsonb)', 4)});
my $handled = 0;

# A tell waits for the lock of senders, an ask for a turn that begins now.
sub works
{
	my ($name) = @_;
	$node->safe_psql('postgres', "SELECT shard_tell('adds', 'a', '{}')");
	$handled++;
	my $reply = $node->safe_psql('postgres', "SELECT shard_ask('adds', 'a', '{}', timeout => '50 s')");
	is($reply, "{\"n\": $handled}", $name);
	$handled++;
	return;
}
works('without an attack');

# D01 and its likes: whatever names the extension and needs no right.
for my $attack (
	[ 'CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql RETURN 1', 'ALTER FUNCTION pg_temp.f() DEPENDS ON EXTENSION shard' ],
	[ 'CREATE TEMP TABLE t (i int PRIMARY KEY)', 'ALTER INDEX t_pkey DEPENDS ON EXTENSION shard' ])
{
	my $session = $node->session_as('nobody');
	$session->query("$_;") for $attack->[0], 'BEGIN', $attack->[1];
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND mode = 'AccessExclusiveLock'
		AND classid = 'pg_extension'::regclass}), 1, "D01: $attack->[1]: he has the lock of the server");
	works('D01: and nobody waits for it');
	$session->close;
}

# D02: who has no right to drop or alter the extension is not queued, though a transaction has sent and is open.
my $sender = $node->session;
$sender->query(q{BEGIN; SELECT shard_tell('adds', 'b', '{}');});
for my $statement ('DROP EXTENSION shard', 'DROP EXTENSION IF EXISTS plpgsql, shard CASCADE', 'ALTER EXTENSION shard UPDATE',
	'ALTER EXTENSION shard ADD TYPE point', 'COMMENT ON EXTENSION shard IS NULL')
{
	my ($status, $out, $err) = $node->psql('postgres', "SET statement_timeout = '60 s'; $statement", extra_params => [ '-U', 'nobody' ]);
	like($err, qr/must be owner of/, "D02: refused at once: $statement");
	works('D02: and nobody waits');
}

$sender->query('COMMIT;');

# Anybody may lock what he reads or sends through, and what is behind it; a transaction that has read is as good. Who drops
# the extension does not wait for that with all senders behind him.
for my $attack ('LOCK TABLE shard_inbox IN ROW EXCLUSIVE MODE', 'SELECT count(*) FROM shard_homes', q{SELECT shard_tell('adds', 'b', '{}')})
{
	my $locker = $node->session_as('nobody');
	$locker->query('BEGIN;');
	$locker->query("$attack;");
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET statement_timeout = '60 s'; DROP EXTENSION shard CASCADE");
	like($err, qr/ERROR:\s+55P03:.*HINT:\s+Another transaction has sent messages and is open or prepared, waits for the answer to an ask, or has locked a table or view of the extension/s, "D19: $attack: who drops it gives up");
	works('D19: and all goes on');
	$locker->close;
}
$sender->query(q{BEGIN; SELECT shard_tell('adds', 'b', '{}');});

# Who may drop it waits for who has sent, for a while; then it is gone.
my $owner = $node->session;
$owner->send('DROP EXTENSION shard CASCADE;');
$node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND NOT granted
	AND mode = 'AccessExclusiveLock'}, 'the owner to wait');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks l JOIN pg_locks o USING (pid) WHERE NOT l.granted
	AND o.locktype = 'relation' AND o.mode = 'AccessExclusiveLock'}), 0, 'before he has locked a table');
$sender->query('COMMIT;');
$owner->receive;
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_extension WHERE extname = 'shard'}), 0, 'the owner drops it');
$_->close for $owner, $sender;

# a worker may have waited behind who has dropped it
$node->log_is_clean(qr/must be owner of|canceling statement due to lock timeout|shard (control|region) ERROR:  extension "shard" is not in this database/);

done_testing();
