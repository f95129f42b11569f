/*
 * registry/turn_lock.h
 *		Locks of lanes for the time of a transaction (doc/protocol.md W3).
 */
#pragma once

#include "shard.h"

/*
 * Takes the locks of all these lanes, for a turn. Does not wait: false if another session has one; locks that were
 * taken go with the transaction.
 */
extern bool shard_turn_lock(ShardLanes lanes);

/* Takes the lock of one lane; waits until the turn of its worker is over. */
extern void shard_turn_lock_wait(int lane);

/*
 * Takes the lock of a lane's turn records (Q36): what a copy of a shard of the lane has promised and stored changes under it
 * alone. Waits; who has it waits for nothing that a turn has. Of several lanes: ascending, all before anything is changed.
 */
extern void shard_turn_lock_records(int lane);

/*
 * For a transaction that inserts or deletes all rows of a shard that does not run here, until its end: an import of the
 * shard, and the deleting of what it left (M7). Two shards may share a lock. False: another session has it.
 */
extern bool shard_turn_lock_import(int32 type_id, int32 shard);
