# The life of an entity, from a start that fails to the stop message by which it ends, with timers and a message that is
# given up; and at each of its durable steps the server dies, right there or after the turn's commit. Whatever dies, in the
# end each of its messages, timers and failures has had effect once (E9, E15, E20, E26, E32, E33), it is not remembered
# (E10), nothing is left of it, and others that are remembered run (E13).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my @steps = qw(remembered start_failed quarantined start_hurried start_done timer_made timer_ended timer_queued timer_fired
	failure_judged stop_handled forgotten recovery_walked);

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
sub value { return $node->safe_psql('postgres', shift) }

value(q{
CREATE TABLE seen (pos bigserial, entity text, what text, pid int DEFAULT pg_backend_pid());
CREATE TABLE broken (entity text);
CREATE FUNCTION act(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	self text := (SELECT entity_id FROM shard_self());
	what text := message->>'what' || coalesce((SELECT fired::text FROM shard_timer() WHERE name = 'often'), '');
BEGIN
	INSERT INTO seen (entity, what) VALUES (self, what);
	IF what = 'start' AND EXISTS (SELECT FROM broken b WHERE b.entity = self) THEN
		RAISE EXCEPTION 'told to fail to start' USING ERRCODE = 'invalid_parameter_value';
	ELSIF what = 'bad' THEN
		RAISE EXCEPTION 'told to fail' USING ERRCODE = 'invalid_parameter_value';
	ELSIF what = 'plan' THEN
		PERFORM shard_schedule('life', self, '{"what": "once"}', after => '0', name => 'once');
		PERFORM shard_schedule('life', self, '{"what": "often"}', every => '10 ms', name => 'often', missed => 'all');
		PERFORM shard_schedule('life', self, '{"what": "never"}', after => '0', name => 'never');
		PERFORM shard_cancel('life', self, 'never');
	ELSIF what = 'often3' THEN
		PERFORM shard_cancel('life', self, 'often');
	ELSIF what = 'leave' THEN
		PERFORM shard_passivate();
	END IF;
	RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
SELECT shard_start('life', 'act', remember_entities => true, start_message => '{"what": "start"}', stop_message => '{"what": "stop"}',
	max_attempts => 2, entity_restart_backoff => '10 ms', retry_backoff => '10 ms', number_of_shards => 10);
SELECT count(shard_tell('life', 'other' || i, '{"what": "message"}')) FROM generate_series(1, 3) i;
});
$node->drain;

sub tell_it { my ($entity, $what) = @_; return qq{SELECT shard_tell('life', '$entity', '{"what": "$what"}');} }

# Goes on over a death of the server that may come at any time.
sub patiently
{
	my ($sql) = @_;
	my $out;
	ShardCluster::wait_for_condition(
		sub { my ($status, $got) = $node->psql('postgres', $sql); $out = $got; return $status == 0 && $got ne 'f' }, $sql);
	return $out;
}

# Its whole life. What sends is run by the test alone: the server dies by its worker, at any time, and so may the session.
sub live
{
	my ($entity) = @_;
	my $once = sub {
		my ($mark, $sql) = @_;
		return patiently("DO \$\$ BEGIN
			IF NOT EXISTS (SELECT FROM sent WHERE (entity, what) = ('$entity', '$mark')) THEN
				INSERT INTO sent VALUES ('$entity', '$mark'); $sql
			END IF; END \$\$");
	};
	$once->(1, "INSERT INTO broken VALUES ('$entity'); " . (tell_it($entity, 'first') =~ s/SELECT/PERFORM/r));
	patiently("SELECT count(*) = 1 FROM shard_region_state WHERE (entity_id, state) = ('$entity', 'quarantined')");
	$once->(2, "DELETE FROM broken; PERFORM shard_start_entity('life', '$entity');");
	patiently("SELECT count(*) = 1 FROM seen WHERE (entity, what) = ('$entity', 'first')");
	$once->(3, join ' ', map { tell_it($entity, $_) =~ s/SELECT/PERFORM/r } 'plan', 'bad');
	patiently("SELECT count(*) = 2 FROM seen WHERE entity = '$entity' AND what IN ('once', 'often3')");
	return $once;
}

value('CREATE TABLE sent (entity text, what text)');
for my $step (@steps)
{
	for my $point ($step, "${step}_committed")
	{
		my $at_start = $step eq 'recovery_walked';
		$node->set_fault($point, 'crash');
		my $once = live($point);
		value(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'shard region'}) if $at_start;
		$once->(4, tell_it($point, 'leave') =~ s/SELECT/PERFORM/r) unless $at_start;
		ShardCluster::wait_for_condition(sub { $node->fault_happened }, "a crash at $point");
		$node->wait_up;
		$node->clear_fault;
		$once->(4, tell_it($point, 'leave') =~ s/SELECT/PERFORM/r);
		patiently("SELECT shard_drain('10 s') AND NOT EXISTS (SELECT FROM shard_inbox) AND NOT EXISTS (SELECT FROM shard_timers)");
		is(value("SELECT string_agg(what, ' ' ORDER BY what) FROM seen WHERE entity = '$point' AND what <> 'start'"),
			'first leave often1 often2 often3 once plan stop', "each once, after a crash at $point");
		is(value("SELECT (array_agg(what ORDER BY pos))[1] || ' ' || (array_agg(what ORDER BY pos DESC))[1] FROM seen WHERE entity = '$point'"),
			'start stop', 'from its start message to its stop message');
		is(value("SELECT state->>'count' = (SELECT count(*)::text FROM seen WHERE entity = '$point') AND NOT remembered FROM shard_entity.life
			WHERE entity_id = '$point'"), 't', 'its state says so, and it is not remembered');
		is(value("SELECT (SELECT string_agg(message->>'what', ' ') FROM shard_dead_letters WHERE entity_id = '$point') || ' '
			|| (SELECT string_agg(concat_ws(' ', number, attempts, outcome), ', ') FROM shard_history('life', '$point'))"),
			'bad 3 1 dead letter, 2 2 quarantine, 1 1 retry', 'its failure was judged and given up once, and so were its starts');
		$node->wait_until(q{SELECT count(DISTINCT entity) = 3 FROM seen JOIN pg_stat_activity USING (pid) WHERE entity LIKE 'other%' AND what = 'start'
			AND backend_type = 'shard region'}, 'the others to run');
	}
}
is(value('SELECT count(*) FROM shard.held'), 0, 'nothing is held');
$node->log_is_clean(qr/told to fail/, qr/fault point/);
done_testing();
