/*
 * fault_operator.c
 *		What operators do: moves and pins, nodes that come and go, and what they are called for.
 */
#include "faults.h"

#include "core/base/timing.h"

/* So long after all is mended a word of an operator may still be heard. */
#define LAST_WORDS (SHARD_COMMAND_PATIENCE + 5 * SHARD_SECOND)

/* Where an operator speaks: at the coordinator, or at any node. */
static Instance *
operators_node(World *world)
{
	Instance *instance = &world->instances[world_random(world, (uint32) world->n_instances)];

	if (world_random(world, 2) == 0 && instance->up && instance->node && instance->joined &&
		!instance->retired && !instance->shadow && !instance->frozen)
		return instance;
	return host_coordinator(world);
}

/* The operator's word. */
void
fault_operate(World *world, ShardCommandKind kind, int32 node, const ShardShardRef *shard)
{
	Instance *instance = operators_node(world);
	ShardCommand event = {.kind = kind, .node = node, .asker.token = WORLD_COMMAND};

	event.number = node; /* what a setting is to be */
	event.flag = true;
	event.type_id = shard ? shard->type_id : 0;
	event.shard = shard ? shard->shard : 0;
	if (instance && !instance->frozen)
		commands_give(world, instance, &event);
}

/* A shard that is known to the coordinator. False: there is no coordinator. */
static bool
choose_shard(World *world, uint32 number, ShardShardRef *shard)
{
	Instance *coordinator = host_coordinator(world);

	if (!coordinator)
		return false;
	memset(shard, 0, sizeof(*shard));
	shard->type_id = host_type_id(coordinator, WORLD_TYPE);
	shard->shard = (int32) (number % (uint32) world->options.shards);
	return true;
}

/* It goes to some other node. */
void
fault_move(World *world, uint32 number, int32 to)
{
	ShardShardRef shard;

	if (choose_shard(world, number, &shard))
		fault_operate(world, SHARD_COMMAND_MOVE, to, &shard);
}

static void
moves_again(World *world, Instance *instance, int64 number, int64 to, const char *bytes,
			size_t length)
{
	fault_move(world, (uint32) number, (int32) to);
}

void
fault_move_back_and_forth(World *world, const Fault *fault)
{
	for (int i = 0; i < 4; i++)
		world_later(world, 1 + i * (300000 + fault->number % 1000000), moves_again, NULL, false,
					fault->number, (i % 2 ? fault->a : fault->b) + 1, NULL, 0);
}

/* Or is to be there for a while. */
void
fault_pin(World *world, uint32 number, int32 node)
{
	ShardShardRef shard;

	if (choose_shard(world, number, &shard))
		fault_operate(world, SHARD_COMMAND_PIN, node, &shard);
}

/*
 * Wishes of operators end with the troubles. An operator looks again and again: a word of before may have
 * been on its way to a coordinator that was frozen, or wait for one as long as a command may (C12), and be
 * heard only now. After that time none may turn up that was taken back.
 */
void
fault_end_wishes(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
				 size_t length)
{
	Instance *coordinator = host_coordinator(world);
	ShardArena *arena = shard_arena_create();
	bool any = coordinator == NULL;
	int n_pins = 0;
	int n_members = 0;
	ShardMapEntry *pins = NULL;
	ShardMapEntry *members = NULL;

	if (coordinator)
	{
		const ShardMap *map = shard_node_learned(coordinator->node);

		pins = shard_map_list(map, SHARD_MAP_PIN, arena, &n_pins);
		members = shard_map_list(map, SHARD_MAP_MEMBER, arena, &n_members);
	}
	for (int i = 0; i < n_pins; i++)
	{
		ShardShardRef shard = {.type_id = pins[i].key.a, .shard = pins[i].key.b};

		any = true;
		fault_operate(world, SHARD_COMMAND_PIN, 0, &shard);
	}
	for (int i = 0; i < n_members; i++)
	{
		ShardCommand event = {.kind = SHARD_COMMAND_EVACUATE, .asker.token = WORLD_COMMAND};
		ShardMemberRecord member;

		event.node = members[i].key.a;
		if (!shard_record_get_member(&members[i], &member, arena) || !member.evacuated)
			continue;
		any = true;
		if (coordinator->frozen || !coordinator->node)
			continue;
		commands_give(world, coordinator, &event);
	}
	shard_arena_destroy(arena);
	if (any || world->now < world->mended_at + LAST_WORDS)
		world_later(world, 2 * SHARD_SECOND, fault_end_wishes, NULL, false, 0, 0, NULL, 0);
}

