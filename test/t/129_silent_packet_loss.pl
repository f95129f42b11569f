# Fault 11: packets between nodes vanish without a word, on established connections, in one direction
# or both, for longer than TCP's own patience that the links ask for: nothing hangs, nothing is lost or
# doubled, and messages flow soon after.

use strict;
use warnings FATAL => 'all';

use ShardNetwork;
use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $missing = ShardNetwork::missing();
plan skip_all => $missing if $missing;

my $network = ShardNetwork->new(3);
my $cluster = ShardNodes->create(3, network => $network);
$cluster->start_recorder;
my ($one, $two, $three) = $cluster->nodes;
my @entity = map { $cluster->entity_at('recorder', $_) } 1 .. 3;
$cluster->drain;

my %fault = (
	'both ways' => sub { $network->partition([1], [ 2, 3 ]) },
	'from 1' => sub { $network->drop(1, 2); $network->drop(1, 3) },
	'to 1' => sub { $network->drop(2, 1); $network->drop(3, 1) },
	'unplugged' => sub { $network->unplug(1) });
my $sent = 0;
for my $name (sort keys %fault)
{
	$fault{$name}->();
	$one->sql(join '', map { ShardCluster::tell_recorder($_, $sent + 1, $sent + 10) } @entity);
	$sent += 10;
	$cluster->wait_recorded($entity[0], 1, 1 .. $sent);
	$two->wait_until('SELECT NOT reachable FROM shard_members WHERE node = 1', 'node 1 to be missed');
	$two->wait_until('SELECT count(*) = 1 FROM shard_members WHERE coordinator AND node <> 1', 'a coordinator among the others');
	pass("$name: the majority goes on");
	my $healed = time;
	$network->heal;
	$cluster->wait_recorded($entity[$_], $_ + 1, 1 .. $sent) for 1, 2;
	note(sprintf '%s: handled %.1f s after healing', $name, time - $healed);
	cmp_ok(time - $healed, '<', 45, "$name: messages flow again");
	$cluster->wait_up;
	$cluster->wait_reachable;
}
SKIP:
{
	skip 'this kernel has no netem', 1 unless $network->has_netem;
	$network->netem($_, 'delay 20ms 10ms loss 5%') for 1 .. 3;
	$one->sql(join '', map { ShardCluster::tell_recorder($_, $sent + 1, $sent + 50) } @entity);
	$sent += 50;
	$cluster->wait_recorded($entity[$_], $_ + 1, 1 .. $sent) for 0 .. 2;
	pass('slow and lossy');
	$network->heal;
}
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
