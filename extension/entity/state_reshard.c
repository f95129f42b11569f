/*
 * entity/state_reshard.c
 *		States of a type go to the shards that their entities are in by other settings (doc/protocol/resharding.md).
 *
 * Comes from: sql/type/reshard.c, for a type that runs nowhere.
 *
 * A row that is where it belongs is left alone, so the walk may begin again anywhere, and rows that it meets twice are
 * looked at twice. Rows are read by the primary key, and written as a copy is: indexes and constraints hold, and
 * triggers fire as those of a replica.
 *
 * All of that is the owner's code, in a session of the caller's: each row is written by a guest (registry/guest.h), whose
 * time it is, and what is queued behind a row runs with it. Nothing is deferred to the commit, which is the caller's.
 *
 * That code may write other rows of the table. One that was read and is not as it was any more is read again: the slice ends
 * in front of it. It is never the first one, for a row was written before, so each slice goes on.
 *
 * If the process dies right here: the rows of the transaction are where they were; the next walk meets them again.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/constraints.h"
#include "entity/state_copy.h"
#include "entity/state_door.h"
#include "entity/state_reshard.h"
#include "registry/guest.h"
#ifdef SHARD_MUTANT_RESHARD_WITHOUT_WALLS
#include "registry/security.h"
#endif

#include "base/compat.h"

/* Rows that are looked at in one transaction. */
#define ROWS 1000

/* Rows that are looked at, and where they belong. */
typedef struct Slice
{
	int read;
	int count; /* of them, that this slice is for */
	HeapTuple row[ROWS];
	int32 shard[ROWS];
} Slice;

/* The next rows of the shard. */
static void
read_slice(ShardStateReshard *walk, ShardStateTable *table, Slice *slice)
{
	Relation key_index = index_open(table->primary_key, AccessShareLock);
	SysScanDesc scan = shard_state_begin_scan(table, key_index, walk->shard,
											  walk->after != NULL ? walk->after : "",
											  walk->after != NULL ? walk->after_len : 0);
	HeapTuple tuple;

	slice->read = 0;
	while (slice->read < ROWS &&
		   (tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
		slice->row[slice->read++] = heap_copytuple(tuple);
	slice->count = slice->read;
	systable_endscan_ordered(scan);
	index_close(key_index, NoLock);
}

/* Where the rows belong. The extractor is its owner's, in a session of the caller's. */
static void
find_shards(const ShardStateTable *table, ShardType *target, Slice *slice)
{
	for (int i = 0; i < slice->count; i++)
	{
		int len;
		const char *id = shard_state_id(table, slice->row[i], &len);

		CHECK_FOR_INTERRUPTS();
		slice->shard[i] = shard_registry_shard_id(target, id, len);
	}
}

/* A row that goes to another shard. */
typedef struct Move
{
	ShardStateCopy *copy;
	HeapTuple row;
	int32 shard;
} Move;

/* The row as it is, in the table's slot for that, and as it is to be. */
static void
form_rows(const Move *move)
{
	ShardStateTable *table = &move->copy->table;
	TupleTableSlot *next = table->next;
	int natts = next->tts_tupleDescriptor->natts;

	ExecForceStoreHeapTuple(move->row, table->row, false);
	table->row->tts_tid = move->row->t_self;
	ExecClearTuple(next);
	slot_getallattrs(table->row);
	memcpy(next->tts_values, table->row->tts_values, natts * sizeof(Datum));
	memcpy(next->tts_isnull, table->row->tts_isnull, natts * sizeof(bool));
	next->tts_values[table->shard_column - 1] = Int32GetDatum(move->shard);
	ItemPointerSetInvalid(&next->tts_tid);
	ExecStoreVirtualTuple(next);
}

/*
 * Writes the row. A BEFORE trigger that writes the very row leaves one that is no longer valid, which the server meets last,
 * and has words for a programmer; no statement of the trigger's own is refused like that.
 */
static void
update_row(ShardStateTable *table)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		shard_state_door_update(table);
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (error->funcname == NULL || strcmp(error->funcname, "heap_update") != 0)
			PG_RE_THROW();
		FlushErrorState();
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 errmsg("a trigger on state table \"%s\" wrote or deleted the row of an entity "
						"before it could move to another shard",
						RelationGetRelationName(table->rel)),
				 errhint("Let BEFORE triggers change the row that they return; AFTER triggers may "
						 "write to the table.")));
	}
	PG_END_TRY();
}

