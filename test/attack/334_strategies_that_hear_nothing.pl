# D28: allocation functions in which the server's own code looks at no interrupts, such as translate() of long texts: nothing ends
# them, and each question would leave one more backend behind. A process that is stopped hears as little, and goes on when the
# test says so.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = '1s'");
$cluster->sql_everywhere(<<'SQL');
CREATE ROLE mallory LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory;
CREATE SCHEMA AUTHORIZATION mallory;
CREATE TABLE mallory.stays (now boolean);
INSERT INTO mallory.stays VALUES (true);
ALTER TABLE mallory.stays OWNER TO mallory;
SET ROLE mallory;
SET search_path = mallory, public;
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
CREATE FUNCTION put(shard int, requester int, allocations jsonb, strategy text, settings jsonb, members jsonb) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
	IF (SELECT now FROM mallory.stays) THEN PERFORM pg_sleep(10000); END IF;
	RETURN 1; END $$;
SQL
for my $node ($cluster->nodes)
{
	$node->sql(q{SET ROLE mallory; SET search_path = mallory, public;
		SELECT shard_start(t, 'keep(jsonb,jsonb)', 16, allocation_strategy => 'function', allocation_settings => '{"allocate": "put"}') FROM unnest('{one,other}'::text[]) t;});
}
$cluster->wait_registered;
my $there = $cluster->coordinator;
my $asked = q{SELECT coalesce(string_agg(pid::text, ' '), '') FROM pg_stat_activity WHERE backend_type = 'client backend' AND query ~ 'strategy' AND state = 'active' AND pid <> pg_backend_pid()};
my $refused = q{SELECT count(*) FROM shard_decisions WHERE what = 'strategy failed' AND why ~ 'still runs functions of the same owner'};
my @stopped;

# Each one that sleeps in the function hears nothing from then on.
sub stop_all
{
	for my $pid (split / /, $there->sql($asked . q{ AND wait_event = 'PgSleep'}))
	{
		next if grep { $_ == $pid } @stopped;
		kill 'STOP', $pid;
		push @stopped, $pid;
	}
	return;
}
END { kill 'CONT', @stopped; }

sub homes { my ($type) = @_; return $there->sql("SELECT count(*) FROM shard_homes WHERE type_name = '$type' AND node IS NOT NULL") }
sub until_all { my ($what, $done) = @_; ShardCluster::wait_for_condition(sub { stop_all(); return @stopped > 1 || $done->() }, $what); return }

$there->sql(q{SELECT shard_tell('one', 'e' || i, '1') FROM generate_series(1, 3) i});
until_all('a backend that hears nothing', sub { return @stopped > 0 });
$there->sql(q{SELECT shard_tell('other', 'e' || i, '1') FROM generate_series(1, 3) i});
until_all('the next question not to be asked', sub { return $there->sql($refused) > 0 });
is(scalar @stopped, 1, 'D28: one backend stays behind, and nothing is asked of its owner, for whatever type');
$there->wait_value("SELECT count(*) > 0 FROM shard_homes WHERE type_name = 'one' AND node IS NOT NULL", 't', 'homes by the default strategy');
$there->wait_value("SELECT count(*) > 0 FROM shard_homes WHERE type_name = 'other' AND node IS NOT NULL", 't', 'homes of the other type');
$there->wait_value(qq{SELECT count(*) FROM shard_health(), unnest(problems) p WHERE p ~ '^allocation functions of type "one", owner mallory, run in process $stopped[0] for \\d+ s and cannot be cancelled: .*pg_terminate_backend\\($stopped[0]\\)'},
	1, 'shard_health() to name type, owner and process');
pass('D28: shard_health() names type, owner and process');

# The next control worker knows, too.
my $worker = $there->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'shard control'});
$there->sql("SELECT pg_terminate_backend($worker)");
$there->wait_value(qq{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'shard control' AND pid <> $worker}, 1, 'the next control worker');
$cluster->wait_up;
my $before = homes('one');
$there->sql(q{SELECT shard_tell('one', 'f' || i, '1') FROM generate_series(1, 40) i});
until_all('homes of more shards', sub { return homes('one') > $before });
is(scalar @stopped, 1, 'D28: nor after another start of the control worker');

# When it is gone functions are asked again.
$cluster->sql_everywhere('UPDATE mallory.stays SET now = false');
kill 'CONT', @stopped;
$there->wait_value($asked, '', 'the backend to end');
$there->wait_value(q{SELECT count(*) FROM shard_health(), unnest(problems) p WHERE p ~ '^allocation functions'}, 0, 'nothing to be named any more');
pass('D28: it ends when it hears');

done_testing();
