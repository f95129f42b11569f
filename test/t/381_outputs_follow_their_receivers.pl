# What a shard with replicas has told waits for its backup, and meanwhile the type that it is for is resharded: it comes to the
# entity that it was told, which is in another shard of a type with another number (Q29, E64). Also after a start, and if that happened twice.

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1");
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'tell' THEN PERFORM shard_tell('plain', id::text, jsonb_build_object('from', message->>'tell')) FROM generate_series(1, 8) id; END IF;
	IF message ? 'noop' THEN RETURN state; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
END $$;
});
$_->sql(q{SELECT shard_start('kept', 'does', 4, replicas => 1)}) for $one, $two;
$one->sql(q{SELECT shard_start('plain', 'does', 4)});
$cluster->wait_registered;
my $entity = $cluster->entity_at('kept', 1, 'e');
$one->sql(q{SELECT shard_ask('plain', i::text, '{}') FROM generate_series(1, 8) i});

sub tells
{
	my ($n) = @_;
	$one->sql("SELECT shard_tell('kept', '$entity', '{\"tell\": \"$n\"}')");
	$one->wait_value("SELECT state->>'n' FROM shard_entity.kept WHERE entity_id = '$entity'", $n, "turn $n");
	return;
}

sub reshard
{
	my ($shards) = @_;
	$one->sql(q{SELECT shard_stop_type('plain')});
	$one->sql("CALL shard_reshard('plain', $shards)");
	$one->sql("SELECT shard_start('plain', 'does', $shards)");
	return;
}

# States of all receivers, and dead letters.
my $seen = q{SELECT (SELECT string_agg(state->>'n', ' ' ORDER BY entity_id) FROM shard_entity.plain) || ', ' || (SELECT count(*) FROM shard_dead_letters)};

ShardMutant::prove(
	{
		promise => 'what was told to a type that is resharded comes to it',
		broken_by => ['OUTPUTS_TO_FORMER_SHARDS'],
		run => sub {
			# The backup is a member that is heard, and stores nothing.
			$two->server->set_fault('store_before_commit', 'freeze');
			tells(1);
			ShardCluster::wait_for_condition(sub { $two->server->fault_happened }, 'the first record to be at the backup');
			reshard(16);
			tells(2);
			reshard(32);
			$one->server->crash_postmaster;
			$one->server->start;
			$cluster->wait_up;
			tells(3);
			reshard(8);
			$two->server->clear_fault;
			$one->sql("SELECT shard_ask('kept', '$entity', '{}', '60 s')");
			$one->wait_until(q{SELECT shard_drain('1 s')}, 'all to be handled');
			return ($one->sql($seen), '4 4 4 4 4 4 4 4, 0');
		},
	});
done_testing();
