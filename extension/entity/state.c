/*
 * entity/state.c
 *		Rows of entities: reading, checking and writing them.
 *
 * Comes from: turn_entity.c, which asks whether a copy is true, and has the new state written.
 * Goes to: state_door.c, through which a row is written.
 *
 * The copy in memory is never trusted by itself. At the first message of a turn and again before the write the row is
 * fetched under its remembered TID and must be visible in the turn's snapshot, have the remembered xmin and the same
 * key. Line pointers and pages are recycled, so a TID alone may lead to another entity's row or to none; with the three
 * tests, an UPDATE or DELETE by another transaction is always noticed and never overwritten. While the turn's snapshot
 * is registered, the row that passed the tests cannot be pruned away.
 *
 * A row that another transaction has locked is not waited for: the entity is
 * contended and its messages go to the stash.
 *
 * Fetching by TID never prunes, so the page is pruned here, before a write that may not find room in it;
 * without it HOT chains fill the page and every update goes to a new one.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "entity/state.h"
#include "entity/state_door.h"

#include "base/compat.h"

static bool
all_null(const bool *nulls, int count)
{
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			return false;
	return true;
}

/*
 * The state in a row as a datum in the current memory context. no_state: if the columns of a composite state are all
 * null, there is no state (E11).
 */
static Datum
read_state(ShardStateTable *table, ShardLocalType *local, TupleTableSlot *slot, bool no_state,
		   bool *isnull)
{
	Datum values[MaxTupleAttributeNumber];
	bool nulls[MaxTupleAttributeNumber];

	if (table->composite == NULL)
	{
		Datum value = slot_getattr(slot, table->state_column, isnull);

		if (*isnull)
			return (Datum) 0;
		if (local->length == -1)
			return PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
		return datumCopy(value, local->by_value, local->length);
	}
	for (int i = 0; i < table->composite->natts; i++)
	{
		nulls[i] = true;
		if (table->attribute[i] != 0)
			values[i] = slot_getattr(slot, table->attribute[i], &nulls[i]);
	}
	*isnull = no_state && all_null(nulls, table->composite->natts);
	if (*isnull)
		return (Datum) 0;
	/* flattens toasted fields, too */
	return heap_copy_tuple_as_datum(heap_form_tuple(table->composite, values, nulls),
									table->composite);
}

/* Fills copy from the row in the slot. */
static void
read_row(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy)
{
	TupleTableSlot *slot = table->row;
	HeapTuple tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
	bool isnull;

	copy->known = copy->exists = true;
	copy->tid = slot->tts_tid;
	copy->xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
	copy->version = DatumGetInt64(slot_getattr(slot, table->version_column, &isnull));
	copy->remembered = DatumGetBool(slot_getattr(slot, table->remembered_column, &isnull));
	copy->state = read_state(table, entity->local, slot, copy->remembered, &copy->state_null);
}

void
shard_state_take(ShardStateTable *table, ShardEntity *entity, HeapTuple tuple, ShardCopy *copy)
{
	ExecForceStoreHeapTuple(tuple, table->row, false);
	table->row->tts_tid = tuple->t_self;
	memset(copy, 0, sizeof(*copy));
	read_row(table, entity, copy);
}

/* Whether the row in the slot is the entity's. */
static bool
same_key(ShardStateTable *table, ShardEntity *entity)
{
	bool isnull;
	Datum value = slot_getattr(table->row, table->shard_column, &isnull);
	struct varlena *id;

	if (isnull || DatumGetInt32(value) != entity->shard)
		return false;
	value = slot_getattr(table->row, table->entity_column, &isnull);
	if (isnull)
		return false;
	id = PG_DETOAST_DATUM_PACKED(value);
	return VARSIZE_ANY_EXHDR(id) == entity->id_len &&
		   memcmp(VARDATA_ANY(id), entity->id, entity->id_len) == 0;
}

/* Whether the table has the page of copy's TID. */
static bool
has_page(ShardStateTable *table, const ShardCopy *copy)
{
	BlockNumber block = ItemPointerGetBlockNumber(&copy->tid);

	if (block >= table->blocks)
		table->blocks = RelationGetNumberOfBlocks(table->rel);
	return block < table->blocks;
}

/* Fetches the row under copy's TID; false unless it is still the one remembered. */
static bool
fetch_by_tid(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy)
{
	HeapTuple tuple;

	ExecClearTuple(table->row);
	if (!has_page(table, copy) ||
		!table_tuple_fetch_row_version(table->rel, &copy->tid, GetActiveSnapshot(), table->row))
		return false;
	tuple = ExecFetchSlotHeapTuple(table->row, false, NULL);
	return HeapTupleHeaderGetRawXmin(tuple->t_data) == copy->xmin && same_key(table, entity);
}

