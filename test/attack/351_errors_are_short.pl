# D11: what fails says why, in as many words as its handler likes: in the stash, among the dead letters, in the log, to
# those who ask. Of each text so much is kept and no more, and it counts like the message itself.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node', conf => 'shard.region_workers = 1');
# A multibyte character crosses the cut: an x, then two bytes each.
$server->safe_psql('postgres', <<'SQL');
CREATE FUNCTION wordy(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	words text := 'x' || repeat(U&'\00e4', (message->>'n')::int);
BEGIN
	RAISE EXCEPTION USING MESSAGE = words, DETAIL = words, HINT = words, COLUMN = words, ERRCODE = message->>'code';
END $$;
CREATE FUNCTION fine(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('wordy', 'wordy', max_attempts => 2, retry_backoff => '1 h', max_retry_backoff => '1 h');
SELECT shard_start('bounded', 'wordy', max_attempts => 1, max_dead_letters_size => 100000, dead_letters_full => 'drop_oldest');
SQL

# --- the dead letter ---------------------------------------------------------------------------------

my $offset = -s $server->logfile;
$server->safe_psql('postgres', q{SELECT shard_tell('wordy', 'dead', '{"n": 1000000, "code": "P0001"}')});
$server->wait_until(q{SELECT count(*) = 1 FROM shard_dead_letters}, 'a dead letter');
my $cut = q{'x' || repeat(U&'\00e4', 4095) || '... (2000001 bytes, cut off)'};
is($server->safe_psql('postgres', "SELECT error = $cut, detail = $cut, hint = $cut, octet_length(context) < 9000 FROM shard_dead_letters"),
	't|t|t|t', 'D11: so much is kept of each text, whole characters, and how much there was');
cmp_ok((-s $server->logfile) - $offset, '<', 100 * 1024, 'D11: the log has no more either');
like(slurp_file($server->logfile, $offset), qr/became a dead letter: x.*cut off/, 'and has it');

# --- the stash ---------------------------------------------------------------------------------------

$server->safe_psql('postgres', q{SELECT shard_tell('wordy', 'waits', '{"n": 1000000, "code": "40001"}')});
$server->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE attempts = 1}, 'a message that waits for its next attempt');
is($server->safe_psql('postgres', "SELECT error = $cut FROM shard.held"), 't', 'D11: so is it in the stash');

# --- who asks ----------------------------------------------------------------------------------------

my ($status, undef, $error) = $server->psql('postgres', q{SELECT shard_ask('wordy', 'asked', '{"n": 1000000, "code": "P0001"}')});
like($error, qr/ERROR:\s+x.*\.\.\. \(2000001 bytes, cut off\)/, 'D11: who asks is told as much');
cmp_ok(length($error), '<', 100 * 1024, 'D11: and no more');
(undef, undef, $error) = $server->psql('postgres', q{SELECT shard_ask('wordy', 'asked', '{"n": 10, "code": "P0001"}')});
unlike($error, qr/cut off/, 'what is short is whole');

# --- bytes -------------------------------------------------------------------------------------------

$server->safe_psql('postgres', q{SELECT shard_tell('bounded', 'e' || i, '{"n": 4000, "code": "P0001"}') FROM generate_series(1, 40) i});
$server->wait_until(q{SELECT count(*) = 0 FROM shard_inbox WHERE type_name = 'bounded'}, 'all of them to have failed');
my $bytes = $server->safe_psql('postgres', q{SELECT sum(octet_length(payload) + octet_length(error) + octet_length(detail) + octet_length(hint) + octet_length(context))
	FROM shard.dead_letter d JOIN shard.type t USING (type_id) WHERE type_name = 'bounded'});
cmp_ok($bytes, '<', 2 * 100000, "D11: what is said of them counts, too: $bytes bytes");
cmp_ok($bytes, '>', 0, 'and the last ones are there');
$server->log_is_clean;
done_testing();
