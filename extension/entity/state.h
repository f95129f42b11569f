/*
 * entity/state.h
 *		State tables: reading, checking and writing the rows of entities.
 *
 * Rows are written through the executor, so that indexes, triggers, constraints
 * and generated columns of the users hold. All of it runs as the type's owner;
 * the caller has begun the security context.
 */
#pragma once

#include "entity/entity.h"

typedef enum ShardStateHold
{
	SHARD_STATE_HELD,
	SHARD_STATE_ALTERED, /* held; the definition differs from the former one, so values made by that mean nothing */
	SHARD_STATE_BUSY /* another transaction has some of it locked */
} ShardStateHold;

typedef enum ShardRowStatus
{
	SHARD_ROW_OK,		/* the copy is what the turn's snapshot shows */
	SHARD_ROW_CONTENDED /* another transaction holds the row */
} ShardRowStatus;

/*
 * Why the type's table cannot be used as it is now, as a palloc'd message with its SQLSTATE; NULL if it can, or if
 * another transaction has it locked.
 */
extern char *shard_state_problem(const ShardType *type, int *sqlstate);

/*
 * Keeps the definition of the type's states from being altered: by other transactions until this one ends, by this one
 * until it releases the hold. Does not wait for locks. To be called before any value is used, outside of
 * subtransactions that may end before the use does.
 */
extern ShardStateHold shard_state_hold(ShardStateParts *parts, const ShardType *type);

/*
 * Raises an error unless a state that a handler returned, detoasted, is laid out as the parts say, which are held.
 */
extern void shard_state_check_row(const ShardStateParts *parts, Datum state);

static inline void
shard_state_check_result(const ShardStateParts *parts, Datum state)
{
	Assert(parts->held);
	if (parts->row != NULL)
		shard_state_check_row(parts, state);
}

/*
 * The process that holds a lock on the table which keeps workers from writing to it, or on a type of the state which
 * keeps them from reading; 0 if there is none. A list of all locks is made only if there is one.
 */
extern int shard_state_table_locker(const ShardType *type);

/* Before commit: releases the hold. After an abort, which has released it: forgets it. */
extern void shard_state_release(ShardStateParts *parts);
extern void shard_state_release_forget(ShardStateParts *parts);

/* When nothing is held: frees the memory of the parts. */
extern void shard_state_forget_parts(ShardStateParts *parts);

/*
 * The triggers that tell what SQL has changed of a type with replicas (Q33): whether one is of these; and whether the table
 * has others, of its owner.
 */
extern bool shard_state_is_our_trigger(const struct Trigger *trigger);
extern bool shard_state_has_triggers(Relation rel);

#define SHARD_TOUCHED_TRIGGER "shard_touched"
#define SHARD_TRUNCATED_TRIGGER "shard_truncated"

/* NULL: the table has our triggers, and they fire always; else which one does not, "shard_touched". */
extern const char *shard_state_lacks_trigger(Relation rel);

/*
 * Opens the table, if it is not open. False, without waiting, if another transaction has it locked. Error if there is a
 * problem with it.
 */
extern bool shard_state_open(ShardStateTable *table, const ShardType *type);

/* Ends writing (after-triggers fire) and closes. No-op if not open. */
extern void shard_state_close(ShardStateTable *table);

/* After an abort, which has closed the table: forgets it. */
extern void shard_state_forget(ShardStateTable *table);

/*
 * Makes the copy equal to the row in the turn's snapshot: verifies a known copy, and reads the row if that has changed.
 * copy->state is then in the current memory context, or, if the row did not change, where it was. *blocked_by: pid that
 * holds the row, 0 if not known.
 */
extern ShardRowStatus
shard_state_check(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy, int *blocked_by);

/* When the row of a copy that was just checked was written last; 0: there is none. */
extern TimestampTz shard_state_written(const ShardStateTable *table, const ShardCopy *copy);

/*
 * Whether another transaction has, or may be about to have, inserted, changed or deleted the entity's row since this
 * turn's copy of it was found to be true. The table is open.
 */
extern bool shard_state_is_overtaken(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy);

/* Fills the copy from the row as the active snapshot shows it; other transactions may have the row locked. */
extern void shard_state_read(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy);

/* Fills the copy from a row of the entity, which the turn's snapshot shows. The table is open. */
extern void
shard_state_take(ShardStateTable *table, ShardEntity *entity, HeapTuple tuple, ShardCopy *copy);

/* Rows of a shard behind an id, by their key, in the active snapshot; ends with systable_endscan_ordered(). */
extern struct SysScanDescData *shard_state_begin_scan(ShardStateTable *table, Relation key_index,
													  int shard, const char *after, int after_len);

/* Rows of a shard in the order of their ids; all in the memory of the call. */
typedef struct ShardStatePiece
{
	List *remembered; /* HeapTuple */
	const char *upto; /* the id of the last row that was looked at */
	int upto_len;
	bool last; /* there are no others */
} ShardStatePiece;

/*
 * Those behind an id, "" with length 0: from the first one on: as many as are remembered, up to a limit, or as may be
 * looked at in one go. The table is open.
 */
extern void shard_state_walk(ShardStateTable *table, int shard, const char *after, int after_len,
							 int limit, ShardStatePiece *piece);

/* The id in such a row, in the memory of the call. */
extern const char *shard_state_id(const ShardStateTable *table, HeapTuple tuple, int *len);

/*
 * Whether the row is still the one that entity->now describes. Error if a handler of this turn changed the row by SQL.
 * The table is open.
 */
extern bool shard_state_is_current(ShardStateTable *table, ShardEntity *entity);

/*
 * Writes entity->now: inserts, updates or deletes the row, after verifying it once more, and updates entity->now. False
 * if another transaction changed or locked the row since the check: the turn is to be rolled back.
 */
extern bool shard_state_write(ShardStateTable *table, ShardEntity *entity);
