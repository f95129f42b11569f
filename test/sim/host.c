/*
 * host.c
 *		An instance hosts a control plane and a data plane over one store, as a server would: where it is
 *		found, how it starts and stops, how its processes run on.
 */
#include "host.h"

#include "core/base/timing.h"

/* The instance that an address leads to: of those that have it, the newest that is no clone. */
Instance *
host_at(World *world, const char *dsn)
{
	Instance *found = NULL;

	for (int i = 0; i < world->n_instances; i++)
	{
		if (world->instances[i].exists && strcmp(world->instances[i].dsn, dsn) == 0)
			found = &world->instances[i];
	}
	return found;
}

/* The cache of what an instance's control plane, which runs, knows now. */
static WorldCache *
cache_of(World *world, Instance *instance)
{
	WorldCache *cache = &instance->cache;
	int64 n = shard_map_point(shard_node_learned(instance->node)).n;

	if (cache->generation != instance->control_generation || cache->n != n ||
		cache->n_instances != world->n_instances)
	{
		memset(cache, 0, sizeof(WorldCache));
		cache->generation = instance->control_generation;
		cache->n = n;
		cache->n_instances = world->n_instances;
	}
	return cache;
}

/* The instance at the address of a node, as an instance's own control plane knows it. */
Instance *
host_at_node(World *world, Instance *instance, int32 node)
{
	const ShardMapEntry *entry;
	ShardMemberRecord member;
	Instance *found = NULL;
	WorldCache *cache;

	if (!instance->node)
		return NULL;
	if (node == shard_node_id(instance->node))
		return instance;
	if (node == WORLD_JOURNAL)
		return world->journal;
	cache = cache_of(world, instance);
	if (node > 0 && node < WORLD_MAX_CACHED && cache->addresses[node] != 0)
		return &world->instances[cache->addresses[node] - 1];
	entry = shard_map_value(shard_node_learned(instance->node),
							(ShardMapKey){SHARD_MAP_MEMBER, node, 0});
	/* The journal answers over the connection that the question came by. */
	if (!entry && instance->journal)
		entry = shard_map_value(shard_voter_map(shard_node_voter(instance->node)),
								(ShardMapKey){SHARD_MAP_MEMBER, node, 0});
	if (entry)
	{
		ShardArena *arena = shard_arena_create();

		if (shard_record_get_member(entry, &member, arena))
			found = host_at(world, member.dsn);
		shard_arena_destroy(arena);
	}
	if (found && node > 0 && node < WORLD_MAX_CACHED)
		cache->addresses[node] = (int16) (found->index + 1);
	return found;
}

/* See world.h: the instance that last ran as that node, among those that were not retired. */
Instance *
host_of(World *world, int32 node)
{
	for (int i = world->n_instances - 1; i >= 0; i--)
	{
		Instance *instance = &world->instances[i];

		if (instance->joined && !instance->retired && instance->node_id == node &&
			host_at(world, instance->dsn) == instance)
			return instance;
	}
	return NULL;
}

/* Whoever holds the office, if somebody who is up does. */
Instance *
host_coordinator(World *world)
{
	Instance *best = NULL;
	int64 ballot = 0;

	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];
		const ShardProposer *proposer;

		if (!instance->node || !instance->joined || instance->shadow ||
			!shard_node_proposer(instance->node))
			continue;
		proposer = shard_node_proposer(instance->node);
		if (shard_proposer_office(proposer) == SHARD_OFFICE_HELD &&
			shard_proposer_ballot(proposer) > ballot)
		{
			best = instance;
			ballot = shard_proposer_ballot(proposer);
		}
	}
	return best;
}

/* The ids of the types that an instance knows. */
static void
read_types(Instance *instance, WorldCache *cache)
{
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(instance->node), SHARD_MAP_TYPE, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (shard_record_get_type(&types[i], &type, arena))
		{
			if (strcmp(type.name, WORLD_TYPE) == 0)
				cache->type_ids[0] = types[i].key.a;
			else if (strcmp(type.name, WORLD_LEASED_TYPE) == 0)
				cache->type_ids[1] = types[i].key.a;
		}
	}
	cache->has_types = true;
	shard_arena_destroy(arena);
}

int32
host_type_id(Instance *instance, const char *name)
{
	WorldCache *cache;

	if (!instance->node)
		return 0;
	cache = cache_of(instance->world, instance);
	if (!cache->has_types)
		read_types(instance, cache);
	return cache->type_ids[strcmp(name, WORLD_TYPE) == 0 ? 0 : 1];
}

