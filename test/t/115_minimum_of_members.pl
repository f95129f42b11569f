# Y01, Y03, Y05: with shard.min_members no home is given before so many are up, for each role as well;
# once they were, a loss does not close the cluster again.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, join => 0, conf => "shard.min_members = 3");
$cluster->join_node(2);
my ($one, $two, $three) = $cluster->nodes;
for my $node ($one, $two)
{
	$node->wait_value($ShardNodes::statuses, '1 up, 2 up', 'two nodes up');
}
$cluster->start_counter;
$one->add(1, 1);
my $error = $one->error_of(q{SELECT shard_ask('counter', '1', '{}', '2 s')});
like($error, qr/ERROR/, 'Y01: no answer with two of three');
is($one->sql(q{SELECT count(*) FROM shard_homes WHERE type_name = 'counter' AND node IS NOT NULL}), 0, 'Y01: and no home');
like($one->sql('SELECT array_to_string(problems, $$; $$) FROM shard_health()'), qr/member/, 'shard_health says what is missing');

$cluster->join_node(3);
$cluster->wait_up;
like($one->get(1), qr/^1 from/, 'Y01: the message that waited is handled when the third is up');

$three->server->crash;
# Whoever coordinates must know it: else the home may be there.
$_->wait_until('SELECT NOT reachable FROM shard_members WHERE node = 3', 'node 3 to be unreachable') for $one, $two;
my ($fresh) = $cluster->homeless('counter', $one, 2 .. 12);
like($one->get($fresh, '60 s'), qr/^0 from node[123]$/, 'Y03: after a loss new homes are still given');
$three->server->recover;
$cluster->wait_up;
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
