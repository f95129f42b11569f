# F01, F03 restated for durable entities: messages sent over a cut network wait where they were sent,
# arrive when it heals, once and in order, and entities stay where they are; half of a network (one
# direction, one pair of three) does no more harm than that.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1, conf => 'shard.region_workers = 2');
$cluster->start_counter;
$cluster->start_recorder;
my ($one, $two, $three) = $cluster->nodes;
my $proxy = $cluster->proxy;

# F01
$one->add(10, 1);
$one->add(20, 2);
$one->add(21, 3);
is(join(' ', map { $one->get($_) =~ s/ .*//r } 10, 20, 21), '1 2 3', 'F01: counted');
my @before = map { $one->get($_) } 10, 20, 21;
my @at = map { $cluster->entity_at('recorder', $_) } 1 .. 3;

my %fault = (
	'full partition' => sub { $proxy->partition([1], [ 2, 3 ]) },
	'partition by resets' => sub { $proxy->partition([1], [ 2, 3 ], 'cut') },
	'one way' => sub { $proxy->hold(1, 2); $proxy->hold(1, 3) },
	'the other way' => sub { $proxy->hold(2, 1); $proxy->hold(3, 1) },
	'bridge' => sub { $proxy->partition([1], [2]) });
my $sent = 0;
for my $name (sort keys %fault)
{
	$fault{$name}->();
	my ($from, $to) = ($sent + 1, $sent + 10);
	$sent += 10;
	$one->sql(ShardCluster::tell_recorder($at[$_], $from, $to)) for 0 .. 2;
	$cluster->wait_recorded($at[0], 1, 1 .. $sent);
	pass("$name: a node's own entities run on");
	# The other way only the answers do not come back.
	isnt($cluster->recorded($at[1], $two), join(' ', 1 .. $sent) . " = $sent at 2", "$name: others wait") if $name ne 'the other way';
	# A backlog of adds, too.
	$one->add(20, 1);
	$three->add(21, 1);
	$proxy->heal;
	$cluster->wait_recorded($at[$_], $_ + 1, 1 .. $sent) for 0 .. 2;
	pass("$name: all arrive, once and in order, when it heals");
}
$cluster->wait_up;
$cluster->drain;
is($one->get(21), do { my $b = $before[2]; $b =~ s/^3/8/; $b }, 'F03: entity 21 has all, where it was');
is($three->get(20), do { my $b = $before[1]; $b =~ s/^2/7/; $b }, 'F03: entity 20 as well');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
