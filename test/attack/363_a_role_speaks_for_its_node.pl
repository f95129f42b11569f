# P07: who has got the role of one node speaks in the name of another one. Each node has a role of its own (shard.peer_user), and each
# member lets it in for that node alone.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { FENCED => 39, PREPARE => 3 };

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

# Another node of the same role, and any again: from the next call on.
$first->sql(q{SELECT shard_allow_peer('link2', 3)});
is(($honest->call(call_sql('hello', $honest->head . greeting(0))))[1], '42501', 'a role can be given to another node');
$first->sql(q{SELECT shard_allow_peer('link2')});
is(($honest->call(call_sql('hello', $honest->head . greeting(0))))[1], '', 'or to any');
done_testing;
