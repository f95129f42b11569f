# P54: who has got the role of the links claims the place of a node in its name, as hundreds of other starts of it, before and while it
# restarts: it is let in. The others are refused, health says that nobody at its address claims it, and the coordinator's log by which
# role that was. A role that is bound to a node claims no other one's place.

use strict;
use warnings FATAL => 'all';

use POSIX ();
use PostgreSQL::Test::Utils;
use ShardNodes;
use ShardWire;
use Test::More;
use Time::HiRes qw(usleep);

use constant { ADMIT => 35, ADMITS => 200 };

my $cluster = ShardNodes->create(3);
my $coordinator = $cluster->coordinator;
my ($second, $third) = $cluster->others($coordinator->n);
my $inc_no = $third->sql('SELECT inc_no FROM shard.node');
my $liar = ShardWire::Member->new($third, $coordinator);

sub claims
{
	my (@more) = @_;
	return join '', map {
		ShardWire::wire_bytes($liar->message(ADMIT, cluster => $liar->{cluster}, from_inc => 0, node => $third->n, epoch => $inc_no, uuid => sprintf('00000bad-0000-0000-0000-%012x', $_ + int(rand(1 << 40))), @more))
	} 1 .. ADMITS;
}

# A role that is bound to another node.
$coordinator->sql(sprintf q{CREATE ROLE bound LOGIN; SELECT shard_allow_peer('bound', %d)}, $second->n);
$liar->message(ADMIT);
my $bound = ShardWire::Member->new($second, $coordinator, 'bound');
is(($bound->call(call_sql('control', claims())))[1], '42501', 'P54 a role that is bound to another node does not speak for it');
is(($bound->call(call_sql('control', claims(from => $second->n))))[1], '', 'P54 in its own name it may speak');
like(slurp_file($coordinator->server->logfile), qr/node ${\$second->n}, or a caller in its name, claims to be node ${\$third->n}; the message is ignored/, 'P54 and claims nobody else\'s place: the log says who tried');
is($coordinator->sql('SELECT count(*) FROM shard_members WHERE claimed'), 0, 'P54 nor is it claimed');

# The role of all links, in the node's name, all the time.
my $flooder = fork() // die "fork: $!";
if ($flooder == 0)
{
	while (1) { $liar->call(call_sql('control', claims())); usleep(20_000) }
	POSIX::_exit(0);
}
my $health = q{SELECT array_to_string(problems, '; ') ~ 'copy of node %d wants its place and is refused, and the address of node %1$d does not lead to it, .*node %d has the role' FROM shard_health()};
$_->wait_until(sprintf($health, $third->n, $coordinator->n), 'health of node ' . $_->n . ' to say that nobody at the address claims it') for $coordinator, $second;
pass('P54 health says so');
like(slurp_file($coordinator->server->logfile), qr/node ${\$third->n} asks to be let in by role "$ShardNodes::peer_role", from (?:127\.0\.0\.1|this machine)/, 'P54 the log has the role, and where it calls from');
for my $round (1 .. 2)
{
	$inc_no = $third->sql('SELECT inc_no FROM shard.node');
	$third->server->stop('fast');
	$third->server->start;
	$third->wait_until("SELECT inc_no > $inc_no FROM shard.node", 'the node to be let in');
	$coordinator->wait_until("SELECT incarnation > $inc_no AND status = 'up' FROM shard_members WHERE node = ${\$third->n}", 'the coordinator to say so');
	pass("P54 round $round: it is let in");
}
kill 'KILL', $flooder;
waitpid $flooder, 0;
$cluster->wait_up;
$_->wait_until('SELECT NOT bool_or(claimed) FROM shard_members', 'claims to be forgotten') for $cluster->nodes;
pass('P54 and nothing is left of the others');
done_testing;
