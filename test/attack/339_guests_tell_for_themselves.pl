# G11: who has told a type does not ask it in the same transaction: the ask would overtake. An extractor of another owner that tells
# kept the sender from asking a type that he had not told.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node');
$server->create_owners('mallory', 'alice');
$server->as('alice', q{
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('hers', 'alice.h')});
$server->as('mallory', q{
CREATE FUNCTION mallory.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
CREATE FUNCTION mallory.id(message jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	PERFORM shard_tell('hers', 'x', '{"by": "mallory"}');
	IF message ? 'ask' THEN PERFORM shard_ask('hers', 'x', '{}'); END IF;
	RETURN 'x'; END $$;
SELECT shard_start('his', 'mallory.h', entity_id_extractor => 'mallory.id')});

sub in_transaction { return $server->psql('postgres', "BEGIN; $_[0]; COMMIT", extra_params => [ '-U', 'alice' ]) }

my $refused = qr/cannot ask entity type "hers" after telling it in the same transaction/;
my ($status, $out, $error) = in_transaction(q{SELECT shard_tell('his', '{}'); SELECT shard_ask('hers', 'y', '{"n": 1}')->>'n'});
is($error, '', 'G11: what an extractor tells keeps nobody from asking');
like($out, qr/^1$/m, 'G11: he is answered');
$server->drain;
is($server->as('alice', q{SELECT count(*) FROM shard_entity.hers WHERE state->>'by' = 'mallory'}), 1, 'and what it told is sent');
(undef, undef, $error) = in_transaction(q{SELECT shard_tell('hers', 'y', '{}'); SELECT shard_tell('his', '{}'); SELECT shard_ask('hers', 'y', '{}')});
like($error, $refused, 'what he told himself does');
(undef, undef, $error) = in_transaction(q{SELECT shard_tell('his', '{"ask": 1}')});
like($error, $refused, 'and the extractor does not ask what it told');
(undef, undef, $error) = in_transaction(q{SELECT shard_tell('hers', 'y', '{}'); SELECT shard_tell('his', '{"ask": 1}')});
like($error, $refused, 'nor what he told');
$server->log_is_clean;
done_testing();
