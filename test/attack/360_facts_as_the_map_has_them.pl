# P08, P31: a node says of homes, and of what was taken in there, what is not so; with the header of a real member, as somebody can
# who has got the role of the links. Nothing is deleted, nothing is blocked, nothing is taken for done; who says so is named.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { FACTS => 2, DONE => 3, REFUSED => 4, FAR => 1 << 52 };

my $cluster = ShardNodes->create(3);
my ($first, $second, $third) = $cluster->nodes;
$cluster->start_recorder;
my $liar = ShardWire::Member->new($second, $first);
my $type = $first->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});
my $entity = $cluster->entity_at('recorder', 1);
my $shard = $cluster->shard_of('recorder', $entity);
my $sent = 0;

sub tell_it
{
	my ($entity, $node) = @_;
	$sent++;
	$third->sql(ShardCluster::tell_recorder($entity, $sent, $sent));
	$cluster->node($node)->wait_value("SELECT state->>'count' FROM ONLY shard_entity.recorder WHERE entity_id = '$entity'", $sent, "message $sent to be handled at node $node");
	return;
}

# What the node has learned: version of the whole map; version, epoch and home of the shard.
sub learned
{
	my ($upto) = $first->sql('SELECT n FROM shard.control WHERE store = 4 AND kind = 0');
	return ($upto, split /\|/, $first->sql("SELECT n, epoch, node FROM shard.route WHERE type_id = $type AND shard = $shard"));
}

sub fact
{
	my ($section, $n, $node, $epoch, %opt) = @_;
	my $bytes = join('', map { wire_int($_) } $type, $opt{shard} // $shard, $n, $node, $epoch, $opt{lost} // 0, $opt{move} // 0, $opt{want} // 0);
	$bytes .= wire_uint(scalar @{ $opt{backups} }) . join('', map { wire_int($_) } @{ $opt{backups} }) if $opt{want};
	return section($section, $bytes, 1);
}

sub tells { my ($bytes) = @_; return ($liar->call(call_sql('receive', $liar->head . $bytes)))[1]; }

tell_it($entity, 1);
my ($upto, $n, $epoch, $node) = learned();
is($node, 1, 'the shard is at node 1');
sub states { return $first->sql("SELECT count(*) FROM ONLY shard_entity.recorder WHERE shard = $shard"); }
my $states = states();
cmp_ok($states, '>', 0, 'with its states');

# --- P08 -----------------------------------------------------------------------------------------

my @lies = (
	[ 'of a version that will never be', FACTS, FAR, 2, $epoch + 1 ],
	[ 'of the version that is known', FACTS, $n, 2, $epoch ],
	[ 'of that version, in the next epoch', FACTS, $n, 2, $epoch + 1 ],
	[ 'of one between that and the newest', FACTS, $upto, 2, $epoch + 1 ],
	[ 'that its state is lost', FACTS, $n, 1, $epoch, lost => $epoch ],
	[ 'with copies that it has not', FACTS, $n, 1, $epoch, want => 2, backups => [2] ],
	[ 'with an answer that refuses', REFUSED, FAR, 3, $epoch + 1 ],
	[ 'with one, of a version to come', REFUSED, $upto + 100, 3, $epoch + 1 ],
	[ 'of a shard that nobody has met', FACTS, FAR, 1, 7, shard => $shard + 1 ]);
is(tells(fact(@$_[ 1 .. $#$_ ])), '', "P08 a home $_->[0]: the call is answered") for @lies;
is(tells(fact(FACTS, $upto + 100, 2, $epoch + 1)), 'SH003', 'P08 a home of a version to come: come again');
$first->wait_until(q{SELECT array_to_string(problems, '; ') ~ 'node 2, or a caller in its name, tells homes that the cluster has not decided' FROM shard_health()},
	'health to name the node');
pass('health names who says so');
like(PostgreSQL::Test::Utils::slurp_file($first->server->logfile), qr/node 2 tells a home that the cluster has not decided/, 'so does the log');

tell_it($entity, 1);
is(states(), $states, 'no state was deleted');
is((learned())[3], 1, 'the shard is where it was');
is($first->sql("SELECT count(*) FROM shard.route WHERE type_id = $type AND (n >= " . FAR . ' OR shard = ' . ($shard + 1) . ' AND epoch = 7)'), 0, 'nothing was learned from it');
is($first->sql('SELECT count(*) FROM shard.copy'), 0, 'nor of copies');

# Later facts count: there, and back.
for my $to (3, 1)
{
	$cluster->move('recorder', $shard, $to);
	$cluster->wait_home('recorder', $shard, $to);
	tell_it($entity, $to);
}
pass('the shard moves, with all it had');

# What is true is taken, and changes nothing.
($upto, $n, $epoch, $node) = learned();
is(tells(fact(FACTS, $n, $node, $epoch, move => 12345)), '', 'a home as it was decided');
tell_it($entity, 1);

# --- P31 -----------------------------------------------------------------------------------------

# Messages to node 3, which is away, are taken in there, says node 2; then node 3 is given up.
my $far = $cluster->entity_at('recorder', 3);
my $far_shard = $cluster->shard_of('recorder', $far);
$third->server->stop('immediate');
$first->sql(ShardCluster::tell_recorder($far, 1, 5));
$first->wait_until(q{SELECT outbox_messages >= 5 FROM shard_peers WHERE node = 3}, 'messages to wait for node 3');
is(tells(section(DONE, join('', map { wire_int($_) } $type, $far_shard, 1 << 60), 1)), '', 'P31 node 2 says that node 3 has taken them in');
$first->eventually('SELECT shard_down(3)');
$first->eventually('SELECT shard_write_off(3)');
$first->wait_until("SELECT count(*) = 1 FROM shard_homes WHERE type_name = 'recorder' AND shard = $far_shard AND node IN (1, 2)", 'the shard to begin anew');
$cluster->has_left(3);
my ($new) = $first->sql("SELECT node FROM shard_homes WHERE type_name = 'recorder' AND shard = $far_shard");
$cluster->wait_recorded($far, $new, 1 .. 5);
pass('they are not taken for done: its next home gets them');
done_testing;
