# F12: a handler replies to an entity of another owner, whose shard_id_extractor raises what passes by itself. Such an error is tried
# again for as long as it lasts: the entity that replies would stand still for as long as a stranger likes. So would it while his
# buffer is full.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together);
$node->create_owners('alice', 'mallory');
$node->as('alice', q{
CREATE FUNCTION alice.replies(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'from' THEN PERFORM shard_reply(message); END IF;
	RETURN coalesce(state, '[]') || (message->'n');
END $$;
SELECT shard_start('open', 'alice.replies', max_attempts => 2, retry_backoff => '10 ms', max_retry_backoff => '20 ms')});
$node->as('mallory', q{
CREATE TABLE mallory.code (code text);
CREATE FUNCTION mallory.evil(entity text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE chosen text := (SELECT code FROM mallory.code);
BEGIN
	IF chosen IS NOT NULL THEN RAISE 'not now' USING ERRCODE = chosen; END IF;
	RETURN 1;
END $$;
CREATE FUNCTION mallory.asks(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'to' THEN PERFORM shard_tell('open', message->>'to', '{"from": "mallory", "n": 0}'); END IF;
	RETURN message;
END $$;
SELECT shard_start('evil', 'mallory.asks', number_of_shards => 10, shard_id_extractor => 'mallory.evil')});
$node->wait_until('SELECT ok FROM shard_health()', 'ok');

for my $code ('40001', '40P01', '55P03', '53100')
{
	my $to = "to $code";
	$node->as('mallory', qq{BEGIN; SELECT shard_tell('evil', 'x', '{"to": "$to"}'); INSERT INTO mallory.code VALUES ('$code'); COMMIT});
	$node->as('alice', qq{SELECT shard_tell('open', '$to', '{"n": 1}')});
	$node->wait_until(qq{SELECT state = '[1]' FROM shard_entity.open WHERE entity_id = '$to'}, "alice's own message behind $code");
	is($node->safe_psql('postgres', qq{SELECT sqlstate, error FROM shard_dead_letters WHERE entity_id = '$to'}),
		'40000|an extractor of entity type "evil" failed: not now', "F12 $code has an end, and the letter says whose code it was");
	$node->as('mallory', 'DELETE FROM mallory.code');
}

# So long as a stranger's buffer is full, too, who is stopped for good.
$node->as('alice', q{SELECT shard_stop_type('open')});
$node->as('mallory', q{SELECT shard_tell('evil', 'x', '{"to": "to full"}')});
$node->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE type_name = 'open'}, 'the message to wait');
$node->as('mallory', q{SELECT shard_alter('evil', 'buffer_size', '1'), shard_stop_type('evil'); SELECT shard_tell('evil', 'y', '{}')});
$node->as('alice', q{SELECT shard_start('open', 'alice.replies', max_attempts => 2, retry_backoff => '10 ms', max_retry_backoff => '20 ms');
	SELECT shard_tell('open', 'to full', '{"n": 1}')});
$node->wait_until(q{SELECT state = '[1]' FROM shard_entity.open WHERE entity_id = 'to full'}, "alice's own message behind a full buffer");
is($node->safe_psql('postgres', q{SELECT sqlstate, error FROM shard_dead_letters WHERE entity_id = 'to full'}),
	'40000|buffer of entity type "evil" is full', 'F12 a full buffer has an end, too');
$node->log_is_clean;
done_testing();
