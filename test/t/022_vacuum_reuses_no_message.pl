# VACUUM frees the line pointers of rolled back messages, and new messages take them: none of these
# is overlooked, and order is kept.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

# One worker, so that the gate holds all messages.
my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.handler_lock_timeout = '60 s'");
$node->start_recorder;

sub rolled_back { my ($count) = @_; return 'BEGIN; ' . ShardCluster::tell_recorder('a', 1001, 1000 + $count) . 'ROLLBACK;' }

# The worker has read the page already when its free pointers are used.
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 1, 5));
$node->wait_recorded('a', 1 .. 5);
$node->safe_psql('postgres', rolled_back(10));
$node->vacuum_inbox;
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 6, 12));
$node->wait_recorded('a', 1 .. 12);
pass('messages in places of rolled back ones are handled');

# The worker reads old and new rows of the page at once: their places are not their order.
my $keeper = $node->close_gate;
my $session = $node->session;
$session->query(ShardCluster::tell_recorder('b', 1, 5));
$session->query(rolled_back(3));
$session->query(ShardCluster::tell_recorder('b', 6));
$node->vacuum_inbox;
$session->query(ShardCluster::tell_recorder('b', 7, 10));
$keeper->query('COMMIT;');
$node->wait_recorded('b', 1 .. 10);
pass('they are handled in the order sent');

# The place of a rolled back message taken by another sender while its own is still remembered as
# open.
my $open = $node->session;
$open->query('BEGIN; ' . ShardCluster::tell_recorder('c', 'never'));
$session->query(ShardCluster::tell_recorder('c', 1));
$node->wait_recorded('c', 1);
$keeper = $node->close_gate;
$open->query('ROLLBACK;');
$node->vacuum_inbox;
$session->query(ShardCluster::tell_recorder('c', 2, 4));
$keeper->query('COMMIT;');
$node->wait_recorded('c', 1 .. 4);
pass('a remembered place is not taken for the message that was there');

$node->drain;
$node->log_is_clean;
done_testing();
