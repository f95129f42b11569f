# In a type with ordered_by a message is given up because of which its worker had to end: its number is passed, like that of any
# message that failed for good, and those behind it are handled (D25).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', q{
CREATE FUNCTION number(message jsonb) RETURNS int8 LANGUAGE sql IMMUTABLE RETURN (message->>'n')::int8;
CREATE FUNCTION obey(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	WHILE message ? 'never' LOOP
		BEGIN
			PERFORM pg_sleep(60);
		EXCEPTION WHEN query_canceled THEN
			NULL;
		END;
	END LOOP;
	RETURN coalesce(state, '[]') || (message->'n');
END $$;
SELECT shard_start('numbered', 'obey', ordered_by => 'number', ordered_from => 1, ordered_timeout => '1 h', handler_timeout => '100 ms');
});

my $sound = ShardMutant::prove(
	{
		promise => 'the number of a message that ended its worker is passed',
		broken_by => ['STUCK_NUMBER_NOT_PASSED'],
		run => sub {
			$node->safe_psql('postgres', q{SELECT count(shard_tell('numbered', 'e', m::jsonb)) FROM unnest(ARRAY['{"n": 1}', '{"n": 2, "never": 1}', '{"n": 3}', '{"n": 4}']) m});
			$node->wait_until('SELECT count(*) = 1 FROM shard_dead_letters', 'the message to be given up');
			return ($node->safe_psql('postgres', 'SELECT count(*) FROM shard_ordered WHERE expected = 2'), 0);
		},
	});
if ($sound)
{
	$node->wait_until(q{SELECT state = '[1, 3, 4]' FROM shard_entity.numbered WHERE entity_id = 'e'}, 'those behind it to be handled');
	is($node->safe_psql('postgres', q{SELECT message->>'n', sqlstate FROM shard_dead_letters}), '2|57014', 'it alone is a dead letter');
	$node->log_is_clean;
}
done_testing();