/* Looks for the entity's row by its key; ends with systable_endscan(). */
static SysScanDesc
begin_key_scan(ShardStateTable *table, ShardEntity *entity, Snapshot snapshot)
{
	ScanKeyData key[2];
	Oid collation =
		TupleDescAttr(RelationGetDescr(table->rel), table->entity_column - 1)->attcollation;

	ScanKeyInit(&key[0], table->shard_column, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(entity->shard));
	ScanKeyEntryInitialize(&key[1], 0, table->entity_column, BTEqualStrategyNumber, TEXTOID,
						   collation, F_TEXTEQ,
						   PointerGetDatum(cstring_to_text_with_len(entity->id, entity->id_len)));
	return systable_beginscan(table->rel, table->primary_key, true, snapshot, 2, key);
}

/* Fetches the row by its key; false if there is none. */
static bool
fetch_by_key(ShardStateTable *table, ShardEntity *entity)
{
	SysScanDesc scan = begin_key_scan(table, entity, GetActiveSnapshot());
	HeapTuple tuple = systable_getnext(scan);
	bool found = HeapTupleIsValid(tuple);

	ExecClearTuple(table->row);
	if (found)
		ExecForceStoreHeapTuple(tuple, table->row, false);
	if (found)
		table->row->tts_tid = tuple->t_self;
	systable_endscan(scan);
	return found;
}

/*
 * Whether another transaction has inserted a row for an entity that has none, or is about to: the worker's insert would
 * wait for it.
 */
static bool
is_taken(ShardStateTable *table, ShardEntity *entity, int *blocked_by)
{
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple tuple;
	bool taken = false;

	InitDirtySnapshot(dirty);
	scan = begin_key_scan(table, entity, &dirty);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple) &&
		!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)))
	{
		taken = true;
		if (TransactionIdIsValid(dirty.xmin))
			*blocked_by = BackendXidGetPid(dirty.xmin);
	}
	systable_endscan(scan);
	return taken;
}

/* Whether a member of a multixact keeps others from locking the row in this mode, or may do so. */
static bool
any_in_the_way(TransactionId multi, LockTupleMode mode)
{
	MultiXactMember *members;
	int count = GetMultiXactIdMembers(multi, &members, false, true);
	bool found = false;

	for (int i = 0; i < count && !found; i++)
		found = (mode == LockTupleExclusive || members[i].status != MultiXactStatusForKeyShare) &&
				!TransactionIdIsCurrentTransactionId(members[i].xid) &&
				TransactionIdIsInProgress(members[i].xid);
	if (count > 0)
		pfree(members);
	return found;
}

/*
 * Whether the row in the slot carries no more than locks that are over, or of foreign keys that reference it,
 * unless it is to be deleted. These stay on the row until it is written; taking a lock beside them would be a
 * write, for each reader.
 */
static bool
is_at_most_locked(ShardStateTable *table, LockTupleMode mode)
{
	Buffer buffer = ((BufferHeapTupleTableSlot *) table->row)->buffer;
	HeapTupleHeader header = ExecFetchSlotHeapTuple(table->row, false, NULL)->t_data;
	TransactionId xmax;
	uint16 infomask;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	xmax = HeapTupleHeaderGetRawXmax(header);
	infomask = header->t_infomask;
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if ((infomask & HEAP_XMAX_INVALID) || HEAP_LOCKED_UPGRADED(infomask))
		return true;
	if (!HEAP_XMAX_IS_LOCKED_ONLY(infomask))
		return false;
	if (infomask & HEAP_XMAX_IS_MULTI)
		return !any_in_the_way(xmax, mode);
	return (mode != LockTupleExclusive && HEAP_XMAX_IS_KEYSHR_LOCKED(infomask)) ||
		   TransactionIdIsCurrentTransactionId(xmax) || !TransactionIdIsInProgress(xmax);
}

/* How writing the next state locks the row: a deletion waits for foreign keys, too. */
static LockTupleMode
mode_of_write(const ShardCopy *copy, const ShardType *type)
{
	return shard_copy_wants_row(copy, type) ? LockTupleNoKeyExclusive : LockTupleExclusive;
}

/*
 * Whether the row in the slot could be locked in this mode without waiting. Locks of other transactions are found
 * without waiting for them.
 */
static bool
is_free(ShardStateTable *table, ShardCopy *copy, LockTupleMode mode, int *blocked_by)
{
	HeapTuple tuple = ExecFetchSlotHeapTuple(table->row, false, NULL);
	TransactionId xmax = HeapTupleHeaderGetRawXmax(tuple->t_data);
	bool multi = (tuple->t_data->t_infomask & HEAP_XMAX_IS_MULTI) != 0;
	ItemPointerData tid = copy->tid;
	TM_FailureData failure;
	TM_Result result;

	if ((tuple->t_data->t_infomask & HEAP_XMAX_INVALID) || is_at_most_locked(table, mode))
		return true;
	result = table_tuple_lock(table->rel, &tid, GetActiveSnapshot(), table->row,
							  GetCurrentCommandId(false), mode, LockWaitSkip, 0, &failure);
	if (result == TM_Ok)
		return true;
	*blocked_by = multi ? 0 : BackendXidGetPid(xmax);
	return false;
}

