/*
 * entity/state_door.h
 *		The one door through which the server's executor and planner come to a state table.
 */
#pragma once

#include "entity/entity.h"

/*
 * Prepares the executor for writes, once for each table that is open; and ends them: after-triggers fire. The code that
 * closes the table ends the writes; ending does nothing if nothing was begun.
 */
extern void shard_state_door_begin_write(ShardStateTable *table);
extern void shard_state_door_end_write(ShardStateTable *table);

/* Fills the users' columns of a new row in the slot with their defaults. Writing has begun. */
extern void shard_state_door_fill_defaults(ShardStateTable *table, TupleTableSlot *slot);

/*
 * Inserts the row of the slot "next"; writes it in place of the row of the slot "row"; deletes the row of the slot
 * "row".
 */
extern void shard_state_door_insert(ShardStateTable *table);
extern void shard_state_door_update(ShardStateTable *table);
extern void shard_state_door_delete(ShardStateTable *table);

/* Whether there is a row, as of now. */
typedef enum ShardDoorRows
{
	SHARD_DOOR_EMPTY, /* or the table is gone, or replaced by something else */
	SHARD_DOOR_FILLED,
	SHARD_DOOR_BUSY, /* another transaction has it locked */
	SHARD_DOOR_UNFIT /* it has no primary key by shards */
} ShardDoorRows;

/*
 * Looks for a row of the table itself, whatever the role of the caller; waits for no lock, and keeps none. Reads its
 * pages and nothing else: no planner, no index, no view, no policy, no child, so that none of its owner's code runs.
 */
extern ShardDoorRows shard_state_door_rows(Oid table);

/* How many rows there are, read in the same way; 0 of what is no table. Waits for transactions that have it locked. */
extern uint64 shard_state_door_count(Oid table);

/*
 * The next shards of which there are rows, in their order, at most limit, none above upto: an owner may have put rows
 * of any numbers there. soon: also of rows that others are about to insert. Waits for no lock, and keeps none. Goes
 * from one shard to the next by the primary key, which is of int4, so that no user code runs.
 */
extern ShardDoorRows shard_state_door_shards(Oid table, int32 after, int32 upto, bool soon,
											 int32 *shards, int limit, int *count);
