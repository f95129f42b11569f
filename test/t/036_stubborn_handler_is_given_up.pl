# A handler that catches its cancellation for ever ends with its worker, not with the server; its
# message is given up, alone, and all others are handled. An entity's id is no line of its own in the log.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 8');
$node->safe_psql('postgres', q{
CREATE PROCEDURE obey(message jsonb) LANGUAGE plpgsql AS $$
BEGIN
	WHILE message = '"never"' LOOP
		BEGIN
			PERFORM pg_sleep(60);
		EXCEPTION WHEN query_canceled THEN
			NULL;
		END;
	END LOOP;
END $$;
CREATE FUNCTION single(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	CALL obey(message);
	RETURN coalesce(state, '[]') || message;
END $$;
CREATE FUNCTION batch(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	message jsonb;
BEGIN
	FOREACH message IN ARRAY messages LOOP
		CALL obey(message);
		state := coalesce(state, '[]') || message;
	END LOOP;
	RETURN state;
END $$;
-- it is the extractor of another type that cannot be stopped
CREATE FUNCTION stubborn(id text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	WHILE id = 'never' LOOP
		BEGIN
			PERFORM pg_sleep(60);
		EXCEPTION WHEN query_canceled THEN
			NULL;
		END;
	END LOOP;
	RETURN 0;
END $$;
CREATE FUNCTION teller(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shard_tell('told', message #>> '{}', '{}');
	RETURN coalesce(state, '[]') || message;
END $$;
CREATE FUNCTION told(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('told', 'told', shard_id_extractor => 'stubborn'), shard_start('teller', 'teller', handler_timeout => '1 s');
SELECT shard_start('single', 'single', handler_timeout => '1 s'), shard_start('batch', 'batch', handler_timeout => '1 s');
});
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
$node->wait_until('SELECT count(*) = 8 FROM shard_stat_workers WHERE pid IS NOT NULL', 'all workers');
my $pids = $node->safe_psql('postgres', 'SELECT array_agg(pid) FROM shard_stat_workers');

# They get stuck one after the other if they have the same worker, which takes longer.
my $asker = $node->session;
$asker->send(q{SELECT shard_ask('single', 'asked', '"never"', '180 s');});
$node->safe_psql('postgres', join '', map { my $message = $_; map { qq{SELECT shard_tell('$_', E'a\\nevil', '$message');} } 'single', 'batch', 'teller' } 1, '"never"', 2);
ok(!eval { $asker->receive; 1 }, 'an ask fails');
$node->drain;

for my $type ('single', 'batch', 'teller')
{
	is($node->safe_psql('postgres', qq{SELECT state FROM shard_entity.$type WHERE entity_id <> 'asked'}),
		'[1, 2]', "the other messages of type $type are handled");
	is($node->safe_psql('postgres', qq{SELECT message, sqlstate, attempts FROM shard_dead_letters WHERE type_name = '$type'}),
		'"never"|57014|1', 'that which cannot be handled is given up');
}
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the server was not restarted');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM shard_stat_workers WHERE pid <> ALL ('$pids')"), '>', 0, 'workers were');

# So it is with a timer's name, which the log has if its row is damaged.
$node->safe_psql('postgres', q{SELECT shard_schedule('told', E't\nevil', '{}', after => '1 h', every => '1 h', name => E'n\nevil', missed => 'all')});
$node->drain;
$node->safe_psql('postgres', q{UPDATE shard.timer SET every = '0', due = clock_timestamp();
	SELECT shard_schedule('told', E't\nevil', '{}', after => '0 s', name => 'poke')});
$node->wait_for_value('SELECT count(*) FROM shard_timers', 0, 'the timer to end');
my $log = slurp_file($node->logfile);
like($log, qr/the handler of entity "a\\nevil" of type "single" cannot be cancelled/, 'the log shows line breaks in an id');
like($log, qr/timer "n\\nevil" of entity "t\\nevil" of type "told" is damaged/, 'and in the name of a timer');
unlike($log, qr/^evil/m, 'nor is there a line that begins within one');

$node->log_is_clean;
done_testing();
