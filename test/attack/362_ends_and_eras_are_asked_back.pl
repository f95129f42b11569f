# P10, P32, P33: that a node's incarnation is over, that voters were forced, what was decided: said in the name of a member by whoever
# has got the role of the links. Nobody is fenced, no era begins, nothing is learned.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { LEARN => 15, MEMBER_HEARTBEAT => 32, FENCED => 39 };

my $cluster = ShardNodes->create(3);
$cluster->start_recorder;
my ($first, $second, $third) = $cluster->nodes;
my $forged = '00000bad-0000-0000-0000-000000000bad';
my $entity = $cluster->entity_at('recorder', 1);
my $sent = 0;

sub goes_on
{
	my ($why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$sent++;
	$second->sql(ShardCluster::tell_recorder($entity, $sent, $sent));
	$cluster->wait_recorded($entity, 1, 1 .. $sent);
	is($first->sql('SELECT fenced IS NULL FROM shard.node'), 't', "$why: the node is not fenced, and handles");
	return;
}

for my $from ($second, $third)
{
	my $liar = ShardWire::Member->new($from, $first);
	is(($liar->control(FENCED, epoch => 1000, uuid => $forged))[1], '', 'P10 its incarnation is over, says node ' . $from->n);
	goes_on('P10');
	is(($liar->control(MEMBER_HEARTBEAT, era => $_))[1], '', "P32 era $_ has begun, says node " . $from->n) for 1, 1 << 20, (1 << 31) - 1;
	goes_on('P32');
}
is($_->sql(q{SELECT count(*) FROM shard_members WHERE status = 'up'}), 3, 'node ' . $_->n . ' has its members') for $cluster->nodes;
my $upto = 'SELECT n FROM shard.control WHERE store = 4 AND kind = 0';
my ($n) = $first->sql($upto);
my ($liar) = grep { $_->n != $cluster->coordinator->n } $second, $third;
ShardWire::Member->new($liar, $first)->control(LEARN, n => $n, commit_n => $n + 1_000_000);
cmp_ok($first->sql($upto), '<', $n + 1_000_000, 'P33 what was decided, says one who does not decide: it is not learned');

# A start later nothing has come of it.
$first->server->stop('fast');
$first->server->recover;
$cluster->wait_up;
goes_on('after a restart');
done_testing;
