# Types that share a worker share its time (E27): a type with slow handlers, whose messages came first and are many, lets
# the messages and asks of another type go on meanwhile, and is not starved by them either. Order and numbers of messages stay
# as they were, though the slow ones go through the stash.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
sub sql { return $node->safe_psql('postgres', @_) }

sql(q{
CREATE TABLE seen (pos bigserial, type text, entity text, n int);
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep((message->>'takes')::float8);
	INSERT INTO seen (type, entity, n) SELECT type_name, entity_id, (message->>'n')::int FROM shard_self();
	RETURN message;
END $$;
SELECT shard_start('slow', 'note', number_of_shards => 8);
-- alone, it has all the time, and nothing goes through the stash
SELECT count(shard_tell('slow', 'alone', jsonb_build_object('n', i - 31, 'takes', 0.02))) FROM generate_series(1, 30) i;
});
$node->drain;
$node->wait_until("SELECT n_tup_ins = 30 FROM pg_stat_user_tables WHERE relname = 'seen'", 'the worker to tell what it has written');
is(sql("SELECT n_tup_ins FROM pg_stat_user_tables WHERE schemaname = 'shard' AND relname = 'held'"), 0, 'a slow type that is alone is not put off');
sql(q{
SELECT shard_start('quick', 'note', number_of_shards => 8);
-- their shards have homes by then
SELECT count(shard_tell(t, 'e' || i, '{"n": 0, "takes": 0}')) FROM generate_series(1, 40) i, unnest('{slow,quick}'::text[]) t;
});
$node->drain;

# All at once: 200 slow ones, of 20 entities, and behind them 100 of the other type.
my $tell = sub { my ($type, $entities, $each, $takes) = @_; return qq{SELECT count(shard_tell('$type', 'e' || e, jsonb_build_object('n', n, 'takes', $takes)))
	FROM generate_series(1, $each) n, generate_series(1, $entities) e} };
sql($tell->('slow', 20, 10, 0.05) . '; ' . $tell->('quick', 20, 5, 0.001));
my $session = $node->session;
like($session->query(q{SELECT shard_ask('quick', 'asked', '{"n": 1, "takes": 0}', '60 s');}), qr/"n": 1/, 'an ask is answered');
my $waiting = sql("SELECT count(*) FROM shard_inbox WHERE type_name = 'slow'");
cmp_ok($waiting, '>', 100, "while most of the slow ones wait: $waiting of 200");
$node->wait_until("SELECT count(*) = 100 FROM seen WHERE type = 'quick' AND n > 0 AND entity <> 'asked'", 'the quick ones to be handled');
cmp_ok(sql("SELECT count(*) FROM shard_inbox WHERE type_name = 'slow'"), '>', 100, 'they are handled then, too');

# Asks of the slow type do not keep others either; and the slow type goes on beside quick ones that never end.
my @askers = map { $node->session } 1 .. 4;
$_->send(q{SELECT shard_ask('slow', 'asked', '{"n": 1, "takes": 0.05}', '60 s');}) for @askers;
my $before = sql("SELECT count(*) FROM seen WHERE type = 'slow' AND n > 0");
sql($tell->('quick', 40, 100, 0.001));
$node->wait_until("SELECT count(*) >= $before + 10 FROM seen WHERE type = 'slow' AND n > 0", 'slow ones to be handled');
cmp_ok(sql("SELECT count(*) FROM shard_inbox WHERE type_name = 'quick'"), '>', 0, 'slow ones are handled while quick ones wait');
$_->receive for @askers;
$node->drain;
is(sql("SELECT count(*), count(DISTINCT (type, entity, n)) FROM seen WHERE n > 0 AND entity <> 'asked'"), '4300|4200', 'each is handled');
is(sql(q{SELECT count(*) FROM (SELECT n < lag(n) OVER (PARTITION BY entity ORDER BY pos) AS late FROM seen WHERE type = 'slow' AND entity <> 'asked') s WHERE late}), 0, 'in order');

# Nor do slow asks that are all there at once, within a turn: an ask behind five of them is the second or third to run.
# They come while the worker is in another call.
sql(q{
TRUNCATE seen;
CREATE FUNCTION hold(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT pg_try_advisory_xact_lock(1) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN message;
END $$;
SELECT shard_start('holding', 'hold', number_of_shards => 8, handler_timeout => '60 s')});
my $barrier = $node->session;
$barrier->query('SELECT pg_advisory_lock(1);');
my $asked = sub { my ($asks) = @_; $node->wait_until(qq{SELECT count(*) = $asks FROM pg_stat_activity
	WHERE query LIKE 'SELECT shard_ask%' AND wait_event_type = 'Extension'}, "$asks ask(s) to wait") };
my $holds = $node->session;
$holds->send(q{SELECT shard_ask('holding', 'asked', '{}', '60 s');});
$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'shard region' AND wait_event = 'PgSleep'}, 'the call');
push @askers, $node->session;
$_->send(q{SELECT shard_ask('slow', 'asked', '{"n": 1, "takes": 0.05}', '60 s');}) for @askers;
$asked->(6);
$session->send(q{SELECT shard_ask('quick', 'asked', '{"n": 1, "takes": 0}', '60 s');});
$asked->(7);
$barrier->query('SELECT pg_advisory_unlock(1);');
$_->receive for $holds, @askers, $session;
my $first = sql(q{SELECT count(*) FROM seen WHERE type = 'slow' AND pos < (SELECT pos FROM seen WHERE type = 'quick')});
cmp_ok($first, '<', 3, "it is handled behind $first of 5");
$node->log_is_clean;
done_testing();
