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
	SHARD_STATE_ALTERED, /* held; something differs from before, so values from then mean nothing */
	SHARD_STATE_BUSY	 /* another transaction has some of it locked */
} ShardStateHold;

typedef enum ShardRowStatus
{
	SHARD_ROW_OK,		/* copy is what the turn's snapshot shows */
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

/* What states are rows of, by the parts that are held; NULL: they are no rows. */
extern TupleDesc shard_state_row(const ShardStateParts *parts);

/*
 * Error unless a state that a handler returned, detoasted, is laid out as the parts have it, which are held.
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
 * A composite type in the state that another transaction has locked, by its pg_class; InvalidOid: none. Keeps no lock.
 */
extern Oid shard_state_locked_type(const ShardType *type);

/*
 * The process that holds a lock on the table which keeps workers from writing to it, or on a type of the state which
 * keeps them from reading; 0 if there is none. A list of all locks is made only if so.
 */
extern int shard_state_table_locker(const ShardType *type);

/* Before commit; and after an abort, which has done it. */
extern void shard_state_release(ShardStateParts *parts);
extern void shard_state_release_forget(ShardStateParts *parts);

/* Nothing is held: the memory goes, and they are as new. */
extern void shard_state_forget_parts(ShardStateParts *parts);

/*
 * Opens the table, if it is not open. False, without waiting, if another transaction has it locked. Error if there is a
 * problem with it.
 */
extern bool shard_state_open(ShardStateTable *table, const ShardType *type);

/* Ends writing (after-triggers fire) and closes. No-op if not open. */
extern void shard_state_close(ShardStateTable *table);

/* After an abort: what was open is gone. */
extern void shard_state_forget(ShardStateTable *table);

/*
 * Makes copy tell the truth of the turn's snapshot: verifies a known one,
 * reads it otherwise. state is then in the current memory context, or, if the
 * row did not change, where it was. *blocked_by: pid that holds the row, 0 if
 * not known.
 */
extern ShardRowStatus
shard_state_check(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy, int *blocked_by);

/*
 * Whether another transaction has, or may be about to have, inserted, changed or deleted the entity's row since this
 * turn's copy of it was found to be true. The table is open.
 */
extern bool shard_state_is_overtaken(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy);

/* Fills copy from the row as the active snapshot shows it, which need not be free. */
extern void shard_state_read(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy);

/*
 * Whether the row is still the one that entity->now tells of. Error if a handler
 * of this turn changed it by SQL. The table is open.
 */
extern bool shard_state_is_current(ShardStateTable *table, ShardEntity *entity);

/*
 * Writes entity->now: inserts, updates or deletes the row, after verifying it
 * once more. False if it was changed or locked from outside since the check:
 * the turn is to be rolled back. Updates now.
 */
extern bool shard_state_write(ShardStateTable *table, ShardEntity *entity);
