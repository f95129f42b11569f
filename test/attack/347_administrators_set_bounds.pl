# D07, D10: an owner asks for a handler_timeout of a day, for a type of a million shards, for types without end. What an
# administrator allows is a setting of the server, also of a role; a worker's memory is that of the shards that it has met,
# and is given back with the type.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

# One worker for all: its memory is looked at, and what it has counted.
my $server = ShardCluster->create('node', conf => $ShardCluster::together);
$server->safe_psql('postgres', <<'SQL');
CREATE ROLE mallory LOGIN;
CREATE ROLE trusted LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory, trusted;
CREATE SCHEMA mallory AUTHORIZATION mallory;
CREATE FUNCTION h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
ALTER ROLE trusted SET shard.max_handler_timeout = '10 min';
ALTER ROLE trusted SET shard.max_types_per_owner = 3;
SQL

sub as
{
	my ($role, $sql) = @_;
	my ($status, $out, $err) = $server->psql('postgres', "\\set VERBOSITY verbose\n$sql", extra_params => [ '-U', $role ]);
	return $status == 0 ? "done $out" : $err;
}

# --- D07 -------------------------------------------------------------------------------------------

my $error = as('mallory', q{SELECT shard_start('slow', 'h', handler_timeout => '1 day')});
like($error, qr/ERROR:\s+53400: value of setting "handler_timeout" of entity type "slow" is not allowed/, 'D07: no handler may run for a day');
like($error, qr/DETAIL:\s+It is 1 d; setting "shard.max_handler_timeout" of this server allows 1 min/, 'D07: what is allowed is said');
like($error, qr/HINT:\s+.*administrator/, 'D07: and who may change it');
like(as('mallory', q{SELECT shard_start('slow', 'h', handler_timeout => '30 s')}), qr/done/, 'what is allowed may be');
like(as('mallory', q{SELECT shard_alter('slow', 'handler_timeout', '1 day')}), qr/53400/, 'D07: nor is it altered to more');
like(as('mallory', q{SET shard.max_handler_timeout = 0; SELECT shard_alter('slow', 'handler_timeout', '1 day')}), qr/42501: permission denied to set parameter/,
	'D07: owners do not change the bound');
like(as('trusted', q{SELECT shard_start('patient', 'h', handler_timeout => '5 min')}), qr/done/, 'a role may have another one');
like(as('trusted', q{SELECT shard_alter('patient', 'handler_timeout', '11 min')}), qr/53400/, 'and has it');
is($server->safe_psql('postgres', q{SELECT shard_alter('slow', 'handler_timeout', '1 day')}), '', 'superusers are not bound');

# --- types -----------------------------------------------------------------------------------------

like(as('trusted', "SELECT shard_start('of$_', 'h')"), qr/done/, "type $_ of three") for 2, 3;
$error = as('trusted', q{SELECT shard_start('of4', 'h')});
like($error, qr/ERROR:\s+53400: role "trusted" has too many entity types/, 'D10: a role has so many types and no more');
like($error, qr/DETAIL:\s+It has 3; setting "shard.max_types_per_owner" allows 3/, 'D10: as is said');
like(as('trusted', q{SELECT shard_start('of3', 'h')}), qr/done/, 'to start one again is none more');
like(as('trusted', q{SELECT shard_drop_type('of3'); SELECT shard_start('of4', 'h')}), qr/done/, 'a dropped one makes room');

# --- D10 -------------------------------------------------------------------------------------------

$error = as('mallory', q{SELECT shard_start('wide', 'h', number_of_shards => 1000000)});
like($error, qr/53400: value of setting "number_of_shards" of entity type "wide" is not allowed/, 'D10: no million of shards');
like($error, qr/It is 1000000; setting "shard.max_shards_per_type" of this server allows 10000/, 'D10: as is said');

# A superuser may; it costs what is used. Resident memory of the worker, in kB.
sub memory
{
	my ($pid) = $server->worker_pids('shard region%');
	open my $status, '<', "/proc/$pid/status" or die "no status of $pid: $!";
	return (map { /^RssAnon:\s+(\d+)/ ? $1 : () } <$status>)[0];
}
$server->safe_psql('postgres', q{SELECT shard_tell('slow', 'a', '{}')});
$server->drain;
my $before = memory();
for my $n (1 .. 20)
{
	$server->safe_psql('postgres', "SELECT shard_start('wide$n', 'h', number_of_shards => 1000000)");
	$server->safe_psql('postgres', "SELECT shard_tell('wide$n', 'e' || i, '{}') FROM generate_series(1, 3) i");
}
$server->drain;
my $more = memory() - $before;
# a sanitizer keeps what is freed for a while
cmp_ok($more, '<', ($ENV{ASAN_OPTIONS} ? 3 : 1) * 20 * 1024, "D10: 20 types of a million shards each, three of them used, take $more kB of the worker, not 460 MB");
is($server->safe_psql('postgres', q{SELECT sum(messages_handled) FROM shard_region_stats WHERE type_name LIKE 'wide%'}), 60, 'what was handled is counted');
$server->log_is_clean;
done_testing();
