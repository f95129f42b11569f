
# An ask comes after what its session sent before, even if that was passed by while the sender was
# open, and a turn ends in the middle of what such senders left to do.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.handler_lock_timeout = '60 s'");
$node->start_recorder;
$node->safe_psql('postgres', q{
	CREATE FUNCTION sleeper(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_sleep(0.01);
		RETURN to_jsonb(coalesce(state::int, 0) + 1);
	END $$;
	SELECT shard_start('sleeper', 'sleeper');});

# Two that are open when the worker comes by: one leaves more than a turn's time of work. Prepared,
# as messages of a transaction are written to the inbox only when it is about to end.
my ($slow, $late) = ($node->session, $node->session);
$slow->query(q{BEGIN; SELECT count(shard_tell('sleeper', 'a', '1')) FROM generate_series(1, 100); PREPARE TRANSACTION 'slow';});
$late->query('BEGIN; ' . ShardCluster::tell_recorder('a', 'tell') . q{PREPARE TRANSACTION 'late';});
$node->safe_psql('postgres', ShardCluster::tell_recorder('b', 1));
$node->wait_recorded('b', 1);

# Both end, and the ask is made, before the worker looks again.
my $keeper = $node->close_gate;
$slow->query(q{COMMIT PREPARED 'slow';});
$late->query(q{COMMIT PREPARED 'late';});
$late->send(q{SELECT shard_ask('recorder', 'a', '{"what": "ask"}', '180 s');});
$node->wait_until(
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT shard_ask%' AND wait_event_type = 'Extension'},
	'the ask to wait');
$keeper->query('COMMIT;');
$late->receive;
is($node->safe_psql('postgres', ShardCluster::recorded('a')), 'tell ask = 2', 'the ask comes after the tell');
$node->drain;
is($node->safe_psql('postgres', 'SELECT state FROM shard_entity.sleeper'), '100', 'nothing of the other is lost');

$node->log_is_clean;
done_testing();
