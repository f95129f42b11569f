# Effects that fail, or do not end, when the turn commits, and not while the handler runs (D26): a remote server's deferred
# constraints. The message is found and given up, or tried again; all others are handled, of the same owner, too.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
plan skip_all => 'no postgres_fdw'
	if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'}) eq '0';
$node->create_owners('alice', 'bob');

sub as { return $node->as(@_) }
sub value { return $node->safe_psql('postgres', @_) }

# What a table's trigger does when its transaction commits, at the server that is far away.
value(sprintf q{
CREATE EXTENSION postgres_fdw;
CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'postgres');
CREATE USER MAPPING FOR alice SERVER far OPTIONS (user 'alice', password_required 'false');
GRANT USAGE ON FOREIGN SERVER far TO alice}, $node->host, $node->port);
as('alice', q{
CREATE TABLE alice.far(what text);
CREATE FUNCTION alice.at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF new.what = 'fails' THEN
		RAISE EXCEPTION 'not at commit' USING ERRCODE = '23503';
	ELSIF new.what = 'passes' THEN
		RAISE EXCEPTION 'not yet' USING ERRCODE = '40002';
	ELSIF new.what = 'hangs' THEN
		PERFORM pg_advisory_xact_lock(42);
	END IF;
	RETURN new;
END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON alice.far DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION alice.at_commit();
CREATE FOREIGN TABLE alice.near(what text) SERVER far OPTIONS (schema_name 'alice', table_name 'far');
CREATE FUNCTION alice.does(message jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	IF message ? 'what' THEN
		INSERT INTO alice.near VALUES (message->>'what');
	END IF;
END $$;
CREATE FUNCTION alice.single(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	PERFORM alice.does(message);
	RETURN coalesce(state, '[]') || (message->'n');
END $$;
CREATE FUNCTION alice.batch(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	message jsonb;
BEGIN
	FOREACH message IN ARRAY messages LOOP
		PERFORM alice.does(message);
		state := coalesce(state, '[]') || (message->'n');
	END LOOP;
	RETURN state;
END $$;
CREATE FUNCTION alice.number(message jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE RETURN (message->>'n')::bigint;
-- the number itself is what fails
CREATE FUNCTION alice.bad_number(message jsonb) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
	PERFORM alice.does(message);
	RETURN NULL;
END $$;
CREATE FUNCTION alice.count(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce(state, '[]') || (message->'n');
SELECT shard_start('single', 'alice.single', handler_timeout => '2 s', max_attempts => 3, retry_backoff => '100 ms'),
	shard_start('batch', 'alice.batch'), shard_start('ordered', 'alice.single', ordered_by => 'alice.number'),
	shard_start('patient', 'alice.single', handler_timeout => '1 min'),
	shard_start('unnumbered', 'alice.count', ordered_by => 'alice.bad_number')});
as('bob', q{
CREATE FUNCTION bob.count(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce(state, '[]') || (message->'n');
SELECT shard_start('fine', 'bob.count')});
$node->wait_until('SELECT ok FROM shard_health()', 'all of them to work');

# Three messages of an entity, the second of which does something; and of as many others.
sub three
{
	my ($type, $what) = @_;
	return join ';', map { qq{SELECT shard_tell('$type', '$what', '$_')} } '{"n": 1}', qq{{"n": 2, "what": "$what"}}, '{"n": 3}';
}
my $others = q{SELECT count(shard_tell('single', 'o' || n % 50, jsonb_build_object('n', n))) FROM generate_series(1, 2000) n};
sub state_of { my ($type, $entity) = @_; return value(qq{SELECT state FROM shard_entity.$type WHERE entity_id = '$entity'}) }
sub dead
{
	my ($type) = @_;
	return value(qq{SELECT string_agg(concat_ws(' ', entity_id, message->>'n', sqlstate, attempts, error), '; ' ORDER BY entity_id, id) FROM shard_dead_letters WHERE type_name = '$type'});
}

as('alice', join ';', $others, three('single', 'fails'), three('single', 'passes'), three('batch', 'fails'), three('ordered', 'fails'),
	three('unnumbered', 'fails'), $others);
as('bob', q{SELECT shard_tell('fine', 'a', '{"n": 1}')});
$node->wait_until(q{SELECT count(*) = 5 FROM shard_dead_letters}, 'what fails at the commit to be given up');
$node->drain;
is(dead('single'), 'fails 2 23503 1 not at commit; passes 2 40002 3 not yet', 'each after its attempts, with the error');
for my $type ('batch', 'ordered', 'unnumbered')
{
	is(dead($type), 'fails 2 23503 1 not at commit', "also of type $type");
	is(state_of($type, 'fails'), '[1, 3]', 'and not those around it');
}
is(state_of('single', $_), '[1, 3]', "the entity of a message that $_ goes on") for 'fails', 'passes';
is(value(q{SELECT sum(jsonb_array_length(state)) FROM shard_entity.single WHERE entity_id LIKE 'o%'}), 4000, 'others are handled once each');
is(value(q{SELECT count(*) FROM alice.far}), 0, 'nothing of it is left at the other side');

# An ask has one attempt.
my ($status, undef, $error) = $node->psql('postgres', q{SET SESSION AUTHORIZATION alice; SELECT shard_ask('single', 'asked', '{"n": 1, "what": "fails"}', '30 s')});
like($error, qr/not at commit/, 'who asks is told');
is(as('alice', q{SELECT shard_ask('single', 'asked', '{"n": 2}', '30 s')}), '[2]', 'and the entity goes on');

# Several that are due at once: each turn comes to another one first.
as('alice', q{SELECT shard_stop_type('single')});
as('alice', join ';', map { qq{SELECT shard_tell('single', 'due$_', '{"n": 1, "what": "fails"}'), shard_tell('single', 'due$_', '{"n": 2}')} } 1 .. 5);
$node->wait_until(q{SELECT count(*) = 10 FROM shard.held WHERE place = 'stash'}, 'them to be put aside');
as('alice', q{SELECT shard_start('single', 'alice.single', handler_timeout => '2 s', max_attempts => 3, retry_backoff => '100 ms')});
$node->wait_until(q{SELECT count(*) = 5 FROM shard_dead_letters WHERE entity_id LIKE 'due%'}, 'all of them to be given up');
$node->drain;
is(value(q{SELECT string_agg(state::text, ' ') FROM shard_entity.single WHERE entity_id LIKE 'due%'}), '[2] [2] [2] [2] [2]', 'and their entities go on');

# The commit that does not end.
my $holder = $node->session;
$holder->query('SELECT pg_advisory_lock(42);');
as('alice', join ';', three('single', 'hangs'), $others);
$node->wait_until(q{SELECT count(*) = 1 FROM shard_dead_letters WHERE entity_id = 'hangs'}, 'it to be given up');
$node->drain;
is(value(q{SELECT message->>'n' || ' ' || sqlstate || ' ' || error FROM shard_dead_letters WHERE entity_id = 'hangs'}),
	'2 57014 the commit of what the handler did elsewhere took longer than its handler_timeout', 'by the type\'s handler_timeout');
is(state_of('single', 'hangs'), '[1, 3]', 'the entity goes on');
$holder->query('SELECT pg_advisory_unlock(42);');
$holder->close;

# Whose it is is told while it lasts, and it may end well.
$holder = $node->session;
$holder->query('SELECT pg_advisory_lock(42);');
my $begin = time;
as('alice', three('patient', 'hangs'));
cmp_ok(time - $begin, '<', 30, 'who sends does not wait for it');
$node->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'type "patient"' FROM shard_health()}, 'shard_health to name the type');
as('bob', q{SELECT shard_ask('fine', 'a', '{"n": 2}', '30 s')});
$holder->query('SELECT pg_advisory_unlock(42);');
$node->drain;
is(state_of('patient', 'hangs'), '[1, 2, 3]', 'what ends in time is handled');
is(value(q{SELECT count(*) > 0 FROM alice.far WHERE what = 'hangs'}), 't', 'at both sides');
is(state_of('fine', 'a'), '[1, 2]', 'another owner is not concerned');

$node->stop;
done_testing();
