# A node is reset by force while another member of its old cluster runs on and calls it. Who joins it then gets the number that
# the other one has: what that one had sent says nothing of what this one sends. Both clusters go on, each without the other.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(4, join => 0, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three, $four) = $cluster->nodes;

# Each of sixty entities, of all shards, gets a message of a transaction, so many times.
sub tell_all
{
	my ($node, $times) = @_;
	$node->sql(qq{SELECT count(shard_tell('counter', i::text, '{"add": 1}')) FROM generate_series(1, 60) i}) for 1 .. $times;
	return;
}

# The counts of the entities that live at some nodes: their sum, and how many there are.
sub counts
{
	my (@nodes) = @_;
	my ($sum, $entities) = (0, 0);
	for my $node (@nodes)
	{
		my ($s, $n) = split /\|/, $node->sql(q{SELECT coalesce(sum((state->>'count')::int), 0), count(*) FROM shard_entity.counter});
		$sum += $s;
		$entities += $n;
	}
	return "$sum of $entities";
}

sub wait_counts
{
	my ($expected, $what, @nodes) = @_;
	my $came = eval { ShardCluster::wait_for_condition(sub { counts(@nodes) eq $expected }, $what); 1 };
	ok($came, $what) or diag join "\n", "expected $expected, got " . counts(@nodes), map { 'node ' . $_->n . ': ' . $_->sql('SELECT problems FROM shard_health()') } @nodes;
	return;
}

sub enable
{
	my ($node, $on) = @_;
	$node->sql("ALTER SYSTEM SET shard.enabled = $on");
	$node->server->reload;
	$node->wait_until('SELECT count(*) ' . ($on eq 'on' ? '> 1' : '= 0') . q{ FROM pg_stat_activity WHERE backend_type LIKE 'shard%' AND datname IS NOT NULL},
		"workers to be $on");
	return;
}

# Node 1 begins anew, beside this one, and another one joins it: messages of both arrive, each once, and
# nothing that the former one sends from then on.
sub start_again
{
	my ($other, $joiner) = @_;
	my ($sum) = split / /, counts($one);

	enable($one, 'off');
	tell_all($other, 1);
	$one->sql('SELECT shard_reset_cluster_data(force => true)');
	# What it had received goes on here; the other one keeps it, too, since it has not heard what became of it.
	$sum += $one->sql('SELECT count(*) FROM shard_inbox');
	enable($one, 'on');
	tell_all($other, 1);
	$one->wait_value(q{SELECT string_agg(node || ' ' || status, ', ') FROM shard_members}, '1 up', 'a cluster of one');
	is($cluster->join_node($joiner->n), 2, 'who joins gets the number of one of the old cluster');
	$cluster->start_counter_at($joiner);
	tell_all($joiner, 2);
	wait_counts($sum + 120 . ' of 60', 'what it sends arrives', $one, $joiner);
	tell_all($one, 2);
	wait_counts($sum + 240 . ' of 60', 'and what is sent to it', $one, $joiner);
	is($joiner->sql('SELECT count(*) > 0 FROM shard_entity.counter'), 't', 'entities live at both');
	is($_->sql(q{SELECT shard_drain('60 s')}), 't', 'nothing waits') for $one, $joiner;
	is($_->sql('SELECT ok, problems FROM shard_health()'), 't|{}', 'all is well') for $one, $joiner;
	return;
}

is($cluster->join_node(2), 2, 'two nodes are a cluster');
$cluster->start_counter_at($_) for $one, $two;
tell_all($_, 5) for $two, $one;
wait_counts('600 of 60', 'entities of both have messages of both', $one, $two);
my ($kept) = split / /, counts($two);
start_again($two, $three);

# The number's incarnations are counted from one again.
$three->server->restart;
$three->wait_until('SELECT inc_no = 2 FROM shard.node', 'its next start to be admitted');
$cluster->wait_registered($three);
tell_all($three, 1);
is($three->sql(q{SELECT shard_drain('60 s')}), 't', 'messages of another incarnation');
start_again($three, $four);

# The old cluster gives node 1 up, which had its only vote, and loses nothing of what it has sent to it.
$two->sql(q{SELECT shard_force_voters('{2}')});
$two->eventually('SELECT shard_write_off(1)');
is($two->sql(q{SELECT shard_drain('60 s')}), 't', 'the old cluster goes on');
is($two->sql(q{SELECT (SELECT sum((state->>'count')::int) FROM shard_entity.counter) + (SELECT count(*) FROM shard_dead_letters)}), $kept + 120,
	'with all that it has sent meanwhile');
done_testing();
