# C15: twenty entity types started at the same time from all nodes come to twenty types that have the
# same number everywhere, and all of them work.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
$cluster->sql_everywhere(join '', map { "CREATE FUNCTION t$_(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN jsonb_build_object('type', $_, 'message', message);\n" } 1 .. 20);

# Each node in five sessions, each in another order.
my @sessions;
for my $node ($cluster->nodes)
{
	for my $part (0 .. 4)
	{
		my @types = grep { $_ % 5 == $part } 1 .. 20;
		@types = reverse @types if $node->n % 2;
		my $session = $node->session;
		$session->send(join '', map { "SELECT shard_start('t$_', 't$_');\n" } @types);
		push @sessions, $session;
	}
}
$_->receive for @sessions;
pass('C15: all started');

my $ids = q{SELECT string_agg(type_name, ' ' ORDER BY type_name) FROM shard_type_names};
my $expected = join ' ', sort map { "t$_" } 1 .. 20;
$_->wait_value($ids, $expected, 'the types') for $cluster->nodes;
for my $node ($cluster->nodes)
{
	my $got = $node->sql(join '', map { "SELECT shard_ask('t$_', 'e', '$_', '30 s')->>'type';\n" } 1 .. 20);
	is($got, join("\n", 1 .. 20), 'C15: node ' . $node->n . ' gets the answer of each type');
}
is($cluster->node(1)->sql(q{SELECT count(DISTINCT (type_name, shard)) = count(*) FROM shard_homes WHERE node IS NOT NULL}), 't', 'one home for each shard');
$cluster->logs_are_clean;
done_testing();
