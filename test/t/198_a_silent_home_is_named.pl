# The home of shards takes no connections, though it is heard: whoever looks why its shards do not move is told so, and not that
# the target is silent; shards of other homes go to that target meanwhile (M16, M24, M27).

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->nodes;
for my $node ($cluster->nodes)
{
	$node->sql(q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message});
	$node->sql(q{SELECT shard_start('thing', 'keep', 90)});
}
$cluster->wait_registered;
$one->sql(q{SELECT count(shard_tell('thing', i::text, '{"n": 1}')) FROM generate_series(1, 1000) i});
$cluster->drain;
$cluster->wait_settled;
my $coordinator = $cluster->coordinator($one);
isnt($coordinator->n, 3, 'another node decides');
my ($other) = grep { $_->n != $coordinator->n } $one, $two;
my ($here, $there) = ($coordinator->n, $other->n);
my $at_three = q{SELECT count(*) FROM shard_homes WHERE type_name = 'thing' AND node = 3};
my $n = $one->sql($at_three);
cmp_ok($n, '>', 12, 'it has some shards');
my @others = split /\n/, $one->sql("SELECT shard FROM shard_homes WHERE type_name = 'thing' AND node = $there ORDER BY shard LIMIT 3");

# Its postmaster alone: whoever is connected goes on.
my $server = $three->server;
kill 'STOP', $server->{_pid};
$server->{frozen} = [];
$one->sql('SELECT shard_evacuate(3)');
for my $shard (@others)
{
	$one->sql("SELECT shard_move('thing', $shard, $here)");
	is($one->sql("SELECT node FROM shard_homes WHERE type_name = 'thing' AND shard = $shard"), $here, "shard $shard of another home moves");
}
my $refused = "FROM shard.decision WHERE kind = 'move refused' AND from_node = 3";
$coordinator->wait_until("SELECT count(DISTINCT shard) = $n $refused", 'all its shards to be refused');
is($coordinator->sql("SELECT DISTINCT why $refused AND why !~ 'node 3.* could not be (asked|reached)|^the shard''s home cannot be reached'"), '',
	'of each it is said that the home could not be reached');
$server->thaw;
$one->wait_until("SELECT ($at_three) = 0", 'its shards to leave when it is back');
pass('when it is back its shards leave');
done_testing();