void
shard_state_read(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy)
{
	memset(copy, 0, sizeof(*copy));
	copy->known = true;
	copy->state_null = true;
	if (fetch_by_key(table, entity))
		read_row(table, entity, copy);
}

ShardRowStatus
shard_state_check(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy, int *blocked_by)
{
	*blocked_by = 0;
	if (!copy->known || !copy->exists || !fetch_by_tid(table, entity, copy))
	{
		shard_state_read(table, entity, copy);
		if (!copy->exists)
			return is_taken(table, entity, blocked_by) ? SHARD_ROW_CONTENDED : SHARD_ROW_OK;

		/* the slot holds a copy; the test for locks wants the tuple on its page */
		if (!fetch_by_tid(table, entity, copy))
			return SHARD_ROW_CONTENDED;
	}
	return is_free(table, copy, LockTupleNoKeyExclusive, blocked_by) ? SHARD_ROW_OK
																	 : SHARD_ROW_CONTENDED;
}

TimestampTz
shard_state_written(const ShardStateTable *table, const ShardCopy *copy)
{
	TimestampTz written;
	bool isnull;

	if (!copy->exists || table->rel == NULL)
		return 0;
	written = DatumGetTimestampTz(slot_getattr(table->row, table->updated_column, &isnull));
	return isnull || TIMESTAMP_NOT_FINITE(written) ? 0 : written;
}

bool
shard_state_is_overtaken(ShardStateTable *table, ShardEntity *entity, ShardCopy *copy)
{
	int blocked_by;

	if (!copy->exists)
		return is_taken(table, entity, &blocked_by);
	return !fetch_by_tid(table, entity, copy) ||
		   !is_free(table, copy, mode_of_write(copy, entity->local->type), &blocked_by);
}

/* Fills the slot "next": the old row's columns, with those that the extension writes replaced. */
static void
form_next(ShardStateTable *table, ShardEntity *entity)
{
	TupleTableSlot *slot = table->next;
	ShardCopy *now = &entity->now;

	ExecClearTuple(slot);
	if (now->exists)
	{
		slot_getallattrs(table->row);
		memcpy(slot->tts_values, table->row->tts_values,
			   slot->tts_tupleDescriptor->natts * sizeof(Datum));
		memcpy(slot->tts_isnull, table->row->tts_isnull,
			   slot->tts_tupleDescriptor->natts * sizeof(bool));
	}
	else
	{
		memset(slot->tts_values, 0, slot->tts_tupleDescriptor->natts * sizeof(Datum));
		memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
		shard_state_door_fill_defaults(table, slot);
	}
#define SET(number, value, null) \
	(slot->tts_values[(number) -1] = (value), slot->tts_isnull[(number) -1] = (null))
	SET(table->shard_column, Int32GetDatum(entity->shard), false);
	SET(table->entity_column, PointerGetDatum(cstring_to_text_with_len(entity->id, entity->id_len)),
		false);
	SET(table->version_column, Int64GetDatum(now->version + 1), false);
	SET(table->remembered_column, BoolGetDatum(now->remembered), false);
	/* start and stop messages leave it, since it says when a receive time-out is due (E37) */
#ifndef SHARD_MUTANT_STARTS_ARE_HEARD
	if (entity->spoken || !now->exists)
#endif
		SET(table->updated_column, TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()),
			false);
	if (table->composite == NULL)
		SET(table->state_column, now->state, now->state_null);
	else if (now->state_null)
	{
		for (int i = 0; i < table->composite->natts; i++)
			if (table->attribute[i] != 0)
				SET(table->attribute[i], (Datum) 0, true);
	}
	else
	{
		HeapTupleHeader header = DatumGetHeapTupleHeader(now->state);
		HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(header), .t_data = header};
		Datum *values = palloc(table->composite->natts * sizeof(Datum));
		bool *nulls = palloc(table->composite->natts * sizeof(bool));

		heap_deform_tuple(&tuple, table->composite, values, nulls);
		for (int i = 0; i < table->composite->natts; i++)
			if (table->attribute[i] != 0)
				SET(table->attribute[i], values[i], nulls[i]);
	}
#undef SET
	ExecStoreVirtualTuple(slot);
}

/* Whether the server may have written something else than the slot had. */
static bool
may_differ(Relation rel)
{
	const TriggerDesc *triggers = rel->trigdesc;
	const TupleConstr *constraints = RelationGetDescr(rel)->constr;

	return (triggers != NULL &&
			(triggers->trig_insert_before_row || triggers->trig_update_before_row)) ||
		   (constraints != NULL && constraints->has_generated_stored);
}

