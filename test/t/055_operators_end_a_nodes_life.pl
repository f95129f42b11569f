# shard_down fences a start of a node, which comes back with everything at its next one; shard_leave takes
# a node out for good, after its shards. Both are decided once, by the coordinator, whichever member is
# asked, and seen by everybody.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(4, databases => 1);
my ($first, $second, $third, $fourth) = $cluster->nodes;
my $server = $first->server;

sub fails
{
	my ($node, $sql, $pattern, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($node->error_of($sql), $pattern, $why);
	return;
}

my $keep = q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN to_jsonb(coalesce(state::int, 0) + 1)};
$_->sql($keep) for $first, $second, $third;
$_->sql(q{SELECT shard_start('keep', 'keep(jsonb,jsonb)', 12)}) for $first, $second, $third;
$cluster->wait_registered;
$first->sql(q{SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series(1, 60) i});
my $count = q{SELECT sum(entities), count(DISTINCT node), count(error) FROM shard_cluster_stats() WHERE entities > 0 OR error IS NOT NULL};
$first->wait_value($count, '60|3|0', 'three nodes to have entities');

# --- who may be given up, and where to say so ----------------------------------------------------

my ($coordinator) = $cluster->coordinator;
is($coordinator->n, 1, 'the oldest is coordinator');
fails($second, 'SELECT shard_down(1)', qr/55000: .*refused for node 1.*DETAIL: .*coordinator.*HINT: .*shard_leave/s,
	'the coordinator cannot give itself up, whoever asks');
fails($first, 'SELECT shard_down(9)', qr/42704: /, 'nor anybody whom nobody knows');
fails($first, 'SELECT shard_admit(3, 7)', qr/22023: .*incarnation of node 3/, 'the incarnation is checked');

# --- down, and back ------------------------------------------------------------------------------

$second->sql('SELECT shard_down(3)');
$_->wait_value('SELECT status FROM shard_members WHERE node = 3', 'down', 'node ' . $_->n . ' to see that node 3 is down')
  for $first, $second, $third;
$third->wait_until(q{SELECT problems::text ~ 'was downed.*restart its server, or call shard_admit\(3, ' FROM shard_health()}, 'node 3 to say so');
is($third->sql('SELECT cardinality(problems) FROM shard_health()'), 1, 'and that alone: nobody talks to it');
is($third->sql('SELECT count(*) FROM shard_members WHERE coordinator'), 0, 'it follows no coordinator');
$first->wait_until(q{SELECT problems::text ~ 'node 3 is down.*shard_write_off' FROM shard_health()}, 'and the others');
fails($third, q{SELECT shard_tell('keep', 'e1', '{}')}, qr/55000: .*was downed and takes no messages/, 'a node that was downed takes no messages');
fails($third, 'SELECT shard_rebalance()', qr/55000: /, 'nor commands');
fails($third, q{SELECT shard_start('late', 'keep(jsonb,jsonb)', 12)},
	qr/55000: .*cannot start entity type "late": this node was downed.*HINT:  Restart its server, or call shard_admit\(3, \d+\) here/s,
	'nor does it start types, and says why');
$first->sql(q{SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series(1, 60) i});
my $told = q{SELECT count(*) FROM shard_entity.keep WHERE state::int = 2};
my $mine = q{SELECT count(*) FROM shard_entity.keep};
$_->wait_value("SELECT ($told) = ($mine)", 't', 'messages at node ' . $_->n) for $first, $second;
# Downed is downed: neither time nor another process of it brings it back.
my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'shard control' AND datname = current_database()};
my $pid = $third->sql($worker);
$third->sql("SELECT pg_terminate_backend($pid)");
$third->wait_until("SELECT pid <> $pid FROM ($worker) p", 'its next control worker');
$third->wait_until(q{SELECT problems::text ~ 'was downed' FROM shard_health()}, 'that to say so, too');
fails($first, 'SELECT shard_admit(3, incarnation + 1) FROM shard_members WHERE node = 3', qr/55000: .*DETAIL: .*was downed.*HINT: .*shard_admit\(\) there/s,
	'it cannot be let in from elsewhere');
is($first->sql('SELECT status FROM shard_members WHERE node = 3'), 'down', 'it is down still');
is($third->sql($told), 0, 'messages for it wait');
$third->sql('SELECT shard_admit(3, incarnation + 1) FROM shard_members WHERE self');
$_->wait_value('SELECT status FROM shard_members WHERE node = 3', 'up', 'node ' . $_->n . ' to see node 3 again')
  for $first, $second, $third;
$third->wait_value("SELECT ($told) = ($mine) AND ($mine) > 0", 't', 'what waited for node 3');
pass('an operator can let it go on, with all its shards and messages');
$second->sql('SELECT shard_down(3)');
$third->wait_until(q{SELECT problems::text ~ 'was downed' FROM shard_health()}, 'node 3 to be down again');
$first->sql(q{SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series(1, 60) i});
$told =~ s/= 2/= 3/;
$server->restart;
$_->wait_value('SELECT status FROM shard_members WHERE node = 3', 'up', 'node ' . $_->n . ' to see node 3 again')
  for $first, $second, $third;
$third->wait_value("SELECT ($told) = ($mine) AND ($mine) > 0", 't', 'what waited for node 3');
pass('and so is the next start of its server');

# --- leave ---------------------------------------------------------------------------------------

is($first->sql('SELECT status FROM shard_members WHERE node = 4'), 'up', 'a node without any');
is($fourth->sql('SELECT shard_leave()'), 't', 'can');
$_->wait_value('SELECT status FROM shard_members WHERE node = 4', 'removed', 'node ' . $_->n . ' to see that it has left')
  for $first, $second;
$fourth->wait_until(q{SELECT problems::text ~ 'fenced.*has left its cluster' FROM shard_health()}, 'the node itself to say so');
$fourth->wait_until(q{SELECT NOT bool_or(reachable) FROM shard_members WHERE NOT self AND status = 'up'}, 'it to hear nobody any more');
is($fourth->sql('SELECT cardinality(problems) FROM shard_health()'), 1, 'and it does not take the others for lost');
fails($fourth, q{SELECT shard_tell('keep', 'e1', '{}')}, qr/55000|42704/, 'it sends nothing any more');
fails($fourth, qq{$keep; SELECT shard_start('late', 'keep(jsonb,jsonb)', 12)}, qr/55000: .*this node is fenced.*HINT:/s, 'and starts no types');
$first->sql(q{SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series(1, 60) i});
$first->wait_value($count, '60|3|0', 'the others to have all');
is($first->sql('SELECT string_agg(concat_ws($$ $$, node, status), $$, $$ ORDER BY node) FROM shard_members'),
	'1 up, 2 up, 3 up, 4 removed', 'who was refused is up as before');
$first->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'nothing to be wrong with them');

# A database that was a node once can be another one.
$fourth->sql('DROP EXTENSION shard CASCADE; CREATE EXTENSION shard');
$fourth->sql("SELECT shard_allow_peer('$ShardNodes::peer_role')");
is($cluster->join_node(4), 5, 'dropped and created anew it joins under a number of its own')
  or diag($first->sql('SELECT node, status, dsn FROM shard_members'));

done_testing();
