# Q01, Q03, Q07, Q09, Q13: regions and entities of the cluster, from any node; who did not answer is
# named; a look at an entity does not start it.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(4);
$cluster->start_counter(proxies => [4]);
my ($one, $two, $three, $four) = $cluster->nodes;

# Q01, Q03
my $regions = q{SELECT string_agg(node || ' ' || mode, ', ' ORDER BY node) FROM shard_current_regions WHERE type_name = 'counter'};
$four->wait_value($regions, '1 hosting, 2 hosting, 3 hosting, 4 proxy', 'regions');
pass('Q01: regions are known before there is any shard, at the proxy as well');
my $stats = q{SELECT count(DISTINCT node) FILTER (WHERE error IS NOT NULL) || ' failed, ' || coalesce(sum(entities), 0) FROM shard_cluster_stats() WHERE type_name = 'counter' OR type_name IS NULL};
$four->wait_value($stats, '0 failed, 0', 'all to answer');
pass('Q03: no entities, nobody failed');
is($one->sql(q{SELECT count(*) FROM shard_homes WHERE type_name = 'counter' AND node IS NOT NULL}), 0, 'Q03: no shards');

# Q13
is($four->sql(q{SELECT concat_ws('|', shard, node, dsn) FROM shard_location('counter', '5')}), '5', 'Q13: an entity that nobody sent to has no home');
$four->add($_, 1) for 1 .. 12;
$four->get($_) for 1 .. 12;
my ($home) = $four->get(5) =~ /node(\d)/;
is($four->sql(q{SELECT concat_ws('|', shard, node, running) FROM shard_location('counter', '5')}), "5|$home|t", 'Q13: a running one, with its node');
is($four->sql(q{SELECT concat_ws('|', shard, node, running) FROM shard_location('counter', '17')}), "5|$home|f", 'Q13: one that does not run');
is($four->sql(q{SELECT dsn FROM shard_location('counter', '5')}), $cluster->node($home)->dsn, 'Q13: and its address');
is($cluster->node($home)->sql(q{SELECT count(*) FROM shard_region_state WHERE entity_id = '17'}), 0, 'Q13: looking does not start it');

$four->wait_value($stats, '0 failed, 12', 'all to answer again');
pass('Q05: all entities are counted');
my ($lost) = map { $cluster->node($_) } grep { $_ != $cluster->coordinator->n } 1 .. 3;
my $there = $one->sql(q{SELECT count(*) FROM shard_homes WHERE type_name = 'counter' AND node = } . $lost->n);
$lost->server->freeze;
# On a slow machine others may be late, too.
$four->wait_value(q{SELECT sum(entities) FILTER (WHERE type_name = 'counter') || ' ' || string_agg(DISTINCT node::text, ' ') FILTER (WHERE error IS NOT NULL)
	FROM shard_cluster_stats('2 s')}, 12 - $there . ' ' . $lost->n, 'the others to answer');
pass('Q07: those that answered are counted, who did not is named');
$lost->server->thaw;

# Q09
$cluster->wait_reachable;
$four->wait_until('SELECT ok FROM shard_health()', 'health');
pass('Q09: healthy');
$_->wait_value(q{SELECT string_agg(type_name, ' ') FROM shard_type_names}, 'counter', 'the types') for $cluster->nodes;
pass('shard_type_names is the same everywhere');
is($one->sql(q{SELECT sum(entities) FROM shard_region_stats WHERE type_name = 'counter'}), $one->sql(q{SELECT count(*) FROM shard_region_state WHERE type_name = 'counter'}), 'shard_region_stats counts what shard_region_state lists');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