/* A machine with an empty database; it is started by host_start. */
void
host_create(World *world, Instance *instance, const char *dsn)
{
	int workers = 1 + (int) world_random(world, 2);

	instance->world = world;
	instance->index = (int) (instance - world->instances);
	instance->exists = true;
	strlcpy(instance->dsn, dsn, sizeof(instance->dsn));
	instance->clock_base = world_random(world, 1000) * SHARD_SECOND;
	instance->clock_ppm =
		(int) world_random(world, 2 * world->options.clock_ppm + 1) - world->options.clock_ppm;
	instance->step_delay = 300;
	instance->flow_at = PG_INT64_MAX;
	instance->flow_soon = false;
	instance->out = shard_action_create();
	instance->reply_to = -1;
	if (!instance->store)
		instance->store = store_create();
	host_define_control(instance);
	types_define(instance);
	host_create_flow(world, instance, workers);
	/* A standby has the tables that are there when it is made. */
	if (world->options.standby_gate && !instance->standby)
	{
		instance->standby = store_standby(instance->store);
		store_set_gate(instance->store, STORE_GATE_STANDBY);
	}
}

/* Types that every node runs, or sends to. */
void
host_tell_types(World *world, Instance *instance)
{
	ShardTypeRecord type = {.name = WORLD_TYPE,
							.number_of_shards = world->options.shards,
							.settings_hash = 1,
							.strategy = world->options.functions ? SHARD_ALLOCATION_FUNCTION : 0,
							.role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type, .flag = instance->unhosted};

	host_event(world, instance, &event);
	if (!world->options.leased)
		return;
	type.name = WORLD_LEASED_TYPE;
	type.strategy = 0;
	type.handoff_timeout_ms = 4000;
	type.leased = true;
	type.replicas = world->options.replicas;
	type.min_insync = type.replicas > 0 ? 2 : 0;
	type.features = type.replicas > 0 ? SHARD_FEATURE_REPLICAS : 0;
	host_event(world, instance, &event);
}

void
host_start(World *world, Instance *instance, ShardStartKind kind)
{
	Assert(!instance->up);
	if (instance->lost == WORLD_LOST_CRASHED)
		return;
	instance->up = true;
	instance->generation++;
	instance->kind = kind;
	instance->incarnation.high = world_random64(world);
	instance->incarnation.low = world_random64(world);
	world_trace(world, "%s starts%s", instance->dsn,
				kind == SHARD_START_RESTART	   ? ""
				: kind == SHARD_START_PROMOTED ? ", promoted"
											   : ", as a copy");
	world->model->start(instance->flow, kind, instance->incarnation);
	host_begin_control(world, instance, kind);
}

void
host_stop(World *world, Instance *instance)
{
	if (!instance->up)
		return;
	world_trace(world, "%s dies", instance->dsn);
	host_stop_control(world, instance);
	types_crash(instance);
	world->model->crash(instance->flow);
	instance->up = false;
	instance->frozen = false;
	instance->stuck = instance->sticks = 0;
	instance->generation++;
	instance->flow_at = PG_INT64_MAX;
	instance->flow_soon = false;
}

static void
restart_server(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	if (!instance->up && !instance->retired)
		host_start(world, instance, SHARD_START_RESTART);
}

/* The standby has received what its primary had flushed a while ago. */
static void
replicates(World *world, Instance *instance, int64 upto, int64 b, const char *bytes, size_t length)
{
	instance->replicating = false;
	if (!instance->standby)
		return;
	store_replay(instance->standby, upto);
	host_after(world, instance);
}

/*
 * After anything that happened at an instance: carry out what its control plane wants, and see to it
 * that its processes run on.
 */
void
host_after(World *world, Instance *instance)
{
	int64 wake;
	int64 delay;

	if (!instance->up)
		return;
	host_run_control(world, instance);
	if (instance->downed_restart)
	{
		instance->downed_restart = false;
		host_stop(world, instance);
		world_later(world, 1000000, restart_server, instance, true, 0, 0, NULL, 0);
		return;
	}
	if (instance->standby && !instance->replicating &&
		store_replayed(instance->standby) < store_flushed(instance->store))
	{
		instance->replicating = true;
		world_later(world, 500 + world_random(world, 5000), replicates, instance, false,
					store_flushed(instance->store), 0, NULL, 0);
	}
	if (instance->flow_soon)
		return;
	if ((world->model->ready(instance->flow) & ~instance->stuck) != 0)
	{
		instance->flow_soon = true;
		delay = 20 + world_random(world, (uint32) instance->step_delay);
	}
	else if ((wake = world->model->wake(instance->flow)) != PG_INT64_MAX)
		delay = Max(wake - world_clock(instance), instance->stuck ? 10000 : 100);
	else
		return;
	if (world->now + delay >= instance->flow_at && !instance->flow_soon)
		return;
	instance->flow_at = world->now + delay;
	world_later(world, delay, host_flow_steps, instance, true, ++instance->flow_turn, 0, NULL, 0);
}

/* See world.h. */
void
host_command(World *world, Instance *instance, const ShardCommand *command)
{
	if (!instance->node)
		return;
	shard_node_command(instance->node, world_clock(instance), command, instance->out);
	host_after(world, instance);
}
