# A stop message is handled once, whatever dies around it: before the turn that decides has committed, between that and
# the message, while it is handled. One that the worker has sent by itself means nothing to the next process; one of a
# handler is delivered (E9). It is tried again and given up like any message, and the entity leaves all the same (E11).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', q{
CREATE TABLE closed (one int);
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION actor(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'fussy' AND EXISTS (SELECT FROM closed) THEN
        RAISE EXCEPTION 'closed' USING ERRCODE = 'serialization_failure';
    END IF;
    INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
    IF message ? 'bye' THEN PERFORM shard_passivate(message->'bye'); END IF;
    IF message ? 'sleep' THEN PERFORM pg_sleep(60); END IF;
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
SELECT shard_start('idle', 'actor', passivate_idle_after => '1 h', stop_message => '{"what": "stopped"}');
SELECT shard_start('asks', 'actor', passivation_strategy => 'none', retry_backoff => '10 ms', max_retry_backoff => '10 ms', max_attempts => 1000000);
SELECT shard_start('slow', 'actor', passivation_strategy => 'none', handler_timeout => '100 ms', stop_message => '{"what": "stopped", "sleep": 1}');
});

sub message
{
	my ($type, $entity, $what, $more) = @_;
	return $node->safe_psql('postgres', "SELECT shard_tell('$type', '$entity', jsonb_build_object('what', '$what')" . ($more ? " || '$more'" : '') . ');');
}
sub seen { my ($entity) = @_; return "SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$entity'" }
sub running { my ($entity) = @_; return "SELECT count(*) FROM shard_region_state WHERE entity_id = '$entity'" }

sub let_idle
{
	my ($after) = @_;
	return $node->safe_psql('postgres', "SELECT shard_alter('idle', 'passivate_idle_after', '$after')");
}

# The server dies at the point, and is up again.
sub crash_at
{
	my ($point, $do) = @_;
	$node->set_fault($point, 'crash');
	$do->();
	ShardCluster::wait_for_condition(sub { $node->fault_happened }, "a crash at $point");
	$node->wait_up;
	$node->clear_fault;
	return;
}

# The worker's own stop message: the entity has left with the process, and nothing is handled for it. The next time it is.
for my $point ('stop_decided', 'stop_met')
{
	message('idle', $point, 1);
	$node->drain;
	crash_at($point, sub { let_idle('10 ms') });
	let_idle('1 h');
	message('idle', $point, 2);
	$node->drain;
	is($node->safe_psql('postgres', seen($point)), '1 2', "no stop message after a crash at $point");
	let_idle('10 ms');
	$node->wait_for_value(seen($point), '1 2 stopped', 'a stop message');
	$node->wait_for_value(running($point), 0, 'the entity to leave');
	let_idle('1 h');
	message('idle', $point, 3);
	$node->drain;
	is($node->safe_psql('postgres', seen($point)), '1 2 stopped 3', 'one, and the next life');
}

# A handler's own is a message, and delivered once.
for my $point ('stop_met', 'stop_handled')
{
	crash_at($point, sub { message('asks', "asks $point", 1, '{"bye": {"what": "own"}}') });
	$node->wait_for_value(seen("asks $point"), '1 own', 'the stop message after the crash');
	$node->drain;
	is($node->safe_psql('postgres', running("asks $point")), 0, "the entity has left after a crash at $point");
	message('asks', "asks $point", 2);
	$node->drain;
	is($node->safe_psql('postgres', seen("asks $point")), '1 own 2', 'it was handled once');
}

# Tried again: what comes behind it waits, also over a crash.
$node->safe_psql('postgres', 'INSERT INTO closed VALUES (1)');
message('asks', 'again', 1, '{"bye": {"what": "own", "fussy": 1}}');
$node->wait_until(q{SELECT EXISTS (SELECT FROM shard_inbox WHERE entity_id = 'again' AND attempts > 1)}, 'some attempts');
is($node->safe_psql('postgres', q{SELECT state FROM shard_region_state WHERE entity_id = 'again'}), 'backing_off', 'it backs off');
message('asks', 'again', 2);
$node->crash;
$node->recover;
$node->safe_psql('postgres', 'DELETE FROM closed');
$node->drain;
is($node->safe_psql('postgres', seen('again')), '1 own 2', 'a stop message that fails for a while goes before the next life');

# E11, E07: given up, and the entity leaves.
message('slow', 'slow', 1);
$node->drain;
$node->safe_psql('postgres', q{SELECT shard_passivate('slow', 'slow')});
$node->wait_for_value(q{SELECT sqlstate || ' ' || (message->>'what') FROM shard_dead_letters WHERE entity_id = 'slow'}, '57014 stopped', 'a dead letter');
$node->drain;
is($node->safe_psql('postgres', running('slow')), 0, 'the entity has left');
message('slow', 'slow', 2);
$node->drain;
is($node->safe_psql('postgres', seen('slow')), '1 2', 'and the next message begins its next life');

$node->log_is_clean(qr/closed|longer than its handler_timeout|dead letter/);
done_testing();
