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
 * If the process dies right here: the rows of the transaction are where they were; the next walk meets them again.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "entity/state_copy.h"
#include "entity/state_door.h"
#include "entity/state_reshard.h"
#include "registry/security.h"

#include "base/compat.h"

/* Rows that are looked at in one transaction. */
#define ROWS 1000

/* Rows that are looked at, and where they belong. */
typedef struct Slice
{
	int count;
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

	slice->count = 0;
	while (slice->count < ROWS &&
		   (tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
		slice->row[slice->count++] = heap_copytuple(tuple);
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

/* Writes a row with another shard. */
static void
move_row(ShardStateCopy *copy, HeapTuple row, int32 shard)
{
	ShardStateTable *table = &copy->table;
	TupleTableSlot *next = table->next;
	MemoryContext old = MemoryContextSwitchTo(copy->row);
	int natts = next->tts_tupleDescriptor->natts;

	ExecForceStoreHeapTuple(row, table->row, false);
	table->row->tts_tid = row->t_self;
	ExecClearTuple(next);
	slot_getallattrs(table->row);
	memcpy(next->tts_values, table->row->tts_values, natts * sizeof(Datum));
	memcpy(next->tts_isnull, table->row->tts_isnull, natts * sizeof(bool));
	next->tts_values[table->shard_column - 1] = Int32GetDatum(shard);
	ItemPointerSetInvalid(&next->tts_tid);
	ExecStoreVirtualTuple(next);
	shard_state_door_update(table);
	if (!ItemPointerIsValid(&next->tts_tid))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("a trigger on state table \"%s\" suppressed the move of an entity to "
						"another shard",
						RelationGetRelationName(table->rel)),
				 errhint("Let BEFORE triggers that are enabled always return the row.")));
	MemoryContextSwitchTo(old);
	MemoryContextReset(copy->row);
	ResetPerTupleExprContext(table->estate);
}

/* Writes the rows that belong elsewhere; as the type's owner. */
static void
move_rows(ShardStateReshard *walk, ShardStateCopy *copy, const Slice *slice)
{
	for (int i = 0; i < slice->count; i++)
	{
		if (slice->shard[i] == walk->shard)
			continue;
		CHECK_FOR_INTERRUPTS();
		shard_state_copy_begin_write(copy);
		move_row(copy, slice->row[i], slice->shard[i]);
		walk->moved++;
	}
}

/* Goes on behind the slice, or with the next shard that has rows. */
static void
go_on(ShardStateReshard *walk, const ShardStateCopy *copy, const Slice *slice)
{
	int32 next;
	int count;
	const char *id;

	if (walk->after != NULL)
		pfree(walk->after);
	walk->after = NULL;
	if (slice->count == ROWS)
	{
		id = shard_state_id(&copy->table, slice->row[ROWS - 1], &walk->after_len);
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
	ShardSecurity security = {0};
	Slice *slice = palloc(sizeof(Slice));

	walk->moved = 0;
	LockRelationOid(type->state_table, ShareRowExclusiveLock);
	/* what was committed before the lock was free has to be seen */
	PushActiveSnapshot(GetLatestSnapshot());
	shard_state_copy_open(&copy, type);
	read_slice(walk, &copy.table, slice);
	find_shards(&copy.table, target, slice);
	shard_security_begin(&security, type);
	move_rows(walk, &copy, slice);
	go_on(walk, &copy, slice);
	shard_state_copy_close(&copy);
	shard_security_end(&security);
	PopActiveSnapshot();
	for (int i = 0; i < slice->count; i++)
		heap_freetuple(slice->row[i]);
	pfree(slice);
}
