# A handler releases what advisory locks the session has (D08): none of the worker's own is among them, so that it goes on, and
# others do not notice.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together);
$node->create_owners('mallory', 'alice');

sub as { return $node->as(@_) }

$node->wait_until('SELECT ok FROM shard_health()', 'the workers');
my $workers = join ' ', $node->worker_pids;
as('mallory', q{
CREATE FUNCTION mallory.unlock(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	PERFORM pg_advisory_lock(4711);
	PERFORM pg_advisory_unlock_all();
	IF message ? 'fail' THEN RAISE 'failed'; END IF;
	RETURN to_jsonb(coalesce(state::int, 0) + 1);
END $$;
SELECT shard_start('unlock', 'mallory.unlock', max_attempts => 1)});
as('alice', q{CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message; SELECT shard_start('alice', 'alice.h')});

for my $i (1 .. 20)
{
	as('mallory', sprintf q{SELECT shard_tell('unlock', 'a', '{%s}')}, $i % 4 == 0 ? '"fail": 1' : '');
	as('alice', q{SELECT shard_ask('alice', 'asked', '{}', '10 s')});
}
$node->drain;
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.unlock}), 15, 'D08 all is handled');
is(join(' ', $node->worker_pids), $workers, 'D08 by the worker that was there');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), 0, 'D08 it holds no lock that SQL could release');
my $worker = ($node->worker_pids('%region%'))[0];
as('mallory', q{CREATE FUNCTION mallory.lock(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(4712); RETURN message; END $$;
SELECT shard_start('lock', 'mallory.lock'); SELECT shard_tell('lock', 'a', '1')});
$node->drain;
$node->wait_until('SELECT pg_try_advisory_xact_lock(4712)', 'the lock that was left to be released');
is(join(' ', $node->worker_pids('%region%')), $worker, 'and what handlers leave of such is released');
$node->log_is_clean;

done_testing();
