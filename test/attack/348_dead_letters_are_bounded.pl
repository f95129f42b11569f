# D11: a sender's messages fail, and fill the disk as dead letters. A type has so many of them, and so many bytes, and no
# more: then what fails waits, and nothing is lost, or, by the owner's choice, the oldest go, with a line in the log.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node', conf => 'shard.region_workers = 2');
$server->safe_psql('postgres', <<'SQL');
CREATE ROLE sender LOGIN;
CREATE FUNCTION fussy(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'bad' THEN
		RAISE EXCEPTION 'no';
	END IF;
	RETURN message;
END $$;
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql IMMUTABLE RETURN (message->>'n')::int8;
SELECT shard_start('waiting', 'fussy', max_attempts => 1, max_retry_backoff => '300 ms', max_dead_letters => 50);
SELECT shard_start('dropping', 'fussy', max_attempts => 1, max_dead_letters => 50, dead_letters_full => 'drop_oldest');
SELECT shard_start('large', 'fussy', max_attempts => 1, max_dead_letters_size => 100000, dead_letters_full => 'drop_oldest');
SQL

sub send_as_sender
{
	my ($sql) = @_;
	my ($status, undef, $err) = $server->psql('postgres', $sql, extra_params => [ '-U', 'sender' ]);
	is($status, 0, 'sent') or diag($err);
	return;
}
sub letters { my ($type) = @_; return $server->safe_psql('postgres', "SELECT count(*) FROM shard_dead_letters WHERE type_name = '$type'") }
sub health { return $server->safe_psql('postgres', q{SELECT array_to_string(problems, ' ') FROM shard_health()}) }

# --- what fails waits ------------------------------------------------------------------------------

send_as_sender(q{SELECT shard_tell('waiting', 'e' || i % 20, jsonb_build_object('bad', i)) FROM generate_series(1, 300) i});
my $waiting = q{(SELECT count(*) FROM shard_inbox WHERE type_name = 'waiting' AND place = 'stash')};
my $dead = q{(SELECT count(*) FROM shard_dead_letters WHERE type_name = 'waiting')};
$server->wait_until("SELECT $waiting + $dead = 300 AND $dead >= 50 AND $waiting > 0", 'as many dead letters as may be, and the others to wait');
$server->wait_until(q{SELECT array_to_string(problems, ' ') ~ '"waiting" has as many dead letters' FROM shard_health()}, 'health to say so');
my $most = letters('waiting');
cmp_ok($most, '<', 100, 'D11: two workers that fill it at once pass the bound by less than as much');
send_as_sender(q{SELECT shard_tell('waiting', 'good', '{"fine": 1}')});
$server->wait_until(q{SELECT state = '{"fine": 1}' FROM shard_entity.waiting WHERE entity_id = 'good'}, 'entities whose messages do not fail to go on');
is(letters('waiting'), $most, 'D11: there are so many and no more');
like(health(), qr/entity type "waiting" has as many dead letters as it may have: $most, of \d+ bytes; messages that fail wait/, 'D11: health says so');
like(slurp_file($server->logfile), qr/WARNING:.*entity type "waiting" has as many dead letters as it may have/, 'D11: so does the log');
$server->safe_psql('postgres', q{SELECT shard_alter('waiting', 'max_dead_letters', '1000')});
$server->wait_until(q{SELECT count(*) = 300 FROM shard_dead_letters WHERE type_name = 'waiting'}, 'nothing to be lost: with room all are there');
is($server->safe_psql('postgres', q{SELECT count(DISTINCT message->>'bad') FROM shard_dead_letters WHERE type_name = 'waiting'}), 300, 'D11: each once');

# --- what is given up for its number waits for room, too ---------------------------------------------

$server->safe_psql('postgres', q{SELECT shard_start('numbered', 'fussy', ordered_by => 'number_of', ordered_window => 1, max_attempts => 1,
	max_retry_backoff => '300 ms', max_dead_letters => 3)});
send_as_sender(qq{SELECT shard_tell('numbered', 'one', jsonb_build_object('n', n)) FROM unnest('{11, 12}'::int[]) n});
$server->wait_until(q{SELECT state->>'n' = '12' FROM shard_entity.numbered WHERE entity_id = 'one'}, 'an entity to expect number 13');
send_as_sender(q{SELECT shard_tell('numbered', 'one', jsonb_build_object('n', n)) FROM generate_series(1, 10) n});
$waiting = q{(SELECT count(*) FROM shard_inbox WHERE type_name = 'numbered' AND place = 'stash')};
$dead = q{(SELECT count(*) FROM shard_dead_letters WHERE type_name = 'numbered')};
$server->wait_until("SELECT $waiting = 7 AND $dead = 3", 'three dead letters, and the others to wait');
is($server->safe_psql('postgres', q{SELECT late FROM shard_ordered WHERE entity_id = 'one'}), 3, 'D16: what waits is not late yet');
$server->safe_psql('postgres', q{SELECT shard_alter('numbered', 'max_dead_letters', '1000')});
$server->wait_until("SELECT $waiting = 0 AND $dead = 10", 'nothing to be lost: with room all are there');
is($server->safe_psql('postgres', q{SELECT string_agg(message->>'n', ' ' ORDER BY (message->>'n')::int) FROM shard_dead_letters WHERE type_name = 'numbered'}),
	join(' ', 1 .. 10), 'D16: each once');
is($server->safe_psql('postgres', q{SELECT late FROM shard_ordered WHERE entity_id = 'one'}), 10, 'D16: all are late then');

# --- the oldest go -----------------------------------------------------------------------------------

for my $round (1 .. 5)
{
	send_as_sender("SELECT shard_tell('dropping', 'e' || i % 20, jsonb_build_object('bad', i, 'round', $round)) FROM generate_series(1, 60) i");
	$server->drain;
}
cmp_ok(letters('dropping'), '<', 2 * 50, 'D11: or the oldest make room');
cmp_ok($server->safe_psql('postgres', q{SELECT min((message->>'round')::int) FROM shard_dead_letters WHERE type_name = 'dropping'}), '>=', 4, 'D11: the oldest');
like(slurp_file($server->logfile), qr/WARNING:.*deleted the oldest dead letters of entity type "dropping": \d+/, 'D11: as the log says');

# --- bytes -------------------------------------------------------------------------------------------

send_as_sender(q{SELECT shard_tell('large', 'e' || i, jsonb_build_object('bad', repeat('x', 20000))) FROM generate_series(1, 40) i});
$server->drain;
my $bytes = $server->safe_psql('postgres', q{SELECT sum(octet_length(payload)) FROM shard.dead_letter d JOIN shard.type t USING (type_id) WHERE type_name = 'large'});
cmp_ok($bytes, '<', 2 * 100000, 'D11: they have so many bytes and no more');
cmp_ok(letters('large'), '>=', 1, 'and the last ones are there');
send_as_sender(q{SELECT shard_tell('large', 'huge', jsonb_build_object('bad', repeat('x', 200000)))});
$server->drain;
is($server->safe_psql('postgres', q{SELECT string_agg(entity_id, ' ') FROM shard_dead_letters WHERE type_name = 'large'}), 'huge', 'one that is larger than all may be is there alone');

my (undef, undef, $error) = $server->psql('postgres', q{SELECT shard_start('odd', 'fussy', dead_letters_full => 'burn')});
like($error, qr/invalid value for setting "dead_letters_full"/, 'another choice there is not');
$server->log_is_clean;
done_testing();
