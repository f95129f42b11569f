/*
 * entity/state_purge.c
 *		Rows of a shard leave this database: it lives elsewhere, or its state is lost.
 *
 * Between turns of a region worker (M23), or before a copy comes in their place (import_stage.c); never in a turn,
 * since a user may hold the rows for any time.
 *
 * If the process dies right here: what the transaction deleted is there again. The deletion is steered by the shard's
 * ownership row, which is deleted last.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "entity/state_purge.h"

#include "base/compat.h"

/* A scan of the rows that are left. */
typedef struct PurgeScan
{
	Relation rel;
	SysScanDesc desc;
	AttrNumber entity_column; /* 0: the rows come in no order that could be remembered */
} PurgeScan;

/* The table, unless it is not there or another transaction has it. */
static Relation
open_table(ShardStatePurge *purge, Oid table)
{
	Relation rel;

	if (!ConditionalLockRelationOid(table, RowExclusiveLock))
	{
		purge->left = purge->busy = true;
		return NULL;
	}
	rel = try_table_open(table, NoLock);
	if (rel != NULL && rel->rd_rel->relkind != RELKIND_RELATION)
	{
		table_close(rel, NoLock);
		rel = NULL;
	}
	return rel;
}

/* Whether the primary key still is the one by which a shard's rows are found in order. */
static bool
key_fits(Relation rel, AttrNumber shard_column, AttrNumber entity_column)
{
	Relation index;
	const int2vector *key;
	bool fits;

	list_free(RelationGetIndexList(rel));
	if (!OidIsValid(rel->rd_pkindex) || entity_column <= 0 ||
		TupleDescAttr(RelationGetDescr(rel), entity_column - 1)->atttypid != TEXTOID)
		return false;
	index = index_open(rel->rd_pkindex, AccessShareLock);
	key = &index->rd_index->indkey;
	fits = index->rd_index->indnkeyatts == 2 && key->values[0] == shard_column &&
		   key->values[1] == entity_column;
	index_close(index, AccessShareLock);
	return fits;
}

/* Begins after what the calls before have left behind. False: the table can have no rows of a shard. */
static bool
begin_scan(PurgeScan *scan, const ShardStatePurge *purge, int32 shard)
{
	Oid table = RelationGetRelid(scan->rel);
	AttrNumber shard_column = get_attnum(table, "shard");
	AttrNumber entity_column = get_attnum(table, "entity_id");
	ScanKeyData key[2];
	int keys = 1;
	bool fits;

	if (shard_column <= 0 ||
		TupleDescAttr(RelationGetDescr(scan->rel), shard_column - 1)->atttypid != INT4OID)
		return false;
	fits = key_fits(scan->rel, shard_column, entity_column);
	ScanKeyInit(&key[0], shard_column, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(shard));
	if (fits && purge->after != NULL)
		ScanKeyEntryInitialize(
			&key[keys++], 0, entity_column, BTGreaterStrategyNumber, TEXTOID,
			TupleDescAttr(RelationGetDescr(scan->rel), entity_column - 1)->attcollation, F_TEXT_GT,
			PointerGetDatum(cstring_to_text_with_len(purge->after, purge->after_len)));
	scan->entity_column = fits ? entity_column : 0;
	scan->desc = systable_beginscan(scan->rel, fits ? scan->rel->rd_pkindex : InvalidOid, fits,
									GetActiveSnapshot(), keys, key);
	return true;
}

/* Remembers the last row that was looked at: dead ones before it need not be met again. */
static void
remember(ShardStatePurge *purge, const PurgeScan *scan, HeapTuple tuple)
{
	bool isnull;
	struct varlena *id;

	if (scan->entity_column == 0 || purge->memory == NULL)
		return;
	id = PG_DETOAST_DATUM_PACKED(
		heap_getattr(tuple, scan->entity_column, RelationGetDescr(scan->rel), &isnull));
	if (purge->after != NULL)
		pfree(purge->after);
	purge->after_len = VARSIZE_ANY_EXHDR(id);
	purge->after = MemoryContextAlloc(purge->memory, Max(purge->after_len, 1));
	memcpy(purge->after, VARDATA_ANY(id), purge->after_len);
}

/* Deletes a row, unless another transaction holds it, or has just changed it. */
static bool
delete_row(Relation rel, HeapTuple tuple)
{
	TM_FailureData failure;

	return table_tuple_delete(rel, &tuple->t_self, GetCurrentCommandId(true), GetActiveSnapshot(),
							  InvalidSnapshot, false, &failure, false) == TM_Ok;
}

/*
 * Deletes what the scan finds. Returns whether that was all. A row that another transaction holds counts, too, where
 * the next call can go on behind it: trying costs no less than deleting.
 */
static bool
purge_rows(ShardStatePurge *purge, const PurgeScan *scan, int64 limit)
{
	HeapTuple tuple;
	HeapTuple last = NULL;
	int64 tried = 0;

	while ((tuple = systable_getnext(scan->desc)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (tried == limit)
		{
			if (last != NULL)
				remember(purge, scan, last);
			return false;
		}
		if (!delete_row(scan->rel, tuple))
		{
			purge->held = true;
			if (scan->entity_column == 0)
				continue;
		}
		else if (TransactionIdIsNormal(purge->since) &&
				 TransactionIdFollows(HeapTupleHeaderGetRawXmin(tuple->t_data), purge->since))
			purge->changed++;
		if (++tried == limit)
			last = heap_copytuple(tuple);
	}
	return true;
}

/* All rows have been met: rows that were held, and rows that were left behind, are looked for from the first row on. */
static void
end_round(ShardStatePurge *purge)
{
	purge->busy = purge->held;
	purge->left = purge->held || purge->after != NULL;
	purge->held = false;
	if (purge->after != NULL)
		pfree(purge->after);
	purge->after = NULL;
}

void
shard_state_purge(ShardStatePurge *purge, Oid table, int32 shard, int64 limit)
{
	PurgeScan scan = {0};

	purge->changed = 0;
	purge->left = purge->busy = false;
	scan.rel = open_table(purge, table);
	if (scan.rel == NULL)
		return;
	if (!begin_scan(&scan, purge, shard))
		end_round(purge);
	else
	{
		if (purge_rows(purge, &scan, limit))
			end_round(purge);
		else
			purge->left = true;
		systable_endscan(scan.desc);
	}
	table_close(scan.rel, NoLock);
}

void
shard_state_purge_report(const ShardStatePurge *purge, const char *type_name, int32 shard)
{
	if (purge->changed > 0)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg(INT64_FORMAT
						" states of shard %d of entity type \"%s\" were changed by SQL "
						"after the shard had left, and are deleted",
						purge->changed, shard, type_name),
				 errhint("Change states by messages: they go to where the entity lives.")));
}
