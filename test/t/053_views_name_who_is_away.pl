# Views show the cluster from every node; a node that does not answer is named, within the time given,
# and holds nobody up; shard_health says in a sentence what is lost, and what would help.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $cluster = ShardNodes->create(2);
my ($first, $second) = $cluster->nodes;

# --- two nodes -----------------------------------------------------------------------------------

$_->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'node ' . $_->n . ' to be well') for $cluster->nodes;
pass('both are well');
is($_->sql('SELECT string_agg(concat_ws($$ $$, node, status, voter, coordinator), $$, $$ ORDER BY age) FROM shard_members'),
	'1 up t t, 2 up f f', 'node ' . $_->n . ' knows that the older one alone votes')
  for $cluster->nodes;
$_->wait_value('SELECT string_agg(concat_ws($$ $$, node, state, outbox_messages), $$, $$) FROM shard_peers',
	3 - $_->n . ' idle 0', 'node ' . $_->n . ' to know the other one') for $cluster->nodes;
pass('who has had nothing to send has no links');

$first->server->stop;
$second->wait_until(q{SELECT NOT ok FROM shard_health()}, 'node 2 to notice');
$second->wait_until(q{SELECT problems::text ~ 'no coordinator.*third member' FROM shard_health()},
	'node 2 to say that there is no coordinator, and that a third member would help');
$second->wait_until(q{SELECT problems::text ~ 'node 1 has not been heard' FROM shard_health()}, 'node 2 to name node 1');
is($second->sql('SELECT reachable FROM shard_members WHERE node = 1'), 'f', 'and a view shows it');
my ($status, undef, $err) = $second->try('SELECT shard_down(1)');
isnt($status, 0, 'without a coordinator, there are no commands');
like($err, qr/there is no coordinator.*HINT: .*shard_force_voters/s, 'and the error says what can be done');
$first->server->start;
$second->wait_value('SELECT ok FROM shard_health()', 't', 'node 2 to be well again');
pass('all is well again when it is back');

# --- three nodes ---------------------------------------------------------------------------------

my $third = $cluster->add_node;
is($cluster->join_node(3), 3, 'a third node joins');
$cluster->wait_up;
$first->wait_value('SELECT count(*) FROM shard_members WHERE voter', 3, 'three voters');
my $keep = q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message};
$cluster->sql_everywhere($keep);
$_->sql(q{SELECT shard_start('keep', 'keep(jsonb,jsonb)', 30)}) for $first, $second;
$third->sql(q{SELECT shard_start_proxy('keep', handler => 'keep(jsonb,jsonb)')});
$cluster->wait_registered;
my $regions = q{SELECT string_agg(concat_ws(' ', node, type_name, mode, error), ', ' ORDER BY node) FROM shard_current_regions};
$_->wait_value($regions, '1 keep hosting, 2 keep hosting, 3 keep proxy', 'node ' . $_->n . ' to see who hosts and who routes')
  for $cluster->nodes;
pass('all see who hosts and who routes');

$third->sql(q{SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series(1, 100) i});
my $count = q{SELECT sum(entities), count(DISTINCT node), count(error) FROM shard_cluster_stats()};
$_->wait_value($count, '100|2|0', 'all entities, counted at node ' . $_->n) for $cluster->nodes;
pass('every node counts the entities of all');
is($third->sql('SELECT string_agg(concat_ws($$ $$, node, state), $$, $$ ORDER BY node) FROM shard_peers'),
	'1 open, 2 open', 'and the proxy has links to those whom it sent to');
is($third->sql(q{SELECT count(*) FROM shard_homes WHERE type_name = 'keep' AND phase = 'stable' AND node IN (1, 2)}), 30,
	'the proxy knows all homes');
# Of whom nothing is heard in time nobody knows whether an entity runs there: asked again.
$third->wait_value(q{SELECT count(*) FROM generate_series(1, 100) i, shard_location('keep', 'e' || i) l
	JOIN shard_members m ON m.node = l.node AND m.dsn = l.dsn WHERE l.running}, 100, 'where each entity runs');
pass('and where each entity runs');
is($third->sql(q{SELECT running FROM shard_location('keep', 'nobody')}), 'f', 'to look for an entity does not start it');

# --- one that does not answer --------------------------------------------------------------------

$second->server->freeze;
my $start = time;
is($first->sql(q{SELECT string_agg(error, '') ~ 'no answer within 1000 ms' FROM shard_cluster_stats('1 s') WHERE node = 2}),
	't', 'a frozen node is named');
ShardCluster::in_time(time - $start, 10, 60, 'in time');
is($third->sql(q{SELECT count(*) FROM generate_series(1, 1) i, shard_location('keep', 'e1')}), 1, 'a location is told all the same');
$second->server->thaw;
$second->server->stop('immediate');
is($first->sql(q{SELECT count(*) FROM shard_cluster_stats() WHERE node = 2 AND error IS NOT NULL AND shard IS NULL}),
	1, 'so is one that is gone');
$first->wait_until("SELECT ($regions) ~ '^1 keep hosting, 2 \\S.*, 3 keep proxy\$'", 'the other view to name it, too');
$first->wait_until(q{SELECT problems::text ~ 'node 2 has not been heard' FROM shard_health()}, 'health to name it');
$third->sql(q{SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series(1, 100) i});
$third->wait_until(q{SELECT state <> 'open' AND outbox_messages > 0 AND oldest IS NOT NULL AND last_error IS NOT NULL FROM shard_peers WHERE node = 2},
	'the link to be shown as closed, with the reason');
$second->server->start;
$third->wait_value('SELECT outbox_messages, state FROM shard_peers WHERE node = 2', '0|open', 'what waited to be sent');
$first->wait_value('SELECT ok FROM shard_health()', 't', 'node 1 to be well again');
pass('and it comes back');

$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
