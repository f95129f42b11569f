# shard.downing_strategy = static_quorum: a node that cannot be reached is given up if the coordinator's side has
# shard.static_quorum_size members, and stays a member if it has fewer. Without that number the server does not start.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $downing = "shard.downing_strategy = static_quorum\nshard.stable_after = 1s\n";
my $cluster = ShardNodes->create(3, conf => $downing . 'shard.static_quorum_size = 2');
my ($one, $two, $three) = $cluster->nodes;
$three->server->stop('immediate');
$one->wait_value('SELECT status FROM shard_members WHERE node = 3', 'down', 'node 3 to be given up');
is($one->sql('SELECT status FROM shard_members WHERE node = 2'), 'up', 'the other one is not');
$three->server->start;
$one->wait_value('SELECT status FROM shard_members WHERE node = 3', 'up', 'node 3 to come back at its next start');
$_->server->stop for $cluster->nodes;

$cluster = ShardNodes->create(3, suffix => 'b', conf => $downing . 'shard.static_quorum_size = 3');
($one, $two, $three) = $cluster->nodes;
$three->server->stop('immediate');
$one->server->wait_for_log(qr/strategy static_quorum gives up the side of the coordinator: no node is downed/);
is($one->sql('SELECT status FROM shard_members WHERE node = 3'), 'up', 'two of three are no quorum of three');

$three->server->append_conf('postgresql.conf', 'shard.static_quorum_size = 0');
ok(!$three->server->start(fail_ok => 1), 'without the number the server does not start');
like(slurp_file($three->server->logfile), qr/shard\.static_quorum_size is not set\n.*DETAIL:  shard\.downing_strategy is static_quorum\./,
	'and says why');
done_testing();
