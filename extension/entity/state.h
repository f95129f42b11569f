/*
 * entity/state.h
 *		State tables: reading, checking and writing the rows of entities.
 *
 * Rows are written through the executor, so that indexes, triggers, constraints
 * and generated columns of the users hold. All of it runs as the type's owner;
 * the caller has begun the security context.
 */
#pragma once

#include "access/tupdesc.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "utils/rel.h"

#include "entity/entity_cache.h"

/* A type's state table in a turn: opened at first use, closed before commit. */
typedef struct ShardStateTable
{
	Relation rel;		/* NULL: not open */
	BlockNumber blocks; /* when it was opened */
	Oid primary_key;
	AttrNumber shard_column;
	AttrNumber entity_column;
	AttrNumber state_column; /* 0 for composite types */
	AttrNumber version_column;
	AttrNumber remembered_column; /* false: for entities that start with their shard */
	AttrNumber updated_column;
	TupleDesc composite;   /* NULL, or the state type's; pinned */
	AttrNumber *attribute; /* of the composite: column of each, 0: dropped */
	TupleTableSlot *row;   /* as found */
	TupleTableSlot *next;  /* as it is to be */

	/* for writing */
	EState *estate; /* NULL: not begun */
	ResultRelInfo *result;
	EPQState epq;
	ExprState **defaults; /* of the users' columns, where there is one; NULL: not prepared */
} ShardStateTable;

/* What a type's state is made of: its table, and the composite types in it, how deep ever (state_hold.c). */
typedef struct ShardStateParts
{
	MemoryContext context; /* of the list */
	List *list;
	struct ShardStatePart
		*row;		/* the one that states themselves are rows of; NULL: they are none */
	bool known;		/* the list is complete */
	bool was_known; /* ever */
	bool held;		/* by this turn */
	Oid busy;		/* what somebody had locked last */
} ShardStateParts;

typedef enum ShardStateHold
{
	SHARD_STATE_HELD,
	SHARD_STATE_ALTERED, /* held; something differs from before, so values from then mean nothing */
	SHARD_STATE_BUSY	 /* somebody has some of it locked */
} ShardStateHold;

typedef enum ShardRowStatus
{
	SHARD_ROW_OK,		/* copy is what the turn's snapshot shows */
	SHARD_ROW_CONTENDED /* another transaction holds the row */
} ShardRowStatus;

/*
 * Why the type's table cannot be used as it is now, as a palloc'd message with
 * its SQLSTATE; NULL if it can, or if somebody has it locked.
 */
extern char *shard_state_problem(const ShardType *type, int *sqlstate);

/*
 * Sees to it that nobody alters what a state is made of until the transaction ends, and that the transaction
 * itself does not until it releases it. Waits for nobody. Before any value is used, outside of subtransactions
 * that may end before the use does.
 */
extern ShardStateHold shard_state_hold(ShardStateParts *parts, const ShardType *type);

/* What states are rows of, by the parts that are held; NULL: they are no rows. */
extern TupleDesc shard_state_row(const ShardStateParts *parts);

/*
 * Error unless a state that a handler returned, detoasted, is laid out as the parts have it, which are held (state_result.c).
 */
extern void shard_state_check_row(const ShardStateParts *parts, Datum state);

static inline void
shard_state_check_result(const ShardStateParts *parts, Datum state)
{
	Assert(parts->held);
	if (parts->row != NULL)
		shard_state_check_row(parts, state);
}

/* A composite type in it that somebody has locked, by its pg_class; InvalidOid: none. Keeps no lock. */
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
 * Opens the table, if it is not open; false if somebody has it locked, for
 * which nobody waits. Error if there is a problem with it.
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
 * Whether somebody else has, or may be about to have, inserted, changed or deleted the entity's row since this
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
