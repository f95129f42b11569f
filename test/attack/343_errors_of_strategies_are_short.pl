# An allocation function that raises errors of any length: so much of them comes to the control worker as is kept, and
# they do not fill its memory, which is that of all types.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(<<'SQL');
CREATE ROLE mallory LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory;
CREATE SCHEMA AUTHORIZATION mallory;
SET ROLE mallory;
SET search_path = mallory, public;
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
CREATE FUNCTION put(shard int, requester int, allocations jsonb, strategy text, settings jsonb, members jsonb) RETURNS int LANGUAGE plpgsql
	AS $$ BEGIN RAISE EXCEPTION USING MESSAGE = 'so it begins ' || repeat('x', 10000000); END $$;
SQL
for my $node ($cluster->nodes)
{
	$node->sql(q{SET ROLE mallory; SET search_path = mallory, public;
		SELECT shard_start('keep', 'keep(jsonb,jsonb)', 4, allocation_strategy => 'function', allocation_settings => '{"allocate": "put"}');});
}
$cluster->wait_registered;

# The most memory that a control worker has had, in megabytes.
sub peak
{
	my $most = 0;
	for my $node ($cluster->nodes)
	{
		my ($pid) = $node->server->worker_pids('%control%');
		my ($kb) = slurp_file("/proc/$pid/status") =~ m{^VmHWM:\s+(\d+) kB}m;
		$most = $kb if $kb > $most;
	}
	return int($most / 1024);
}

my $before = peak();
$one->sql(q{SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series(1, 20) i});
ShardCluster::wait_for_condition(sub { $one->sql('SELECT count(*) FROM shard_entity.keep') + $two->sql('SELECT count(*) FROM shard_entity.keep') == 20 }, 'homes by the default strategy');
cmp_ok(scalar(grep { slurp_file($_->server->logfile) =~ /so it begins xxx/ } $cluster->nodes), '>', 0, 'the log says why');
cmp_ok(peak() - $before, '<', 15, "control workers had $before MB, and have hardly more");
done_testing();
