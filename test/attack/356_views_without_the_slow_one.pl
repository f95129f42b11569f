# D07: one owner's handler is slow; nobody could look at the regions, since all workers were asked and one did not answer.
# What the others say is shown, and who is busy is named.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node', conf => "shard.handler_lock_timeout = '1min'");
$server->create_owners('alice', 'mallory');
$server->as('mallory', q{
CREATE FUNCTION mallory.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	PERFORM pg_advisory_xact_lock(4711); RETURN message; END $$;
SELECT shard_start('slow', 'mallory.h', handler_timeout => '1 min', max_attempts => 1);
});
$server->as('alice', q{
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('quick', 'alice.h');
SELECT shard_tell('quick', 'a', '{}');
});
$server->drain;

my $holder = $server->session;
$holder->query('BEGIN; SELECT pg_advisory_xact_lock(4711);');
$server->as('mallory', q{SELECT shard_tell('slow', 'a', '{}')});
$server->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, 'a handler that goes on and on');

for my $look ([ 'alice', 'shard_region_state' ], [ $server->safe_psql('postgres', 'SELECT current_user'), 'shard_region_stats' ])
{
	my ($role, $view) = @$look;
	my ($status, $out, $err) = $server->psql('postgres', "SELECT type_name FROM $view", extra_params => [ '-U', $role ]);
	is($status, 0, "D07: $role reads $view");
	like($out, qr/^quick$/m, 'D07: and what others have');
	like($err, qr/WARNING:\s+shard worker \d+ did not answer in time, its (?:entities|counts) are missing\nDETAIL:\s+Shard worker \d+ was busy/, 'D07: and who is busy');
}
$holder->query('ROLLBACK;');
$server->drain;
is($server->safe_psql('postgres', q{SELECT string_agg(DISTINCT type_name, ' ' ORDER BY type_name) FROM shard_region_state}), 'quick slow', 'all of it, when it has ended');
$holder->close;
$server->log_is_clean;
done_testing();
