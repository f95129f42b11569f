# P16, P17: a caller tells a node without an address of its own where it is, by way of a proxy of his. That is a guess: whoever joins after
# him brings the true one, its operator's word counts more than any call, and a node that is alone needs none to go on. P38: in the
# name of another start of it nobody takes its place.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Cluster;
use ShardNodes;
use ShardProxy;
use ShardWire;
use Test::More;

use constant { ADMIT => 35, I_AM => 38 };

my $cluster = ShardNodes->create(3, join => 0);
my ($first, $second, $third) = $cluster->nodes;
my $role = $ShardNodes::peer_role;

# The attacker's: passes on what comes, and ends when he likes.
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $there = "host=127.0.0.1 port=$port dbname=postgres user=$role";
my $proxy;

sub begin_proxy
{
	my ($to) = @_;
	$proxy = ShardProxy->start;
	$proxy->node(1, listen => $port, server => $to->server);
	return;
}

# Says, by the role of the links, that a node was reached through the proxy; any other node serves as the one that would join.
sub mislead
{
	my ($node, $seed) = @_;
	my ($out, $error) = ('', '');
	$node->server->psql($node->db, "\\set VERBOSITY verbose\n" . call_sql('call_back', join '', map { wire_bytes($_) } $seed, $third->dsn, '', ''),
		stdout => \$out, stderr => \$error, extra_params => [ '-U', $role ]);
	return $error;
}

sub address_of
{
	my ($node, $witness) = @_;
	return $witness->sql('SELECT dsn FROM shard_members WHERE node = ' . $node->n);
}

sub problems { my ($node) = @_; return $node->sql(q{SELECT array_to_string(problems, '; ') FROM shard_health()}) }

sub restart
{
	my ($node) = @_;
	$node->server->stop('fast');
	$node->server->start;
	return;
}

# --- P17: alone ----------------------------------------------------------------------------------

$first->sql(<<'SQL');
CREATE TABLE heard (what text);
CREATE FUNCTION listener(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN INSERT INTO heard VALUES (message->>'what'); RETURN state; END $$;
SELECT shard_start('listener', 'listener(jsonb,jsonb)', 4);
SQL

sub hears
{
	my ($what, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$first->sql("SELECT shard_tell('listener', 'a', '{\"what\": \"$what\"}')");
	$first->wait_until("SELECT count(*) = 1 FROM heard WHERE what = '$what'", $why);
	pass("$why: it handles messages");
	return;
}

hears('before', 'alone, without an address');
begin_proxy($first);
is(mislead($first, $there), '', 'P17 somebody calls');
is(address_of($first, $first), $there, 'P17 the node goes by what he says');
$first->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'is what a caller said, and what members send there is passed on' FROM shard_health()},
	'health to name the proxy');
pass('P16 its health says that somebody is in between');
$proxy->stop;
restart($first);
hears('after', 'P17 the proxy is gone, the server was started anew');
$first->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'no database answers this node at its own address' FROM shard_health()}, 'health to say that nobody is there');
like(problems($first), qr/\Q$there\E.*shard_set_address\(\)/, 'its health names address and remedy');
begin_proxy($second);
$first->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'another database answers at the address of this node' FROM shard_health()},
	'health to say that somebody else is there');
restart($first);
hears('again', 'P17 another database is there');
$proxy->stop;

# --- P38 -----------------------------------------------------------------------------------------

my $forged = '00000bad-0000-0000-0000-000000000bad';
my $inc_no = $first->sql('SELECT inc_no FROM shard.node');
my $liar = ShardWire::Member->new($first, $first);
is(($liar->control(ADMIT, from => 1, from_inc => 0, node => 1, epoch => $inc_no, uuid => $forged))[1], '', 'P38 another start of it claims its place');
is(($liar->control(I_AM, from => 0, from_inc => 0, node => 1, uuid2 => $forged))[1], '', 'P38 and says that it was found at its address');
is($first->sql("SELECT incarnation FROM shard_members WHERE self"), $inc_no, 'P38 it is not admitted');
hears('still', 'P38');
is($first->sql('SELECT fenced IS NULL AND inc_no = ' . $inc_no . ' FROM shard.node'), 't', 'P38 the node is what it was');
$first->sql(q{SELECT shard_drop_type('listener', force => true)});

# --- P16: with others ----------------------------------------------------------------------------

begin_proxy($first);
is(mislead($first, $there), '', 'P16 somebody calls again');
$cluster->join_node(2);
is(address_of($first, $_), $first->dsn, 'P16 node ' . $_->n . ' knows the first by the address that who joined gave') for $first, $second;
is(mislead($first, $there), '', 'P16 he calls once more');
is(address_of($first, $first), $first->dsn, 'P16 that changes nothing');
$cluster->join_node(3);
$cluster->wait_up;

# --- the operator's word -------------------------------------------------------------------------

my $coordinator = $cluster->coordinator;
my ($other) = $cluster->others($coordinator->n);
my $set = sub { my ($dsn, $node) = @_; "SELECT shard_set_address('$dsn', $node)" };
like($other->error_of($set->($there, 1)), qr/55000: .*node \d is the coordinator.*HINT:.*Call it at node @{[$coordinator->n]}: SELECT shard_set_address/s,
	'who is not the coordinator says who is');
like($coordinator->error_of($set->($there, 2)), qr/55000: node 2 is not at that address/, "another node's address is refused");
like($coordinator->error_of($set->('host=127.0.0.1 port=1 dbname=postgres', 2)), qr/ERROR:  08\d\d\d: /, 'and one where nobody is');
like($coordinator->error_of($set->("$there password=x", 1)), qr/22023: .*"password" is not allowed/, 'and one with a secret');
like($coordinator->error_of($set->($there, 9)), qr/42704: there is no node 9/, 'and a node that is none');
# While links are made anew the office may go to another one: whoever has it is asked.
sub set_by_operator
{
	my ($dsn) = @_;
	ShardCluster::wait_for_condition(
		sub {
			my ($status, undef, $error) = $cluster->coordinator->try($set->($dsn, 1));
			die "an operator cannot set an address: $error" if $status != 0 && $error !~ /coordinator|office/i;
			return $status == 0;
		},
		'the coordinator to set the address');
	return;
}
set_by_operator($there);
$_->wait_value('SELECT dsn FROM shard_members WHERE node = 1', $there, 'the new address at node ' . $_->n) for $cluster->nodes;
pass('an operator changes an address at will');
is(mislead($first, $first->dsn), '', 'and then a call');
is(address_of($first, $first), $there, 'changes nothing');
$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', 1);
$third->sql(ShardCluster::tell_recorder($entity, 'x'));
$cluster->wait_recorded($entity, 1, 'x');
pass('messages go there');

# The way to it ends: the operator says another one, and all is as before.
set_by_operator($first->dsn);
$_->wait_value('SELECT dsn FROM shard_members WHERE node = 1', $first->dsn, 'the true address at node ' . $_->n) for $cluster->nodes;
$proxy->stop;
$third->sql(ShardCluster::tell_recorder($entity, 'y'));
$cluster->wait_recorded($entity, 1, 'x', 'y');
restart($first);
$cluster->wait_up;
$cluster->wait_reachable;
pass('and it comes back there after a restart');
my (undef, undef, $error) = $first->server->psql('postgres', 'SELECT shard_set_address($$dbname=x$$)', extra_params => [ '-U', $role ]);
like($error, qr/permission denied for function/, 'it is for administrators');
done_testing;
