# What an operator sees in the log when a node joins is what happened: who joins, who is up, who is the coordinator now, and where
# the first one was reached. Nobody is missed, since nobody is away.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
$cluster->wait_reachable;

# What the control worker of a node has said, without addresses; what calls of others have it say may come before or after.
sub said
{
	my ($node) = @_;
	return join '; ', map { s/(?:, at)? ".*//r } grep { !/ asks to be let in / } slurp_file($node->server->logfile) =~ /shard control (?:LOG|WARNING|ERROR):\s+(?:shard: )?(.*)/g;
}

my ($one, @joiners) = $cluster->nodes;
is(said($one), 'node 1 is the coordinator; the address of node 1 is; node 2 joins; node 2 is up; node 3 joins; node 3 is up', 'at the first node');
for my $node (@joiners)
{
	my $n = $node->n;
	# First that of the cluster which it was alone.
	like(said($node), qr/^node 1 is the coordinator; node 1 is the coordinator; (?:node 2 joins; )?node $n is up(?:; node 3 joins; node 3 is up)?$/,
		"at node $n, which has joined");
}
done_testing();
