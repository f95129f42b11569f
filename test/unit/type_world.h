/*
 * type_world.h
 *		Nodes that start types and drop them.
 */
#pragma once

#include "node_world.h"

/* A type with an id that the machine wishes for. */
static inline void
wish(int at, const char *name, int32 number, bool proxy, uint64 settings_hash)
{
	ShardTypeRecord type = {.name = name, .number_of_shards = 100, .role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type, .flag = proxy};

	type.settings_hash = settings_hash;
	event.number = number;
	happen(at, &event);
	deliver();
}

static inline void
drop(int at, const char *name)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_DROP_TYPE, .text = name};

	happen(at, &event);
	deliver();
}

static inline void
want(int at, int32 type_id, int32 shard)
{
	ShardShardRef ref = {.type_id = type_id, .shard = shard};
	ShardNodeEvent event = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 1, .shards = &ref};

	happen(at, &event);
	deliver();
}

/* What a machine has learned of a type; 0: no such name. */
static inline int32
id_of(int at, const char *name)
{
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_TYPE, arena, &count);
	int32 id = 0;

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (shard_record_get_type(&types[i], &type, arena) && strcmp(type.name, name) == 0)
			id = types[i].key.a;
	}
	shard_arena_destroy(arena);
	return id;
}

static inline int
homes_of_type(int at, int32 type_id)
{
	int count;
	int n = 0;
	ShardMapEntry *homes =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_HOME, out->arena, &count);

	for (int i = 0; i < count; i++)
		n += homes[i].key.a == type_id;
	return n;
}

static inline void
tick(int at)
{
	shard_node_tick(machines[at].node, now, out);
	act(at, NO_LINK);
	deliver();
}

/* Ticks without any time between them, until a machine knows so many homes; how many. */
static inline int
ticks_until(int at, int homes)
{
	int ticks = 0;

	for (; count_homes(at, 0) < homes && ticks < 50; ticks++)
		tick(at);
	return ticks;
}

static inline void
fresh_world(void)
{
	end_world();
	begin_world();
	min_members = 1;
	for (int i = 0; i < MACHINES; i++)
		memset(&machines[i], 0, sizeof(Machine));
}
