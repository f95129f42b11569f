# CREATE EXTENSION in a transaction that goes on for a while, in a database in which the launcher has found no extension before:
# whatever the launcher learns and does meanwhile, the database has its workers when that commits.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');

# The launcher has something to do: a worker has ended, and is to be started again.
sub have_launcher_work
{
	my ($old) = $node->worker_pids('%region%');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
	$node->wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'shard region' AND datname = 'postgres' AND pid <> $old", 'the next worker');
	return;
}

$node->safe_psql('postgres', 'CREATE DATABASE fresh');
$node->wait_until(q{SELECT xact_commit > 0 FROM pg_stat_database WHERE datname = 'fresh'}, 'the launcher to have looked into it');
have_launcher_work();

# It reads the list of databases once more, in which the free slots have none.
$node->safe_psql('postgres', 'ALTER DATABASE fresh CONNECTION LIMIT 50');
have_launcher_work();
my $session = $node->session('fresh');
$session->query('BEGIN; CREATE EXTENSION shard;');
have_launcher_work();
$session->query('COMMIT;');
$session->close;
$node->wait_until(q{SELECT count(DISTINCT backend_type) = 2 FROM pg_stat_activity WHERE datname = 'fresh' AND backend_type IN ('shard region', 'shard control')}, 'workers of the new extension');
is($node->safe_psql('fresh', q{CREATE FUNCTION counts(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
	SELECT shard_start('counter', 'counts'); SELECT shard_tell('counter', 'a', '1') IS NOT NULL; SELECT shard_drain(); SELECT state FROM shard_entity.counter}) =~ s/.*\n//sr,
	'1', 'it handles messages');
$node->log_is_clean(qr/terminating background worker/);
done_testing();
