# A cluster stops and starts as a whole, and node by node, under load and with shards on the move: nothing
# is lost, doubled or out of order, every shard has one home, and nobody has to help. G15: a single node
# under load stops at once.

use strict;
use warnings FATAL => 'all';

use ShardClusterLedger;
use ShardLedger;
use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $cluster = ShardNodes->create(3, conf => "shard.region_workers = 2\nshard.rebalance_interval = '1s'");
my $ledger = ShardClusterLedger->new(cluster => $cluster, seed => ShardLedger::seed(), moves => 1, light => 1);
$ledger->install;

# Moves the shards that get most messages to a node, and does not wait.
sub set_moving
{
	my ($n) = @_;
	my ($by) = grep { $_->n != $n } $cluster->nodes;
	my $session = $by->session;
	$session->send("SET statement_timeout = '30 s';\n" . join "\n", map {
		my ($type, $entity) = split / /;
		"SELECT shard_move('$type', shard_shard_id('$type', '$entity'), $n);"
	} $ledger->entities);
	return $session;
}

my %stop = (
	'fast stop, one at a time' => sub {
		for my $node ($cluster->nodes)
		{
			my $moving = set_moving($node->n % 3 + 1);
			my $start = time;
			$node->server->stop('fast');
			note(sprintf 'node %d stopped within %.1f s', $node->n, time - $start);
			ShardCluster::in_time(time - $start, 15, 60, 'node ' . $node->n . ' stops soon');
			$node->server->recover;
			$cluster->wait_up;
			$moving->close;
		}
	},
	'fast stop, all at once' => sub {
		my @moving = map { set_moving($_) } 1, 2;
		$_->server->stop('fast') for $cluster->nodes;
		$_->server->recover for $cluster->nodes;
		$_->close for @moving;
	},
	'kill -9, all at once' => sub {
		my @moving = map { set_moving($_) } 2, 3;
		$_->server->crash for $cluster->nodes;
		$_->server->recover for reverse $cluster->nodes;
		$_->close for @moving;
	});

for my $name (sort keys %stop)
{
	$ledger->begin_load;
	my ($entity) = map { (split / /)[1] } $ledger->entities;
	$cluster->node(1)->wait_until("SELECT (shard_location('ledger', '$entity')).node IS NOT NULL", 'load');
	$stop{$name}->();
	my $started = time;
	$cluster->wait_up;
	note(sprintf '%s: all were up %.1f s after the last start', $name, time - $started);
	$ledger->is_in_order($name);
}
cmp_ok($ledger->{moved}, '>', 0, 'shards moved meanwhile');
$cluster->logs_are_clean(qr/ledger: told to fail/, qr/due to lock timeout/, @ShardNodes::link_troubles);

# G15
my $single = ShardCluster->create('single');
$single->start_recorder;
my $client = $single->session;
$client->send(join "\n", map { ShardCluster::tell_recorder("e$_", 1, 20) } 1 .. 200);
$single->wait_until('SELECT count(*) > 50 FROM seen', 'messages to be handled');
my $start = time;
$single->stop('fast');
ShardCluster::in_time(time - $start, 5, 15, 'G15: a single node under load stops within 5 s');
$client->close;
$single->log_is_clean;
done_testing();
