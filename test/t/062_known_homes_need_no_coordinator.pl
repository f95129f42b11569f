# While the control worker stands still, messages for shards whose home is known are handled, also by
# another region worker; those for others wait, and an ask for one waits as long as it is told to. When it
# goes on, so do they.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('known');
$node->start_recorder;
$node->safe_psql('postgres', ShardCluster::tell_recorder('known', 1));
$node->drain;

my ($coordinator) = $node->worker_pids('%control%');
$node->stop_idle($coordinator);

$node->safe_psql('postgres', ShardCluster::tell_recorder('known', 2, 20));
$node->wait_recorded('known', 1 .. 20);
pass('a known shard runs on');
is($node->safe_psql('postgres', q{SELECT shard_ask('recorder', 'known', '{"what": "21"}', '180 s')}), '{"count": 21}', 'and is asked');

my ($region) = $node->worker_pids('%region%');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($region)");
$node->safe_psql('postgres', ShardCluster::tell_recorder('known', 22, 30));
$node->wait_recorded('known', 1 .. 30);
pass('by another region worker, too');

my ($rc, $out, $err) = $node->psql('postgres', q{SELECT shard_ask('recorder', 'unknown', '{"what": "0"}', '300 ms')});
like($err, qr/timed out after \d+ m?s/, 'an ask for an unknown one is given up after its time');
$node->safe_psql('postgres', ShardCluster::tell_recorder('unknown', 1, 5));
$node->wait_until(q{SELECT count(*) = 5 FROM shard_inbox WHERE entity_id = 'unknown' AND place = 'parked'}, 'messages to wait');
pass('messages for unknown ones wait');

# A region worker that begins finds them.
($region) = $node->worker_pids('%region%');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($region)");
$node->safe_psql('postgres', ShardCluster::tell_recorder('unknown', 6, 9));
kill 'CONT', $coordinator;
$node->wait_recorded('unknown', 1 .. 9);
pass('they flow on, in order');
$node->log_is_clean;
done_testing();
