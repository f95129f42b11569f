/*
 * functions.c
 *		A type's own strategy functions, as a host asks them: sensible, wrong, late, or silent.
 *
 * What they say never matters for what is promised: only where shards live.
 */
#include "world.h"

#include "core/timing.h"

#define MOST_SHARDS 64

/* An answer on its way to the control process. */
typedef struct FunctionAnswer
{
	int64 token;
	int32 type_id;
	bool rebalance;
	bool failed;
	int n_shards;
	int32 shards[MOST_SHARDS];
	int32 nodes[MOST_SHARDS];
} FunctionAnswer;

static void
answers(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	FunctionAnswer answer;
	ShardShardRef refs[MOST_SHARDS];
	ShardNodeEvent event = {.kind = SHARD_EVENT_STRATEGY, .shards = refs};

	memcpy(&answer, bytes, sizeof(answer));
	for (int i = 0; i < answer.n_shards; i++)
		refs[i] = (ShardShardRef){.type_id = answer.type_id, .shard = answer.shards[i]};
	event.number = answer.token;
	event.flag = answer.rebalance;
	event.text = answer.failed ? "division by zero" : NULL;
	event.n_shards = answer.n_shards;
	event.n_nodes = answer.rebalance ? 0 : answer.n_shards;
	event.nodes = answer.nodes;
	if (instance->up)
		host_event(world, instance, &event);
}

/* Any shard of a view. */
static void
choose_moves(World *world, const ShardAllocationView *view, FunctionAnswer *answer)
{
	const ShardAllocationRegion *region;

	if (view->n_regions == 0 || world->quiet)
		return;
	region = &view->regions[world_random(world, (uint32) view->n_regions)];
	if (region->n_shards > 0)
		answer->shards[answer->n_shards++] =
			region->shards[world_random(world, (uint32) region->n_shards)];
}

/* Any node for each shard; now and then one that nobody has. */
static void
choose_homes(World *world, const ShardStrategyCall *call, FunctionAnswer *answer)
{
	for (int i = 0; i < call->n_shards && i < MOST_SHARDS; i++)
	{
		answer->shards[i] = call->shards[i];
		if (call->view->n_regions > 0)
			answer->nodes[i] =
				call->view->regions[world_random(world, (uint32) call->view->n_regions)].node;
		if (!world->quiet && world_random(world, 40) == 0)
			answer->nodes[i] = 77;
		answer->n_shards++;
	}
}

/* See world.h. */
void
host_asks_functions(World *world, Instance *instance, const ShardAction *action)
{
	FunctionAnswer answer = {.token = action->token, .type_id = action->shard.type_id};
	int64 delay = 1000 + world_random(world, 200000);

	if (!world->quiet && world_random(world, 20) == 0)
		return;
	if (!world->quiet && world_random(world, 20) == 0)
		delay += SHARD_STRATEGY_TIMEOUT;
	answer.rebalance = action->strategy->rebalance;
	answer.failed = !world->quiet && world_random(world, 10) == 0;
	if (answer.rebalance)
		choose_moves(world, action->strategy->view, &answer);
	else
		choose_homes(world, action->strategy, &answer);
	world_later(world, delay, answers, instance, true, 0, 0, (const char *) &answer,
				sizeof(answer));
}

/* The host's answer about states without homes: here each shard has a home before its first state (C21). */
static void
says_states(World *world, Instance *instance, int64 token, int64 b, const char *bytes,
			size_t length)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_STATES, .token = token, .flag = true};

	if (!world->quiet && world_random(world, 20) == 0)
	{
		event.flag = false;
		event.text = "a table is locked";
	}
	if (instance->up)
		host_event(world, instance, &event);
}

/* See world.h. */
void
host_reads_states(World *world, Instance *instance, const ShardAction *action)
{
	world_later(world, 1000 + world_random(world, 20000), says_states, instance, true,
				action->token, 0, NULL, 0);
}
