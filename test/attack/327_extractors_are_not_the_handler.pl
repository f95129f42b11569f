# An extractor that a handler causes to run, of somebody else's type, is not that handler: it cannot answer in its name, end its
# entity, or learn whom it serves. It runs when the handler sends, and when it asks for a shard.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together);
$node->create_owners('mallory', 'alice');

sub as { return $node->as(@_) }

as('mallory', q{
CREATE TABLE mallory.got (what text, result text);
CREATE FUNCTION mallory.strike() RETURNS void LANGUAGE plpgsql AS $$
DECLARE what text; result text;
BEGIN
	FOREACH what IN ARRAY ARRAY['shard_reply(''"forged"'')', 'shard_stop()', 'shard_passivate()', 'shard_self()', 'shard_sender()', 'shard_message_id()'] LOOP
		BEGIN
			EXECUTE format('SELECT %s::text', what) INTO result;
			INSERT INTO mallory.got VALUES (what, result);
		EXCEPTION WHEN object_not_in_prerequisite_state THEN
			INSERT INTO mallory.got VALUES (what, 'refused');
		END;
	END LOOP;
END $$;
CREATE FUNCTION mallory.shard(id text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike(); RETURN 1; END $$;
CREATE FUNCTION mallory.id(message jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike(); RETURN 'x'; END $$;
CREATE FUNCTION mallory.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('trap', 'mallory.h', shard_id_extractor => 'mallory.shard', entity_id_extractor => 'mallory.id', number_of_shards => 4);
});
as('alice', q{
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE message->>'do';
	PERFORM shard_reply('"honest"');
	RETURN coalesce(state, '[]') || to_jsonb((shard_self()).entity_id);
END $$;
SELECT shard_start('alice', 'alice.h', max_attempts => 1);
});
my @ways = (q{SELECT shard_shard_id('trap', 'y')}, q{SELECT shard_tell('trap', 'y', '{}')}, q{SELECT shard_tell('trap', '{}'::jsonb)},
	q{SELECT shard_tell_many('trap', '{y}', ARRAY['{}']::jsonb[])}, q{INSERT INTO shard_inbox (type_name, entity_id, message) VALUES ('trap', 'y', '{}')});
my $i = 0;
for my $way (@ways)
{
	my $do = qq{jsonb_build_object('do', \$q\$$way\$q\$)};
	is(as('alice', "SELECT shard_ask('alice', 'asked', $do)"), '"honest"', "the answer is hers: $way");
	as('alice', "SELECT shard_tell('alice', 'told', $do)");
	is(as('alice', "SELECT reply FROM shard_try('alice', 'tried', $do)"), '"honest"', 'so it is on trial');
	$node->drain;
	is(as('mallory', q{SELECT string_agg(DISTINCT result, ' ') FROM mallory.got; DELETE FROM mallory.got}), 'refused', 'the extractor gets nothing');
	is(as('alice', q{SELECT jsonb_array_length(state) FROM shard_entity.alice WHERE entity_id = 'told'}), ++$i, 'and the entity lives');
}
$node->log_is_clean;

done_testing();
