# Entities leave memory all the time, by number and by idle time, while messages come, fail and wait, and the server
# crashes: nothing committed is lost, handled twice or out of order. And what is idle costs no memory.
#
# SHARD_SEED repeats a run, SHARD_SECONDS makes it longer.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardLedger;
use Test::More;

my $node = ShardCluster->create('passivating', conf => 'shard.region_workers = 2');
my $settings = q{, passivation_strategy => '%s', active_entity_limit => 10, passivate_idle_after => '50 ms'};
my $ledger = ShardLedger->new(node => $node, seed => ShardLedger::seed(), settings => sprintf $settings, 'composite');
$ledger->install;
$ledger->prove(
	seconds      => ShardLedger::seconds(25),
	disturbances => [ ShardLedger::crashes() ]);

# Ten times as many entities as may be in memory, used again and again by several sessions.
$node->safe_psql('postgres', q{
CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN
    jsonb_build_object('last', message->'n', 'bad', coalesce((state->>'bad')::int, 0) +
        (coalesce((state->>'last')::int, 0) + 1 <> (message->>'n')::int)::int);
SELECT shard_start(strategy, 'counter', number_of_shards => 64, passivation_strategy => strategy, active_entity_limit => 50)
FROM unnest('{lru,slru,mru,lfu,lfu_aging,composite}'::text[]) strategy;
});
my @sessions = map { $node->session } 1 .. 4;
for my $round (1 .. 10)
{
	# each session has entities of its own, so their messages have an order
	$sessions[$_]->send("SELECT count(shard_tell(strategy, '$_-' || i, '{\"n\": $round}'))
		FROM unnest('{lru,slru,mru,lfu,lfu_aging,composite}'::text[]) strategy, generate_series(1, 125) i;") for 0 .. 3;
	$_->receive for @sessions;
}
$node->drain;
for my $strategy (qw(lru slru mru lfu lfu_aging composite))
{
	is($node->safe_psql('postgres', "SELECT count(*), min((state->>'last')::int), sum((state->>'bad')::int) FROM shard_entity.$strategy"),
		'500|10|0', "$strategy: all messages of all entities, in order");
	# The workers' last turn is over when they are asked.
	my ($in_memory, $left, $left_memory) = split /\|/, $node->safe_psql('postgres', qq{SELECT sum(entities), sum(left_limit), sum(left_memory)
		FROM shard_region_stats WHERE type_name = '$strategy'});
	# Of a backlog that is handled in one turn each entity is in memory once.
	note("$strategy: $in_memory in memory, $left left");
	ok($in_memory >= 1 && $in_memory <= 50 && $left >= 500 - $in_memory && $left_memory == 0, "$strategy: no more are in memory than may be")
		or diag("$strategy: $in_memory are in memory, $left left, $left_memory of them for want of memory");
}

# Nothing is left of idle entities but their rows.
$node->safe_psql('postgres', q{SELECT shard_alter(type_name, 'passivate_idle_after', '10 ms') FROM shard_types WHERE owner = current_user::regrole});
$node->wait_until('SELECT sum(cache_entities) = 0 AND sum(cache_bytes) = 0 FROM shard_stat_workers', 'all entities to leave');
pass('idle entities cost no memory');
done_testing();