static void
joins(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	ShardCommand event = {.kind = SHARD_COMMAND_JOIN,
						  .text = world->instances[a].dsn,
						  .asker.token = WORLD_JOIN};

	event.uuid.high = world_random64(world);
	event.uuid.low = world_random64(world);
	host_command(world, instance, &event);
}

Instance *
fault_new_instance(World *world)
{
	return world->n_instances < WORLD_MAX_INSTANCES ? &world->instances[world->n_instances++]
													: NULL;
}

void
fault_join(World *world, const Fault *fault)
{
	Instance *instance;
	char dsn[16];

	if (world->n_instances >= WORLD_MAX_NODES)
		return;
	instance = fault_new_instance(world);
	snprintf(dsn, sizeof(dsn), "db%d", world->n_instances);
	host_create(world, instance, dsn);
	host_start(world, instance, SHARD_START_RESTART);
	world_later(world, 100000, joins, instance, false, fault->a, 0, NULL, 0);
}

static void
stays(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	ShardCommand event = {.kind = SHARD_COMMAND_STAY, .asker.token = WORLD_COMMAND};

	if (instance->up && !instance->frozen && instance->node)
		commands_give(world, instance, &event);
}

/* Now and then the operator changes their mind. */
void
fault_leave(World *world, Instance *instance, const Fault *fault)
{
	ShardCommand event = {.kind = SHARD_COMMAND_LEAVE, .asker.token = WORLD_COMMAND};

	/* Somebody has to stay. */
	if (instance->index == 0 || !instance->node)
		return;
	host_command(world, instance, &event);
	if (fault->number % 4 == 0)
		world_later(world, fault->number % 5000000, stays, instance, true, 0, 0, NULL, 0);
}

/* A node whose machine is lost; its operator says so a while later, until it is heard. */
static void
written_off(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	Instance *coordinator = host_coordinator(world);
	const ShardMapEntry *entry;
	ShardMemberRecord member;
	bool done = false;

	if (coordinator)
	{
		ShardArena *arena = shard_arena_create();

		entry = shard_map_value(shard_node_learned(coordinator->node),
								(ShardMapKey){SHARD_MAP_MEMBER, instance->node_id, 0});
		done = entry && shard_record_get_member(entry, &member, arena) &&
			   member.status == SHARD_MEMBER_WRITTEN_OFF;
		shard_arena_destroy(arena);
	}
	if (done)
	{
		/* What a journal and members that are put back have forgotten, he says again. */
		if (world->journal)
			world_later(world, 3 * SHARD_SECOND, written_off, instance, false, 0, 0, NULL, 0);
		return;
	}
	for (int i = 0; world->journal && !coordinator && i < world->n_instances; i++)
	{
		ShardCommand event = {.kind = SHARD_COMMAND_WRITE_OFF,
							  .node = instance->node_id,
							  .asker.token = WORLD_COMMAND};

		/* Those who restore the journal need not wait for it. */
		if (!world->instances[i].frozen && !world->instances[i].journal)
			host_command(world, &world->instances[i], &event);
	}
	fault_operate(world, SHARD_COMMAND_WRITE_OFF, instance->node_id, NULL);
	world_later(world, SHARD_SECOND, written_off, instance, false, 0, 0, NULL, 0);
}

void
fault_write_off(World *world, Instance *instance, const Fault *fault)
{
	if (instance->index == 0 || !instance->up || world->options.nodes < 3)
		return;
	host_stop(world, instance);
	check_written_off(world->check, instance->index);
	world->model->strand(instance->flow);
	instance->retired = true;
	world->model->retire(instance->flow);
	world_later(world, fault->duration, written_off, instance, false, 0, 0, NULL, 0);
}

