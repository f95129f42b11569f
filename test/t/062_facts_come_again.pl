# A control worker that starts while somebody has the tables of ownership and routes locked cannot look which homes the
# region workers know, and appends all of them to the log again, once. Who knows a fact passes over it (T2): nothing is
# handled twice, written anew, or sent again.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;
$cluster->start_counter;
$one->add($_, 1, 2) for 0 .. 11;
$cluster->drain;
my $facts = 'SELECT count(*) FROM ' . ShardCluster::inbox_rows('kind') . ' WHERE kind = 18';
my $rows = q{SELECT string_agg(r::text || ' ' || r.xmin::text, ', ' ORDER BY r.shard) FROM shard.route r};
my $owned = q{SELECT string_agg(o::text || ' ' || o.xmin::text, ', ' ORDER BY o.shard) FROM shard.own o};
my ($facts_before, $rows_before, $owned_before) = map { $two->sql($_) } $facts, $rows, $owned;

my $holder = $two->session;
$holder->query('BEGIN; LOCK TABLE shard.own, shard.route IN SHARE MODE;');
my ($worker) = $two->workers('shard control');
$two->sql("SELECT pg_terminate_backend($worker)");
$two->wait_until("SELECT ($facts) >= $facts_before + 12", 'all homes to be appended again');
pass('all homes are appended again');
$one->add($_, 4) for 0 .. 11;
is($one->get($_), '7 from node' . $cluster->home_of('counter', $_, $one), "entity $_ goes on while it is locked") for 0 .. 11;
$holder->query('ROLLBACK;');
$cluster->drain;
is($two->sql($rows), $rows_before, 'no route was written anew');
is($two->sql($owned), $owned_before, 'nor what is active here');
is($two->sql($facts) - $facts_before, 12, 'they are appended once');
is($one->get($_), '7 from node' . $cluster->home_of('counter', $_, $one), "entity $_ has handled everything once") for 0 .. 11;
done_testing();
