# A backup may have no memory left in which to look up where a copy ends. Then it stores nothing, says so, and goes on: it does not
# come to that when what it has stored has committed, which would end its server (Q36).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1");
my ($home, $backup) = $cluster->nodes;
$cluster->sql_everywhere(q{CREATE FUNCTION counts(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN CASE WHEN message ? 'noop' THEN state ELSE jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1) END});
$_->sql(q{SELECT shard_start('kept', 'counts', 4, replicas => 1)}) for $home, $backup;
$cluster->wait_registered;
my $entity = $cluster->entity_at('kept', 1);

sub checkpointer { return $backup->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'}); }

ShardMutant::prove(
	{
		promise => 'a backup whose memory is short at a call goes on',
		broken_by => ['ENDS_MAPPED_AFTER_COMMIT'],
		run => sub {
			$home->sql("SELECT shard_ask('kept', '$entity', '{}', '60 s')");
			my $before = checkpointer();
			$backup->server->set_fault('copy_end_mapped', 'error');
			$home->sql("SELECT shard_tell('kept', '$entity', '{}')");
			ShardCluster::wait_for_condition(sub { $backup->server->fault_happened }, 'the call to meet it');
			my $n = $home->sql("SELECT shard_ask('kept', '$entity', '{}', '60 s')->>'n'");
			$backup->server->wait_up;
			return ("$n " . (checkpointer() == $before ? 'goes on' : 'restarts'), '3 goes on');
		},
	});
done_testing();
