# X12: whatever a strategy, a pin or a proxy wishes, shards go to members that host their type, and to nobody
# else; a strategy that fails is a row of shard_decisions, also where it was asked for first homes.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, databases => 1);
my ($one, $two, $three) = $cluster->nodes;

$cluster->sql_everywhere(<<'SQL');
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
CREATE TABLE wish (node int);
INSERT INTO wish VALUES (3);
CREATE FUNCTION put(shard int, requester int, allocations jsonb, strategy text, settings jsonb, members jsonb) RETURNS int
LANGUAGE sql AS 'SELECT node FROM wish';
SQL
my $start = q{SELECT shard_start('%s', 'keep(jsonb,jsonb)', 12, allocation_strategy => '%s', allocation_settings => '%s')};
my %settings = (function => '{"allocate": "put"}');
for my $strategy (qw(function locality external))
{
	$_->sql(sprintf($start, $strategy, $strategy, $settings{$strategy} // '{}')) for $one, $two;
}
$cluster->wait_registered;
$three->sql(qq{SELECT shard_start_proxy('$_')}) for qw(locality external);
$three->wait_value(q{SELECT count(*) FROM shard_types WHERE mode = 'proxy'}, 2, 'the proxies');

sub homes
{
	my ($type) = @_;
	return $one->sql("SELECT string_agg(DISTINCT node::text, ' ' ORDER BY node::text) FROM shard_homes WHERE type_name = '$type'");
}

sub handled
{
	my ($type) = @_;
	my $sum = 0;
	$sum += $_->sql("SELECT coalesce(sum((state->>'n')::int), 0) FROM shard_entity.$type") for $one, $two;
	return $sum;
}

# --- functions -----------------------------------------------------------------------------------

# Node 3 is a member, and does not know the type.
$one->sql(q{SELECT shard_tell('function', 'e' || i, '{}') FROM generate_series(1, 5) i});
ShardCluster::wait_for_condition(sub { handled('function') == 5 }, 'messages to be handled in spite of the strategy');
unlike(homes('function'), qr/3/, 'no shard goes to a member that does not know the type');
like($one->sql(q{SELECT shard_ask('function', 'e1', '{}')}), qr/2/, 'asks are answered');
$one->wait_value(q{SELECT count(*) > 0 FROM shard_decisions WHERE what = 'strategy failed' AND type_name = 'function'
	AND shard IS NULL AND why ~ 'least_shard is used: node 3 was named for shard \d+, which does not host the type'},
	't', 'the failed strategy to be a decision');
pass('a strategy that failed is a decision, for first homes, too');

$cluster->sql_everywhere('UPDATE wish SET node = NULL');
my ($fresh) = $cluster->homeless('function', $one, 100 .. 200);
$one->sql(qq{SELECT shard_tell('function', '$fresh', '{}')});
$one->wait_value(q{SELECT count(*) > 0 FROM shard_decisions WHERE what = 'strategy failed' AND why ~ 'no node was named \(NULL\)'},
	't', 'NULL to be a decision');
is($one->sql(qq{SELECT count(*) FROM shard_homes WHERE type_name = 'function' AND shard = shard_shard_id('function', '$fresh')}),
	0, 'NULL gives no home, and is told');
$cluster->sql_everywhere('UPDATE wish SET node = 2');
$one->wait_value(qq{SELECT node FROM shard_homes WHERE type_name = 'function' AND shard = shard_shard_id('function', '$fresh')},
	2, 'the functions to be asked again');

# --- proxies and pins ----------------------------------------------------------------------------

$three->sql(q{SELECT shard_tell('locality', 'e' || i, '{}') FROM generate_series(1, 40) i});
ShardCluster::wait_for_condition(sub { handled('locality') == 40 }, 'messages of a proxy to be handled');
is(homes('locality'), '1 2', 'a proxy gets nothing by asking first');
$one->error_of(qq{SELECT shard_pin('external', $_, 3)}) for 0 .. 11;
$three->sql(q{SELECT shard_tell('external', 'e' || i, '{}') FROM generate_series(1, 40) i});
ShardCluster::wait_for_condition(sub { handled('external') == 40 }, 'messages of pinned shards to be handled');
is(homes('external'), '1 2', 'nor by being the place of pins');
is($_->sql('SELECT count(*) FROM shard_dead_letters'), 0, 'no dead letters at node ' . $_->n) for $cluster->nodes;

done_testing();
