# P41: voters are told that they have voted and have forgotten it, in the name of each member, the coordinator's, too, by whoever has
# got the role of the links: with a ballot of later, a point of later, and with the code that another voter has made. Nobody believes it,
# and the next coordinator is found as before. (One that did forget is reminded by t/127.)

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use ShardWire;
use Test::More;

use constant { PREPARE => 3, HEARTBEAT => 13 };

my $cluster = ShardNodes->create(3);
my $leader = $cluster->coordinator;

for my $to ($cluster->nodes)
{
	for my $from (grep { $_->n != $to->n } $cluster->nodes)
	{
		my $liar = ShardWire::Member->new($from, $to);
		my ($decided) = $liar->decided;
		# Under the office of the coordinator, and under an old ballot of its own by anybody else.
		my $b = ($decided & 0xffff) == $from->n ? $decided : 1 << 16 | $from->n;
		for my $kind (PREPARE, HEARTBEAT)
		{
			$liar->control($kind, b => $b, ballot => $decided + (1 << 16), uuid => $_) for undef, '00000bad-0000-0000-0000-000000000bad';
			is(($liar->control($kind, b => $b, ballot => $decided, point => [ $decided, 1 << 40 ]))[1], '',
				"P41 node " . $from->n . " to node " . $to->n . ": it has forgotten, by kind $kind");
		}
	}
	is($to->sql('SELECT voter_state FROM shard.node'), 'ok', 'node ' . $to->n . ' votes');
	like(slurp_file($to->server->logfile), qr/says without the seal of this node that this node has voted and has forgotten its vote/, 'and its log says who says so');
}

# The coordinator is lost: the two others find another one.
my ($witness) = grep { $_->n != $leader->n } $cluster->nodes;
$leader->server->stop('immediate');
$witness->wait_until('SELECT count(*) = 1 FROM shard_members WHERE coordinator AND node <> ' . $leader->n, 'another coordinator');
pass('there is another coordinator when one is lost');
$leader->server->recover;
$cluster->wait_up;
done_testing;
