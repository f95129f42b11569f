# A join that finds the table of types locked, once it has closed the node to senders, waits for that as long as for senders,
# and says what it waited for; whose transactions have sent is for who may know. Then the node is what it was, with the address that it had, and may join.

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

# Somebody has sent, and his transaction is open.
$two->sql('CREATE ROLE sender LOGIN; CREATE ROLE operator LOGIN; GRANT EXECUTE ON FUNCTION shard_join(text, text) TO operator');
my $sender = $two->server->session_as('sender', $two->db);
my $pid = $sender->query(q{BEGIN; SELECT shard_tell('counter', '1', '{}'); SELECT pg_backend_pid();}) =~ s/^\D*//r;
my $join = "SELECT shard_join('$seed', '$own')";
my (undef, undef, $error) = $two->try($join);
like($error, qr/ERROR:  cannot join while messages are being sent\nDETAIL: .* are still open: process $pid of role "sender", whose transaction is open since \d/,
	'a sender with an open transaction is named, with the role');
(undef, undef, $error) = $two->try($join, extra_params => [ '-U', 'operator' ]);
like($error, qr/ERROR:  cannot join while messages are being sent\nDETAIL: .* are still open; members of pg_read_all_stats see whose transactions they are\.\n/, 'for members of pg_read_all_stats');
unlike($error, qr/process|"sender"/, 'and nobody else');
$two->sql('GRANT pg_read_all_stats TO operator');
(undef, undef, $error) = $two->try($join, extra_params => [ '-U', 'operator' ]);
like($error, qr/ are still open: process $pid of role "sender", /, 'who is one reads it');
$sender->query('ROLLBACK;');
$sender->close;

is($two->get(1), '0 from node2', 'it takes messages');
is($one->sql('SELECT count(*) FROM shard_members'), 1, 'the cluster has heard nothing of it');
$two->sql(q{SELECT shard_drop_type('counter', true)});
$two->eventually("SELECT shard_join('$seed', '$own')");
is($one->sql('SELECT count(*) FROM shard_members'), 2, 'it joins when the table is free');
done_testing();
