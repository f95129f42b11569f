# P09: ballots near the end, in the name of a member, by whoever has got the role of the links: nobody promises them, and the next
# coordinator is found as before.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use ShardWire;
use Test::More;

use constant { PREPARE => 3, SYNC => 7, ACCEPT => 9, NACK => 12, HEARTBEAT => 13, FAR => (1 << 62) - 2 };

my $cluster = ShardNodes->create(3);
$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', 2);
my $shard = $cluster->shard_of('recorder', $entity);

# Everybody is told, in everybody else's name.
for my $to ($cluster->nodes)
{
	for my $from (grep { $_->n != $to->n } $cluster->nodes)
	{
		my $liar = ShardWire::Member->new($from, $to);
		is(($liar->control($_, b => FAR >> 16 << 16 | $from->n, n => 1000))[1], '', "P09 kind $_ of a ballot near the end: node " . $from->n . ' to ' . $to->n)
		  for PREPARE, SYNC, ACCEPT, HEARTBEAT;
		$liar->control(NACK, b => 1 << 16, ballot => FAR);
	}
	like(slurp_file($to->server->logfile), qr/names a ballot that no election can have reached/, 'the log of node ' . $to->n . ' says so');
}

# The next ones are in reach, and outbid.
for my $round (1 .. 2)
{
	my $coordinator = $cluster->coordinator;
	my ($witness) = grep { $_->n != $coordinator->n } $cluster->nodes;
	$coordinator->server->stop('immediate');
	$witness->wait_until('SELECT count(*) = 1 FROM shard_members WHERE coordinator AND node <> ' . $coordinator->n, "another coordinator, round $round");
	pass("round $round: there is another coordinator when one is lost");
	$coordinator->server->recover;
	$cluster->wait_up;
}
$cluster->move('recorder', $shard, 3);
$cluster->wait_home('recorder', $shard, 3);
pass('and decides');
done_testing;
