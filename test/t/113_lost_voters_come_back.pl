# R13, R29: two of three voters are lost, after homes were given that the third one has not heard of; it is made the only voter,
# gives those shards homes of its own, and then the others come back after all. Each shard is active at one node, and all
# ask the same one; what the others had of it is kept.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
$cluster->start_counter;
my ($one, $two, $three) = $cluster->nodes;
my @entities = 1 .. 12;

is($three->sql('SELECT string_agg(node::text, $$ $$ ORDER BY node) FROM shard_members WHERE voter'), '1 2 3', 'three vote');
$three->server->stop;
$one->wait_until('SELECT NOT reachable FROM shard_members WHERE node = 3', 'node 3 to be missed');
$one->add($_, 1) for @entities;
for my $node ($one, $two, $one)
{
	is($node->sql(q{SELECT shard_drain('60 s')}), 't', 'handled');
}
ok($one->sql(q{SELECT count(*) FROM shard_homes WHERE node IN (1, 2)}) > 0, 'homes that node 3 has not heard of');

$_->server->crash for $one, $two;
$three->server->start;
$three->wait_until('SELECT bool_and(NOT reachable) FROM shard_members WHERE node IN (1, 2)', 'the others to be missed');
$three->eventually(q{SELECT shard_force_voters('{3}')});
$three->wait_until('SELECT bool_or(coordinator) FROM shard_members WHERE node = 3', 'node 3 to coordinate');
$three->add($_, 10) for @entities;
is($three->get($entities[0]) =~ /^(\d+)/ ? $1 : 'nothing', 10, 'they begin anew at node 3');

$_->server->recover for $one, $two;
$cluster->wait_up;
$cluster->wait_reachable;
my %told;
for my $node ($one, $two, $three)
{
	$told{$_}{ $node->get($_) } = 1 for @entities;
}
note(join(', ', map { my $id = $_; map { "$id: $_" } keys %{ $told{$id} } } @entities));
is(join(' ', grep { keys %{ $told{$_} } > 1 } @entities), '', 'all nodes have the same answer');
# What was handled in a life that is over, or possibly was, is not handled in the new one, too.
is(join(' ', grep { (keys %{ $told{$_} })[0] !~ /^10\b/ } @entities), '', 'that of the era that goes on');
my %active;
for my $node ($one, $two, $three)
{
	$active{$_}++ for split /\n/, $node->sql(q{SELECT type_name || ' ' || shard FROM shard_homes WHERE here = 'active'});
}
is(join(', ', grep { $active{$_} > 1 } sort keys %active), '', 'no shard is active at two nodes');
my $kept = 0;
$kept += $_->sql(q{SELECT count(*) FROM shard_entity.counter}) for $one, $two;
is($kept, scalar @entities, 'rows of the lives that are over are kept, to be looked at');
done_testing();
