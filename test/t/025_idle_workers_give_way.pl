# As many workers as the server has slots for. Whoever drops a type and starts it again, or has it resharded, keeps his workers
# (C19); and workers of owners whose types are gone, kept for a while, give way to one that finds no slot (W5).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

# the launcher of shard and that of replication, control, the keeper, four owners
my $server = ShardCluster->create('node', conf => "shard.region_workers = 1\nmax_worker_processes = 8");
my $workers = 'SELECT count(*) FROM shard_stat_workers';
my @owners = qw(alice bob carol dave eve);
$server->create_owners(@owners);
$server->as($_, "CREATE FUNCTION $_.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message") for @owners;

# Starts a type of this owner and has it handle a message.
sub runs
{
	my ($owner, $what) = @_;
	$server->as($owner, "SELECT shard_start('$owner', '$owner.h'); SELECT shard_tell('$owner', 'e', '1')");
	$server->wait_until("SELECT count(*) = 1 FROM shard_entity.$owner", $what);
	return;
}

runs('alice', 'the first type to run');
my $alone = $server->safe_psql('postgres', $workers);
for my $round (1 .. 6)
{
	$server->as('alice', "SELECT shard_drop_type('alice', true)");
	runs('alice', "it to run again, $round");
}
is($server->safe_psql('postgres', $workers), $alone, 'a type that comes again has the same workers');
for my $round (1 .. 6)
{
	$server->as('alice', q{SELECT shard_stop_type('alice')});
	$server->as('alice', 'CALL shard_reshard(' . "'alice', " . (10 + $round) . ')');
	$server->as('alice', q{SELECT shard_start('alice', 'alice.h', number_of_shards => } . (10 + $round) . '); ' . "SELECT shard_tell('alice', 'r$round', '1')");
	$server->wait_until("SELECT count(*) = 1 + $round FROM shard_entity.alice", "a type with other shards to run, $round");
}
is($server->safe_psql('postgres', $workers), $alone, 'so has one that was resharded');

runs($_, "the type of $_ to run") for qw(bob carol dave);
$server->as($_, "SELECT shard_drop_type('$_', true)") for qw(alice bob carol);
runs('eve', 'that of another owner to run, without a slot for him');
$server->wait_until(q{SELECT ok FROM shard_health()}, 'all to be well');
$server->log_is_clean(qr/no background worker slot is free/);
done_testing();
