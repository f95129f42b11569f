# G01, G03, G05, Q05: nodes leave a cluster of five, the two oldest together, the coordinator among them;
# their shards move, the others do not; everything answers all the while. A region that is home of nothing
# leaves at once. Who has left is a cluster of its own, empty, and may be dropped.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $cluster = ShardNodes->create(6, databases => 1, conf => "max_connections = 150\nshard.rebalance_interval = '1s'");
$cluster->start_counter(proxies => [6]);
my ($one, $two, $three, $four, $five, $proxy) = $cluster->nodes;
my %before;
for my $id (1 .. 12)
{
	$three->add($id, $id);
	$before{$id} = $three->get($id);
}
my %at = map { $_ => $before{$_} =~ /node(\d)/ } 1 .. 12;
my %homes = map { $_ => 1 } values %at;
is(join(' ', sort keys %homes), '1 2 3 4 5', 'G01: every node that hosts is a home');
$cluster->drain;
my $entities = q{SELECT count(DISTINCT node) FILTER (WHERE error IS NULL) || ' regions, ' || sum(entities)
	FROM shard_cluster_stats() WHERE type_name = 'counter'};

# G03
my $start = time;
is($proxy->sql(q{SELECT shard_leave('30 s')}), 't', 'G03: a region that hosts nothing leaves');
ShardCluster::in_time(time - $start, 5, 30, 'G03: at once');
$cluster->has_left(6);
$cluster->wait_up;

# G05. What is sent while they leave must arrive, too, from those that leave as well.
$start = time;
my @leaving = ($one->session, $two->session);
$_->send(q{SELECT shard_leave('60 s');}) for @leaving;
my $asked = 0;
until ($three->sql(q{SELECT count(*) FROM shard_homes WHERE type_name = 'counter' AND (node IN (1, 2) OR phase = 'moving')}) eq '0')
{
	$_->add(1 + $asked++ % 12, 100) for $three, $four;
	die 'leaving takes too long' if time - $start > $ShardCluster::patience;
}
ShardCluster::in_time(time - $start, 15, 60, 'G05: all their shards live elsewhere within 15 s');
is($_->receive, 't', 'G05: who leaves is told') for @leaving;
note(sprintf 'two nodes had left after %.1f s', time - $start);
$cluster->has_left($_) for 1, 2;
$cluster->wait_up;
$cluster->drain;
$cluster->wait_settled;

my $sum = 0;
for my $id (1 .. 12)
{
	my ($count, $at) = $three->get($id) =~ /^(\d+) from node(\d)$/;
	$sum += $count;
	is($count % 100, $id, "G05: entity $id answers, with what it had");
	$at{$id} <= 2 ? cmp_ok($at, '>', 2, "G05: entity $id has a new home") : is($at, $at{$id}, "G05: entity $id did not move");
}
is($sum, 78 + 100 * $asked, 'G05: what was sent meanwhile was handled, once');
is($four->sql(q{SELECT string_agg(node || ' ' || status, ', ' ORDER BY node) FROM shard_members WHERE status NOT IN ('removed', 'written_off')}),
	'3 up, 4 up, 5 up', 'the others are the cluster');
like($cluster->coordinator($three)->n, qr/^[345]$/, 'one of them is the coordinator');
$three->get($_) for 1 .. 12;
$five->wait_value($entities, '3 regions, 12', 'three to answer');
pass('Q05: fewer regions, the same entities');
is($three->sql(q{SELECT string_agg(epoch::text, ' ' ORDER BY shard) FROM shard_homes WHERE type_name = 'counter'}),
	join(' ', map { $at{ $_ || 12 } <= 2 ? 1 : 0 } 0 .. 11), 'G05: each of their shards moved once');

# What is left behind is nothing, and in nobody's way.
is($one->sql('SELECT count(*) FROM shard_entity.counter'), 0, 'who has left has no states');
$cluster->node(1)->server->safe_psql('postgres', 'DROP DATABASE node1 WITH (FORCE)');
$two->sql('DROP EXTENSION shard CASCADE');
$three->add(5, 1000);
like($four->get(5), qr/^\d+ from node[345]$/, 'the others do not miss it');
$three->wait_until('SELECT ok FROM shard_health()', 'health');
pass('all is well');
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/database "node1" does not exist/);
done_testing();
