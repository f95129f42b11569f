# R11: a third member that hosts nothing, a witness, makes three voters of two nodes: either of the
# others may be lost, and new homes are given on.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
my ($one, $two, $witness) = $cluster->nodes;
$_->sql(q{
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('note', 'note');}) for $one, $two;
$cluster->wait_registered;
is($one->sql('SELECT count(*) FROM shard_members WHERE voter'), 3, 'three vote');

for my $lost ($one, $two)
{
	my ($left) = grep { $_->n != $lost->n } $one, $two;
	$lost->server->crash;
	my $fresh = 'while-' . $lost->n . '-is-lost-';
	$left->sql(join '', map { "SELECT shard_tell('note', '$fresh$_', '1');\n" } 1 .. 20);
	$left->wait_until("SELECT count(*) >= 5 FROM shard_entity.note WHERE entity_id LIKE '$fresh%'", 'new homes');
	pass('new homes without node ' . $lost->n);
	is($left->sql('SELECT count(*) FROM shard_homes WHERE node = 3'), 0, 'none at the witness');
	$lost->server->recover;
	$cluster->wait_up;
	$cluster->wait_reachable;
	$cluster->drain;
	is($one->sql("SELECT count(*) FROM shard_entity.note WHERE entity_id LIKE '$fresh%'")
		+ $two->sql("SELECT count(*) FROM shard_entity.note WHERE entity_id LIKE '$fresh%'"), 20, 'all are handled when it is back');
}
is($witness->sql(q{SELECT count(*) FROM pg_class WHERE relnamespace = 'shard_entity'::regnamespace AND relkind = 'r'}), 0, 'the witness has no states');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
