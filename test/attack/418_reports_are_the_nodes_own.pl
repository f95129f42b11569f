# P77: who has got the role of a node, and does not sit at its address, says in that node's name, all the time, that it cannot reach
# another one. Nobody is downed for it; with the code that the coordinator has said to the node's address the same bytes have the node, and
# the one that it names, downed. Nor is a node that is gone kept from being downed.

use strict;
use warnings FATAL => 'all';

use File::Temp;
use IPC::Run;
use ShardNodes;
use ShardWire;
use Test::More;

use constant { ACK => 14, SECONDS => 10 };

my $cluster = ShardNodes->create(4, conf => "shard.downing_strategy = keep_majority\nshard.stable_after = 1s");
my $coordinator = $cluster->coordinator;
my $voters = 'SELECT voter FROM shard_members WHERE node = ';
# Of two voters that go at once the cluster would not be left.
my ($victim) = grep { $coordinator->sql($voters . $_->n) eq 'f' } $cluster->others($coordinator->n);
my ($liar, $gone) = $cluster->others($coordinator->n, $victim->n);
$coordinator->sql("CREATE ROLE liar LOGIN; SELECT shard_allow_peer('liar', @{[$liar->n]})");
my $wire = ShardWire::Member->new($liar, $coordinator, 'liar');
my $status = 'SELECT status FROM shard_members WHERE node = ';

# Says it over and over for so long, over three connections.
sub flood
{
	my ($seconds, %more) = @_;
	my ($ballot) = $wire->decided;
	my $message = ShardWire::wire_bytes($wire->message(ACK, b => $ballot, nodes => [ $victim->n ], %more));
	my $script = File::Temp->new;
	$script->print(call_sql('control', $message x 100) =~ s/\n//r);
	$script->close;
	chmod 0644, $script->filename;
	return IPC::Run::start([ 'pgbench', '-n', '-c', 3, '-T', $seconds, '-M', 'simple', '-h', $coordinator->server->host, '-p', $coordinator->server->port, '-U', 'liar',
		'-f', $script->filename, $coordinator->db ], '>', \my $out, '2>', \my $err), $script;
}

my ($flood, $script) = flood(SECONDS);
ok($flood->finish, 'P77 somebody says it all the time');
is($coordinator->sql(q{SELECT count(*) FROM shard_members WHERE status = 'up'}), 4, 'P77 nobody is downed by what somebody says in a member\'s name');

($flood, $script) = flood(6 * SECONDS, uuid => $wire->code);
$coordinator->wait_value($status . $_->n, 'down', 'node ' . $_->n . ' to be downed') for $liar, $victim;
$flood->signal('TERM');
$flood->finish;
pass('P77 with the code it is what the node itself says');
for my $node ($liar, $victim)
{
	$node->server->restart;
	$coordinator->wait_value($status . $node->n, 'up', 'node ' . $node->n . ' to come back');
}

$wire = ShardWire::Member->new($liar, $coordinator, 'liar');
$gone->server->stop('immediate');
($flood, $script) = flood(6 * SECONDS);
$coordinator->wait_value($status . $gone->n, 'down', 'the node that is gone to be downed');
is($coordinator->sql($status . $_->n), 'up', 'P77 nobody keeps a node that is gone from being downed, nor is node ' . $_->n) for $liar, $victim;
$flood->signal('TERM');
$flood->finish;
done_testing;
