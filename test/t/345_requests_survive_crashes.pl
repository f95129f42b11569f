# Requests: each has exactly one outcome, an answer, an error or a time-out, whatever dies meanwhile (E48 - E53). What is open
# survives a crash; an answer that comes too late, and a second one, find nobody.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 2\nfsync = off");
$node->safe_psql('postgres', q{
CREATE TABLE heard (pos bigserial, entity text, what text, n text);
CREATE FUNCTION oracle(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	CASE message->>'do'
		WHEN 'keep' THEN RETURN jsonb_build_object('token', encode(shard_defer_reply(), 'hex'));
		WHEN 'fail' THEN RAISE EXCEPTION 'no' USING ERRCODE = 'P0042';
		ELSE PERFORM shard_reply(message->'n');
	END CASE;
	RETURN to_jsonb(coalesce(state::text::int, 0) + 1);
END $$;
CREATE FUNCTION seeker(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'response' THEN
		INSERT INTO heard (entity, what, n)
		SELECT entity_id, coalesce(message->>'reply', message->>'sqlstate', message->>'response'), message->>'with' FROM shard_self();
	ELSE
		PERFORM shard_request('oracle', message->>'of', message, coalesce((message->>'timeout')::interval, '1 h'), message->'n');
	END IF;
	RETURN to_jsonb(coalesce(state::text::int, 0) + 1);
END $$;
SELECT shard_start('oracle', 'oracle', max_attempts => 1);
SELECT shard_start('seeker', 'seeker');
});

# Seeker s asks oracle "of" to do something.
sub ask
{
	my ($of, $do, $timeout) = @_;
	$node->safe_psql('postgres', sprintf q{SELECT shard_tell('seeker', 's', jsonb_build_object('of', '%s', 'do', '%s', 'timeout', '%s'))}, $of, $do, $timeout // '1 h');
	settle();
	return;
}

# What is sent is handled, and what that sends, and what that sends.
sub settle { $node->drain for 1 .. 4; return }

sub answer
{
	my ($of, $with) = @_;
	$node->safe_psql('postgres', qq{SELECT shard_reply(decode(state->>'token', 'hex'), '"$with"') FROM shard_entity.oracle WHERE entity_id = '$of'});
	settle();
	return;
}

# What seeker s has heard, once and for all.
sub heard { return $node->safe_psql('postgres', q{WITH gone AS (DELETE FROM heard WHERE entity = 's' RETURNING *) SELECT string_agg(what, ' ' ORDER BY pos) FROM gone}) }

my @scenarios = (
	{
		promise => 'who was answered hears nothing more',
		broken_by => ['REQUEST_KEPT'],
		run => sub {
			ask('a', 'keep');
			answer('a', $_) for 'first', 'second';
			return (heard(), 'first');
		},
	},
	{
		promise => 'who waited in vain hears no answer',
		broken_by => ['REQUEST_ANSWERED_LATE'],
		run => sub {
			ask('b', 'keep', '10 ms');
			$node->wait_until('SELECT count(*) > 0 FROM heard', 'a time-out');
			answer('b', 'late');
			return (heard(), 'timeout');
		},
	},
	{
		promise => 'who has asked hears that the message was given up',
		broken_by => ['REQUEST_UNANSWERED'],
		run => sub {
			ask('c', 'fail');
			return (heard(), 'P0042');
		},
	});

if (ShardMutant::prove(@scenarios))
{
	# What is open survives a crash, and the time goes on.
	ask('d', 'keep');
	ask('e', 'keep', '1 s');
	$node->crash;
	$node->recover;
	$node->wait_until('SELECT count(*) = 1 FROM heard', 'a time-out');
	is(heard(), 'timeout', 'time goes on over a crash');
	answer('d', 'after a crash');
	is(heard(), 'after a crash', 'what is open survives a crash');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM shard_timers'), 0, 'nothing is left');
	$node->safe_psql('postgres', 'DELETE FROM shard.dead_letter');

	# Many, while server and workers end: of every third time-out and answer race.
	my $requests = 6_000;
	$node->safe_psql('postgres', qq{
	SELECT count(shard_tell('seeker', 't' || i % 300, jsonb_build_object('of', 'o' || i % 170, 'n', i, 'do', 'reply',
		'timeout', CASE i % 3 WHEN 0 THEN '10 ms' ELSE '1 h' END))) FROM generate_series(1, $requests) i});
	for my $part (1 .. 4)
	{
		$node->wait_until("SELECT count(*) >= $part * $requests / 8 FROM heard", 'outcomes');
		if ($part % 2)
		{
			$node->crash;
			$node->recover;
		}
		else
		{
			$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'shard region'});
		}
	}
	$node->wait_until("SELECT count(*) >= $requests FROM heard", 'all outcomes');
	$node->wait_until('SELECT NOT EXISTS (SELECT FROM shard_timers)', 'the end of all requests');
	settle();
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n) FROM heard'), "$requests|$requests", 'each request has one outcome');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM heard WHERE what <> n AND what <> 'timeout'}), 0, 'which is its own');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM heard WHERE what = 'timeout' AND n::int % 3 <> 0}), 0, 'no time is over before it is');
	is($node->safe_psql('postgres', q{SELECT sum(state::text::int) FROM shard_entity.oracle WHERE entity_id LIKE 'o%'}), $requests,
		'and was handled once');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM shard_dead_letters'), 0, 'nothing was given up');

	# A request that is open costs nothing.
	ask('f', 'keep');
	my $idle = q{SELECT pg_current_wal_insert_lsn() || ' ' || pg_snapshot_xmax(pg_current_snapshot())};
	my $before = '';
	ShardCluster::wait_for_condition(
		sub {
			my $turns = $node->safe_psql('postgres', 'SELECT sum(turns) FROM shard_stat_workers');
			my $now = $node->safe_psql('postgres', $idle) . " $turns";
			my $same = $now eq $before;
			$before = $now;
			return $same;
		},
		'the node to be idle');
	pass('a request that is open costs nothing');
}
done_testing();
