# A transaction that stays open after sending delays only its own messages, even across a crash of
# the worker; when it commits, they are handled.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first');
$node->start_recorder;

my $late = $node->session;
# With so many that the session does not keep them to itself until it commits.
$late->query('BEGIN; ' . ShardCluster::tell_recorder('a', 'late') . ShardCluster::tell_recorder('d', 1, 100));

# Others go on meanwhile, with the same entity and another.
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 1, 3) . ShardCluster::tell_recorder('b', 1, 2));
$node->wait_recorded('a', 1 .. 3);
$node->wait_recorded('b', 1 .. 2);
pass('messages of others are handled while a sender is open');

# A new worker knows of the open sender only from its durable position.
my ($before) = $node->worker_pids('%region%');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($before)");
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 4));
$node->wait_recorded('a', 1 .. 4);
$node->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $before", 'the old worker to leave');

# More than a turn can handle, drained while others send on.
$late->query(q{SELECT shard_tell_many('recorder', array_agg(text 'c'), array_agg(jsonb_build_object('what', i) ORDER BY i))
	FROM generate_series(1, 20000) i;});
$late->query('COMMIT;');
$node->safe_psql('postgres', ShardCluster::tell_recorder('c', 20001));
$node->wait_recorded('a', 1 .. 4, 'late');
$node->wait_recorded('d', 1 .. 100);
pass('the late messages are handled after their commit');

$node->drain;
is( $node->safe_psql('postgres',
		q{SELECT count(*), array_agg(what::int ORDER BY pos) = array_agg(what::int ORDER BY what::int) FROM seen WHERE entity = 'c'}),
	'20001|t', 'a huge late commit is handled in order, before what was sent after it');

# Rolled back in the end: nothing of it is ever handled.
$late->query('BEGIN; ' . ShardCluster::tell_recorder('b', 'never') . 'ROLLBACK;');
$late->query(ShardCluster::tell_recorder('b', 3));
$node->drain;
$node->wait_recorded('b', 1 .. 3);
pass('a rolled back message is not handled');

$node->log_is_clean;
done_testing();
