# P60: the superuser of a member's server has what others are answered there speak in other nodes' names: in the coordinator's, to end a
# member or have it stop a shard, and in that of the very node that has called. And who has the role of the links calls a node as itself.
# P65: it tells in its own name what was never decided.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use ShardWire;
use Test::More;

use constant { HAND_OFF => 73, LEARN => 15, SHARD_HOMES => 69, OVER => 8 };

my $cluster = ShardNodes->create(3);
$cluster->start_recorder;
my $coordinator = $cluster->coordinator;
my ($liar, $victim) = $cluster->others($coordinator->n);
my $entity = $cluster->entity_at('recorder', $victim->n);
my $shard = $cluster->shard_of('recorder', $entity);
my $type = $victim->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});
$coordinator->sql(ShardCluster::tell_recorder($entity, 1, 3));
$cluster->wait_recorded($entity, $victim->n, 1 .. 3);

# That a node was written off, as a fact decided next: in somebody's name, to that node.
sub over
{
	my ($node, $from) = @_;
	my ($record, $n) = split /\|/, $node->sql("SELECT encode(m.value, 'hex'), p.n FROM shard.control m, shard.control p
WHERE m.store = 4 AND m.kind = 6 AND m.a = @{[$node->n]} AND p.store = 4 AND p.kind = 0");
	substr($record, 0, 2) = unpack 'H*', wire_int(OVER);
	return (ShardWire::Member->new($from, $node), LEARN, n => $n, commit_n => $n + 1, entries => [ [ 6, $node->n, 0, $n + 1, pack 'H*', $record ] ]);
}

# Who is called answers these, and what else there is to say: over links that are open already, since others look at procedures first.
$liar->sql(<<'SQL');
CREATE TABLE public.forged (bytes bytea);
GRANT SELECT ON public.forged TO PUBLIC;
CREATE PROCEDURE public.honest(call bytea, INOUT answer bytea) LANGUAGE c AS '$libdir/shard', 'shard_internal_control';
CREATE OR REPLACE PROCEDURE shard_peer.control(call bytea, INOUT answer bytea) LANGUAGE plpgsql AS $$
BEGIN
	CALL public.honest(call, answer);
	SELECT coalesce(answer, '') || bytes INTO answer FROM public.forged;
END $$;
SQL

sub forge
{
	my (@messages) = @_;
	my $bytes = join '', map { my ($member, @message) = @$_; wire_bytes($member->message(@message)) } @messages;
	$liar->sql("TRUNCATE public.forged; INSERT INTO public.forged VALUES ('\\x" . unpack('H*', $bytes) . "')");
	return;
}

sub answers
{
	my ($node, $name, @messages) = @_;
	my $from = $name->n;
	forge(@messages);
	$node->server->wait_for_log(qr/node @{[$liar->n]}, or another database at its address, answers in the name of node $from; the message is ignored/);
	pass("P60 the log of node @{[$node->n]} says who answers in the name of node $from");
	is($node->sql('SELECT fenced IS NULL FROM shard.node'), 't', 'P60 it goes on');
}

my $order = [ ShardWire::Member->new($coordinator, $victim), HAND_OFF, shards => [ [ $type, $shard, 0, 77 ] ] ];
answers($victim, $coordinator, [ over($victim, $coordinator) ], $order);
is($victim->sql("SELECT state, move_id = 77 FROM shard.own WHERE type_id = $type AND shard = $shard"), 'active|f', 'P60 no shard is stopped');
answers($coordinator, $coordinator, [ over($coordinator, $coordinator) ]);

# --- in its own name, without an office --------------------------------------------------------------

sub learned { return $_[0]->sql('SELECT n FROM shard.control WHERE store = 4 AND kind = 0') }
my @own = (ShardWire::Member->new($liar, $victim));
my $far = 1 << 61;
# home: epoch 1, the liar
my $home = pack 'H*', '0201' . sprintf('%02x', 2 * $liar->n) . '0200' . '02' . '000002';
my $before = learned($victim);
forge([ @own, SHARD_HOMES, to => 0, n => $far, entries => [ [ 8, $type, $shard, $far, $home ] ] ],
	[ @own, LEARN, to => 0, n => 1, commit_n => $far ],
	[ @own, LEARN, to => 0, n => 1, commit_n => $before + 50, entries => [ [ 8, $type, $shard, $before + 50, $home ] ] ]);
$_->server->wait_for_log(qr/node @{[$liar->n]}, or a caller in its name, tells what was decided, and is not the coordinator/) for $victim, $coordinator;
for ($victim, $coordinator)
{
	cmp_ok(learned($_), '<', $before + 50, 'P65 node ' . $_->n . ' learns nothing of it');
	is($_->sql("SELECT node FROM shard_homes WHERE type_name = 'recorder' AND shard = $shard"), $victim->n, 'P65 nor that the shard has gone');
}
is($victim->sql("SELECT state FROM shard.own WHERE type_id = $type AND shard = $shard"), 'active', 'P65 it is where it was');
$liar->sql(<<'SQL');
CREATE OR REPLACE PROCEDURE shard_peer.control(call bytea, INOUT answer bytea) LANGUAGE c AS '$libdir/shard', 'shard_internal_control';
SQL

# --- a call, as the node that is called ------------------------------------------------------------

my ($member, @message) = over($victim, $victim);
is(($member->control(@message))[1], '', 'P60 a node is called as itself');
$victim->server->wait_for_log(qr/a caller speaks in the name of this node, @{[$victim->n]}; the message is ignored/);
is($victim->sql('SELECT fenced IS NULL FROM shard.node'), 't', 'P60 it is told nothing of itself');

$coordinator->sql(ShardCluster::tell_recorder($entity, 4, 6));
$cluster->wait_recorded($entity, $victim->n, 1 .. 6);
is($coordinator->sql(q{SELECT count(*) FROM shard_members WHERE status = 'up'}), 3, 'P60 all are members, and messages flow');
done_testing;
