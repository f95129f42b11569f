# Networks for nodes: packets vanish in one direction or both, silently, and flow again.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNetwork;
use Test::More;

my $missing = ShardNetwork::missing();
plan skip_all => $missing if $missing;

my $network = ShardNetwork->new(2);
my @node;
for my $n (1, 2)
{
	$node[$n] = ShardCluster->create("node$n", tcp => $network->address($n), within => $network->enter($n), extension => 0);
	$node[$n]->safe_psql('postgres', 'CREATE EXTENSION dblink');
}

sub call
{
	my ($from, $to) = @_;
	my $dsn = 'dbname=postgres connect_timeout=2 tcp_user_timeout=1000 host=' . $network->address($to) . ' port=' . $node[$to]->port;
	my ($status, $out, $err) = $node[$from]->psql('postgres', "SELECT * FROM dblink('$dsn', 'SELECT 1') AS t(x int)");
	return $status == 0 ? $out : $err =~ /time(?:out|d out)/ ? 'timeout' : 'failed';
}

# A cable that was put in is found by the neighbours' next question for the address, so the first call may still be in vain.
sub gets_through { my ($what) = @_; ShardCluster::wait_for_condition(sub { call(1, 2) eq '1' }, $what); pass($what); return }

is(call(1, 2), 1, 'there');
is(call(2, 1), 1, 'and back');
$network->drop(1, 2);
is(call(1, 2), 'timeout', 'packets to 2 vanish');
is(call(2, 1), 'timeout', 'answers as well');
$network->heal;
gets_through('healed');
$network->unplug(2);
isnt(call(1, 2), 1, 'unplugged');
$network->heal;
gets_through('plugged in');

SKIP:
{
	skip 'this kernel has no netem', 1 unless $network->has_netem;
	$network->netem(1, 'delay 100ms');
	is(call(1, 2), 1, 'slow');
	$network->heal;
}

done_testing();
