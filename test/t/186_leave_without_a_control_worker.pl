# Whoever leaves while the control worker of his node stands still is told that nobody has decided it yet (it was an internal
# error), and leaves as soon as it goes on.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
my ($worker) = $two->server->worker_pids('%control%');
kill 'STOP', $worker;
my ($status, $out, $err) = $two->server->psql('postgres', q{SELECT shard_leave('1 s')});
kill 'CONT', $worker;
is("$status $out", '0 f', 'it has not left');
like($err, qr/WARNING:.*the cluster has not decided yet that this node leaves.*HINT:.*shard_health\(\)/s, 'and is told that nobody has decided it');
is($two->sql(q{SELECT shard_leave('60 s')}), 't', 'it leaves when the worker goes on');
$cluster->has_left(2);
done_testing();
