# Nodes of different size: with weighted = true a type's shards go by shard.weight, when they get their first
# home, when they are rebalanced, and when a node has another weight after a restart; a type without it shares equally. The
# coordinator says what would move, at any node.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, confs => { 3 => 'shard.weight = 2' });
my ($one, $two, $three) = $cluster->nodes;
$_->sql(<<'SQL') for $cluster->nodes;
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE RETURN message;
SELECT shard_start('heavy', 'keep', number_of_shards => 16,
    allocation_settings => '{"weighted": true, "rebalance_absolute_limit": 100, "rebalance_relative_limit": 1.0}');
SELECT shard_start('plain', 'keep', number_of_shards => 12);
SQL
my $shares = q{SELECT string_agg(n::text, ' ' ORDER BY node) FROM
	(SELECT node, count(*) AS n FROM shard_homes WHERE type_name = '%s' AND phase = 'stable' GROUP BY node) h};

sub shares { return $one->sql(sprintf $shares, @_) }

is($two->sql(q{SELECT string_agg(weight::text, ' ' ORDER BY node) FROM shard_members}), '1 1 2', 'all know the weights');
$cluster->wait_registered;
# All at once: homes that are chosen before those just chosen are decided count them, too.
$cluster->allocate($_, split /\n/, $one->sql("SELECT DISTINCT ON (shard_shard_id('$_', i::text)) i FROM generate_series(1, 1000) i"))
  for qw(heavy plain);
is($one->sql(q{SELECT count(*) FROM shard_homes WHERE type_name IN ('heavy', 'plain') AND phase = 'stable'}), 28, 'all shards have homes');
is(shares('heavy'), '4 4 8', 'the node of weight 2 gets twice as many');
is(shares('plain'), '4 4 4', 'but not of a type that does not look at weights');
is($one->sql('SELECT count(*) FROM shard_rebalance_plan()'), 0, 'both are balanced');

# Rebalances until the shares are as wanted.
sub wait_shares
{
	my ($type, $wanted, $name) = @_;
	$two->wait_until("SELECT (@{[sprintf $shares, $type]}) = '$wanted' OR shard_rebalance('$type') IS NULL", $name);
	return;
}

$one->server->append_conf('postgresql.conf', 'shard.weight = 2.5');
$one->server->restart;
$cluster->wait_up;
$cluster->wait_reachable($cluster->nodes);
$cluster->wait_registered;
$two->wait_value('SELECT weight FROM shard_members WHERE node = 1', '2.5', 'its weight is decided with its start');
$two->wait_until(q{SELECT count(*) > 0 FROM shard_rebalance_plan('heavy')}, 'shards to be planned to move');
my $plan = q{SELECT string_agg(format('%s:%s:%s:%s:%s', type_name, shard, from_node, to_node, reason), ' ' ORDER BY shard)
	FROM shard_rebalance_plan('heavy')};
is($two->sql($plan), $one->sql($plan), 'the coordinator says which, at another node as at its own');
is($three->sql($plan), $one->sql($plan), 'and at the third one');
wait_shares('heavy', '7 3 6', 'shares by weights 2.5, 1 and 2');
is(shares('plain'), '4 4 4', 'the other type stays as it is');
$two->wait_value(q{SELECT count(*) FROM shard_rebalance_plan()}, 0, 'no more to be planned');
$cluster->logs_are_clean(@ShardNodes::link_troubles);

$_->server->stop('immediate') for $one, $two;
ShardCluster::wait_for_condition(sub { ($three->error_of('SELECT * FROM shard_rebalance_plan()') // '') =~
	/55000: .*cannot execute shard_rebalance_plan\(\): there is no coordinator.*DETAIL: .*HINT: /s },
	'no coordinator, and no plan');
pass('without a coordinator there is no plan');
done_testing();
