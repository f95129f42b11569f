# A join that finds the table of types locked, once it has closed the node to senders, waits for that as long as for senders,
# and says what it waited for. Then the node is what it was, with the address that it had, and may join.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, join => 0);
my ($one, $two) = $cluster->nodes;
my $address = q{SELECT coalesce(string_agg(dsn, ''), '') FROM shard_members};
my $before = $two->sql($address);
my ($seed, $own) = ($one->dsn, $two->dsn);

$two->server->set_fault('join_closed', 'freeze');
my $joiner = $two->session;
my $holder = $two->session;
$joiner->send("SELECT shard_join('$seed', '$own');");
ShardCluster::wait_for_condition(sub { $two->server->fault_happened }, 'the node to be closed to senders');
$holder->query('BEGIN; LOCK TABLE shard.type;');
$two->server->clear_fault;
ok(!eval { $joiner->receive; 1 }, 'the join is given up');
like($@, qr/ERROR:  cannot join while table shard\.type is locked\n.*DETAIL: .*\n.*HINT: .*pg_locks/s, 'and says what it waited for');
$holder->query('ROLLBACK;');
$two->wait_until('SELECT ok FROM shard_health()', 'the node to be well');
$two->wait_value($address, $before, 'the node to have the address that it had');
$cluster->start_counter_at($two);
is($two->get(1), '0 from node2', 'it takes messages');
is($one->sql('SELECT count(*) FROM shard_members'), 1, 'the cluster has heard nothing of it');
$two->sql(q{SELECT shard_drop_type('counter', true)});
$two->eventually("SELECT shard_join('$seed', '$own')");
is($one->sql('SELECT count(*) FROM shard_members'), 2, 'it joins when the table is free');
done_testing();
