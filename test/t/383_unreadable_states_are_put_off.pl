# What SQL has changed in the state table of a type with replicas, where it cannot be read as it is (Q33): it is tried again until it can,
# never given up, and delays nothing that waits already.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

# States of entities may have a column that cannot always be shown: a number that is no time.
sql(q{CREATE TABLE opened (what text);
CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'await' AND NOT EXISTS (SELECT FROM opened WHERE what = message->>'await') THEN RAISE EXCEPTION 'not yet' USING ERRCODE = 'serialization_failure'; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
END $$;
CREATE TYPE odd;
CREATE FUNCTION odd_in(cstring) RETURNS odd LANGUAGE internal IMMUTABLE STRICT AS 'int8in';
CREATE FUNCTION odd_out(odd) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'timestamp_out';
CREATE TYPE odd (INPUT = odd_in, OUTPUT = odd_out, LIKE = int8)});

# Starts a type that has some entities.
sub begin_type
{
	my ($name, $settings) = @_;
	sql("SELECT shard_start('$name', 'does', 4, replicas => 1$settings)");
	sql("SELECT shard_ask('$name', i::text, '{}') FROM generate_series(1, 20) i");
	sql("ALTER TABLE shard_entity.$name ADD COLUMN odd odd");
	return;
}

sub type_of { my ($name) = @_; return sql("SELECT type_id FROM shard.type WHERE type_name = '$name'") }

# What is told of an entity in the records of its shard.
sub told
{
	my ($name, $entity) = @_;
	return sql("SELECT coalesce(string_agg(concat_ws(' ', what, 'told'), ', ' ORDER BY turn), '') FROM shard.turn_records(" . type_of($name) . ", shard_shard_id('$name', '$entity')) WHERE section = 'images' AND entity = '$entity'");
}

sub touch
{
	my ($name, $entity, $odd) = @_;
	sql("UPDATE shard_entity.$name SET odd = '" . ($odd ? '-9223372036854775807' : '0') . "' WHERE entity_id = '$entity'");
	return;
}

sub waits { my ($name, $entity) = @_; return "SELECT count(*) FROM shard.held WHERE kind = 24 AND type_id = " . type_of($name) . " AND entity = '$entity'" }

# --- a state that cannot be read -----------------------------------------------------------------------

begin_type('odd', q{, max_attempts => 2, max_retry_backoff => '100 ms'});
my $from = -s $node->logfile;
touch('odd', $_, 1) for 1 .. 5;
my $attempts = "SELECT coalesce(sum(attempts), 0) FROM shard.held WHERE kind = 24";
$node->wait_until("SELECT ($attempts) >= 60 AND (SELECT count(*) = 5 FROM shard.held WHERE kind = 24 AND sqlstate = '22008')", 'it to be tried again and again');
is(sql('SELECT count(*) FROM shard.dead_letter'), 0, 'it is never given up');
is(sql(q{SELECT DISTINCT concat_ws(' ', place, sqlstate, message) FROM shard_inbox WHERE type_name = 'odd'}), 'stash 22008', 'users see what waits, and why');
my $times = sql($attempts);
my $lines = () = slurp_file($node->logfile, $from) =~ /WARNING:  state of entity "\d" of type "odd" cannot be read for its replicas: timestamp out of range/g;
ok($lines > 0, 'the log says so');
cmp_ok($lines, '<', $times, 'not each time');
my %before = map { $_ => told('odd', $_) } 1 .. 5;
touch('odd', $_, 0) for 1 .. 5;
$node->wait_until(qq{SELECT NOT EXISTS (SELECT FROM shard.held WHERE kind = 24)}, 'them to be read');
like(told('odd', $_), qr/^\Q$before{$_}\E, told/, 'one that was mended is told') for 1 .. 5;

# --- behind a message that waits -----------------------------------------------------------------------

# The message is tried again in less than a second, the row in an hour.
begin_type('slow', q{, max_attempts => 100, retry_backoff => '500 ms', max_retry_backoff => '1 h'});
sql(q{SELECT shard_tell('slow', '1', '{"await": "1"}')});
$node->wait_until(q{SELECT EXISTS (SELECT FROM shard.held WHERE kind = 1)}, 'a message to fail');
touch('slow', 1, 1);
$node->wait_until('SELECT (' . waits('slow', 1) . ') = 1', 'the row to wait behind it');
touch('slow', 1, 0);
sql(q{INSERT INTO opened VALUES ('1')});
$node->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard.held)}, 'the message to be tried when it was to be');
is(sql(q{SELECT state->>'n' FROM shard_entity.slow WHERE entity_id = '1'}), 2, 'it is handled once');

$node->log_is_clean;
done_testing();
