# A decider is code of the type's owner: it runs as him, in a session of his, under the type's time-out, and whatever it does
# is undone (S05, S06, D07). It gets nothing of the worker, and holds up nobody but its owner.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together);
$node->create_owners('mallory', 'alice');
sub as { return $node->as(@_) }

$node->wait_until('SELECT ok FROM shard_health()', 'the workers');
$node->safe_psql('postgres', q{
CREATE TABLE heard (who text);
GRANT INSERT ON heard TO PUBLIC;
CREATE TABLE secret (what text);
INSERT INTO secret VALUES ('the secret');
});
as('mallory', q{
CREATE FUNCTION mallory.fail(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	RAISE EXCEPTION USING ERRCODE = message->>'as', MESSAGE = 'failed';
END $$;
CREATE FUNCTION mallory.decide(sqlstate text, message text, attempts int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	CASE sqlstate
	WHEN 'AA001' THEN
		BEGIN
			PERFORM FROM public.secret;
		EXCEPTION WHEN insufficient_privilege THEN
			RETURN 'stop';
		END;
	WHEN 'AA002' THEN
		RETURN CASE concat_ws(' ', current_user, session_user, current_setting('is_superuser')) WHEN 'mallory mallory off' THEN 'stop' END;
	WHEN 'AA003' THEN
		BEGIN
			EXECUTE 'RESET SESSION AUTHORIZATION';
		EXCEPTION WHEN OTHERS THEN
			RETURN 'stop';
		END;
		RETURN CASE concat_ws(' ', current_user, session_user) WHEN 'mallory mallory' THEN 'stop' END;
	WHEN 'AA004' THEN
		INSERT INTO public.heard VALUES (current_user);
		PERFORM shard_tell('mallory', 'told', '{"as": "AA009"}');
		RETURN 'stop';
	WHEN 'AA005' THEN
		PERFORM pg_sleep(600);
		RETURN 'stop';
	WHEN 'AA006' THEN
		RETURN repeat('stop', 1000000);
	WHEN 'AA007' THEN
		EXECUTE 'SET CONSTRAINTS ALL DEFERRED';
		RETURN 'stop';
	WHEN 'AA008' THEN
		PERFORM pg_advisory_lock(4711);
		RETURN (SELECT entity_id FROM shard_self());
	ELSE RETURN 'resume';
	END CASE;
	RETURN NULL;
END $$;
SELECT shard_start('mallory', 'mallory.fail', decider => 'mallory.decide', handler_timeout => '1 s');
});
as('alice', q{CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message; SELECT shard_start('alice', 'alice.h')});

my $workers = join ' ', $node->worker_pids;
for my $code (map { "AA00$_" } 1 .. 9)
{
	as('mallory', qq{SELECT shard_tell('mallory', '$code', '{"as": "$code"}')});
	is(as('alice', q{SELECT shard_ask('alice', 'asked', '{}', '20 s')}), '{}', "D07 $code: others go on");
	$node->drain;
}
is($node->safe_psql('postgres', q{SELECT string_agg(entity || ' ' || decision, ', ' ORDER BY entity) FROM shard.history}),
	join(', ', map { "AA00$_ " . ($_ <= 4 ? 'stop' : $_ == 9 ? 'resume' : 'restart') } 1 .. 9), 'S05 S06 it reads as its owner, in a session of his, from which there is no way back; what is no decision is none');
is($node->safe_psql('postgres', q{SELECT count(*) FROM heard}), 0, 'what it writes is undone');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard.history WHERE entity = 'told'}), 0, 'what it tells, too');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711}), 0, 'no lock is left');
is(join(' ', $node->worker_pids), $workers, 'the workers are those that were there');
$node->log_is_clean(qr/did not decide/);
done_testing();
