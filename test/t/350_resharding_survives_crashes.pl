# Another number of shards (doc/protocol/resharding.md): the server is killed at each step, and the next call goes on where
# that one was. No entity is lost, or is in two shards; timers and what waits come along; those that are remembered run
# again in their shards, and another start moves nothing any more (M09, M21).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $entities = 3000;
my $node = ShardCluster->create('first', fsync => 1, conf => 'shard.region_workers = 2');
$node->safe_psql('postgres', qq{
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
CREATE FUNCTION in_line(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce(state, '[]') || message;
SELECT shard_start('note', 'note', number_of_shards => 2, remember_entities => true);
SELECT count(shard_tell('note', i::text, '{}')) FROM generate_series(1, $entities) i;
SELECT shard_schedule('note', i::text, '{}', after => '1 h', name => 'alarm') FROM generate_series(1, 50) i;
});
$node->drain;

sub value { return $node->safe_psql('postgres', $_[0]) }

# Kills the server at a step of a call, or has it fail there; *number: of shards.
sub fail_at
{
	my ($point, $action, $number) = @_;
	$node->set_fault($point, $action);
	my ($status) = $node->psql('postgres', "CALL shard_reshard('note', $number)");
	isnt($status, 0, "$point: the call does not come to its end");
	ok($node->fault_happened, "$point: the step was met");
	$node->recover;
	$node->wait_up;
	$node->clear_fault;
	return;
}

sub stop_type { value(q{SELECT shard_stop_type('note')}); return }

sub start_type
{
	my ($number) = @_;
	value("SELECT shard_start('note', 'note', number_of_shards => $number, remember_entities => true)");
	return;
}

# What there has to be: all entities, each in its shard, and the timers.
my $all = q{SELECT (SELECT count(*) || ' ' || count(DISTINCT entity_id) || ' ' || bool_and(shard = shard_shard_id('note', entity_id)) FROM shard_entity.note)
	|| ' ' || (SELECT count(*) FROM shard.timer t WHERE t.shard = shard_shard_id('note', t.entity) AND t.type_id = (SELECT type_id FROM shard.type))};
my $good = "$entities $entities true 50";

my $sound = ShardMutant::prove(
	{
		promise => 'a call goes on with the rows that the one before has not come to',
		broken_by => ['RESHARD_SKIPS_ROWS'],
		run => sub {
			stop_type();
			fail_at('reshard_slice', 'crash', 4); # which ends in the middle of a shard
			value(q{CALL shard_reshard('note', 4)});
			return (value($all), $good);
		},
	},
	{
		promise => 'timers come along',
		broken_by => ['RESHARD_LEAVES_TIMERS'],
		run => sub {
			value(q{SELECT shard_stop_type('note'); }) ;
			value(q{CALL shard_reshard('note', 7)});
			return (value($all), $good);
		},
	},
	{
		promise => 'the worker that goes on knows what waits, also where the server was killed in the middle',
		broken_by => ['RESHARD_STASH_UNSEEN'],
		run => sub {
			value(q{SELECT shard_start('queue', 'in_line', number_of_shards => 10); SELECT shard_stop_type('queue');
				SELECT count(shard_tell('queue', e::text, to_jsonb(n))) FROM generate_series(1, 2) n, generate_series(1, 300) e});
			$node->wait_until(q{SELECT count(*) = 600 FROM shard_inbox WHERE type_name = 'queue' AND place = 'stash'}, 'all to wait');
			$node->set_fault('reshard_numbered', 'crash');
			$node->psql('postgres', q{CALL shard_reshard('queue', 7)});
			$node->recover;
			$node->wait_up;
			$node->clear_fault;
			value(q{SELECT shard_tell('queue', '1', '3')});
			value(q{CALL shard_reshard('queue', 7)});
			$node->wait_until(q{SELECT count(*) = 7 FROM shard.own o JOIN shard.type t USING (type_id) WHERE t.type_name = 'queue'}, 'the homes');
			value(q{SELECT count(shard_tell('queue', e::text, '4')) FROM generate_series(1, 300) e;
				SELECT shard_start('queue', 'in_line', number_of_shards => 7)});
			$node->drain unless $ENV{SHARD_MUTANT};
			$node->wait_until(q{SELECT count(*) = 300 FROM shard_entity.queue}, 'each to be heard') if $ENV{SHARD_MUTANT};
			my $got = value(q{SELECT string_agg(DISTINCT state::text, ' ' ORDER BY state::text) FROM shard_entity.queue}) . value('; SELECT sum(recounts) FROM shard_stat_workers');
			value(q{SELECT shard_drop_type('queue', true)});
			return ($got, '[1, 2, 3, 4] [1, 2, 4]0');
		},
	},
	{
		promise => 'what is sent while the type gets its number is handled, or its sender hears that it is not sent',
		broken_by => ['RESHARD_BESIDE_SENDERS'],
		run => sub {
			value(q{
CREATE FUNCTION relay(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN CASE WHEN shard_tell('cut', 'b', message) IS NULL THEN message ELSE message END;
CREATE FUNCTION cut(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message = '"ask"' THEN PERFORM shard_request('desk', 'd', '"what?"', '1 h'); RETURN state; END IF;
	RETURN coalesce(state, '[]') || message;
END $$;
CREATE FUNCTION desk(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN to_jsonb(encode(shard_defer_reply(), 'hex'));
SELECT shard_start('relay', 'relay', retry_backoff => '10 ms', max_retry_backoff => '100 ms'), shard_start('cut', 'cut', number_of_shards => 5),
	shard_start('desk', 'desk');
SELECT shard_tell('cut', 'q', '"ask"')});
			$node->wait_until('SELECT count(*) = 1 FROM shard_entity.desk', 'a request');
			value(q{SELECT shard_stop_type('cut')});
			my ($call, $sender, $replier) = ($node->session, $node->session, $node->session);
			$sender->query(q{SET application_name = 'sender';});
			$replier->query(q{SET application_name = 'replier';});
			$call->query('SELECT 1;');
			$node->set_fault('reshard_renumbered', 'freeze');
			$call->send(q{CALL shard_reshard('cut', 7);});
			ShardCluster::wait_for_condition(sub { $node->fault_happened }, 'the rows to have their number');
			$sender->send(q{SELECT shard_tell('cut', 'a', '1');});
			$replier->send(q{SELECT shard_reply(decode(state #>> '{}', 'hex'), '"that"') FROM shard_entity.desk;});
			value(q{SELECT shard_tell('relay', 'r', '2')});
			# Which sends nothing, and waits for nothing; one that waits for what is frozen would do so for good.
			value(q{SET statement_timeout = '60 s'; BEGIN; SAVEPOINT s; SELECT shard_tell('cut', 'd', '4'); ROLLBACK TO s; COMMIT});
			# On a sound build both wait; on another one both wait for the type by now.
			$node->wait_until(q{SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sender' AND wait_event_type = 'Lock')
				+ (SELECT count(*) FROM shard_inbox WHERE type_name = 'cut' AND place <> 'inbox' AND entity_id = 'a') = 1}, 'the sender to have done what it can');
			$node->wait_until(q{SELECT (SELECT count(*) FROM shard_inbox WHERE type_name = 'relay' AND attempts > 0)
				+ (SELECT count(*) FROM shard_inbox WHERE type_name = 'cut' AND place <> 'inbox' AND entity_id = 'b') = 1}, 'and the handler');
			$node->wait_until(q{SELECT bool_and(wait_event_type = 'Lock' OR state = 'idle' AND query ~ 'shard_reply') FROM pg_stat_activity WHERE application_name = 'replier'},
				'and who replies');
			$node->clear_fault;
			$call->receive;
			my $replied = eval { $replier->receive; 1 } ? 'replied' : $@ =~ /was resharded, or started anew, while it was sent to/ ? 'not replied' : $@;
			my $sent = eval { $sender->receive; 1 } ? 'sent' : $@ =~ /was resharded, or started anew, while it was sent to/ ? 'not sent' : $@;
			value(q{SELECT shard_tell('cut', 'c', '3'), shard_start('cut', 'cut', number_of_shards => 7)});
			$node->wait_until(q{SELECT count(*) > 0 FROM shard_entity.cut WHERE entity_id = 'c'}, 'the type to run');
			$node->wait_until(q{SELECT count(*) = 0 FROM shard_inbox WHERE type_name IN ('relay', 'cut')}, 'and nothing to wait');
			my $got = value(q{SELECT string_agg(entity_id || state, ' ' ORDER BY entity_id) || ' ' || (SELECT count(*) FROM shard_dead_letters) FROM shard_entity.cut});
			value(q{SELECT shard_drop_type('cut', true), shard_drop_type('relay', true), shard_drop_type('desk', true)});
			return ("$sent, $replied: $got", $sent eq 'sent' ? 'sent, not replied: a[1] b[2] c[3] 0' : 'not sent, not replied: b[2] c[3] 0');
		},
	});

if ($sound)
{
	my $number = 10;
	for my $step ([ reshard_begun => 'leaving' ], [ reshard_left => 'leaving' ], [ reshard_slice => 'moving' ], [ reshard_numbered => 'moving' ], [ reshard_finished => '' ])
	{
		my ($point, $state) = @$step;
		$number += 7;
		stop_type();
		fail_at($point, 'crash', $number);
		is(value('SELECT state FROM shard_reshardings'), $state, "$point: how far it is is known after a crash");
		is(value('SELECT count(*), count(DISTINCT entity_id) FROM shard_entity.note'), "$entities|$entities", "$point: nothing is lost, and nothing there twice");
		my ($status) = $node->psql('postgres', "SELECT shard_start('note', 'note', number_of_shards => $number, remember_entities => true)");
		$state ? isnt($status, 0, "$point: nothing runs meanwhile") : is($status, 0, "$point: it is done");
		# a message on the way waits, or is handled
		value(q{SELECT shard_tell('note', '77', '{}')});
		value("CALL shard_reshard('note', $number)");
		is(value($all), $good, "$point: the next call comes to the end");
		start_type($number);
		$node->wait_until("SELECT count(*) = $entities FROM shard_region_state WHERE type_name = 'note' AND state = 'running'",
			'M09, M21: all that are remembered to run again');
		$node->drain;
		is(value(q{SELECT bool_and(shard = shard_shard_id('note', entity_id)) FROM shard_region_state WHERE type_name = 'note'}), 't', "$point: in their shards");
	}
	is(value(q{SELECT state->>'count' FROM shard_entity.note WHERE entity_id = '77'}), 6, 'what was sent meanwhile was handled once');
	is(value(q{SELECT count(*) FROM shard_timers}), 50, 'timers are there');
	is(value('SELECT count(*) FROM shard.own o WHERE NOT EXISTS (SELECT FROM shard.type t WHERE t.type_id = o.type_id)'), 0, 'nothing of former shards is left');
	my $places = value('SELECT string_agg(ctid::text, $$ $$ ORDER BY entity_id) FROM shard_entity.note');
	$node->stop('fast');
	$node->start;
	start_type($number);
	value("CALL shard_reshard('note', $number)");
	is(value('SELECT string_agg(ctid::text, $$ $$ ORDER BY entity_id) FROM shard_entity.note'), $places, 'M09: another start moves nothing');

	# An error in the middle ends the call alone.
	stop_type();
	$node->set_fault('reshard_slice', 'error');
	my ($status, undef, $error) = $node->psql('postgres', q{CALL shard_reshard('note', 11)});
	isnt($status, 0, 'a call that fails');
	$node->clear_fault;
	value(q{CALL shard_reshard('note', 12)});
	is(value($all), $good, 'another number of shards may be asked for on the way');
	start_type(12);
	$node->log_is_clean;
}
$node->stop('immediate');
done_testing();
