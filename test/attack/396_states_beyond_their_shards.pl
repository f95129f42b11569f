# An owner who puts rows of shards that there are not into his own state table, as many as he likes, does not have the first join read
# them one after the other: the look for states that have no homes ends at the number of shards (C21).

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardOwners;
use Test::More;

my $cluster = ShardNodes->create(2, join => 0, conf => 'shard.region_workers = 1');
my ($one, $two) = $cluster->nodes;
ShardOwners::create_roles($_, 'mallory') for $one, $two;
ShardOwners::as($one, 'mallory', q{SELECT shard_start('tm', 'mallory.keep', 100)});
$cluster->wait_registered($one);
ShardOwners::as($one, 'mallory', q{
INSERT INTO shard_entity.tm (shard, entity_id, state) SELECT n, 'x', '1' FROM generate_series(200, 5199) n;
INSERT INTO shard_entity.tm (shard, entity_id, state) VALUES (-7, 'x', '1'), (2147483647, 'x', '1');
INSERT INTO shard_entity.tm (shard, entity_id, state) SELECT n, 'x', '1' FROM generate_series(0, 9) n;});

is($two->sql(sprintf "SELECT shard_join('%s', '%s')", $one->dsn, $two->dsn), 2, 'a node joins');
is($one->sql('SELECT count(*), min(node), max(node), max(reason) FROM shard_homes'), '10|1|1|states', 'shards with states that there are have homes where those are');

# One scan of the primary key for each shard that is met, and one that meets none.
my $scans = q{SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes WHERE relid = 'shard_entity.tm'::regclass};
$one->wait_until("SELECT ($scans) > 10", 'the control worker to have told its statistics');
cmp_ok($one->sql($scans), '<', 500, 'no others were looked at');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
