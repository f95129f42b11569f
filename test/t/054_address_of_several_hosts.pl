# An address may name several hosts: one that refuses, and one that takes connections and says nothing,
# are passed over, by shard_join and by the links that follow. Links come back by themselves.

use strict;
use warnings FATAL => 'all';

use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $cluster = ShardNodes->create(2, join => 0);
my ($first, $second) = $cluster->nodes;
my $role = $ShardNodes::peer_role;

# Nobody accepts: the kernel does, and that is all that happens.
my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 50, Proto => 'tcp') or die "socket: $!";
my $dead = PostgreSQL::Test::Cluster::get_free_port();

# The address of a node behind these ports.
sub dsn_of
{
	my ($node, @ports) = @_;
	my @all = (@ports, $node->server->port);
	return sprintf 'host=%s port=%s dbname=%s user=%s connect_timeout=1',
	  join(',', map { '127.0.0.1' } @all), join(',', @all), $node->db, $role;
}

my $start = time;
is($second->sql(sprintf q{SELECT shard_join('%s', '%s')}, dsn_of($first, $dead, $silent->sockport),
	dsn_of($second, $silent->sockport, $dead)), 2, 'a node joins past hosts that are dead or silent');
cmp_ok(time - $start, '<', 60, 'in time');
$cluster->wait_up;
$cluster->wait_reachable;
pass('so do the links of the control plane');
$cluster->start_recorder;
my %far = map { $_ => $cluster->entity_at('recorder', $_) } 1, 2;
$first->sql(ShardCluster::tell_recorder($far{2}, 1, 3));
$second->sql(ShardCluster::tell_recorder($far{1}, 1, 3));
$cluster->wait_recorded($far{$_}, $_, 1 .. 3) for 1, 2;
is($_->sql('SELECT string_agg(state, $$ $$) FROM shard_peers'), 'open', 'so does the link of node ' . $_->n)
  for $cluster->nodes;

# The other server goes and comes back.
$second->server->stop;
$first->wait_until('SELECT NOT reachable FROM shard_members WHERE node = 2', 'node 1 to miss node 2');
$second->server->start;
$first->sql(ShardCluster::tell_recorder($far{2}, 4, 6));
$cluster->wait_reachable;
$second->sql(ShardCluster::tell_recorder($far{1}, 4, 6));
$cluster->wait_recorded($far{$_}, $_, 1 .. 6) for 1, 2;
pass('links come back by themselves');

# Somebody ends the backends that serve a node.
$first->sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '$role'");
$second->sql(ShardCluster::tell_recorder($far{1}, 7, 9));
$cluster->wait_recorded($far{1}, 1, 1 .. 9);
$cluster->wait_reachable;
pass('also when their backends are terminated');

$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
