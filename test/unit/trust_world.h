/*
 * trust_world.h
 *		Three nodes, and somebody who speaks in the name of one of them.
 */
#pragma once

#include "core/map/action.h"
#include "core/map/control.h"
#include "core/map/type_number.h"
#include "core/node/node_private.h"
#include "node_world.h"

#define FAR_BALLOT ((INT64CONST(1) << 62) - 2)
#define FORGED ((ShardUuid){0xbad, 0xbad})

/* A machine receives what node "from" is said to say; via: the node that was called. */
static inline void
receive_as(int at, int32 from, int32 via, ShardControl message)
{
	StringInfoData buffer;
	ShardMemberRecord member;
	ShardArena *arena = shard_arena_create();
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[at].node),
												 (ShardMapKey){SHARD_MAP_MEMBER, from, 0});

	if (entry && shard_record_get_member(entry, &member, arena))
		message.from_inc = member.inc_no;
	message.cluster = shard_node_cluster(machines[at].node);
	message.protocol_version = SHARD_PROTOCOL_VERSION;
	message.from = from;
	if (message.era == 0)
		message.era = shard_node_era(machines[at].node);
	initStringInfo(&buffer);
	shard_control_encode(&buffer, &message);
	shard_node_receive(machines[at].node, now, via, buffer.data, buffer.len, out);
	pfree(buffer.data);
	shard_arena_destroy(arena);
}

/* The same, and does what follows from it. */
static inline void
give_as(int at, int32 from, int32 via, ShardControl message)
{
	receive_as(at, from, via, message);
	act(at, NO_LINK);
}

static inline int64
promised(int at)
{
	return shard_voter_promised(shard_node_voter(machines[at].node));
}

/* A node has a type, as it is there now. */
static inline void
has(int at, const char *name, int32 shards, const char *state)
{
	ShardTypeRecord type = {.name = name,
							.number_of_shards = shards,
							.settings_hash = 1,
							.state = state};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};

	happen(at, &event);
	deliver();
	run(2 * SHARD_SECOND);
}

/* Is a type of that name in the map of a machine? */
static inline bool
has_type(int at, const char *name)
{
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_TYPE, out->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (!types[i].deleted && shard_record_get_type(&types[i], &type, out->arena) &&
			strcmp(type.name, name) == 0)
			return !type.dropping;
	}
	return false;
}
