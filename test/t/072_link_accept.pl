# A quarantine ends by shard_link_accept() only. If the receiver was put back from a copy, what it had
# taken in since and this node still has is sent again, in order. If it was the sender, what a former life
# has sent is not sent again: it is known to be done, or a dead letter; and what came after is sent.

use strict;
use warnings FATAL => 'all';

use File::Path qw(rmtree);
use PostgreSQL::Test::RecursiveCopy;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
$cluster->start_recorder;
my ($one, $two) = $cluster->nodes;
my ($here, $there) = ($cluster->entity_at('recorder', 1), $cluster->entity_at('recorder', 2));
$cluster->drain;

sub send_to { my ($node, $entity, @what) = @_; $node->sql(ShardCluster::tell_recorder($entity, @what)); return; }

# Node 2 as it is now, later.
sub copy
{
	my ($name) = @_;
	$two->server->stop('fast');
	$two->server->backup_fs_cold($name);
	$two->server->recover;
	$cluster->wait_up;
	return;
}

sub put_back
{
	my ($name) = @_;
	$two->server->stop('fast');
	rmtree($two->server->data_dir);
	PostgreSQL::Test::RecursiveCopy::copypath($two->server->backup_dir . "/$name", $two->server->data_dir);
	chmod 0700, $two->server->data_dir;
	return;
}

# The copy is refused until an operator says that it is to take the node's place.
sub admit
{
	my $before = -s $two->server->logfile;
	$two->server->recover;
	$two->server->wait_for_log(qr/node 2 is not admitted: .*shard_admit/, $before);
	$one->sql('SELECT shard_admit(2, incarnation + 1) FROM shard_members WHERE node = 2');
	$two->wait_until(q{SELECT array_to_string(problems, ' ') !~ 'not admitted|former life' FROM shard_health()}, 'the node to hear of it');
	return;
}

sub quarantined
{
	my ($what) = @_;
	$_->[0]->wait_until("SELECT state = 'quarantined' FROM shard_peers WHERE node = $_->[1]", 'quarantine') for [ $one, 2 ], [ $two, 1 ];
	pass("$what: both sides say so");
	return;
}

sub dead { my ($node) = @_; return $node->sql(q{SELECT coalesce(string_agg(message->>'what', ' ' ORDER BY id), '') FROM shard_dead_letters WHERE sqlstate = 'SH100'}); }

# --- rights, and nothing to do -------------------------------------------------------------------

send_to($one, $there, 'a1', 'a3');
send_to($two, $here, 'b1', 'b3');
$cluster->wait_recorded($there, 2, qw(a1 a2 a3));
$cluster->wait_recorded($here, 1, qw(b1 b2 b3));
$cluster->drain;
$one->sql('CREATE ROLE nobody');
like($one->error_of('SET ROLE nobody; SELECT shard_link_accept(2);') // '', qr/permission denied/, 'not for everybody');
like($one->error_of('SELECT shard_link_accept(9);') // '', qr/42704.*there is no node 9/, 'an unknown node');
$one->sql('SELECT shard_link_accept(2)');
send_to($one, $there, 'a4');
$cluster->wait_recorded($there, 2, qw(a1 a2 a3 a4));
pass('without a quarantine it does nothing');

# --- the receiver has forgotten ------------------------------------------------------------------

# What it has not confirmed as done is still at the sender.
$two->server->stop('fast');
$two->server->backup_fs_cold('before');
$two->server->recover;
$cluster->wait_up;
send_to($one, $there, 'a5', 'a9');
$cluster->wait_recorded($there, 2, map { "a$_" } 1 .. 9);
put_back('before');
send_to($one, $there, 'a10', 'a12');
admit();
quarantined('the receiver was put back');
$one->wait_until(q{SELECT string_agg(quarantine, ' ') ~ 'receiver regressed' FROM shard.stream WHERE node = 2}, 'the sender to know who it was');
$two->wait_until(q{SELECT string_agg(quarantine, ' ') ~ 'receiver regressed' FROM shard.position WHERE origin = 1}, 'the receiver to know it, too');
$one->sql('SELECT shard_link_accept(2)');
$one->wait_until("SELECT state = 'open' FROM shard_peers WHERE node = 2", 'the link');
$two->wait_until("SELECT bool_or(what = 'a12') FROM seen WHERE entity = '$there'", 'the newest message');
$cluster->drain;
my $seen = $two->sql("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$there'");
like($seen, qr/^a1 a2 a3 a4 (?:.*)a10 a11 a12$/, 'what the sender has is handled after what the receiver remembers');
is(join(' ', sort { $a <=> $b } $seen =~ /(\d+)/g), join(' ', $seen =~ /(\d+)/g), 'in order, and nothing twice');
note($seen);
is(dead($one), '', 'nothing is in doubt');
is($one->sql("SELECT count(*) FROM shard.parked"), 0, 'nothing is left behind');
$two->wait_value('SELECT count(*) FROM shard.position WHERE quarantine IS NOT NULL', 0, 'the receiver to say that it goes on');

# --- the sender has forgotten --------------------------------------------------------------------

# Node 1 is away, so that messages for it are stored, and are in the copy.
$one->server->stop('fast');
send_to($two, $here, 'b4', 'b6');
# They are on their way, and not only in the inbox: what a copy has not routed yet it sends as its own.
$two->wait_until('SELECT outbox_messages = 3 FROM shard_peers WHERE node = 1', 'the outbox');
copy_alone('stored');
$one->server->recover;
$cluster->wait_up;
$cluster->wait_recorded($here, 1, map { "b$_" } 1 .. 6);
send_to($two, $here, 'b7', 'b8');
$cluster->wait_recorded($here, 1, map { "b$_" } 1 .. 8);
put_back('stored');
admit();
send_to($two, $here, 'b9');
quarantined('the sender was put back');
$one->wait_until(q{SELECT string_agg(quarantine, ' ') ~ 'origin regressed' FROM shard.position WHERE origin = 2}, 'the receiver to know who it was');
is($cluster->recorded($here, $one), join(' ', map { "b$_" } 1 .. 8) . ' = 8 at 1', 'nothing comes');
$two->sql('SELECT shard_link_accept(1)');
$cluster->wait_recorded($here, 1, (map { "b$_" } 1 .. 8), 'b9');
pass('what was told since is sent');
like(dead($two), qr/^(?:b4 b5 b6)?$/, 'what a former life has sent is known to be done, or in doubt, and not sent again');
$cluster->drain;
send_to($two, $here, 'b10', 'b12');
$cluster->wait_recorded($here, 1, map { "b$_" } 1 .. 12);
pass('and so it goes on');

sub copy_alone
{
	my ($name) = @_;
	$two->server->stop('fast');
	$two->server->backup_fs_cold($name);
	$two->server->recover;
	return;
}

$_->server->log_is_clean(@ShardNodes::link_troubles, qr/quarantine/) for $one, $two;
done_testing();
