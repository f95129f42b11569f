/*
 * entity/timer_table.c
 *		Table shard.timer: by an entity's name, and by lane in the order of the times.
 *
 * Comes from: timer.c, for one timer; timer_due.c, for what is due. Nothing else writes rows of a shard that is active
 * here, so what a turn has found stays true in it.
 *
 * Rows are read and written as the server does with catalogs: there are tens of thousands in a second. A firing's row is
 * looked for where it was when it was due, and found by its key if it is not there. They are seen as they are now (SnapshotSelf): committed, or as this
 * transaction has left them. If the process dies right here, nothing of the transaction was done.
 *
 * A timer that repeats leaves a row behind with each firing, and none of these goes as long as any transaction of the
 * database is older. So the time is a part of the key: the row that counts is found from the end, before those, and what
 * is written is compared with none of them. That a name is there once is not the index's doing: timer.c looks before it
 * inserts.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "core/base/message.h"
#include "entity/record.h"
#include "entity/timer.h"
#include "registry/catalog.h"

#include "base/compat.h"

/* Columns, as in install/10-tables.sql. */
enum
{
	TIMER_TYPE = 1,
	TIMER_SHARD,
	TIMER_ENTITY,
	TIMER_NAME,
	TIMER_LANE,
	TIMER_DUE,
	TIMER_GENERATION,
	TIMER_FIRST,
	TIMER_PERIOD,
	TIMER_EVERY,
	TIMER_ZONE,
	TIMER_MISSED,
	TIMER_FIRED,
	TIMER_IDLE,
	TIMER_MESSAGE,
	TIMER_COLUMNS = TIMER_MESSAGE
};

typedef struct Row
{
	Datum value[TIMER_COLUMNS];
	bool null[TIMER_COLUMNS];
} Row;

#define VALUE(row, column) ((row)->value[(column) -1])
#define ISNULL(row, column) ((row)->null[(column) -1])

static Relation
open_table(LOCKMODE mode)
{
	return table_open(shard_catalog_get()->timer, mode);
}

/* Locks are kept until the end of the transaction. */
static void
close_table(Relation rel)
{
	table_close(rel, NoLock);
}

/* After a change: what this transaction has written it may change again. */
static void
close_changed(Relation rel)
{
	close_table(rel);
	CommandCounterIncrement();
}

/* A text, copied. */
static const char *
copy_text(Datum value, int *len)
{
	struct varlena *text = PG_DETOAST_DATUM_PACKED(value);

	*len = VARSIZE_ANY_EXHDR(text);
	return pnstrdup(VARDATA_ANY(text), *len);
}

/* All but the message. */
static void
read_row(HeapTuple tuple, TupleDesc desc, Row *row, ShardTimer *timer)
{
	int length;

	memset(timer, 0, sizeof(*timer));
	heap_deform_tuple(tuple, desc, row->value, row->null);
	timer->tid = tuple->t_self;
	timer->name = copy_text(VALUE(row, TIMER_NAME), &timer->name_len);
	timer->due = DatumGetTimestampTz(VALUE(row, TIMER_DUE));
	timer->generation = DatumGetInt64(VALUE(row, TIMER_GENERATION));
	timer->first = DatumGetTimestampTz(VALUE(row, TIMER_FIRST));
	timer->period = DatumGetInt64(VALUE(row, TIMER_PERIOD));
	timer->repeats = !ISNULL(row, TIMER_EVERY);
	if (timer->repeats)
		timer->every = *DatumGetIntervalP(VALUE(row, TIMER_EVERY));
	if (!ISNULL(row, TIMER_ZONE))
		timer->zone = copy_text(VALUE(row, TIMER_ZONE), &length);
	timer->missed = (ShardTimerMissed) DatumGetInt16(VALUE(row, TIMER_MISSED));
	timer->fired = DatumGetInt64(VALUE(row, TIMER_FIRED));
	if (!ISNULL(row, TIMER_IDLE))
		timer->idle = DatumGetInt64(VALUE(row, TIMER_IDLE));
}

static void
read_owner(const Row *row, ShardTimerOwner *owner)
{
	owner->type_id = DatumGetInt32(VALUE(row, TIMER_TYPE));
	owner->shard = DatumGetInt32(VALUE(row, TIMER_SHARD));
	owner->entity = copy_text(VALUE(row, TIMER_ENTITY), &owner->entity_len);
}

/* A bytea, copied, where jsonb would lie in memory. */
static void
read_message(const Row *row, ShardTimer *timer)
{
	struct varlena *bytes = PG_DETOAST_DATUM_COPY(VALUE(row, TIMER_MESSAGE));

	timer->message = VARDATA(bytes);
	timer->message_len = VARSIZE(bytes) - VARHDRSZ;
}

