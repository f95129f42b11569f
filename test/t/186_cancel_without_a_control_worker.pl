# Whoever cancels a leave while the control worker of his node stands still is told so when his time is up, by the name of
# the process, and that nothing has changed. Meanwhile he can cancel that, too, and has nothing locked. So is he told who leaves.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
my $status = q{SELECT status FROM shard_members WHERE node = 2};
my ($worker) = $two->server->worker_pids('%control%');
kill 'STOP', $worker;

my $still = "The control worker of this node, process $worker, does not answer: it stands still.";
like($two->error_of(q{SELECT shard_leave('1 s', cancel => true)}) // 'nothing',
	qr/55P03: cannot cancel the leave of this node: the control worker does not take the command\n\QDETAIL:  $still Nothing has changed.\E\nHINT:  .*SIGCONT.*shard_leave\(cancel => true\)/,
	'it is not cancelled, and the process is named');
my ($code, $out, $err) = $two->try(q{SELECT shard_leave('1 s')});
is("$code $out", '0 f', 'nor does it leave');
like($err, qr/WARNING:.*the cluster has not decided yet that this node leaves\n\QDETAIL:  $still\E\nHINT:/, 'which names the process, too');

my $health = $two->sql(q{SELECT array_to_string(problems, E'\n') FROM shard_health()});
like($health, qr/^the control worker of this node, process $worker, does not answer; .*SIGCONT.*pg_terminate_backend/m, 'so does health, and says what to do');

# --- who waits -------------------------------------------------------------------------------------

my $waits = $two->session;
my $waiting = q{FROM pg_stat_activity WHERE query ~ '^SELECT shard_leave' AND state = 'active'};
$waits->send(q{SELECT shard_leave('1000 s', cancel => true);});
$two->wait_until("SELECT count(*) = 1 $waiting AND wait_event_type = 'Extension'", 'him to wait');
is($two->sql("SELECT string_agg(relation::regclass::text, ' ') FROM pg_locks WHERE locktype = 'relation' AND pid IN (SELECT pid $waiting)"), '', 'who waits has no table locked');
$two->sql("SELECT pg_cancel_backend(pid) $waiting");
ok(!eval { $waits->receive; 1 }, 'and can cancel that');
like($@, qr/canceling statement due to user request/, 'as ever');

# --- it goes on ------------------------------------------------------------------------------------

kill 'CONT', $worker;
$two->wait_value($status, 'up', 'node 2 to be a member');
is($two->sql('SELECT shard_leave(cancel => true)'), 't', 'it can be cancelled when the worker goes on');
$two->wait_until('SELECT bool_or(coordinator) FROM shard_members', 'a coordinator');
is($one->sql($status), 'up', 'then it stays');
done_testing();
