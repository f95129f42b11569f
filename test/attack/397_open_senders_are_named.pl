# A role that may send to one type, and leaves a transaction open that has sent, keeps the log from shrinking, so that others are refused
# when it is full, though all their messages are handled. Whose transaction it is, and how to end it, is told to who may know; the server's
# own setting bounds it.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.inbox_max_size = '4MB'\nautovacuum = off");
$node->create_owners('alice', 'mallory', 'watcher');
$node->safe_psql('postgres', 'GRANT pg_monitor TO watcher; GRANT EXECUTE ON FUNCTION shard_health() TO watcher');
$node->as('alice', q{
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN to_jsonb(coalesce(state::int, 0) + 1);
GRANT USAGE ON SCHEMA alice TO PUBLIC;
SELECT shard_start('ta', 'alice.h')});
$node->wait_until('SELECT ok FROM shard_health()', 'ok');

my $batch = q{SELECT count(shard_tell('ta', i::text, jsonb_build_object('noise', (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 40) j)))) FROM generate_series(1, 80) i};
# Sends until it is refused, or has sent many times what there is room for; what was sent is handled meanwhile.
sub send_much
{
	my $refused = '';
	for (1 .. 60)
	{
		my ($status, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\n$batch");
		$refused = $error if $status != 0;
		last if $refused;
		$node->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_inbox)}, 'all to be handled');
	}
	return $refused;
}

is(send_much(), '', 'many times what there is room for is taken');
my $open = $node->session_as('mallory');
my ($pid) = $open->query(q{BEGIN; SELECT pg_backend_pid(); SELECT count(shard_tell('ta', 'late', '{}')) FROM generate_series(1, 200);}) =~ /(\d+)/;
like(send_much(), qr/53400: .*inbox is full/, 'with a transaction open that has sent it is not');

my $blocked = q{SELECT count(*) || ' ' || count(DISTINCT blocked_by) || ' ' || min(blocked_by) FROM shard_stat_inbox WHERE NOT current AND oldest IS NOT NULL};
my $named = qr/a transaction that was open at seq \d+: process $pid of role "mallory", which pg_terminate_backend\($pid\) ends, or idle_in_transaction_session_timeout/;
like($node->as('watcher', $blocked), qr/^(?:[2-9]|1\d) 1 $named/, 'all segments are kept by that one, which is named');
like($node->as('watcher', 'SELECT problems::text FROM shard_health()'), qr/the oldest segment is kept by a transaction that was open at seq \d+: process $pid of role \\"mallory\\"/, 'by health, too');
my $seen = $node->as('alice', $blocked);
like($seen, qr/a transaction that was open at seq \d+: members of pg_read_all_stats see whose/, 'others see that there is one');
unlike($seen, qr/process $pid|role "mallory/, 'and not whose');

$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
$node->wait_until(q{SELECT count(*) = 1 FROM shard_stat_inbox WHERE oldest IS NOT NULL}, 'the log to be emptied');
is(send_much(), '', 'it is taken again');
eval { $open->close };

# The setting that the documentation names.
$open = $node->session;
($pid) = $open->query(q{SET idle_in_transaction_session_timeout = '100ms'; BEGIN; SELECT pg_backend_pid(); SELECT count(shard_tell('ta', 'late', '{}')) FROM generate_series(1, 200);}) =~ /(\d+)/;
$node->wait_until("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)", 'the idle sender to be ended');
eval { $open->close };
is(send_much(), '', 'and all is taken');
done_testing();