static Datum
text_datum(const char *text, int len)
{
	return PointerGetDatum(cstring_to_text_with_len(text, len));
}

bool
shard_timer_find(const ShardTimerOwner *owner, const char *name, int name_len, ShardTimer *timer)
{
	Relation rel = open_table(RowExclusiveLock);
	Relation index = index_open(shard_catalog_get()->timer_pkey, AccessShareLock);
#ifdef SHARD_MUTANT_TIMER_READ_AGAIN
	ScanDirection from_the_end = ForwardScanDirection;
#else
	ScanDirection from_the_end = BackwardScanDirection;
#endif
	ScanKeyData key[4];
	SysScanDesc scan;
	HeapTuple tuple;
	Row row;
	bool found;

	ScanKeyInit(&key[0], TIMER_TYPE, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(owner->type_id));
	ScanKeyInit(&key[1], TIMER_SHARD, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(owner->shard));
	ScanKeyInit(&key[2], TIMER_ENTITY, BTEqualStrategyNumber, F_TEXTEQ,
				text_datum(owner->entity, owner->entity_len));
	ScanKeyInit(&key[3], TIMER_NAME, BTEqualStrategyNumber, F_TEXTEQ, text_datum(name, name_len));
	scan = systable_beginscan_ordered(rel, index, SnapshotSelf, 4, key);
	tuple = systable_getnext_ordered(scan, from_the_end);
	found = HeapTupleIsValid(tuple);
	if (found)
	{
		read_row(tuple, RelationGetDescr(rel), &row, timer);
		read_message(&row, timer);
	}
	systable_endscan_ordered(scan);
	index_close(index, NoLock);
	close_table(rel);
	return found;
}

static bool
is_same_text(const char *one, int one_len, const char *other, int other_len)
{
	return one_len == other_len && memcmp(one, other, one_len) == 0;
}

/* Whether a row that was found where it was said to be is the firing's. Its place may be another row's by now. */
static bool
is_firing(const Row *row, const ShardTimerOwner *owner, const ShardTimer *timer,
		  const ShardTimer *firing)
{
	ShardTimerOwner found;

#ifdef SHARD_MUTANT_TIMER_PLACE_BELIEVED
	return true;
#endif
	if (timer->due != firing->due || timer->generation != firing->generation ||
		!is_same_text(timer->name, timer->name_len, firing->name, firing->name_len))
		return false;
	read_owner(row, &found);
	return found.type_id == owner->type_id && found.shard == owner->shard &&
		   is_same_text(found.entity, found.entity_len, owner->entity, owner->entity_len);
}

bool
shard_timer_find_firing(const ShardTimerOwner *owner, const ShardTimer *firing, ShardTimer *timer)
{
	HeapTupleData tuple = {.t_self = firing->tid};
	bool found = false;
	Relation rel;
	Buffer buffer;
	Row row;

	if (!ItemPointerIsValid(&firing->tid))
		return false;
	/* the lock keeps VACUUM from giving back pages behind the one that is read */
	rel = open_table(RowExclusiveLock);
	if (ItemPointerGetBlockNumber(&firing->tid) < RelationGetNumberOfBlocks(rel) &&
		heap_fetch(rel, SnapshotSelf, &tuple, &buffer, false))
	{
		read_row(&tuple, RelationGetDescr(rel), &row, timer);
		found = is_firing(&row, owner, timer, firing);
		if (found)
			read_message(&row, timer);
		ReleaseBuffer(buffer);
	}
	close_table(rel);
	return found;
}