/* The voters are lost for good: the node that knows most becomes the only one (R13). */
static void
force_voters(World *world)
{
	Instance *best = NULL;
	ShardCommand event = {.kind = SHARD_COMMAND_FORCE_VOTERS,
						  .n_nodes = 1,
						  .asker.token = WORLD_COMMAND};

	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];

		if (instance->up && instance->joined && !instance->retired && !instance->shadow &&
			!instance->copied && instance->node && !shard_node_fenced(instance->node) &&
			(!best || shard_map_point(shard_node_learned(instance->node)).n >
						  shard_map_point(shard_node_learned(best->node)).n))
			best = instance;
	}
	/* A journal that forgot is restored by the members themselves. */
	if (!best || fault_names_voter(shard_node_learned(best->node), WORLD_JOURNAL))
		return;
	world->forced = true;
	world->mended_at = world->now;
	check_forced(world->check);
	event.nodes = &best->node_id;
	world_trace(world, "-- the operator makes node %d the only voter", best->node_id);
	host_command(world, best, &event);
}

/* Shards whose state went with what a copy replaced: nobody waits for them any longer. */
static void
give_up_shards(World *world)
{
	Instance *coordinator = host_coordinator(world);
	ShardArena *arena;
	ShardMapEntry *homes;
	int count;

	if (!coordinator)
		return;
	arena = shard_arena_create();
	homes = shard_map_list(shard_node_learned(coordinator->node), SHARD_MAP_HOME, arena, &count);
	for (int i = 0; i < count; i++)
	{
		ShardShardRef ref = {homes[i].key.a, homes[i].key.b, 0, 0};
		ShardHomeRecord home;
		Instance *at;

		if (!shard_record_get_home(&homes[i], &home) || home.phase != SHARD_HOME_STABLE)
			continue;
		at = host_of(world, shard_record_home_node(&home));
		if (at && at->up && at->node && shard_node_admitted(at->node) &&
			world->model->active_epoch(at->flow, ref.type_id, ref.shard) != home.epoch)
		{
			check_lost(world->check, ref.type_id, ref.shard);
			world_trace(world, "-- the operator gives up shard %d/%d, epoch %d of node %d",
						ref.type_id, ref.shard, home.epoch, shard_record_home_node(&home));
			fault_operate(world, SHARD_COMMAND_GIVE_UP, 0, &ref);
			/* The list may have changed under our feet. */
			break;
		}
	}
	shard_arena_destroy(arena);
}

/*
 * An operator looks at what needs a word of his: restored nodes that wait for admission, links that
 * are quarantined.
 */
void
fault_operator_looks(World *world, Instance *none, int64 a, int64 b, const char *bytes,
					 size_t length)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];

		if (!instance->up || !instance->node || instance->retired || instance->shadow)
			continue;
		/* It left, which went with the lost voters: the new ones have to be told. */
		if (world->forced && shard_node_fenced(instance->node))
			fault_operate(world, SHARD_COMMAND_WRITE_OFF, instance->node_id, NULL);
		if (!shard_node_admitted(instance->node) && !shard_node_fenced(instance->node))
			fault_operate(world, SHARD_COMMAND_ADMIT, instance->node_id, NULL);
		if (!world->model->quarantined(instance->flow))
			continue;
		for (int k = 0; k < world->n_instances; k++)
		{
			if (world->instances[k].node_id != instance->node_id)
				world->model->link_accept(instance->flow, world->instances[k].node_id);
		}
		host_after(world, instance);
	}
	if (world->restored)
		give_up_shards(world);
	/* Where some are lost for ever, the others have a majority: it must do without him. */
	if (world->n_lost == 0 && !host_coordinator(world) && ++world->without_coordinator >= 4)
	{
		world->without_coordinator = 0;
		force_voters(world);
	}
	world_later(world, 3 * SHARD_SECOND, fault_operator_looks, NULL, false, 0, 0, NULL, 0);
}