/* Writes a row with another shard, with all that this runs. As the type's owner, a guest here. */
static void
write_row(void *argument)
{
	const Move *move = argument;
	ShardStateTable *table = &move->copy->table;

	shard_state_copy_begin_write(move->copy);
	form_rows(move);
	update_row(table);
	if (!ItemPointerIsValid(&table->next->tts_tid))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("a trigger on state table \"%s\" suppressed the move of an entity to "
						"another shard",
						RelationGetRelationName(table->rel)),
				 errhint("Let BEFORE triggers that are enabled always return the row.")));
	shard_state_door_end_write(table);
}

/* Is the row as it was read, or has code that ran since then written or deleted it? */
static bool
is_as_read(ShardStateTable *table, HeapTuple row)
{
	bool found = table_tuple_fetch_row_version(table->rel, &row->t_self, SnapshotSelf, table->row);

	ExecClearTuple(table->row);
	return found;
}

/* Writes the rows that belong elsewhere; up to one that has to be read again. */
static void
move_rows(ShardStateReshard *walk, ShardStateCopy *copy, Slice *slice)
{
	MemoryContext old = MemoryContextSwitchTo(copy->row);
#ifdef SHARD_MUTANT_RESHARD_WITHOUT_WALLS
	ShardSecurity security = {0};
#endif

	for (int i = 0; i < slice->count; i++)
	{
		Move move = {copy, slice->row[i], slice->shard[i]};

		if (move.shard == walk->shard)
			continue;
		CHECK_FOR_INTERRUPTS();
		if (walk->moved > 0 && !is_as_read(&copy->table, move.row))
		{
			slice->count = i;
			break;
		}
#ifdef SHARD_MUTANT_RESHARD_WITHOUT_WALLS
		shard_security_begin(&security, copy->type);
		write_row(&move);
		shard_security_end(&security);
#else
		shard_guest_run(copy->type, SHARD_GUEST_STORES, write_row, &move);
#endif
		MemoryContextReset(copy->row);
		walk->moved++;
	}
	MemoryContextSwitchTo(old);
}

/* Goes on behind the slice, if there may be more, also of what code that ran has put there; or with the next shard that has rows. */
static void
go_on(ShardStateReshard *walk, const ShardStateCopy *copy, const Slice *slice)
{
	int32 next;
	int count;
	const char *id;

	if (walk->after != NULL)
		pfree(walk->after);
	walk->after = NULL;
	if (slice->read == ROWS || walk->moved > 0)
	{
		id = shard_state_id(&copy->table, slice->row[slice->count - 1], &walk->after_len);
		walk->after =
			memcpy(MemoryContextAlloc(walk->memory, Max(walk->after_len, 1)), id, walk->after_len);
		return;
	}
	(void) shard_state_door_shards(copy->type->state_table, walk->shard, PG_INT32_MAX, false, &next,
								   1, &count);
	walk->done = count == 0;
	if (!walk->done)
		walk->shard = next;
}

void
shard_state_reshard(ShardStateReshard *walk, const ShardType *type, ShardType *target)
{
	ShardStateCopy copy;
	Slice *slice = palloc(sizeof(Slice));

	walk->moved = 0;
	LockRelationOid(type->state_table, ShareRowExclusiveLock);
	/* what was committed before the lock was free has to be seen, and what the slice before this one has run */
	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	shard_state_copy_open(&copy, type);
	read_slice(walk, &copy.table, slice);
	find_shards(&copy.table, target, slice);
#ifndef SHARD_MUTANT_RESHARD_DEFERS
	shard_constraints_immediate();
#endif
	move_rows(walk, &copy, slice);
	go_on(walk, &copy, slice);
	shard_state_copy_close(&copy);
	PopActiveSnapshot();
	for (int i = 0; i < slice->read; i++)
		heap_freetuple(slice->row[i]);
	pfree(slice);
}
