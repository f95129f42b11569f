# F07 restated, R11: of two nodes one votes. When it is lost, the other one's shards run on and it says
# what to do; (a) the voter returns: same answers, same homes; (b) it is given up by
# shard_force_voters and shard_write_off: its shards begin empty at the other node, and when it
# returns it is fenced, loudly.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
$cluster->start_counter;
my ($one, $two) = $cluster->nodes;
my %before;
for my $id (1 .. 8)
{
	$one->add($id, $id);
	# Only then the next one, which goes where there are fewer.
	$two->get($id);
}
# What one node sent and another one asked is in no order before.
$cluster->drain;
$before{$_} = $two->get($_) for 1 .. 8;
my @lost = grep { $before{$_} =~ /node1/ } 1 .. 8;
my @kept = grep { $before{$_} =~ /node2/ } 1 .. 8;
ok(@lost && @kept, 'both are homes');
is($one->sql('SELECT string_agg(node::text, $$ $$) FROM shard_members WHERE voter'), 1, 'R11: the older one votes');
$cluster->drain;

$one->server->crash;
is($two->get($_), $before{$_}, "F07: entity $_ answers without the voter") for @kept;
$two->add($lost[0], 100);
$two->wait_until(q{SELECT array_to_string(problems, '; ') ~ '\m1\M' FROM shard_health()}, 'the loss to be reported');
pass('shard_health names the node');
note($two->sql('SELECT array_to_string(problems, $$; $$) FROM shard_health()'));
$two->wait_until('SELECT NOT reachable FROM shard_members WHERE node = 1', 'node 1 to be unreachable');
pass('shard_members shows it');

# (a)
$one->server->recover;
$cluster->wait_up;
$cluster->wait_reachable;
$cluster->drain;
$before{ $lost[0] } =~ s/^(\d+)/$1 + 100/e;
is($two->get($_), $before{$_}, "F07 (a): entity $_ is as it was") for 1 .. 8;
$two->wait_until('SELECT ok FROM shard_health()', 'health');
pass('F07 (a): all is well');

# (b)
like($two->error_of("SELECT shard_force_voters('{2}')"), qr/55000.*majority.*HINT/s, 'voters are not forced while there is a coordinator');
is($two->sql('SELECT count(*) FROM shard_members WHERE coordinator'), 1, 'which stays');
$one->server->crash;
# Until the coordinator is taken for silent.
$two->eventually("SELECT shard_force_voters('{2}')");
$two->wait_until('SELECT bool_or(coordinator) FROM shard_members WHERE node = 2', 'node 2 to coordinate');
pass('shard_force_voters: the other one goes on');
# Until the new coordinator misses the node itself.
$two->eventually('SELECT shard_write_off(1)');
for my $id (@lost)
{
	is($two->get($id), '0 from node2', "F07 (b): entity $id begins empty");
}
is($two->get($_), $before{$_}, "F07 (b): entity $_ did not move") for @kept;

$one->server->recover;
$one->wait_until('SELECT NOT ok FROM shard_health()', 'the written off node to notice');
my $told = $one->error_of(q{SELECT shard_tell('counter', '1', '{"add": 1}')});
$one->wait_until(q{SELECT array_to_string(problems, ' ') ~* 'written off|fenced' FROM shard_health()}, 'the node to be fenced');
like($one->error_of(q{SELECT shard_tell('counter', '1', '{"add": 1}')}) // '', qr/ERROR.*\n(?:.*\n)*.*HINT/, 'F07 (b): it refuses messages with a hint');
is($one->sql('SELECT count(*) > 0 FROM shard_entity.counter'), 't', 'its data can be read');
$two->server->log_is_clean(@ShardNodes::link_troubles);
done_testing();
