# A remembered entity that supervision has stopped starts again: after entity_restart_backoff, or with its next message, or
# with its shard, whichever comes first; once, with its start message. Who was passivated meanwhile does not (rule E20, scenario E05).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1");
sub value { return $node->safe_psql('postgres', shift) }

value(q{
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION fragile(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message->>'what' = 'fail' THEN RAISE EXCEPTION 'failed on demand'; END IF;
	INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
	RETURN '{}';
END $$;
SELECT shard_start(name::text, 'fragile', supervision => 'stop', remember_entities => remembers, start_message => '{"what": "start"}', entity_restart_backoff => backoff::interval)
FROM (VALUES ('quick', true, '10 ms'), ('slow', true, '1 day'), ('other', false, '10 ms')) v (name, remembers, backoff)});
my $seen = q{SELECT coalesce(string_agg(what, ' ' ORDER BY pos), '') FROM seen WHERE entity = '%s'};
my $in_memory = q{SELECT count(*) FROM shard_region_state WHERE entity_id = '%s'};

# Works, then fails; returns when both is over.
sub stop_it
{
	my ($type, $entity) = @_;
	value(qq{SELECT shard_tell('$type', '$entity', '{"what": "work"}')});
	value(qq{SELECT shard_tell('$type', '$entity', '{"what": "fail"}')});
	$node->wait_for_value(qq{SELECT count(*) FROM shard_dead_letters WHERE entity_id = '$entity'}, 1, "$entity to fail");
	return;
}

stop_it('other', 'o');
stop_it('quick', 'a');
$node->wait_for_value(sprintf($seen, 'a'), 'start work start', 'it to start again');
is(value(sprintf $in_memory, 'a'), 1, 'it runs, without a message');
value(q{SELECT shard_tell('quick', 'a', '{"what": "more"}')});
$node->drain;
is(value(sprintf $seen, 'a'), 'start work start more', 'and has started once');

# Its time is far away: an ask, or a message, starts it at once.
stop_it('slow', 'b');
stop_it('slow', 'c');
stop_it('slow', 'd');
is(value(sprintf $in_memory, 'b'), 0, 'one that is to wait has left memory');
value(q{SELECT shard_ask('slow', 'b', '{"what": "asked"}')});
is(value(sprintf $seen, 'b'), 'start work start asked', 'an ask starts it');
stop_it('slow', 'e');
value(q{SELECT shard_start_entity('slow', 'e'), shard_passivate('slow', 'c')});
$node->drain;
is(value(sprintf $seen, 'e'), 'start work start', 'E05: so does shard_start_entity()');

# With its shard, when the process is another one.
$node->crash;
$node->recover;
$node->wait_for_value(sprintf($seen, 'd'), 'start work start', 'another one to start with its shard');
$node->wait_for_value('SELECT count(*) FROM shard_region_stats WHERE recovering', 0, 'all to be started');
is(value(sprintf $seen, 'c'), 'start work', 'who was passivated does not start');
is(value(sprintf $seen, 'o'), 'start work', 'nor does one of a type that does not remember');
is(value('SELECT count(*) FROM shard.held'), 0, 'nothing waits for any of them');
$node->log_is_clean(qr/failed on demand/);
done_testing();
