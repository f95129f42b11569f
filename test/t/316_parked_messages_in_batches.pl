# What a turn parks, and what of it goes on, is gathered in the worker's memory and goes to table shard.parked by statements for
# many messages. The places where a message could be lost, overtaken or handled twice in between are gone to on purpose. Builds
# with the mistake that belongs to each are noticed here (test/mutants.sh).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('parked', conf => "shard.region_workers = 1\nautovacuum = off");
sub sql { return $node->safe_psql('postgres', @_) }

sql(q{
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE TABLE held (one int);
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'fail' THEN RAISE EXCEPTION 'failed on demand'; END IF;
    WHILE message ? 'hold' AND EXISTS (SELECT FROM held) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
    INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
SELECT shard_start('known', 'recorder', number_of_shards => 1, max_attempts => 1);
SELECT shard_tell('known', 'k', '{"what": "first"}');
});
$node->drain;

sub start
{
	my ($type, $shards) = @_;
	return sql("SELECT shard_start('$type', 'recorder', number_of_shards => " . ($shards // 1) . ", max_attempts => 1, handler_timeout => '60 s')");
}

sub message
{
	my ($type, $entity, $what, $more) = @_;
	return "SELECT shard_tell('$type', '$entity', jsonb_build_object('what', '$what')" . ($more ? " || '$more'" : '') . ');';
}

sub send_all { return sql("BEGIN; @_ COMMIT;") }

sub wait_parked
{
	my ($count) = @_;
	return $node->wait_until("SELECT count(*) = $count FROM shard.parked", "$count messages to be parked");
}

sub wait_handled
{
	my ($entity, $what) = @_;
	return $node->wait_until("SELECT EXISTS (SELECT FROM seen WHERE (entity, what) = ('$entity', '$what'))", "entity $entity to handle message $what");
}

# What an entity has handled, once a message that is sent now is.
sub seen
{
	my ($type, $entity) = @_;
	send_all(message($type, $entity, 'end'));
	wait_handled($entity, 'end');
	return sql("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$entity'");
}

# Nothing gets a home while the control worker stands still.
sub stop_control
{
	my ($control) = $node->worker_pids('%control%');
	$node->stop_idle($control);
	return $control;
}

# Whether a home of the type was told to this node's worker.
sub facts
{
	my ($type) = @_;
	my $log = join ' UNION ALL ', map { "SELECT kind, type_id FROM shard.inbox_$_" } 0 .. 7;
	return "SELECT count(*) > 0 FROM ($log) l JOIN shard.type t USING (type_id) WHERE l.kind = 18 AND t.type_name = '$type'";
}

my $many = 2500;

my $sound = ShardMutant::prove(
	{
		promise => 'a message that is parked in the turn in which the home is heard of goes on with the others',
		broken_by => ['PARKED_UNSEEN'],
		run => sub {
			start('unseen');
			my $control = stop_control();
			send_all(message('unseen', 'u', 1));
			wait_parked(1);
			my ($worker) = $node->worker_pids('%region%');
			$node->stop_idle($worker);
			send_all(message('unseen', 'u', 2));
			kill 'CONT', $control;
			$node->wait_until(facts('unseen'), 'the home to be told');
			kill 'CONT', $worker;
			wait_handled('u', 1);
			return (seen('unseen', 'u'), '1 2 end');
		},
	},
	{
		promise => 'what was parked is there after a crash, to the last message',
		broken_by => ['PARKED_IN_MEMORY'],
		run => sub {
			start('crashed');
			stop_control();
			send_all(message('crashed', 'c', 1), message('crashed', 'c', 2), message('known', 'k', 'behind'));
			wait_handled('k', 'behind');
			sql('CHECKPOINT'); # which makes what is visible durable
			$node->crash;
			$node->recover;
			return (seen('crashed', 'c'), '1 2 end');
		},
	},
	{
		promise => 'what another process parks among messages that a turn takes is handled',
		broken_by => ['PARKED_RANGE_UNCHECKED'],
		run => sub {
			start('foreign');
			my $control = stop_control();
			send_all(message('foreign', 'f', 1, '{"hold": 1}'), message('known', 'k', 'between'), message('foreign', 'f', 2));
			wait_parked(2);
			sql('INSERT INTO held VALUES (1)');
			kill 'CONT', $control;
			$node->wait_until(q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE backend_type = 'shard region'}, 'the first one to be handled');
			sql(q{INSERT INTO shard.parked (type_id, shard, rseq, arrival, kind, sent, entity, mid_node, mid_seq, payload)
				SELECT type_id, shard, rseq, arrival - 1, kind, sent, entity, mid_node, mid_seq, payload FROM shard.parked ORDER BY arrival DESC LIMIT 1});
			sql('DELETE FROM held');
			wait_handled('f', 2);
			return (seen('foreign', 'f'), '1 2 2 end');
		},
	});

if ($sound)
{
	# The server dies while half of a transaction's messages are parked, some of them in memory alone.
	start('half', 64);
	stop_control();
	my $tell = sub { "SELECT count(shard_tell('half', 'h' || i % 50, jsonb_build_object('what', i))) FROM generate_series($_[0], $_[1]) i;" };
	sql($tell->(1, $many));
	wait_parked($many);
	sql($tell->($many + 1, 2 * $many));
	my ($worker) = $node->worker_pids('%region%');
	$node->crash_process($worker);
	$node->wait_until("SELECT count(*) >= 2 * $many FROM seen WHERE entity ~ '^h'", 'all to be handled');
	$node->drain;
	is(sql(q{SELECT count(*), count(DISTINCT what), bool_and(n = (SELECT count(*) FROM seen s WHERE s.entity = t.entity AND s.pos <= t.pos))
		FROM (SELECT *, row_number() OVER (PARTITION BY entity ORDER BY what::int) n FROM seen WHERE entity ~ '^h') t}),
		2 * $many . '|' . 2 * $many . '|t', 'after a crash amid parking all is handled, once and in order');

	# A message that fails in the midst of those that were taken, and one in the midst of those that are being parked.
	start('fails');
	start('parks');
	my $control = stop_control();
	sql(q{SELECT count(shard_tell('fails', 'x', jsonb_build_object('what', i) || (CASE WHEN i IN (3, 150) THEN '{"fail": 1}' ELSE '{}' END)::jsonb))
		FROM generate_series(1, 250) i});
	wait_parked(250);
	send_all((map { message('parks', 'p', $_) } 1 .. 3), message('known', 'k', 'bad', '{"fail": 1}'), map { message('parks', 'p', $_) } 4 .. 6);
	wait_parked(256);
	is(sql(q{SELECT count(*) FROM shard_dead_letters WHERE type_name = 'known'}), 1, 'a message fails where others are parked');
	is(sql(q{SELECT sum(parked) FROM shard_region_stats}), 256, 'parked messages are counted');
	kill 'CONT', $control;
	is(seen('parks', 'p'), '1 2 3 4 5 6 end', 'those that were parked around it are handled once and in order');
	is(seen('fails', 'x'), join(' ', (grep { $_ != 3 && $_ != 150 } 1 .. 250), 'end'), 'so are those around a parked one that fails');
	is(sql(q{SELECT string_agg(message->>'what', ' ' ORDER BY (message->>'what')::int) FROM shard_dead_letters WHERE type_name = 'fails'}), '3 150', 'which is given up');

	# Large ones among small ones.
	start('large');
	sql(q{SELECT shard_alter('large', 'max_message_size', '10485760')});
	$control = stop_control();
	sql(q{SELECT count(shard_tell('large', 'l', jsonb_build_object('what', i, 'pad', repeat(md5(i::text), CASE WHEN i % 3 = 0 THEN 40000 ELSE 1 END))))
		FROM generate_series(1, 20) i});
	wait_parked(20);
	is(sql(q{SELECT count(*) FROM shard.parked WHERE octet_length(payload) > 1024 * 1024}), 6, 'some are large');
	kill 'CONT', $control;
	is(seen('large', 'l'), join(' ', 1 .. 20, 'end'), 'large messages are parked in their order');

	# More shards, and more messages, than go to the table at once.
	start('wide', 3000);
	$control = stop_control();
	sql(q{SELECT count(shard_tell('wide', 'w' || i % 6000, jsonb_build_object('what', i))) FROM generate_series(1, 12000) i});
	wait_parked(12_000);
	kill 'CONT', $control;
	$node->wait_until(q{SELECT count(*) >= 12000 FROM seen WHERE entity ~ '^w'}, 'all to be handled');
	$node->drain;
	is(sql(q{SELECT count(*), count(DISTINCT what), count(DISTINCT entity) FROM seen WHERE entity ~ '^w'}), '12000|12000|6000', 'many shards have all of theirs handled once');
	is(sql(q{SELECT count(*) FROM (SELECT what::int - lag(what::int) OVER (PARTITION BY entity ORDER BY pos) AS step FROM seen WHERE entity ~ '^w') s WHERE step < 0}), 0, 'and in order');

	is(sql('SELECT count(*) FROM shard.parked'), 0, 'nothing is left');
	$node->wait_for_value('SELECT sum(parked) FROM shard_region_stats', 0, 'nothing to be counted');
	is(sql('SELECT ok FROM shard_health()'), 't', 'all is well');
	$node->log_is_clean;
}
done_testing();
