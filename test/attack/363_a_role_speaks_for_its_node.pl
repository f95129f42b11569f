# P07: who has got the role of one node speaks in the name of another one. Each node has a role of its own (shard.peer_user), and each
# member lets it in for that node alone.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use ShardWire;
use Test::More;

use constant { ACCEPT => 9, FENCED => 39, HAND_OFF => 73, HEARTBEAT => 13, IMPORT => 75, PREPARE => 3 };

my $cluster = ShardNodes->create(3, join => 0);
for my $node ($cluster->nodes)
{
	$node->sql("CREATE ROLE link$_ LOGIN; SELECT shard_allow_peer('link$_')") for 1 .. 3;
	$node->server->append_conf('postgresql.conf', "shard.peer_user = 'link@{[$node->n]}'");
	$node->server->reload;
}
$cluster->join_all;
for my $node ($cluster->nodes)
{
	$node->sql("SELECT shard_allow_peer('link$_', $_)") for 1 .. 3;
	# The role that is in all addresses is nobody's.
	$node->sql("REVOKE ALL ON SCHEMA shard_peer FROM $ShardNodes::peer_role");
}
$cluster->start_recorder;
my ($first, $second, $third) = $cluster->nodes;
my %at = map { $_ => $cluster->entity_at('recorder', $_) } 1 .. 3;
for my $from ($cluster->nodes)
{
	$from->sql(ShardCluster::tell_recorder($at{$_}, $from->n)) for 1 .. 3;
}
for my $n (1 .. 3)
{
	$cluster->node($n)->wait_until("SELECT state->>'count' = '3' FROM shard_entity.recorder WHERE entity_id = '$at{$n}'", "messages at node $n");
}
$cluster->move('recorder', $cluster->shard_of('recorder', $at{1}), 3);
$cluster->wait_home('recorder', $cluster->shard_of('recorder', $at{1}), 3);
pass('nodes with roles of their own are a cluster: messages flow, shards move');
for my $node ($cluster->nodes)
{
	my $users = $node->sql(q{SELECT string_agg(DISTINCT usename::text, ' ' ORDER BY usename::text) FROM pg_stat_activity WHERE usename ~ '^link'});
	unlike($users, qr/link(?: |$)/, 'at node ' . $node->n . " others are who they are: $users");
}

# --- P07 -----------------------------------------------------------------------------------------

for my $node ($first, $third)
{
	my $liar = ShardWire::Member->new($node->n == 1 ? $third : $first, $node, 'link2');
	my $name = 'node 2 as node ' . $liar->{from}->n . ' to node ' . $node->n;
	for my $procedure (qw(hello receive ask export stats))
	{
		my ($out, $state, $error) = $liar->call(call_sql($procedure, $liar->head . ($procedure eq 'hello' ? greeting(0) : "\x03\0\0\0")));
		like($state, $procedure eq 'ask' || $procedure eq 'export' ? qr/^(?:42501|08P01|42883)$/ : qr/^42501$/, "P07 $procedure: $name");
	}
	is(($liar->control(FENCED, epoch => 1000))[1], '42501', "P07 control: $name");
	is(($liar->control(PREPARE, from => 0, b => 1 << 30))[1], '42501', "P07 control, as nobody: node 2 to node " . $node->n);
}
my $honest = ShardWire::Member->new($second, $first, 'link2');
is(($honest->call(call_sql('hello', $honest->head . greeting(0))))[1], '', 'in its own name it may');
my ($out, $state, $error) = $honest->call(call_sql('hello', ShardWire::Member->new($third, $first)->head . greeting(0)));
like($error, qr/role "link2" may not speak for node 3.*given to node 2 alone.*shard_allow_peer/s, 'the error says whose the role is');
is(($honest->call("CALL shard_peer.call_back('\\x', NULL);\n"))[1], '08P01', 'a call that is none is refused as such');

# --- P34, P35: in its own name, with what only the coordinator says --------------------------------

my $other = ShardWire::Member->new($second, $third, 'link2');
my ($office, $upto) = $other->decided;
is($office & 0xffff, 1, 'the ballot is of node 1');
is($cluster->coordinator->n, 1, 'node 1 is coordinator');
is(($other->control($_, b => $office, n => $upto + 1, point => [ $office, $upto ]))[1], '',
	"P34 kind $_ under the ballot of the coordinator") for HEARTBEAT, ACCEPT;
like(slurp_file($third->server->logfile), qr/node 2, or a caller in its name, names another node's ballot as its own/, 'P34 the log says so');
is($cluster->coordinator($third)->n, 1, 'P34 nobody else is followed');
my $type = $third->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});
my $shard = $cluster->shard_of('recorder', $at{3});
my ($epoch) = $third->sql("SELECT epoch FROM shard.own WHERE type_id = $type AND shard = $shard");
is(($other->control($_, node => 2, shards => [ [ $type, $shard, $epoch, 77 ] ]))[1], '', "P35 kind $_, of a shard that lives there, for a move that nobody has decided")
  for HAND_OFF, IMPORT;
$first->sql(ShardCluster::tell_recorder($at{3}, 'late'));
$third->wait_until("SELECT state->>'last' = 'late' FROM shard_entity.recorder WHERE entity_id = '$at{3}'", 'the shard to go on');
is($third->sql("SELECT state, move_id = 77 FROM shard.own WHERE type_id = $type AND shard = $shard"), 'active|f', 'P35 it is not stopped');
like(slurp_file($third->server->logfile), qr/node 2 sends hand-off, which only the coordinator does: it came into office just now, and will send it again, or a caller speaks in its name/, 'P35 the log says so');

# Another node of the same role, and any again: from the next call on.
$first->sql(q{SELECT shard_allow_peer('link2', 3)});
is(($honest->call(call_sql('hello', $honest->head . greeting(0))))[1], '42501', 'a role can be given to another node');
$first->sql(q{SELECT shard_allow_peer('link2')});
is(($honest->call(call_sql('hello', $honest->head . greeting(0))))[1], '', 'or to any');
done_testing;
