# F12: a type is suspended since its handler had workers ended. That says nothing of its shard_id_extractor: handlers of another owner
# tell it as ever, and what they have told waits.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together);
$node->create_owners('alice', 'mallory');

# What cannot be cancelled ends its worker after 10 s; what a superuser may call, at once.
$node->safe_psql('postgres', 'ALTER ROLE mallory SUPERUSER');
$node->as('mallory', q{
CREATE FUNCTION mallory.sound(entity text) RETURNS int LANGUAGE sql IMMUTABLE RETURN 1;
CREATE FUNCTION mallory.ends(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_terminate_backend(pg_backend_pid());
	RETURN message;
END $$;
SELECT shard_start('ends', 'mallory.ends', number_of_shards => 10, shard_id_extractor => 'mallory.sound');
SELECT shard_tell('ends', i::text, '{}') FROM generate_series(1, 3) i});
$node->wait_until(q{SELECT problem IS NOT NULL FROM shard_types WHERE type_name = 'ends'}, 'the type to be suspended');
$node->as('alice', q{
CREATE FUNCTION alice.tells(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shard_tell('ends', 'y', '{}');
	RETURN message;
END $$;
SELECT shard_start('tells', 'alice.tells');
SELECT shard_tell('tells', 'x', '{}')});
$node->wait_until(q{SELECT EXISTS (SELECT FROM shard_inbox WHERE type_name = 'ends' AND entity_id = 'y')
	OR EXISTS (SELECT FROM shard_dead_letters WHERE type_name = 'tells')}, 'it to be told, or not');
is($node->safe_psql('postgres', q{SELECT error FROM shard_dead_letters WHERE type_name = 'tells'}), '', 'F12 a suspended type is told as ever');
$node->wait_until(q{SELECT state = '{}' FROM shard_entity.tells WHERE entity_id = 'x'}, 'who tells it to go on');
done_testing();
