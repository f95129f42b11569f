/*
 * moves_world.h
 *		A cluster of three nodes whose shards have homes, and an operator who speaks about them.
 */
#pragma once

#include "node_world.h"

#define SHARDS 12

/* A cluster of three that are up, all with the type and homes for its shards. */
static inline void
three(int64 interval)
{
	static ShardShardRef refs[SHARDS];
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = SHARDS, .shards = refs};

	end_world();
	memset(machines, 0, sizeof(machines));
	for (int i = 0; i < MACHINES; i++)
	{
		for (int k = 0; k < MANY; k++)
			machines[i].epochs[k] = -1;
	}
	begin_world();
	rebalance_interval = interval;
	min_members = 3;
	for (int i = 0; i < 3; i++)
		start(i);
	run(2 * SHARD_SECOND);
	join(1, 0);
	join(2, 0);
	run(10 * SHARD_SECOND);
	for (int i = 0; i < 3; i++)
		add_type(i, "thing", SHARDS);
	run(3 * SHARD_SECOND);
	for (int i = 0; i < SHARDS; i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = i};
	happen(0, &wanted);
	run(3 * SHARD_SECOND);
	is_int(count_homes(0, 0), SHARDS, "three nodes with homes");
	for (int i = 0; i < 3; i++)
		memset(machines[i].decisions, 0, sizeof(machines[i].decisions));
}

/* The decided home of a shard. */
static inline ShardHomeRecord
home_of(int32 shard)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[0].node),
												 (ShardMapKey){SHARD_MAP_HOME, 1, shard});
	ShardHomeRecord home = {0};

	if (!entry || !shard_record_get_home(entry, &home))
		ok(false, "shard %d has a home", shard);
	return home;
}

static inline int32
node_of(int32 shard)
{
	ShardHomeRecord home = home_of(shard);

	return shard_record_home_node(&home);
}

/* A shard of a node. */
static inline int32
shard_at(int32 node)
{
	for (int32 shard = 0; shard < SHARDS; shard++)
	{
		if (node_of(shard) == node)
			return shard;
	}
	ok(false, "node %d has a shard", node);
	return 0;
}

/* An operator's word about a shard, or none (-1). */
static inline void
command(int at, ShardCommandKind kind, int32 shard, int32 node, int64 token)
{
	ShardCommand given = {.kind = kind,
						  .node = node,
						  .asker.token = token,
						  .text = "eve@somewhere"};

	given.type_id = shard >= 0 ? 1 : 0;
	given.shard = Max(shard, 0);
	given.flag = true;
	order(at, &given);
	deliver();
}

/* Is a command over, with that outcome? */
static inline bool
ended(int at, int64 token, bool good)
{
	return machines[at].command == token && machines[at].command_good == good;
}

/* Wait for the end of a command. */
static inline void
wait_for(int at, int64 token, int64 most)
{
	for (int64 end = now + most; now < end && machines[at].command != token;)
		run(STEP);
}
