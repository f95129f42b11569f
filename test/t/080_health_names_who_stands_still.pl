# shard_health names the worker that does not move while messages wait, and why: its turns fail,
# a handler runs on and on, its process stands still. The log has turns that fail, with the entity they are at. What
# only is busy is no problem.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('still', conf => 'shard.region_workers = 1
shard.handler_lock_timeout = 60s');
$node->start_recorder;
my $problem = q{SELECT problems[1] FROM shard_health()};

sub well
{
	my ($what) = @_;
	$node->drain;
	$node->wait_for_value('SELECT ok, problems FROM shard_health()', 't|{}', $what);
	return;
}
well('the node to be well');

# Turns fail: what becomes of the message can be written down nowhere.
$node->safe_psql('postgres', q{
	CREATE FUNCTION fails(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'as it must'; END $$;
	SELECT shard_start('fails', 'fails(jsonb,jsonb)', 1, max_attempts => 1);
	UPDATE pg_attribute SET attnotnull = true WHERE attrelid = 'shard.dead_letter'::regclass AND attname = 'hint';
	SELECT shard_tell('fails', 'poor', '{}')});
$node->wait_until(qq{SELECT ($problem) ~ '^worker 0 handles nothing: \\d+ turns in a row have failed since .*, at entity "poor" of type "fails": null value in column "hint"'},
	'turns that fail to be named');
pass('turns that fail one after the other');
like(slurp_file($node->logfile), qr/LOG: .*null value in column "hint".*\n(?:.*\n)*?.*turn of region worker 0, at entity "poor", one of \d+ in a row that failed/,
	'the log says it, too');
$node->safe_psql('postgres', q{UPDATE pg_attribute SET attnotnull = false WHERE attrelid = 'shard.dead_letter'::regclass AND attname = 'hint'});
well('turns to go on');

# A handler that runs for longer than others like to wait, and is allowed to.
my $keeper = $node->close_gate;
$node->safe_psql('postgres', q{SELECT shard_tell('recorder', 'later', '{"what": "y"}')});
$node->wait_until(qq{SELECT ($problem) ~ '^worker 0, process \\d+, has done nothing for \\d+ s while entity "(gate|later)" of type "recorder" and maybe others wait: it has run the handler of entity "gate" of type "recorder" since'},
	'the handler to be named');
pass('a handler that does not come to its end');
# Another process takes the place of the worker: its time begins with it.
my ($ended) = $node->worker_pids('%region%');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($ended)");
$node->wait_until(qq{SELECT count(*) = 1 FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE backend_type LIKE '%region%' AND pid <> $ended AND NOT granted}, 'the next process to run the handler');
is($node->safe_psql('postgres', qq{SELECT coalesce(substring(($problem) FROM 'has done nothing for (\\d+) s')::int, 0) <= extract(epoch FROM clock_timestamp() - backend_start)
	FROM pg_stat_activity WHERE backend_type LIKE '%region%'}), 't', 'no process has done nothing for longer than it lives');
$keeper->query('COMMIT;');
well('the handler to end');

# A type that the state is made of is being altered: that does not stand still, it waits for somebody.
$node->safe_psql('postgres', q{
	CREATE TYPE inner_part AS (x int);
	CREATE TYPE whole AS (part inner_part);
	CREATE FUNCTION keeps(state whole, message jsonb) RETURNS whole LANGUAGE sql RETURN state;
	SELECT shard_start('wholes', 'keeps(whole,jsonb)', 1)});
my $altering = $node->session;
my ($pid) = $altering->query('SELECT pg_backend_pid();') =~ qr{(\d+)};
$altering->query('BEGIN; ALTER TYPE inner_part RENAME ATTRIBUTE x TO y CASCADE;');
$node->safe_psql('postgres', q{SELECT shard_tell('wholes', 'waits', '{}')});
$node->wait_for_value(q{SELECT blocked_by FROM shard_inbox WHERE type_name = 'wholes'}, $pid, 'whoever alters a part of the state to be named');
pass('a state type that is being altered');
$altering->query('ROLLBACK;');
well('the type to be free again');

# A process that stands still.
my ($worker) = $node->worker_pids('%region%');
$node->stop_idle($worker);
is($node->safe_psql('postgres', q{SELECT shard_drain('10 ms')}), 'f', 'a worker that is stopped does not drain');
$node->wait_until(qq{SELECT ($problem) ~ '^worker 0, process $worker, has done nothing .* while shard_drain\\(\\) waits: its process may be stopped'},
	'the process to be named');
pass('and is named, though no message waits');
$node->safe_psql('postgres', q{SELECT shard_tell('recorder', 'later', '{"what": "z"}')});
$node->wait_until(qq{SELECT ($problem) ~ '^worker 0, process $worker, has done nothing .*: its process may be stopped'}, 'the process to be named');
pass('a process that stands still');
kill 'CONT', $worker;
well('it to go on');

$node->stop;
done_testing();
