# G3: allocation functions that catch every cancellation, and set off that the server notices who has gone away: the coordinator
# gives up and asks again, and each question would leave a backend behind for good, until max_connections is reached for all.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = '1s'");
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(<<'SQL');
CREATE ROLE mallory LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory;
CREATE SCHEMA AUTHORIZATION mallory;
SET ROLE mallory;
SET search_path = mallory, public;
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
CREATE FUNCTION stay() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
	PERFORM set_config('client_connection_check_interval', '0', false);
	LOOP
		BEGIN PERFORM pg_sleep(10000); EXCEPTION WHEN query_canceled THEN NULL; END;
	END LOOP; END $$;
CREATE FUNCTION put(shard int, requester int, allocations jsonb, strategy text, settings jsonb, members jsonb) RETURNS int LANGUAGE sql AS 'SELECT stay()';
CREATE FUNCTION shift(allocations jsonb, strategy text, settings jsonb, members jsonb, in_progress int[]) RETURNS TABLE (shard int, from_node int) LANGUAGE sql AS 'SELECT stay(), 1';
SQL
for my $node ($cluster->nodes)
{
	$node->sql(q{SET ROLE mallory; SET search_path = mallory, public;
		SELECT shard_start('keep', 'keep(jsonb,jsonb)', 4, allocation_strategy => 'function', allocation_settings => '{"allocate": "put", "rebalance": "shift"}');});
}
$cluster->wait_registered;
$one->sql(q{SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series(1, 20) i});

# Each ends itself, and one is asked at a time.
my $most = 0;
my $asked = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND query ~ 'strategy' AND state = 'active' AND pid <> pg_backend_pid()};
my @ended;
ShardCluster::wait_for_condition(
	sub {
		for my $node ($cluster->nodes)
		{
			my $count = $node->sql($asked);
			$most = $count if $count > $most;
		}
		@ended = map { slurp_file($_->server->logfile) =~ /FATAL:  terminating connection due to administrator command\n.*CONTEXT:  SQL statement "SELECT pg_sleep/g } $cluster->nodes;
		return @ended >= 4;
	},
	'four of them to end');
is($most, 1, 'G3: a backend that goes on ends itself before the next one is asked');
ShardCluster::wait_for_condition(sub { $one->sql('SELECT count(*) FROM shard_entity.keep') + $two->sql('SELECT count(*) FROM shard_entity.keep') == 20 }, 'homes by the default strategy');
pass('G3: shards get homes nevertheless');

done_testing();
