# Asks from both nodes while the shard moves to and fro: each is executed exactly once, none fails.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1, conf => "shard.region_workers = 2\nshard.rebalance_interval = 0");
$cluster->start_counter;
$cluster->sql_everywhere('CREATE TABLE asked (id text, times int); CREATE TABLE enough (one int)');
my ($one, $two) = $cluster->nodes;
$one->get($_) for 3, 15;

# Each session asks one entity after another until it is told that it is enough.
my @sessions = map { my $node = $_; map { [ $node->session, $_ ] } 3, 15 } $one, $two;
for my $pair (@sessions)
{
	my ($session, $id) = @$pair;
	$session->send(qq{DO \$\$ DECLARE n int := 0; BEGIN
		WHILE NOT EXISTS (SELECT FROM enough) LOOP
			PERFORM shard_ask('counter', '$id', '{"add": 1}', '60 s');
			n := n + 1;
			COMMIT;
		END LOOP;
		INSERT INTO asked VALUES ('$id', n); END \$\$;});
}
$_->wait_value(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO %PERFORM shard_ask%' AND datname = current_database()},
	2, 'both sessions of a node to ask') for $one, $two;

my $moves = 10;
my $at = $cluster->home_of('counter', 3);
for (1 .. $moves)
{
	$at = 3 - $at;
	$cluster->move('counter', 3, $at);
	$cluster->wait_home('counter', 3, $at);
}
$cluster->sql_everywhere('INSERT INTO enough VALUES (1)');
for my $session (map { $_->[0] } @sessions)
{
	$session->receive;
	$session->close;
}
for my $id (3, 15)
{
	my @times = map { $_->sql("SELECT times FROM asked WHERE id = '$id'") } $one, $two;
	cmp_ok($times[$_], '>', $moves, "$times[$_] asks of entity $id by node " . ($_ + 1)) for 0, 1;
	is($one->get($id), $times[0] + $times[1] . " from node$at", 'were executed once each');
}
$cluster->wait_settled;
$cluster->logs_are_clean;
done_testing();
