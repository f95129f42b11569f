# Who drops a type at a member that has states of it hears that they are at this node alone and could be moved, before
# and after; what was moved away first is not lost.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1);
my ($one, $two) = $cluster->nodes;
$cluster->start_counter;
$one->sql(join ';', map { "SELECT shard_tell('counter', '$_', '{\"add\": $_}')" } 1 .. 24);
$cluster->drain;
my $states = q{SELECT count(*) FROM shard_entity.counter};
my ($here, $there) = ($one->sql($states), $two->sql($states));
is($here + $there, 24, 'both nodes have states');
cmp_ok($_, '>', 0, 'some') for $here, $there;

sub said
{
	my ($node, $sql) = @_;
	my ($out, $said);
	$node->server->psql($node->db, $sql, stdout => \$out, stderr => \$said);
	return $said;
}

like(said($two, q{SELECT shard_drop_type('counter')}), qr/in use.*DETAIL: .*not empty.*at this node alone.*HINT: .*shard_evacuate.*force/s,
	'a refusal names the way that keeps the states');
like(said($two, q{BEGIN; SELECT shard_drop_type('counter', true); ROLLBACK}),
	qr/WARNING: +deleted states of entity type "counter": $there\n.*DETAIL: .*begin empty.*HINT: .*shard_evacuate/s,
	'what force deletes is counted, and what becomes of the shards is said');
is($two->sql($states), $there, 'it can be rolled back');

$one->sql('SELECT shard_evacuate(2)');
$one->wait_value($states, 24, 'all states to be at node 1');
$two->wait_value($states, 0, 'none to be at node 2');
unlike(said($two, q{SELECT shard_drop_type('counter')}), qr/WARNING|ERROR/, 'then the type goes without a word');
is($one->sql($states), 24, 'and nothing is lost');

# The last one that has it may go on nowhere, but that is not known here.
like(said($one, q{SELECT shard_drop_type('counter', true)}), qr/deleted states of entity type "counter": 24/, 'elsewhere they are counted, too');
done_testing();
