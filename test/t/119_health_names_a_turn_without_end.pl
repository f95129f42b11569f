# shard_health names a worker that is in one turn for long though no table says so: route and ownership of a shard that has its
# first message are written by that very turn. A turn that is long since it is many calls is none that stands still.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('turn', conf => 'shard.region_workers = 1
shard.handler_lock_timeout = 60s');
my $line = q{SELECT p FROM shard_health(), unnest(problems) p WHERE p LIKE 'worker%'};

sub named { my ($pattern, $what) = @_; $node->wait_until(qq{SELECT ($line) ~ '$pattern'}, $what); pass($what); return }
sub well { my ($what) = @_; $node->drain; $node->wait_for_value('SELECT ok, problems FROM shard_health()', 't|{}', $what); return }

$node->safe_psql('postgres', q{
	CREATE TABLE gate (id text PRIMARY KEY, passed int);
	INSERT INTO gate VALUES ('first', 0), ('frozen', 0);
	CREATE FUNCTION passes(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
		UPDATE gate SET passed = passed + 1 WHERE id = message->>0;
		RETURN message;
	END $$;
	SELECT shard_start('waits', 'passes(jsonb,jsonb)', 16, handler_timeout => '60s');
	CREATE FUNCTION each(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN messages[1]; END $$;
	CREATE FUNCTION once(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.9); RETURN message; END $$;
	SELECT shard_start('batches', 'each(jsonb,jsonb[])', 64), shard_start('briefly', 'once(jsonb,jsonb)', 64)});
well('the node to be well');
my ($worker) = $node->worker_pids('%region%');
my $waits = q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type LIKE 'shard%' AND wait_event_type = 'Lock'};

# The first message of a shard that has no home yet. Its handler may run for so long.
my $keeper = $node->session;
$keeper->query(q{BEGIN; SELECT FROM gate WHERE id = 'first' FOR UPDATE;});
$node->safe_psql('postgres', q{SELECT shard_tell('waits', 'a', '["first"]')});
$node->wait_until($waits, 'the handler to wait');
named(qq{^worker 0, process $worker, for types of \\w+, has come no further in its turn for \\d+ s: it has run the handler of entity "a" of type "waits" since .*; its handler_timeout ends it, as pg_terminate_backend\\($worker\\) does\$},
	'the first message of a shard');
is($node->safe_psql('postgres', 'SELECT count(*) FROM shard.own'), 0, 'no table has its shard');
$keeper->query('COMMIT;');
well('the handler to end');

# The same one that looks at no interrupts, like one in translate() of long texts: a process that is stopped does not, either.
$keeper->query(q{BEGIN; SELECT FROM gate WHERE id = 'frozen' FOR UPDATE;});
$node->safe_psql('postgres', q{SELECT shard_tell('waits', 'b', '["frozen"]')});
$node->wait_until(qq{SELECT wait_event_type = 'Lock' AND now() - xact_start > '1500 ms' FROM pg_stat_activity WHERE pid = $worker}, 'the handler to run for long');
kill 'STOP', $worker;
$keeper->query('COMMIT;');
named(qq{^worker 0, process $worker, .*: it has run the handler of entity "b" of type "waits" since}, 'a process that does not hear');
$node->safe_psql('postgres', q{SELECT shard_alter('waits', 'handler_timeout', '1s')});
named(qq{it should have ended by itself: if pg_terminate_backend\\($worker\\) does not end it, .*pg_ctl -m immediate}, 'and what ends it when its time is over');
kill 'CONT', $worker;
well('it to go on');

# Many calls in one turn, none of which is long: a batch handler for each of many entities.
$node->safe_psql('postgres', q{SELECT shard_tell('batches', 'e' || i, '1') FROM generate_series(1, 50) i});
my $said = '';
ShardCluster::wait_for_condition(
	sub {
		$said ||= $node->safe_psql('postgres', $line);
		return $node->safe_psql('postgres', 'SELECT count(*) FROM shard_entity.batches') == 50;
	},
	'all batches');
is($said, '', 'a turn of many calls is not blamed');
well('all to be handled');

# No call has been going on for long, as in a commit that waits for the disk: the owner is known.
my $state = qq{SELECT wait_event FROM pg_stat_activity WHERE pid = $worker};
my $tries = 0;
ShardCluster::wait_for_condition(
	sub {
		$node->safe_psql('postgres', q{SELECT shard_tell('briefly', 'e} . $tries++ . q{', '1')});
		$node->wait_until(qq{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $worker}, 'the handler to run');
		kill 'STOP', $worker;
		return 1 if $node->safe_psql('postgres', $state) eq 'PgSleep';
		kill 'CONT', $worker;
		$node->drain;
		return 0;
	},
	'the worker to be stopped in its turn');
named(qq{^worker 0, process $worker, for types of \\w+, has come no further in its turn for \\d+ s: its process may be stopped, or wait for the disk}, 'a turn in no call that is long');
kill 'CONT', $worker;
well('it to end its turn');

$node->stop;
done_testing();
