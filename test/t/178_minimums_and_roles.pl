# Y05, Y04: minimums are of members, and of members with a role, whoever of them hosts the type; roles keep their
# case, and one that nobody has is a problem; where a node lacks a type's role the type is a proxy there.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $minimums = "shard.min_members = 3\nshard.role_min_members = 'Back=2'\n";
my $cluster = ShardNodes->create(3, join => 0, conf => $minimums,
	confs => { 1 => q{shard.roles = 'Back'}, 2 => q{shard.roles = 'back'}, 3 => q{shard.roles = 'Back, front'} });
my ($one, $two, $three) = $cluster->nodes;
$cluster->join_node(2);
my $says = q{SELECT count(*) FROM shard_health(), unnest(problems) p WHERE p ~ '%s'};

# The type without a role runs at node 1 alone, that with one at the first two.
$cluster->sql_everywhere(<<'SQL');
CREATE FUNCTION backed(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN to_jsonb(coalesce(state::int, 0) + 1);
SQL
$one->sql(q{SELECT shard_start('anywhere', 'backed(jsonb,jsonb)', 12)});
$_->sql(q{SELECT shard_start('backed', 'backed(jsonb,jsonb)', 12, role => 'Back'), shard_start('nowhere', 'backed(jsonb,jsonb)', 12, role => 'BACK')})
  for $one, $two;
is($one->sql(q{SELECT array_to_string(roles, ' ') FROM shard_members WHERE self}), 'Back', 'roles keep their case');
is($two->sql(q{SELECT string_agg(mode, ' ') FROM shard_types}), 'proxy proxy', 'a node without the role is a proxy');
is($one->sql(q{SELECT string_agg(mode, ' ' ORDER BY type_name) FROM shard_types}), 'hosting hosting proxy', 'one with it hosts');
$one->wait_value(q{SELECT string_agg(node || ' ' || mode, ', ' ORDER BY node) FROM shard_current_regions WHERE type_name = 'backed'},
	'1 hosting, 2 proxy', 'shard_current_regions to say so');
$one->wait_value(sprintf($says, 'no member has role "BACK" of entity type "nowhere"'), 1, 'a role that nobody has to be a problem');
is($one->sql(sprintf($says, 'no member has role "Back"')), 0, 'one that somebody has is none');
$_->sql(q{SELECT shard_drop_type('nowhere')}) for $one, $two;
$one->wait_value(sprintf($says, 'no member has role'), 0, 'the type to be forgotten');
is($two->sql(sprintf($says, 'no member has role')), 0, 'nor is that of a type that was dropped');

$one->sql(q{SELECT shard_tell(t, 'e' || i, '{}') FROM unnest(ARRAY['anywhere', 'backed']) t, generate_series(1, 5) i});
$one->wait_value(sprintf($says, '2 of the 3 members that shard.min_members wants'), 1, 'two to be too few');
$one->wait_value(sprintf($says, '1 of the 2 members with role "Back" that shard.role_min_members wants'), 1, 'and one with the role');
is($one->sql('SELECT count(*) FROM shard_homes'), 0, 'no shard has a home before');

$cluster->join_node(3);
$cluster->wait_up;
for my $type (qw(anywhere backed))
{
	$one->wait_value("SELECT count(*) FROM shard_entity.$type", 5, "messages of $type");
	is($one->sql("SELECT string_agg(DISTINCT node::text, ' ') FROM shard_homes WHERE type_name = '$type'"), 1,
		"$type: minimums are of members, though node 3 does not host it");
}
is($one->sql(sprintf($says, 'min_members wants')), 0, 'minimums are met');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
