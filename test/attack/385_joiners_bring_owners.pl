# Of a cluster's types there are owners for eight groups of workers (C19). A node that brings a type of a ninth is refused before
# it is a member; where the cluster found its eighth owner while the node joined, health names the type that gets no number, and
# the node goes on once it gets one. Whether owners may share is the coordinator's setting, not that of who asks.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardOwners;
use Test::More;

my $full = qr/too many owners of entity types/;

sub start { my ($node, $n, $how) = @_; return ShardOwners::as($node, "o$n", "SELECT shard_start('t$n', 'o$n.keep')") }

sub sharing
{
	my ($node, $value) = @_;
	$node->sql("ALTER SYSTEM SET shard.owners_may_share_workers = $value");
	$node->server->reload;
	return $node->wait_until("SELECT setting = '$value' FROM pg_settings WHERE name = 'shard.owners_may_share_workers'", 'the setting');
}

# Two nodes apart, the first with so many owners' types, the second with one of the ninth.
sub create
{
	my ($suffix, $owners) = @_;
	my $cluster = ShardNodes->create(2, join => 0, suffix => $suffix, conf => 'shard.region_workers = 1');
	my ($one, $two) = $cluster->nodes;
	ShardOwners::create_roles($_, map { "o$_" } 1 .. 10) for $one, $two;
	start($one, $_) for 1 .. $owners;
	start($two, 9);
	is($two->sql('SELECT type_id FROM shard.type'), 1, 'a number that is another type\'s in the cluster');
	return ($cluster, $one, $two);
}

sub error_of
{
	my ($node, $sql) = @_;
	my ($status, undef, $err) = $node->server->psql($node->db, "\\set VERBOSITY verbose\n$sql");
	return $status == 0 ? '' : $err;
}

sub answers
{
	my ($node, $n, $what) = @_;
	like(ShardOwners::as($node, "o$n", "SELECT shard_ask('t$n', 'x', '{\"a\": 1}', '60 s')"), qr/"a": 1/, $what);
	return;
}

# The node is refused.
my ($cluster, $one, $two) = create('a', 8);
my $join = sprintf q{SELECT shard_join('%s', '%s')}, $one->dsn, $two->dsn;
like(error_of($two, $join), qr/ERROR:  53400: the cluster has no number for entity type "t9" of role "o9": $full\nDETAIL:  8 owners .*\nHINT:  Drop the type .* or let owners share .* coordinator/,
	'a node with a type of a ninth owner is refused');
is($one->sql('SELECT count(*) FROM shard_members'), 1, 'it is no member');
answers($two, 9, 'and is what it was');

# Without the type it may join.
ShardOwners::as($two, 'o9', q{SET client_min_messages = warning; SELECT shard_drop_type('t9', force => true)});
$two->eventually($join);
$cluster->wait_up;
pass('without that type it joins');

# The coordinator's setting counts.
sharing($two, 'on');
my $refused = ShardOwners::refused($two, 'o9', q{SELECT shard_start('t9', 'o9.keep')});
like($refused, qr/ERROR:  53400: cannot start entity type "t9": $full\nDETAIL:  8 owners .*\nHINT:  .* coordinator, node 1, counts/,
	'who would let owners share is refused by a coordinator that does not');
sharing($two, 'off');
sharing($one, 'on');
ShardOwners::as_eventually($two, 'o9', q{SELECT shard_start('t9', 'o9.keep')});
answers($two, 9, 'who would not is not asked');
$_->server->stop for $one, $two;

# A type of the eighth owner comes between the node's welcome and its types.
($cluster, $one, $two) = create('b', 7);
SKIP:
{
	skip 'the race needs a build with fault points', 6 unless $two->sql(q{SELECT count(*) FROM pg_settings WHERE name = 'shard.fault_point'});
	$two->server->set_fault('join_welcomed', 'freeze');
	my $joiner = $two->session;
	$joiner->send(sprintf q{SELECT shard_join('%s', '%s');}, $one->dsn, $two->dsn);
	ShardCluster::wait_for_condition(sub { $two->server->fault_happened }, 'the welcome');
	ShardOwners::as_eventually($one, 'o8', q{SELECT shard_start('t8', 'o8.keep')});
	$two->server->clear_fault;
	$two->wait_until(q{SELECT problems::text ~ 'no number for entity type \\\\"t9\\\\" of role \\\\"o9\\\\" .too many owners of entity types., which was here .*node 1' FROM shard_health()},
		'health to name the type');
	pass('health names the type that gets no number, and why');
	$two->wait_until(q{SELECT count(*) = 2 FROM shard_members}, 'the members');
	$refused = '';
	ShardCluster::wait_for_condition(sub {
			$refused = ShardOwners::refused($two, 'o1', q{SELECT shard_start_proxy('t1', handler => 'o1.keep')});
			return $refused =~ /cannot start entity type "t1" yet/;
		}, 'the type to be known');
	like($refused, qr/ERROR:  55000: .*\nDETAIL:  Entity type "t9", .* has its number until .*\nHINT:  See shard_health/, 'whose number it is, is told');
	sharing($one, 'on');
	$two->wait_until(q{SELECT problems::text !~ 'no number' FROM shard_health()}, 'the type to have a number');
	ShardOwners::as_eventually($two, 'o1', q{SELECT shard_start_proxy('t1', handler => 'o1.keep')});
	answers($two, 1, 'types of the cluster are there');
	answers($two, 9, 'and so is that one');
	is($joiner->receive, 2, 'the node has joined');
	$joiner->close;
}
done_testing();
