# Types that differ between nodes are found when a type is started and when a node joins, not at the first move: a
# setting that members have to agree on, and the structure of the type of the state, with names and nested ones. The
# error names what differs and both values. Whoever alters the type of the state at all nodes is not held to what it
# was before.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, databases => 1, join => 0, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->all_nodes;
$cluster->join_node(2);

# Types of states with these attributes, and a handler.
sub make
{
	my ($node, $place, $account) = @_;
	$node->sql(qq{CREATE TYPE place AS ($place); CREATE TYPE account AS ($account);
		CREATE FUNCTION keep(state account, message jsonb) RETURNS account LANGUAGE sql AS 'SELECT state'});
	return;
}

my $start = q{SELECT shard_start('account', 'keep(account,jsonb)', 8)};
make($one, 'x int, y int', 'balance numeric(10,2), home place');
$one->sql($start);

# --- starting --------------------------------------------------------------------------------------

make($two, 'x int, y text', 'balance numeric(10,2), home place');
like($two->error_of($start), qr/42710: the cluster has entity type "account" with other settings.*DETAIL:  What differs: in the type of the state, an attribute is "home\.y integer" in the cluster, "home\.y text" on the node\./s,
	'a nested attribute of another type is found at the start');
$two->sql('ALTER TYPE place DROP ATTRIBUTE y');
like($two->error_of($start), qr/an attribute is "home\.y integer" in the cluster, nothing on the node/, 'one that is missing, too');
$two->sql('ALTER TYPE place ADD ATTRIBUTE y int');
like($two->error_of(q{SELECT shard_start('account', 'keep(account,jsonb)', 9)}), qr/What differs: "number_of_shards" is 8 in the cluster, 9 on the node/,
	'so is a setting');
like($two->error_of(q{SELECT shard_start('account', 'keep(account,jsonb)', 8, handoff_timeout => '9 s')}),
	qr/What differs: "handoff_timeout" in ms is 60000 in the cluster, 9000 on the node/, 'whichever it is');
$two->sql($start);
pass('types that are alike are taken');

# --- joining ---------------------------------------------------------------------------------------

my $join = "SELECT shard_join('" . $one->dsn . "', '" . $three->dsn . "')";
make($three, 'x int, y int', 'balance numeric(12,2), home place');
$three->sql($start);
like($three->error_of($join), qr/type "account" has other settings in the cluster: in the type of the state, an attribute is "balance numeric\(10,2\)" in the cluster, "balance numeric\(12,2\)" on the node/,
	'a node with another type of state does not join');

# --- altering --------------------------------------------------------------------------------------

$_->sql('ALTER TYPE account ALTER ATTRIBUTE balance TYPE numeric(12,2); ALTER TABLE shard_entity.account ALTER balance TYPE numeric(12,2)')
  for $one, $two;
is($three->eventually($join), 3, 'when it was altered at all members, the new one is what counts');
$cluster->wait_up;
$cluster->wait_registered;
$one->sql(q{SELECT shard_tell('account', 'a', '{}')});
$cluster->drain;
my ($home) = $one->sql(q{SELECT node FROM shard_homes WHERE type_name = 'account'});
$cluster->move('account', $cluster->shard_of('account', 'a'), $home == 3 ? 1 : 3);
pass('shards move to the newcomer and from it');

# At some nodes only: those that have not done it yet say so, before a shard has to move.
my $differs = q{SELECT problems::text ~ 'entity type ..account.. is not the same at all nodes: in the type of the state, an attribute is (nothing|..home\.z integer..) in the cluster, (nothing|..home\.z integer..) on the node; until ALTER TYPE is done at all of them'
	FROM shard_health()};
$one->sql('ALTER TYPE place ADD ATTRIBUTE z int');
$_->wait_until($differs, 'a node to say that its type is not that of the others') for $two, $three;
$_->sql('ALTER TYPE place ADD ATTRIBUTE z int') for $two, $three;
$_->wait_until('SELECT ok FROM shard_health()', 'all to be well when it was done everywhere') for $one, $two, $three;
pass('a type that was altered at some nodes only is a problem, until it was at all');

# What a node has said that hosts the type no more is corrected by a host that starts it again.
$three->sql('ALTER TYPE place ADD ATTRIBUTE w int');
$one->wait_until(q{SELECT problems::text ~ 'home.w integer.. in the cluster, nothing on the node' FROM shard_health()}, 'one host to have altered it alone');
$three->sql(q{SELECT shard_drop_type('account', true)});
$three->sql('ALTER TYPE place DROP ATTRIBUTE w');
$cluster->wait_registered;
like($three->error_of($start), qr/an attribute is "home\.w integer" in the cluster, nothing on the node/, 'the structure stays when that host is none any more');
$two->sql($start);
$_->wait_until('SELECT ok FROM shard_health()', 'a host that starts the type again to say what it has') for $one, $two;
$three->sql($start);
pass('which is what counts');

# Older versions stopped proxies: such a one never had states, whatever its row says of their type.
$three->sql(q{SELECT shard_drop_type('account')});
$cluster->wait_registered;
$three->sql(q{SELECT shard_start_proxy('account')});
$three->sql(q{UPDATE shard.type SET mode = 'stopped' WHERE type_name = 'account'});
$three->sql('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = $$shard control$$');
$cluster->wait_registered;
is($one->sql('SELECT ok FROM shard_health()'), 't', 'a stopped proxy says nothing of states');
is($one->sql(q{SELECT mode FROM shard_current_regions WHERE node = 3}), 'stopped', 'which it was');

# --- starting anew ---------------------------------------------------------------------------------

$_->sql(q{SELECT shard_drop_type('account')}) for $one, $two, $three;
$_->sql('ALTER TYPE account ADD ATTRIBUTE name text') for $one, $two, $three;
$cluster->wait_registered;
$two->sql("BEGIN; $start; ROLLBACK");
$_->sql('ALTER TYPE account DROP ATTRIBUTE home') for $one, $two, $three;
$three->sql($start);
$cluster->wait_registered;
$two->sql($start);
pass('once nobody hosts it, also after a start that was rolled back, a type starts with another type of state');
$one->sql('ALTER TYPE account DROP ATTRIBUTE name');
like($one->error_of($start), qr/an attribute is "name text" in the cluster, nothing on the node/, 'which the others are held to then');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
