# Who is told 57014 without a detail may rely on it that the ask was not executed: one that is cancelled when its
# message was handled says that its outcome is unknown, be it at the gate, or while WAL is flushed, when nobody looks.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "max_wal_senders = 2\nshard.region_workers = 1");
$node->safe_psql('postgres', q{
CREATE TABLE gate AS SELECT 1 AS a;
CREATE FUNCTION sum_up(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message = '0' THEN PERFORM FROM gate FOR UPDATE; END IF;
	RETURN to_jsonb(coalesce(state::int, 0) + message::int);
END $$;
SELECT shard_start('sum', 'sum_up');
SELECT shard_ask('sum', 'a', '1', '60 s');
SELECT shard_ask('sum', 'b', '1', '60 s');
});
my $state = q{SELECT state FROM shard_entity.sum WHERE entity_id = '%s'};
my $unknown = qr/ERROR:  57014: canceling statement due to user request\nDETAIL:  The message was taken already: the outcome of the ask is unknown\./;
my $asker = $node->session;
my $pid = $asker->query("\\set VERBOSITY verbose\nSELECT pg_backend_pid();");

sub error { return eval { $asker->receive; 1 } ? 'none' : $@ }
sub cancel { $node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)"); return; }

# --- at the gate -------------------------------------------------------------------------------------

sub set_standby
{
	my ($name) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$node->reload;
	$node->wait_until("SELECT setting = '$name' FROM pg_settings WHERE name = 'synchronous_standby_names'", 'the setting');
	# by which the checkpointer has told all others of it
	$node->safe_psql('postgres', 'CHECKPOINT');
	return;
}

set_standby('nobody');
$asker->send(q{SELECT shard_ask('sum', 'a', '10', '300 s');});
$node->wait_until("SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid", 'the gate');
cancel();
like(error(), $unknown, 'cancelled at the gate');
is($node->safe_psql('postgres', sprintf $state, 'a'), 11, 'it was executed');
set_standby('');

# --- where nobody looks for it -----------------------------------------------------------------------

$asker->query(q{SET shard.fault_point = 'ask_answered freeze';});
$asker->send(q{SELECT shard_ask('sum', 'b', '10', '300 s');});
ShardCluster::wait_for_condition(sub { -e $node->data_dir . '/shard_fault.ask_answered' }, 'the answer');
cancel();
kill 'CONT', $pid;
like(error(), $unknown, 'cancelled when the answer is there');
is($node->safe_psql('postgres', sprintf $state, 'b'), 11, 'it was executed');

# --- one that was not executed -----------------------------------------------------------------------

# its worker has another message in hand
my $keeper = $node->session;
$keeper->query('BEGIN; SELECT FROM gate FOR UPDATE;');
$node->safe_psql('postgres', q{SELECT shard_tell('sum', 'a', '0')});
$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type LIKE 'shard region%' AND wait_event_type = 'Lock'}, 'the handler');
$asker->send(q{SELECT shard_ask('sum', 'b', '100', '300 s');});
$node->wait_until("SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid", 'the ask');
cancel();
my $error = error();
like($error, qr/ERROR:  57014: canceling statement due to user request/, 'cancelled in the queue');
unlike($error, qr/DETAIL/, 'without a detail');
$keeper->query('COMMIT;');
$node->drain;
is($node->safe_psql('postgres', sprintf $state, 'b'), 11, 'it was not executed');

$node->log_is_clean;
done_testing();
