# A worker that finds nothing in the table of an entity whose messages it has counted believes the table and says so: a mistake
# in memory would be one to report. But a session may have dropped the type just then, with what waited; others host it, so
# its row is there still.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardMutant;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.region_workers = 1\nshard.recount_interval = '1 ms'");
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{CREATE FUNCTION fail(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql
AS 'BEGIN RAISE EXCEPTION ''not now'' USING ERRCODE = ''serialization_failure''; END'});
$_->sql(q{SELECT shard_start('fails', 'fail', 8, retry_backoff => '1 h', max_retry_backoff => '1 h')}) for $one, $two;
$cluster->wait_registered;
$cluster->start_counter;
my $entity = $cluster->entity_at('fails', 2);
my $other = $cluster->entity_at('counter', 2, '');

my $sound = ShardMutant::prove({
	promise => 'what a drop has deleted was not counted wrongly',
	broken_by => ['RECOUNT_DROPPED'],
	run => sub {
		$two->sql("SELECT shard_tell('fails', '$entity', '1')");
		$two->wait_until(q{SELECT bool_or(attempts > 0) FROM shard.held}, 'messages to wait for another attempt');
		$two->server->set_fault('recount_doubts', 'freeze');
		# as the drop deletes it, a moment before: the worker has looked at the type already, and not at the table
		$two->sql('DELETE FROM shard.held');
		ShardCluster::wait_for_condition(sub { $two->server->fault_happened }, 'the worker to have doubts');
		$two->sql(q{SET client_min_messages = error; SELECT shard_drop_type('fails', true)});
		$two->server->thaw_fault;
		$one->get($other); # the next turn of the worker
		return ($two->sql('SELECT sum(recounts) FROM shard_stat_workers'), 0);
	},
});
$cluster->logs_are_clean if $sound;
done_testing();
