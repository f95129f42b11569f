# Entities that end themselves, are idle, or are told to leave: they leave memory, once, with one stop message, and are
# remembered only if nobody has told them to leave.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
sub value { return $node->safe_psql('postgres', shift) }

value(q{
CREATE SEQUENCE tries;
CREATE FUNCTION leaver(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message = '"rest"' THEN
		PERFORM shard_set_receive_timeout('50 ms', '"idle"');
	ELSIF message = '"idle"' THEN
		PERFORM shard_passivate();
	ELSIF message = '"stop"' AND (SELECT entity_id FROM shard_self()) = 'late' AND nextval('tries') % 3 <> 0 THEN
		RAISE 'not yet' USING ERRCODE = '40001';
	END IF;
	RETURN coalesce(state, '{}') || jsonb_build_object(message #>> '{}', coalesce((state ->> (message #>> '{}'))::int, 0) + 1);
END $$;
SELECT shard_start('sleeper', 'leaver');
SELECT shard_start('keeper', 'leaver', remember_entities => true, passivation_strategy => 'idle',
	passivate_idle_after => '100 ms', stop_message => '"stop"', retry_backoff => '10 ms');
});
my $present = q{SELECT count(*) FROM shard_region_state WHERE entity_id = '%s'};

# A receive time-out whose handler ends the entity ends itself.
value(q{SELECT shard_tell('sleeper', 'a', '"rest"')});
$node->wait_for_value(q{SELECT state ->> 'idle' FROM shard_entity.sleeper}, 1, 'the receive time-out');
$node->wait_for_value(sprintf($present, 'a'), 0, 'the entity to leave');
is(value('SELECT count(*) FROM shard_timers'), 0, 'its time-out has ended');
is(value('SELECT count(*) FROM shard_dead_letters'), 0, 'no message was given up');

# Who leaves as idle is remembered still; so is one whose stop message failed at first.
for my $id ('b', 'late')
{
	value(qq{SELECT shard_tell('keeper', '$id', '"work"')});
	$node->wait_for_value(qq{SELECT state ->> 'stop' FROM shard_entity.keeper WHERE entity_id = '$id'}, 1, "the stop message of $id");
	$node->wait_for_value(sprintf($present, $id), 0, "$id to leave");
	is(value(qq{SELECT state ->> 'stop' || ' ' || remembered FROM shard_entity.keeper WHERE entity_id = '$id'}), '1 true',
		"$id has had one stop message, and is remembered");
}

# Who is told to leave is not, with its stop message or without being in memory.
value(q{SELECT shard_tell('keeper', 'b', '"work"'), shard_passivate('keeper', 'b')});
$node->wait_for_value(q{SELECT remembered FROM shard_entity.keeper WHERE entity_id = 'b'}, 'f', 'b to be forgotten');
$node->wait_for_value(sprintf($present, 'b'), 0, 'b to leave');
is(value(q{SELECT state ->> 'work' || ' ' || (state ->> 'stop') FROM shard_entity.keeper WHERE entity_id = 'b'}), '2 2', 'after one more stop message');
value(q{SELECT shard_passivate('keeper', 'late')});
$node->wait_for_value(q{SELECT remembered FROM shard_entity.keeper WHERE entity_id = 'late'}, 'f', 'the other one to be forgotten');
is(value(q{SELECT state ->> 'stop' FROM shard_entity.keeper WHERE entity_id = 'late'}), 1, 'without a stop message: it was not in memory');
is(value('SELECT count(*) FROM shard_dead_letters'), 0, 'no message was given up at all');

$node->log_is_clean;
done_testing();
