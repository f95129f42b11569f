# D17: every process of the server keeps what a type's settings say. An owner gives a type a search_path of 20 MB, or
# another one again and again: texts are short, and what no type has any more is given back.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node', conf => 'shard.region_workers = 1');
$server->safe_psql('postgres', <<'SQL');
CREATE ROLE mallory LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory;
GRANT pg_read_all_stats TO mallory;
CREATE FUNCTION h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SQL

sub as_mallory
{
	my ($sql) = @_;
	my ($status, $out, $err) = $server->psql('postgres', "\\set VERBOSITY verbose\n$sql", extra_params => [ '-U', 'mallory' ]);
	return $status == 0 ? "done $out" : $err;
}

# --- too long --------------------------------------------------------------------------------------

like(as_mallory(q{SELECT shard_start('y1', 'h')}), qr/done/, 'a type of hers');
my $error = as_mallory(q{SELECT shard_alter('y1', 'search_path', 'mallory' || repeat(', q1', 4000000))});
like($error, qr/ERROR:\s+54000: value for setting "search_path" is too long/, 'D17: a search_path of 16 MB is refused');
like($error, qr/DETAIL:\s+The value has 16000007 bytes\./, 'D17: as long as it is');
like($error, qr/HINT:\s+Use at most 2048 bytes\./, 'D17: and as it may be');
cmp_ok(length($error), '<', 1000, 'D17: which is not said over and over');
like(as_mallory(q{SELECT set_config('search_path', 'public' || repeat(', q1', 1000), false); SELECT shard_start('y2', 'h')}),
	qr/54000: value for setting "search_path" is too long/, 'D17: nor is that of a session');
like(as_mallory(q{SELECT shard_start('y2', 'h', role => repeat('x', 1000000))}), qr/54000: value for setting "role" is too long/, 'D17: nor a role');
like(as_mallory(q{SELECT shard_start('y2', 'h', allocation_settings => jsonb_build_object('x', repeat('x', 1000000)))}),
	qr/54000: value for setting "allocation_settings" is too long/, 'D17: nor an object');
like(as_mallory(q{SELECT shard_alter('y1', 'search_path', 'public' || repeat(', q1', 500))}), qr/done/, 'shorter ones may be');

# --- another one again and again --------------------------------------------------------------------

my $grown = as_mallory(<<'SQL');
CREATE TEMP TABLE m AS SELECT sum(total_bytes) AS bytes FROM pg_backend_memory_contexts WHERE name = 'TopMemoryContext';
DO $$ BEGIN
	FOR i IN 1 .. 2000 LOOP
		PERFORM shard_alter('y1', 'search_path', 'public, s' || i || repeat(', q1', 490));
	END LOOP;
END $$;
SELECT 'grown ' || (SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name = 'TopMemoryContext') - bytes FROM m;
SQL
like($grown, qr/grown -?\d+/, 'a path after the other is given to a type');
my ($bytes) = $grown =~ /grown (-?\d+)/;
cmp_ok($bytes // 1e9, '<', 1024 * 1024, 'D17: 2000 paths of 2 kB leave nothing behind');

# --- one that is there ------------------------------------------------------------------------------

$server->safe_psql('postgres', q{SELECT shard_tell('y1', 'a', '{"n": 1}')});
$server->drain;
$server->safe_psql('postgres', <<'SQL');
UPDATE shard.type SET search_path = 'public' || repeat(', q1', 1000000) WHERE type_name = 'y1';
SELECT shard_alter('y1', 'max_attempts', '4');
SELECT shard_tell('y1', 'a', '{"n": 2}');
SQL
$server->wait_until(q{SELECT problem LIKE 'its search\_path has 4000006 bytes, and may have 2048: shard\_alter(''y1'', ''search\_path'', ...)%' FROM shard_types WHERE type_name = 'y1'},
	'a type with a longer one to say so');
$server->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE type_name = 'y1' AND place = 'stash'}, 'its message to wait');
like(as_mallory(q{SELECT shard_alter('y1', 'search_path', 'public')}), qr/done/, 'its owner gives it a shorter one');
$server->wait_until(q{SELECT state->>'n' = '2' FROM shard_entity.y1 WHERE entity_id = 'a'}, 'it to go on');
$server->log_is_clean;
done_testing();
