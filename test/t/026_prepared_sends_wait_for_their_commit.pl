# Messages of a prepared transaction survive a crash unhandled, delay nobody, and are handled when it
# is committed, by nobody's wake-up; those of one rolled back never are.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first');
$node->start_recorder;

$node->safe_psql('postgres', 'BEGIN; ' . ShardCluster::tell_recorder('a', 'kept') . "PREPARE TRANSACTION 'kept';");
$node->safe_psql('postgres', 'BEGIN; ' . ShardCluster::tell_recorder('a', 'undone') . "PREPARE TRANSACTION 'undone';");
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 1));
$node->wait_recorded('a', 1);
pass('others are handled beside prepared transactions');

$node->crash;
$node->recover;
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 2));
$node->wait_recorded('a', 1, 2);
pass('and after a crash');

$node->safe_psql('postgres', "COMMIT PREPARED 'kept'");
$node->wait_recorded('a', 1, 2, 'kept');
pass('handled after COMMIT PREPARED');

$node->safe_psql('postgres', "ROLLBACK PREPARED 'undone'");
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', 3));
$node->drain;
$node->wait_recorded('a', 1, 2, 'kept', 3);
pass('not handled after ROLLBACK PREPARED');

$node->log_is_clean;
done_testing();
