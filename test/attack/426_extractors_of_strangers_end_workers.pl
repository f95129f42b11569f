# F12: a handler replies to an entity of another owner, whose shard_id_extractor has the worker ended. That is counted to the type
# whose code it is: the type that replies is not suspended for it, and calls that extractor no more.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together);
$node->create_owners('alice', 'mallory');

# What cannot be cancelled ends its worker after 10 s; what a superuser may call, at once.
$node->safe_psql('postgres', 'ALTER ROLE mallory SUPERUSER');
$node->as('alice', q{
CREATE FUNCTION alice.replies(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'from' THEN PERFORM shard_reply(message); END IF;
	IF message ? 'tells' THEN PERFORM shard_tell(message->>'tells', 'y', '{}'); END IF;
	RETURN coalesce(state, '[]') || (message->'n');
END $$;
SELECT shard_start('open', 'alice.replies', max_attempts => 2, retry_backoff => '10 ms', max_retry_backoff => '20 ms')});
$node->as('mallory', q{
CREATE TABLE mallory.ends (at timestamptz);
CREATE FUNCTION mallory.evil(entity text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF EXISTS (SELECT FROM mallory.ends) THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
	RETURN 1;
END $$;
CREATE FUNCTION mallory.asks(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shard_tell('open', message->>'to', '{"from": "mallory", "n": 0}');
	RETURN message;
END $$;
SELECT shard_start('evil', 'mallory.asks', number_of_shards => 10, shard_id_extractor => 'mallory.evil')});
$node->wait_until('SELECT ok FROM shard_health()', 'ok');

my $letters = q{SELECT count(*) FROM shard_dead_letters WHERE type_name = 'open'};
my $suspended = q{SELECT problem IS NOT NULL FROM shard_types WHERE type_name = 'open'};
my $log = -s $node->logfile;
sub be_replied_to
{
	my ($n) = @_;
	# its own worker shall not call it: messages to it are appended before
	$node->as('mallory', qq{BEGIN; SELECT shard_tell('evil', 'x', '{"to": "to $n"}'); INSERT INTO mallory.ends VALUES (now()); COMMIT});
	$node->as('alice', qq{SELECT shard_tell('open', 'to $n', '{"n": 1}')});
	$node->wait_until("SELECT ($letters) = $n OR ($suspended)", "letter $n");
	return 0 if $node->safe_psql('postgres', $suspended) eq 't';
	$node->wait_until(qq{SELECT state = '[1]' FROM shard_entity.open WHERE entity_id = 'to $n'}, "alice's own message behind it");
	$node->as('mallory', 'DELETE FROM mallory.ends');
	return 1;
}

my $sound = ShardMutant::prove(
	{
		promise => 'F12 the type that replies goes on',
		broken_by => ['STUCK_GUEST_NOT_COUNTED'],
		run => sub { return ((be_replied_to(1) && be_replied_to(2) && be_replied_to(3)) ? 'goes on' : 'is suspended', 'goes on') },
	});
unless ($sound) { done_testing(); exit }
like(PostgreSQL::Test::Utils::slurp_file($node->logfile, $log),
	qr/an extractor of entity type "evil", which the handler of entity "to 1" of type "open" tells/, 'F12 the log says whose code it was');

# Whoever tells it now is told so, and goes on, though the extractor would end the next worker, too.
$node->as('mallory', 'INSERT INTO mallory.ends VALUES (now())');
my $ends = () = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /so the region worker ends/g;
$node->as('alice', q{SELECT shard_tell('open', 'to 4', '{"tells": "evil", "n": 0}'), shard_tell('open', 'to 4', '{"n": 1}')});
$node->wait_until(qq{SELECT state = '[1]' FROM shard_entity.open WHERE entity_id = 'to 4'}, "alice's own message behind a tell");
is($node->safe_psql('postgres', q{SELECT sqlstate, error FROM shard_dead_letters WHERE entity_id = 'to 4'}),
	'55000|extractors of entity type "evil" are not called from handlers now', 'F12 the extractor is called no more');
is(scalar(() = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /so the region worker ends/g), $ends, 'F12 and no worker ends');
done_testing();