static HeapTuple
form(Relation rel, const ShardTimerOwner *owner, const ShardTimer *timer)
{
	Row row = {0};
	bytea *message = palloc(timer->message_len + VARHDRSZ);
	Interval *every = palloc(sizeof(Interval));

	SET_VARSIZE(message, timer->message_len + VARHDRSZ);
	memcpy(VARDATA(message), timer->message, timer->message_len);
	*every = timer->every;
	VALUE(&row, TIMER_TYPE) = Int32GetDatum(owner->type_id);
	VALUE(&row, TIMER_SHARD) = Int32GetDatum(owner->shard);
	VALUE(&row, TIMER_ENTITY) = text_datum(owner->entity, owner->entity_len);
	VALUE(&row, TIMER_NAME) = text_datum(timer->name, timer->name_len);
	VALUE(&row, TIMER_LANE) =
		Int16GetDatum((int16) shard_message_lane(owner->type_id, owner->shard));
	VALUE(&row, TIMER_DUE) = TimestampTzGetDatum(timer->due);
	VALUE(&row, TIMER_GENERATION) = Int64GetDatum(timer->generation);
	VALUE(&row, TIMER_FIRST) = TimestampTzGetDatum(timer->first);
	VALUE(&row, TIMER_PERIOD) = Int64GetDatum(timer->period);
	VALUE(&row, TIMER_EVERY) = IntervalPGetDatum(every);
	ISNULL(&row, TIMER_EVERY) = !timer->repeats;
	ISNULL(&row, TIMER_ZONE) = timer->zone == NULL;
	if (timer->zone != NULL)
		VALUE(&row, TIMER_ZONE) = text_datum(timer->zone, (int) strlen(timer->zone));
	VALUE(&row, TIMER_MISSED) = Int16GetDatum((int16) timer->missed);
	VALUE(&row, TIMER_FIRED) = Int64GetDatum(timer->fired);
	VALUE(&row, TIMER_IDLE) = Int64GetDatum(timer->idle);
	ISNULL(&row, TIMER_IDLE) = timer->idle == 0;
	VALUE(&row, TIMER_MESSAGE) = PointerGetDatum(message);
	return heap_form_tuple(RelationGetDescr(rel), row.value, row.null);
}

/* For the turn's record, if the shard has replicas. */
static void
note(const ShardTimerOwner *owner, const ShardTimer *timer)
{
	shard_record_timer(owner->type_id, owner->shard, owner->entity, owner->entity_len, timer->name,
					   timer->name_len);
}

void
shard_timer_insert(const ShardTimerOwner *owner, const ShardTimer *timer)
{
	Relation rel = open_table(RowExclusiveLock);

	CatalogTupleInsert(rel, form(rel, owner, timer));
	close_changed(rel);
	note(owner, timer);
}

void
shard_timer_delete(const ShardTimerOwner *owner, const ShardTimer *timer)
{
	Relation rel = open_table(RowExclusiveLock);
	ItemPointerData tid = timer->tid;

	CatalogTupleDelete(rel, &tid);
	close_changed(rel);
	note(owner, timer);
}

void
shard_timer_update(const ShardTimerOwner *owner, const ShardTimer *timer)
{
	Relation rel = open_table(RowExclusiveLock);
	HeapTuple tuple = form(rel, owner, timer);

	tuple->t_self = timer->tid;
	CatalogTupleUpdate(rel, &tuple->t_self, tuple);
	close_changed(rel);
	note(owner, timer);
}

/* Visits the rows of a scan. *any: there were some. False: the visitor has had enough. */
static bool
visit_rows(Relation rel, Relation index, ScanKey key, int keys, ShardTimerVisit visit, void *arg,
		   bool *any)
{
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "shard timers", ALLOCSET_DEFAULT_SIZES);
	SysScanDesc scan = systable_beginscan_ordered(rel, index, SnapshotSelf, keys, key);
	bool more = true;
	HeapTuple tuple;

	while (more && (tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(context);
		ShardTimerOwner owner;
		ShardTimer timer;
		Row row;

		*any = true;
		read_row(tuple, RelationGetDescr(rel), &row, &timer);
		read_owner(&row, &owner);
		more = visit(&owner, &timer, arg);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	systable_endscan_ordered(scan);
	MemoryContextDelete(context);
	return more;
}

bool
shard_timer_each(int lane, ShardTimerPlace after, ShardTimerVisit visit, void *arg)
{
	Relation rel = open_table(AccessShareLock);
	Relation index = index_open(shard_catalog_get()->timer_due, AccessShareLock);
	bool any = false;
	ScanKeyData key[3];

	/* first those of the same time, then later ones; a scan changes its keys */
	ScanKeyInit(&key[0], TIMER_LANE, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum((int16) lane));
	ScanKeyInit(&key[1], TIMER_DUE, BTEqualStrategyNumber, F_TIMESTAMPTZ_EQ,
				TimestampTzGetDatum(after.due));
	ScanKeyInit(&key[2], TIMER_GENERATION, BTGreaterStrategyNumber, F_INT8GT,
				Int64GetDatum(after.generation));
	if (after.due == DT_NOBEGIN || visit_rows(rel, index, key, 3, visit, arg, &any))
	{
		ScanKeyInit(&key[0], TIMER_LANE, BTEqualStrategyNumber, F_INT2EQ,
					Int16GetDatum((int16) lane));
		ScanKeyInit(&key[1], TIMER_DUE, BTGreaterStrategyNumber, F_TIMESTAMPTZ_GT,
					TimestampTzGetDatum(after.due));
		(void) visit_rows(rel, index, key, 2, visit, arg, &any);
	}
	index_close(index, NoLock);
	table_close(rel, NoLock);
	return any;
}
