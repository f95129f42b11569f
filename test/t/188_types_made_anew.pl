# A type that one transaction drops and starts again, as a script that begins anew does, is hosted by its node all the
# time (C9), however long the transaction is open, and whether or not it commits: its shards stay (C17), and others
# come (C16).

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;
$cluster->start_counter;
$cluster->sql_everywhere(q{SELECT shard_start('clock' || i, 'counter(jsonb,jsonb)', 4) FROM generate_series(1, 3) i});
$cluster->wait_registered;
$cluster->entities_at("clock$_", 1, 1) for 1 .. 3;
# Half of the shards have a home, six of twelve.
$cluster->allocate('counter', 1 .. 6);
$cluster->drain;
my $at_two = q{SELECT count(*) FROM shard_homes WHERE type_name = 'counter' AND node = 2};
my $leaving = q{SELECT count(*) FROM shard_decisions WHERE from_node = 2 AND why ~ 'does not host the type any more'};

# Shards leave a node that has dropped their type after 5 s: those of another type at the other node, so that is over.
sub wait_long
{
	my ($clock) = @_;
	$one->sql("SET client_min_messages = warning; SELECT shard_drop_type('$clock', force => true)");
	$one->wait_value("SELECT count(*) FROM shard_homes WHERE type_name = '$clock' AND node = 1", 0, 'shards to leave a node without their type');
	return;
}

my $start = q{SELECT shard_start('counter', 'counter(jsonb,jsonb)', number_of_shards => 12, shard_id_extractor => 'modulo_twelve'%s);};
my $anew = q{SET client_min_messages = warning; BEGIN; SELECT shard_drop_type('counter', force => true); } . sprintf($start, '');
my $round = 0;

# The node hosts the type, as the coordinator knows.
sub is_host
{
	my ($what) = @_;
	is($one->sql($leaving), 0, "$what: no shard leaves");
	my $before = $one->sql($at_two);
	cmp_ok($before, '>', 0, "$what: it has its shards");
	my $shard = $one->sql(q{SELECT min(shard) FROM shard_homes WHERE type_name = 'counter' AND node = 1});
	$cluster->move('counter', $shard, 2);
	$cluster->wait_home('counter', $shard, 2);
	is($one->sql($at_two), $before + 1, "$what: a shard can move there");
	like($one->sql(qq{SELECT shard_ask('counter', '$shard', '{"add": 1}', '20 s')}), qr/"count"/, "$what: it runs there");
	return;
}

for my $end ('ROLLBACK', 'COMMIT')
{
	my $session = $two->session;
	$session->query($anew);
	wait_long('clock' . ++$round);
	is($one->sql($leaving), 0, 'no shard leaves while the transaction is open');
	$session->query("$end;");
	$session->close;
	$cluster->wait_registered;
	is_host($end);
}

# So it gets homes that are given for the first time.
my $had = $one->sql($at_two);
$one->sql(q{SELECT shard_move('counter', shard, 1) FROM shard_homes WHERE type_name = 'counter' AND node = 2 ORDER BY shard OFFSET 1});
$cluster->allocate('counter', 7 .. 12);
cmp_ok($one->sql($at_two), '>', 1, 'it is given homes');

# With other settings than the cluster has, it is refused, and the node is what it was.
like($two->error_of('BEGIN; SELECT shard_drop_type(\'counter\', force => true); ' . sprintf($start, q{, role => 'other'}) . ' COMMIT'),
	qr/42710.*with other settings/s, 'another type of that name is refused');
wait_long('clock3');
is_host('refused');
$cluster->drain;
done_testing();
