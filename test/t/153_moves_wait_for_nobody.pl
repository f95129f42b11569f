# F11, and A to B to A under load: shards move there and back and there again within moments while
# another node's region is cut off, frozen or dead. No move waits for it; what it sent before, and
# sends meanwhile, is handled once and in order when it is back, though it has missed several homes.

use strict;
use warnings FATAL => 'all';

use ShardClusterLedger;
use ShardLedger;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(4, proxy => 1, conf => 'shard.region_workers = 2');
my $ledger = ShardClusterLedger->new(cluster => $cluster, seed => ShardLedger::seed(), moves => 1, light => 1, senders => 1);
$ledger->install;
my $proxy = $cluster->proxy;

my %away = (
	'cut off' => [ sub { $proxy->partition([ $_[0]->n ], [ map { $_->n } $cluster->others($_[0]->n) ]) }, sub { $proxy->heal } ],
	'frozen' => [ sub { $_[0]->server->freeze }, sub { $_[0]->server->thaw } ],
	'dead' => [ sub { $_[0]->server->crash }, sub { $_[0]->server->recover } ]);

for my $name (sort keys %away)
{
	my ($lose, $return) = @{ $away{$name} };
	$ledger->begin_load;
	my @hot = map { (split / /)[1] } ($ledger->entities)[ 0, 1 ];
	$cluster->node(1)->wait_until("SELECT (shard_location('ledger', '$_')).node IS NOT NULL", "a home of $_") for @hot;
	# Not the coordinator: its loss is another test's, nor the home of what moves.
	my $coordinator;
	ShardCluster::wait_for_condition(sub { $coordinator = $cluster->coordinator }, 'a coordinator');
	my ($lost) = $cluster->others($coordinator->n);
	my @others = $cluster->others($lost->n);
	my ($a, $b) = map { $_->n } @others[ 0, 1 ];
	my @shards = map { $cluster->shard_of('ledger', $_) } @hot;
	$cluster->move('ledger', $_, $a, $others[0]) for @shards;
	$cluster->wait_home('ledger', \@shards, $a);

	$lose->($lost);
	my $start = time;
	my ($slowest, $moves) = (0, 0);
	# A slow machine may delay one now and then, or change the coordinator; a region that is waited for does each time.
	for (my $round = 1; $round <= 3 || time - $start < $ShardCluster::patience; $round++)
	{
		$slowest = 0;
		for my $n ($round == 1 ? $b : (), $a, $b)
		{
			for my $shard (@shards)
			{
				my $took = $cluster->move('ledger', $shard, $n, $others[2]);
				$slowest = $took if $took > $slowest;
				$moves++;
			}
		}
		last if $slowest < 3;
	}
	$cluster->wait_home('ledger', \@shards, $b, @others);
	note(sprintf '%s: %d moves in %.2f s, the slowest %.2f s', $name, $moves, time - $start, $slowest);
	ShardCluster::in_time($slowest, 3, 30, "F11: with a region $name, no move waits for it");
	$return->($lost);
	$cluster->wait_reachable;
	$ledger->is_in_order($name);
}
cmp_ok($ledger->{moved}, '>=', 6, 'entities ran on several nodes, one after the other');
$cluster->logs_are_clean(qr/ledger: told to fail/, qr/due to lock timeout/, @ShardNodes::link_troubles);
done_testing();
