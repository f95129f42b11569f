/*
 * entity/state_walk.c
 *		Which entities of a shard are remembered: its rows of the state table, by their keys, some at a time.
 *
 * Comes from: recovery.c. Rows are read as the table has them, in the turn's snapshot: no code of users runs.
 *
 * There is no index for them: of what is read most is wanted where a type remembers its entities, and a row that is not
 * takes a microsecond, once for each time that its shard comes up.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "entity/state.h"

#include "base/compat.h"

/* Rows that are looked at in one piece, whether or not any of them is remembered. */
#define MOST_ROWS 1000

SysScanDesc
shard_state_begin_scan(ShardStateTable *table, Relation key_index, int shard, const char *after,
					   int after_len)
{
	ScanKeyData key[2];
	Oid collation =
		TupleDescAttr(RelationGetDescr(table->rel), table->entity_column - 1)->attcollation;

	ScanKeyInit(&key[0], table->shard_column, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(shard));
	ScanKeyEntryInitialize(&key[1], 0, table->entity_column, BTGreaterStrategyNumber, TEXTOID,
						   collation, F_TEXT_GT,
						   PointerGetDatum(cstring_to_text_with_len(after, after_len)));
	return systable_beginscan_ordered(table->rel, key_index, GetActiveSnapshot(), 2, key);
}

const char *
shard_state_id(const ShardStateTable *table, HeapTuple tuple, int *len)
{
	bool isnull;
	Datum value = heap_getattr(tuple, table->entity_column, RelationGetDescr(table->rel), &isnull);
	struct varlena *id = PG_DETOAST_DATUM_PACKED(value);

	*len = (int) VARSIZE_ANY_EXHDR(id);
	return VARDATA_ANY(id);
}

static bool
is_remembered(const ShardStateTable *table, HeapTuple tuple)
{
	bool isnull;

	return DatumGetBool(
		heap_getattr(tuple, table->remembered_column, RelationGetDescr(table->rel), &isnull));
}

void
shard_state_walk(ShardStateTable *table, int shard, const char *after, int after_len, int limit,
				 ShardStatePiece *piece)
{
	Relation key_index = index_open(table->primary_key, AccessShareLock);
	SysScanDesc scan = shard_state_begin_scan(table, key_index, shard, after, after_len);
	HeapTuple tuple = NULL;
	HeapTuple seen = NULL; /* not remembered, and so not kept */

	memset(piece, 0, sizeof(*piece));
	for (int i = 0; i < MOST_ROWS && list_length(piece->remembered) < limit; i++)
	{
		CHECK_FOR_INTERRUPTS();
		tuple = systable_getnext_ordered(scan, ForwardScanDirection);
		if (tuple == NULL)
			break;
		if (is_remembered(table, tuple))
			piece->remembered = lappend(piece->remembered, heap_copytuple(tuple));
		else if (i == MOST_ROWS - 1)
			seen = heap_copytuple(tuple);
	}
	piece->last = tuple == NULL;
	if (seen == NULL && piece->remembered != NIL)
		seen = llast(piece->remembered);
	if (seen != NULL)
		piece->upto = shard_state_id(table, seen, &piece->upto_len);
	systable_endscan_ordered(scan);
	index_close(key_index, NoLock);
}
