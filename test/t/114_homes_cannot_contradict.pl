# F13: what makes other systems' coordinators fail for ever (a shard with two homes in their journal)
# cannot be written down: the map and the routes have one row for a shard.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
$cluster->start_counter;
my ($one) = $cluster->nodes;
$one->get($_) for 1 .. 12;
for my $table (qw(shard.control shard.route))
{
	cmp_ok($one->sql("SELECT count(*) FROM $table"), '>', 0, "$table has rows");
	like($one->error_of("INSERT INTO $table SELECT * FROM $table LIMIT 1"), qr/23505/, "F13: $table takes no second row for a key");
}
is($one->sql(q{SELECT count(*) FROM (SELECT FROM shard_homes GROUP BY type_name, shard HAVING count(*) > 1) x}), 0, 'F13: no shard has two homes');
$one->server->crash;
$one->server->recover;
$cluster->wait_up;
is($one->get(5), $cluster->node(2)->get(5), 'F13: nothing has to be replayed');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