/* After a write: what the row says now; triggers and generated columns may have changed it. */
static void
take_written(ShardStateTable *table, ShardEntity *entity)
{
	TupleTableSlot *slot = table->next;
	ShardCopy *now = &entity->now;

	/* a trigger that suppresses the write leaves no TID behind */
	if (!ItemPointerIsValid(&slot->tts_tid))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("a trigger on state table \"%s\" suppressed the write of an entity's state",
						RelationGetRelationName(table->rel)),
				 errhint("Let BEFORE triggers on state tables return the row.")));
	now->known = now->exists = true;
	now->tid = slot->tts_tid;
	now->xmin = GetCurrentTransactionId();
	now->version++;
	if (may_differ(table->rel))
		now->state = read_state(table, entity->local, slot, now->remembered, &now->state_null);
}

/*
 * Tells a row that a handler of this turn changed by SQL from one changed
 * outside: the first is an error of the handler, no retry would help.
 */
static void
check_self_modified(ShardStateTable *table, ShardCopy *copy)
{
	HeapTuple tuple;

	if (ItemPointerGetBlockNumber(&copy->tid) >= table->blocks ||
		!table_tuple_fetch_row_version(table->rel, &copy->tid, SnapshotAny, table->row))
		return;
	tuple = ExecFetchSlotHeapTuple(table->row, false, NULL);
	if ((tuple->t_data->t_infomask & HEAP_XMAX_INVALID) == 0 &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(tuple->t_data)))
		ereport(ERROR, (errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
						errmsg("a handler changed the state row of its own entity by SQL"),
						errhint("Return the new state from the handler instead.")));
}

bool
shard_state_is_current(ShardStateTable *table, ShardEntity *entity)
{
	if (fetch_by_tid(table, entity, &entity->now))
		return true;
	check_self_modified(table, &entity->now);
	return false;
}

/*
 * Whether the next version of the row in the slot finds room beside it, as far as can be told before that is made: rows
 * are toasted from a quarter of a page on. Read without a lock, as nothing but work depends on it.
 */
static bool
has_room(ShardStateTable *table)
{
	Page page = BufferGetPage(((BufferHeapTupleTableSlot *) table->row)->buffer);
	Size size = ExecFetchSlotHeapTuple(table->row, false, NULL)->t_len;

	return !PageIsFull(page) && PageGetHeapFreeSpace(page) >= Max(BLCKSZ / 4, 2 * size);
}

/*
 * Whether something in the row's page may be pruned: the oldest that may be is not of this turn, which
 * cannot go before it has ended.
 */
static bool
has_remains(ShardStateTable *table)
{
	Page page = BufferGetPage(((BufferHeapTupleTableSlot *) table->row)->buffer);
	TransactionId oldest = ((PageHeader) page)->pd_prune_xid;

	return TransactionIdIsValid(oldest) && !TransactionIdIsCurrentTransactionId(oldest);
}

/* Prunes the page of the row in the slot, and fetches the row again. */
static bool
prune_page(ShardStateTable *table, ShardEntity *entity)
{
	Buffer buffer = ((BufferHeapTupleTableSlot *) table->row)->buffer;

	/* a page that a slot has pinned, too, is not pruned: the slot's tuple would be moved */
	IncrBufferRefCount(buffer);
	ExecClearTuple(table->row);
	heap_page_prune_opt(table->rel, buffer);
	ReleaseBuffer(buffer);
	return shard_state_is_current(table, entity);
}

bool
shard_state_write(ShardStateTable *table, ShardEntity *entity)
{
	const ShardType *type = entity->local->type;
	ShardCopy *now = &entity->now;
	int blocked_by;

	if (now->exists)
	{
		if (!shard_state_is_current(table, entity))
			return false;
		if (!has_room(table) && has_remains(table) && !prune_page(table, entity))
			return false;
		if (!is_free(table, now, mode_of_write(now, type), &blocked_by))
			return false;
	}
	else if (!shard_copy_wants_row(now, type))
		return true;
	shard_state_door_begin_write(table);
	table->estate->es_output_cid = GetCurrentCommandId(true);
	table->estate->es_snapshot = GetActiveSnapshot();
	ItemPointerCopy(&now->tid, &table->row->tts_tid);
	if (!shard_copy_wants_row(now, type))
	{
		shard_state_door_delete(table);
		memset(now, 0, sizeof(*now));
		now->known = now->state_null = true;
		return true;
	}
	form_next(table, entity);
	ItemPointerSetInvalid(&table->next->tts_tid);
	if (now->exists)
		shard_state_door_update(table);
	else
		shard_state_door_insert(table);
	take_written(table, entity);
	ResetPerTupleExprContext(table->estate);
	return true;
}
