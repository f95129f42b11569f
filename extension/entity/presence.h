/*
 * entity/presence.h
 *		Which shards are at this worker: routing knows that and says it to who handles messages.
 *
 * Routing is above this room; a worker gives its answers at the start (shard_turn_init), and no other process has any.
 */
#pragma once

typedef struct ShardPresence
{
	/* Is the shard active here? If it is not, nothing of its stash may run. In a turn. */
	bool (*is_active)(int32 type_id, int32 shard);

	/* Is the shard here, but about to leave or to come? Then nothing of its stash is in memory. */
	bool (*is_moving)(int32 type_id, int32 shard);

	/* Is what is held of the shard in memory? It is if the shard is active here, stops, or is clearing. */
	bool (*is_here)(int32 type_id, int32 shard);
} ShardPresence;

/* Of this worker; routing's own. */
extern const ShardPresence *shard_presence;
