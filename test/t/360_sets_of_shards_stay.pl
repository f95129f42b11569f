# A type with replicas: each shard gets its home with backups, which all nodes agree on (Q1); the set stays, whatever
# happens to home, backup and coordinator, and each node of it has it durably. Such shards do not move, and who has a copy
# does not leave. A type without replicas beside it is what it was.

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0\nshard.voters = 3");
my ($one, $two, $three) = $cluster->nodes;
my $sets = q{SELECT string_agg(shard || ': ' || nodes || ' ' || redundancy, ', ' ORDER BY shard)
	FROM (SELECT shard, string_agg(node || ' ' || role, ' ' ORDER BY role DESC) AS nodes, min(redundancy) AS redundancy
	FROM shard_replicas WHERE type_name = 'kept' GROUP BY shard) s};

sub start_kept { my ($settings) = @_; return "SELECT shard_start('kept', 'keep', 12, replicas => 1$settings)" }

$cluster->sql_everywhere(q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message});

# --- settings ----------------------------------------------------------------------------------------

like($one->error_of(start_kept(', min_insync => 3')), qr/22023.*"min_insync" is greater than the number of copies/s, 'more copies than there are');
like($one->error_of(q{SELECT shard_start('kept', 'keep', min_insync => 1)}), qr/22023.*"min_insync" has no effect without "replicas"/s, 'none are asked for');
like($one->error_of(q{SELECT shard_start('kept', 'keep', replicas => 4)}), qr/22023.*"replicas" is out of range/s, 'more than there can be');
$one->sql(start_kept(''));
like($one->error_of(q{SELECT shard_alter('kept', 'replicas', '2')}), qr/0A000.*"replicas" of entity type "kept" cannot be altered yet/s, 'it cannot be altered');
like($one->error_of(q{SELECT shard_start('kept', 'keep', 12)}), qr/"replicas" is 1, asked for 0/, 'nor by another start');
is($one->sql(q{SELECT settings->>'replicas' || ' ' || (settings->>'min_insync') || ' ' || (settings->>'on_too_few') FROM shard_types}), '1 2 run', 'it is shown');
$two->wait_until(q{SELECT EXISTS (SELECT FROM shard_current_regions WHERE type_name = 'kept')}, 'the type to be known');
like($two->error_of(q{SELECT shard_start('kept', 'keep', 12)}), qr/with other settings.*What differs: "replicas" is 1 in the cluster, 0 on the node/s, 'all members have to agree');

# --- fewer hosts than wanted -------------------------------------------------------------------------

$cluster->wait_registered($one);
$one->sql(q{SELECT shard_tell('kept', i::text, '{}') FROM generate_series(1, 3) i});
$one->wait_until(q{SELECT count(*) > 0 FROM shard_replicas}, 'homes');
is($one->sql(q{SELECT DISTINCT node || ' ' || role || ' ' || redundancy FROM shard_replicas}), '1 home 1 of 2', 'a home without hosts beside it is alone in its set');
$one->wait_until(q{SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'entity type "kept": redundancy 1 of 2 for ')}, 'health to say so');

# --- home and backup ---------------------------------------------------------------------------------

$_->sql(start_kept('')) for $two, $three;
$cluster->start_counter;
$cluster->wait_registered;
$one->sql(q{SELECT shard_tell('kept', i::text, '{}') FROM generate_series(1, 400) i});
$_->wait_value(q{SELECT count(DISTINCT shard) FROM shard_replicas}, 12, 'all homes') for $one, $two, $three;
my $before = $one->sql($sets);
is($_->sql($sets), $before, 'all nodes agree') for $two, $three;
is($one->sql(q{SELECT count(*) FROM shard_replicas r JOIN shard_homes h USING (type_name, shard) WHERE (r.role = 'home') <> (r.node = h.node)}), 0, 'the first is the home');
cmp_ok($one->sql(q{SELECT count(*) FROM shard_replicas WHERE role = 'backup'}), '>=', 6, 'those that came later have backups');
is($one->sql(q{SELECT max(n) - min(n) <= 2 FROM (SELECT count(*) AS n FROM shard_replicas WHERE role = 'backup' GROUP BY node) s}), 't', 'which are spread');

# Copies of which nodes have something else durably than what was decided, or nothing; of all homes they have learned.
sub differences
{
	my $count = 0;
	for my $node ($cluster->nodes)
	{
		$node->wait_value(q{SELECT count(*) FROM shard.route JOIN shard.type USING (type_id) WHERE type_name = 'kept'}, 12, "node @{[$node->n]} to know all homes");
		$count += $node->sql(q{SELECT count(*) FROM shard.copies() c LEFT JOIN shard.copy d ON d.type_id = c.type_id AND d.shard = c.shard
			WHERE c.node = (SELECT node FROM shard_members WHERE self) AND (d.nodes[array_position(d.nodes, c.node)] IS NULL
			OR (d.nodes[1] = c.node) <> (c.role = 'home') OR cardinality(d.nodes) <> c.copies OR d.want <> c.wanted)});
		$count += $node->sql(q{SELECT count(*) FROM shard.copy WHERE (SELECT node FROM shard_members WHERE self) <> ALL (nodes)});
	}
	return $count;
}

if (!ShardMutant::prove(
	{
		promise => 'each node has durably what it is in, and nothing of others',
		broken_by => ['SETS_IN_MEMORY_ALONE'],
		run => sub { return (differences(), 0) },
	}))
{
	done_testing();
	exit;
}

# --- nothing changes them ----------------------------------------------------------------------------

my ($shard, $home, $backup) = split /\|/, $one->sql(q{SELECT h.shard, h.node, b.node FROM shard_replicas h JOIN shard_replicas b USING (shard)
	WHERE h.role = 'home' AND b.role = 'backup' ORDER BY 1 LIMIT 1});
my ($to) = grep { $_ != $home } 1 .. 3;
like($one->error_of("SELECT shard_move('kept', $shard, $to)"), qr/DETAIL:  Shards of types with replicas do not move yet/, 'a move is refused');
is($one->sql(q{SELECT shard_rebalance('kept')}), 0, 'a round moves nothing');
like($_->error_of(q{SELECT shard_leave('1 s')}), qr/0A000.*cannot leave the cluster while this node has copies of shards.*"kept"/s, 'who has copies does not leave') for $cluster->node($home), $cluster->node($backup);
is($cluster->node($home)->sql(q{SELECT status FROM shard_members WHERE self}), 'up', 'and stays what it was');
is($one->sql($sets), $before, 'all sets are what they were');

# --- crashes -----------------------------------------------------------------------------------------

for my $node ($cluster->node($home), $cluster->node($backup), $cluster->coordinator($one))
{
	$node->server->crash_postmaster;
	$node->server->start;
	$cluster->wait_up;
	$cluster->wait_registered;
	is($_->sql($sets), $before, "node @{[$_->n]} has the same sets after the crash of node @{[$node->n]}") for $cluster->nodes;
}
is(differences(), 0, 'so it is after the crashes');

# --- others move as ever -----------------------------------------------------------------------------

$cluster->allocate('counter', 1);
my $now = $cluster->home_of('counter', 1);
$cluster->move('counter', 1, $now % 3 + 1);
is($cluster->home_of('counter', 1), $now % 3 + 1, 'a type without replicas moves');
is($one->sql($sets), $before, 'and the others stay');
$cluster->logs_are_clean(qr/not yet accepting connections|database system is starting up/);
done_testing();
