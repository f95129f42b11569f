/*
 * functions.c
 *		A type's own strategy functions, as a host asks them: sensible, wrong, late, or silent.
 *
 * What they say never matters for what is promised: only where shards live.
 */
#include "world.h"

#include "core/base/timing.h"

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

/*
 * The database in which the cluster begins has states of some shards that SQL has brought: so have those of a dump. Nothing of
 * them is modelled but that they are there.
 */
static bool
is_restored(const World *world, int32 shard)
{
	return shard < world->options.shards - WORLD_RESERVED_SHARDS &&
		   (world->options.seed ^ (uint64) shard * UINT64CONST(0x9e3779b97f4a7c15)) >> 7 & 1;
}

/* The id of the type that they are of; 0: the node has not learned it. */
static int32
restored_type(const ShardMap *map)
{
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *types = shard_map_list(map, SHARD_MAP_TYPE, arena, &count);
	int32 type_id = 0;

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (shard_record_get_type(&types[i], &type, arena) && strcmp(type.name, WORLD_TYPE) == 0)
			type_id = types[i].key.a;
	}
	shard_arena_destroy(arena);
	return type_id;
}

/* See world.h. Later ones join a cluster in which homes may go with their types. */
void
host_lets_in(World *world, Instance *instance)
{
	const ShardMap *decided = shard_proposer_decided(shard_node_proposer(instance->node));
	ShardArena *arena = shard_arena_create();
	int32 type_id = restored_type(decided);
	int members;

	(void) shard_map_list(decided, SHARD_MAP_MEMBER, arena, &members);
	for (int32 shard = 0; members == 2 && type_id != 0 && shard < world->options.shards; shard++)
	{
		ShardMapKey key = {SHARD_MAP_HOME, type_id, shard};

		if (is_restored(world, shard) && shard_map_value(decided, key) == NULL)
			check_fail(world->check,
					   "C21: %s lets another node in while shard %d/%d, which has states, has no "
					   "home",
					   instance->dsn, type_id, shard);
	}
	shard_arena_destroy(arena);
}

/* The host's answer about states without homes: the next few, and maybe what is in the way of the others. */
static void
says_states(World *world, Instance *instance, int64 token, int64 after, const char *bytes,
			size_t length)
{
	ShardShardRef shards[3];
	ShardNodeEvent event = {.kind = SHARD_EVENT_STATES, .token = token, .shards = shards};
	int32 type_id;
	int32 shard = -1;

	if (!instance->up || !instance->node)
		return;
	type_id = restored_type(shard_node_learned(instance->node));
	if ((int32) (after >> 32) == type_id)
		shard = (int32) (uint32) after;
	while (++shard < world->options.shards && event.n_shards < (int) lengthof(shards))
	{
		if (is_restored(world, shard))
			shards[event.n_shards++] = (ShardShardRef){type_id, shard, 0, 0};
	}
	event.flag = event.n_shards < (int) lengthof(shards);
	if (type_id == 0)
		event.text = "the type is not registered";
	else if (!world->quiet && world_random(world, 4) == 0)
	{
		event.text = "a table is locked";
		event.n_shards = (int) world_random(world, event.n_shards + 1);
	}
	if (event.text)
		event.flag = false;
	if (type_id == 0)
		event.n_shards = 0;
	host_event(world, instance, &event);
}

void
host_reads_states(World *world, Instance *instance, const ShardAction *action)
{
	world_later(world, 1000 + world_random(world, 20000), says_states, instance, true,
				action->token, (int64) action->shard.type_id << 32 | (uint32) action->shard.shard,
				NULL, 0);
}
