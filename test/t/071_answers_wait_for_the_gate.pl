# What a node tells another one to have received is durable at its standbys, if its gate is there (G1,
# G2): the answer waits though the commit is long over, and it waits without a lock and without a
# snapshot. Marks alone do not wait.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use ShardWire;
use Test::More;

my $node = ShardCluster->create('first', conf => 'max_wal_senders = 2');
$node->start_recorder;
my $peer = ShardWire::Peer->new($node);
my $type = $node->safe_psql('postgres', q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});

sub hello { return call_sql('hello', $peer->head . greeting(0 .. 63)); }
sub places { my ($first) = @_; return call_sql('receive', $peer->head . rows({ lane => 3, first_seq => $first }, "\x15")); }
sub position { return $node->safe_psql('postgres', 'SELECT seq FROM shard.streams_in() WHERE lane = 3'); }

is(($peer->call(hello(), places(1)))[1], '', 'with the gate here, an answer comes');
is(position(), 1, 'a row is received');

# There is no such standby, so nothing is released. The checkpointer tells all others of it, and has
# taken up the setting when it has done what it is asked for.
sub set_standby
{
	my ($name) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$node->reload;
	$node->wait_until("SELECT setting = '$name' FROM pg_settings WHERE name = 'synchronous_standby_names'", 'the setting');
	$node->safe_psql('postgres', 'CHECKPOINT');
	return;
}

set_standby('nobody');
my $session = $node->session_as('peer');
my $pid = $session->query('SELECT pg_backend_pid();');
$session->send(places(2));
$node->wait_until('SELECT seq = 2 FROM shard.streams_in() WHERE lane = 3', 'the commit');
my $activity = "FROM pg_stat_activity WHERE pid = $pid AND state = 'active'";
$node->wait_until("SELECT wait_event_type = 'Extension' $activity", 'the gate');
is($node->safe_psql('postgres', "SELECT backend_xmin IS NULL AND backend_xid IS NULL $activity"), 't', 'it waits without a snapshot and a transaction id');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype <> 'virtualxid'"), 0, 'and without a lock');

# Another call about the same stream learns what is committed, and waits, too.
my $second = $node->session_as('peer');
my $second_pid = $second->query('SELECT pg_backend_pid();');
$second->send(hello());
$node->wait_until("SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $second_pid AND state = 'active'", 'the gate');
pass('hello waits for what others have committed');

my $store = $node->session_as('peer');
my $store_pid = $store->query('SELECT pg_backend_pid();');
$store->send(store_sql($peer->head));
$node->wait_until("SELECT state = 'idle' OR wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $store_pid AND query ~ 'store'", 'the gate');
unless (ShardMutant::prove(
	{
		promise => 'a copy acknowledges nothing before the newest commit',
		broken_by => ['STORED_UNGATED'],
		run => sub { return ($node->safe_psql('postgres', "SELECT state FROM pg_stat_activity WHERE pid = $store_pid"), 'active') },
	}))
{
	done_testing();
	exit;
}

my $third = $node->session_as('peer');
$third->query(call_sql('receive', $peer->head . section(3, join('', map { wire_int($_) } $type, 5, 1 << 40))));
pass('marks are taken without waiting');

is($node->safe_psql('postgres', "SELECT count(*) $activity"), 1, 'the first one still waits');
set_standby('');
like($session->receive, qr/\\x/, 'the answer comes when the gate opens');
like($second->receive, qr/\\x/, 'so does the other one');
like($store->receive, qr/\\x/, 'and that of the copy');
is(position(), 2, 'the row was received once');

# A call that is given up while it waits: the row stays, and is not taken again.
set_standby('nobody');
$session->query('SELECT;');
$session->send(places(3));
$node->wait_until('SELECT seq = 3 FROM shard.streams_in() WHERE lane = 3', 'the commit');
$node->wait_until("SELECT wait_event_type = 'Extension' $activity", 'the gate');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
ok(!eval { $session->receive; 1 }, 'a call is cancelled at the gate');
set_standby('');
is(($peer->call(places(3)))[1], '', 'it is repeated');
is(position(), 3, 'and skipped');

$node->log_is_clean;
done_testing();
