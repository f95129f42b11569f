# P53: who has got the role of the links gives the coordinator commands in the name of a member, under the greatest number there is, and
# has it leave, or stay: nothing of that is done, and that member's own operator is answered, and it leaves, as before. With the code that
# the coordinator has said to the member's address the same bytes are a command.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { COMMAND => 96, LEAVE => 42, DOWN => 12, EVACUATE => 17, STAY => 29, MOST => (1 << 62) - 1 };

my $cluster = ShardNodes->create(3);
my $coordinator = $cluster->coordinator;
my ($second, $third) = $cluster->others($coordinator->n);
my $up = q{SELECT count(*) FROM shard_members WHERE status = 'up'};

sub forge
{
	my ($from, @more) = @_;
	my $liar = ShardWire::Member->new($from, $coordinator);
	my ($ballot) = $liar->decided;
	my %command = (b => $ballot, token => (1 << 63) - 1, @more);
	is(($liar->control(COMMAND, %command, status => EVACUATE, node => $from->n, flag => 1, text => 'by a liar'))[1], '', 'P53 a command as node ' . $from->n);
	is(($liar->control(COMMAND, %command, status => DOWN, node => $third->n))[1], '', 'P53 that takes a node down');
	is(($liar->control(COMMAND, %command, status => STAY, n => MOST))[1], '', 'P53 and a wish to stay');
	is(($liar->control(LEAVE, token => MOST, n => MOST, @more))[1], '', 'P53 and to leave');
}

for my $round (1 .. 2)
{
	for my $from ($cluster->nodes)
	{
		forge($from);
		forge($from, uuid => '00000bad-0000-0000-0000-000000000bad');
	}
	# Commands of theirs come behind all that.
	is($second->error_of("SELECT shard_evacuate(${\$third->n})"), undef, "P53 round $round: a member's own operator is answered");
	is($third->error_of("SELECT shard_evacuate(${\$third->n}, false)"), undef, "P53 round $round: and another one's");
	is($second->sql($up), 3, "P53 round $round: nobody leaves, or is downed");
	is($coordinator->sql(q{SELECT count(*) FROM shard.decision WHERE why LIKE '%by a liar%'}), 0, "P53 round $round: nothing else was done");
}

my $liar = ShardWire::Member->new($second, $coordinator);
my ($ballot) = $liar->decided;
$liar->control(COMMAND, b => $ballot, token => 1 << 60, uuid => $liar->code, status => EVACUATE, node => $third->n, flag => 1, text => 'with the code');
$coordinator->wait_until(q{SELECT EXISTS (SELECT FROM shard.decision WHERE why LIKE '%with the code%')}, 'what comes with the code to be carried out');
pass('P53 with the code, that nobody else has, it is a command');
is($third->error_of("SELECT shard_evacuate(${\$third->n}, false)"), undef, 'P53 which is taken back');

is($third->error_of('SELECT shard_leave()'), undef, 'P53 and who wants to leave leaves');
$coordinator->wait_until("SELECT status = 'removed' FROM shard_members WHERE node = ${\$third->n}", 'it to be gone');
pass('P53 for good');
done_testing;
