# Asks for entities of another node: answers, the handler's errors with their SQLSTATE, time-outs,
# cancels, the order after tells of the same session, and an unknown outcome when the connection is lost
# after sending: never done twice.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $cluster = ShardNodes->create(2, proxy => 1);
$cluster->sql_everywhere(q{
CREATE TABLE gate AS SELECT 1 AS one;
CREATE FUNCTION account(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	total int := coalesce((state->>'total')::int, 0) + coalesce((message->>'add')::int, 0);
BEGIN
	IF message ? 'gate' THEN PERFORM FROM gate FOR SHARE; END IF;
	IF message ? 'fail' THEN
		RAISE EXCEPTION 'account says no' USING ERRCODE = 'P4711', DETAIL = 'told to', HINT = 'do not';
	END IF;
	RETURN jsonb_build_object('total', total);
END $$;
SELECT shard_start('account', 'account', handler_timeout => '60 s');
});
$cluster->wait_registered;
my ($one, $two) = $cluster->nodes;
my $there = $cluster->entity_at('account', 2);
sub ask { my ($message, $timeout) = @_; $timeout //= '30 s'; return "SELECT shard_ask('account', '$there', '$message', '$timeout')->>'total'" }

is($one->sql(ask('{"add": 5}')), 5, 'an answer');
is($one->sql(qq{SELECT shard_tell('account', '$there', '{"add": 1}'); } x 20 . ask('{"add": 1}')) =~ s/\s+//gr, 26, 'after the tells of its session');
my $error = $one->error_of(ask('{"fail": 1}') . ';') // '';
like($error, qr/P4711.*account says no/, "the handler's error");
like($error, qr/DETAIL:\s+told to/, 'its detail');
like($error, qr/HINT:\s+do not/, 'its hint');
is($one->sql(ask('{}')), 26, 'a failed ask has no effect');

# Time and cancel, while the handler waits.
my $keeper = $two->session;
$keeper->query('BEGIN; SELECT FROM gate FOR UPDATE;');
my $begin = time;
$error = $one->error_of(ask('{"gate": 1}', '500 ms') . ';') // '';
like($error, qr/ERROR/, 'an ask is given up after its time');
ShardCluster::in_time(time - $begin, 10, 55, 'in time');
my $asker = $one->session;
my $pid = $asker->query('SELECT pg_backend_pid();');
$asker->send(ask('{"gate": 1}', '60 s') . ';');
$one->wait_until("SELECT wait_event IS NOT NULL AND state = 'active' FROM pg_stat_activity WHERE pid = $pid", 'the ask');
$one->sql("SELECT pg_cancel_backend($pid)");
ok(!eval { $asker->receive; 1 }, 'an ask is cancelled');
$keeper->query('ROLLBACK;');
$keeper->close;
$two->wait_until('SELECT shard_drain()', 'the end of what waited');

# The connection is lost when the answer was on its way.
my $before = $one->sql(ask('{}'));
$cluster->proxy->cut_reply(1, 2, 1, 'ask');
$error = $one->error_of(ask('{"add": 100}') . ';') // 'none';
like($error, qr/ERROR:\s+(?:SH100|57)/, 'an ask whose answer is lost fails');
note($error);
is($one->sql(ask('{}')), $before + 100, 'it was done once: its outcome was unknown');
$cluster->proxy->cut_query(1, 2, 1, 'ask');
$error = $one->error_of(ask('{"add": 1000}') . ';');
note($error // 'an ask that did not arrive was sent again');
my $after = $one->sql(ask('{}'));
ok($after == $before + 100 || (!$error && $after == $before + 1100), 'one that did not arrive has no effect, unless it is answered');

# A dead node.
$two->server->crash;
$begin = time;
$error = $one->error_of(ask('{"add": 1}', '2 s') . ';') // '';
like($error, qr/ERROR/, 'an ask of a dead node fails');
ShardCluster::in_time(time - $begin, 15, 60, 'in time');
$two->server->recover;
$one->wait_until(ask('{}', '2 s') . " IN ('$after', '" . ($after + 1) . "')", 'an answer after its return');
pass('asks go on when it is back');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
