# Timers come back from a dump the way that doc/operations.md says: kept in a table before it, scheduled again behind it.
# What was due meanwhile fires; days are those of the old time zone.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('dumped');
my ($save, $again) = map { my ($sql) = slurp_file(dirname(__FILE__) . "/../../doc/operations.md") =~ /```sql\n([^`]*$_[^`]*)```/; $sql // die "no statement with $_" }
	'CREATE TABLE saved_timers', 'FROM saved_timers';
$node->safe_psql('postgres', q{
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('note', 'note');
SELECT shard_schedule('note', 'a', '"soon"', after => '5 s', name => 'soon');
SELECT shard_schedule('note', 'b', '"later"', after => '1 h', name => 'later');
SET timezone = 'Europe/Berlin';
SELECT shard_schedule('note', 'c', '"daily"', at => date_trunc('day', now()) + interval '2 days 8 hours', every => '1 day', name => 'daily', missed => 'skip');
});
$node->drain;
my $left = q{SELECT string_agg(concat_ws(' ', entity_id, name, message, every, missed, zone, extract(epoch FROM due)), ', ' ORDER BY name) FROM shard_timers WHERE name <> 'soon'};
my $before = $node->safe_psql('postgres', $left);
$node->safe_psql('postgres', $save);
my $dump = $node->basedir . '/dump.sql';
command_ok([ 'pg_dump', '--no-sync', '-d', $node->connstr('postgres'), '-f', $dump ], 'they are dumped');
$node->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_timers WHERE name = 'soon')}, 'one to be due');

$node->safe_psql('postgres', 'CREATE DATABASE restored');
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump ], 'and restored');
$node->safe_psql('restored', q{ALTER TABLE shard_entity.note RENAME TO saved; ALTER TABLE shard_entity.saved SET SCHEMA public; SELECT shard_start('note', 'note');});
$node->safe_psql('restored', $again);
$node->wait_until(q{SELECT state = '"soon"' FROM shard_entity.note WHERE entity_id = 'a'}, 'what was due meanwhile to fire', 'restored');
$node->drain('restored');
is($node->safe_psql('restored', $left), $before, 'all others are as they were');
$node->log_is_clean;
done_testing();
