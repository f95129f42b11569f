/*
 * entity/replica_table.c
 *		shard_replica.<type>: states of shards whose home is another node, as a backup has them (Q10).
 *
 * Comes from: replica_apply.c. If the process dies right here, the transaction is gone with all that it has written.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "entity/replica_table.h"
#include "entity/state_door.h"

#include "base/compat.h"

Oid
shard_replica_table_of(const ShardType *type)
{
	Oid schema = get_namespace_oid(SHARD_REPLICA_SCHEMA, true);

	return OidIsValid(schema) ? get_relname_relid(type->name, schema) : InvalidOid;
}

char *
shard_replica_table_label(const ShardType *type)
{
	return psprintf("%s.%s", SHARD_REPLICA_SCHEMA, type->name);
}

/* The lock is kept to the end of the transaction, so the owner stays. */
static void
check_owner(const ShardStateCopy *copy, const ShardType *type)
{
	if (copy->table.rel->rd_rel->relowner == type->owner)
		return;
	ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("table %s belongs to another role than the state table", copy->label)));
}

void
shard_replica_table_open(ShardStateCopy *copy, const ShardType *type, Oid table)
{
	ShardType *twin = palloc(sizeof(ShardType));

	*twin = *type;
	twin->state_table = table;
	twin->replicas = 0; /* nobody tells what is changed in it */
	memset(copy, 0, sizeof(*copy));
	copy->type = twin;
	copy->label = shard_replica_table_label(type);
	copy->row =
		AllocSetContextCreate(CurrentMemoryContext, "shard replica row", ALLOCSET_DEFAULT_SIZES);
	if (!shard_state_open(&copy->table, twin))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("table %s is locked by another transaction", copy->label)));
	check_owner(copy, type);
	shard_state_copy_begin_write(copy);
	copy->table.estate->es_snapshot = GetActiveSnapshot();
}

void
shard_replica_table_columns(ShardStateCopy *copy, const char *columns, int length, int32 node,
							int32 self)
{
	ShardReader reader = {columns, columns + length};

	shard_state_copy_match(copy, &reader, node, self);
}

/* The entity's row, in the slot "row". False: there is none. */
static bool
find_row(ShardStateCopy *copy, int32 shard, const ShardTurnImage *image)
{
	ShardStateTable *table = &copy->table;
	Oid collation =
		TupleDescAttr(RelationGetDescr(table->rel), table->entity_column - 1)->attcollation;
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple tuple;
	bool found;

	ScanKeyInit(&key[0], table->shard_column, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(shard));
	ScanKeyEntryInitialize(&key[1], 0, table->entity_column, BTEqualStrategyNumber, TEXTOID,
						   collation, F_TEXTEQ,
						   PointerGetDatum(
							   cstring_to_text_with_len(image->entity, image->entity_len)));
	scan = systable_beginscan(table->rel, table->primary_key, true, GetActiveSnapshot(), 2, key);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple);
	ExecClearTuple(table->row);
	if (found)
	{
		ExecForceStoreHeapTuple(tuple, table->row, false);
		table->row->tts_tid = tuple->t_self;
	}
	systable_endscan(scan);
	return found;
}

/* Nobody else writes the row, but its owner may have locked it by SQL; that is not waited for. */
static void
lock_row(ShardStateCopy *copy)
{
	ShardStateTable *table = &copy->table;
	ItemPointerData tid = table->row->tts_tid;
	TM_FailureData failure;

	if (table_tuple_lock(table->rel, &tid, GetActiveSnapshot(), table->row,
						 GetCurrentCommandId(false), LockTupleExclusive, LockWaitSkip, 0,
						 &failure) != TM_Ok)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("another transaction holds a row of table %s", copy->label)));
}

void
shard_replica_table_put(ShardStateCopy *copy, int32 shard, const ShardTurnImage *image)
{
	MemoryContext old = MemoryContextSwitchTo(copy->row);
	ShardStateTable *table = &copy->table;
	ShardReader row = {image->row, image->row + image->row_len};
	bool found = find_row(copy, shard, image);

	if (found)
		lock_row(copy);
	if (image->row == NULL)
	{
		if (found)
			shard_state_door_delete(table);
	}
	else
	{
		shard_state_copy_form(copy, shard, &row);
		if (found)
			shard_state_door_update(table);
		else
			shard_state_door_insert(table);
		if (!ItemPointerIsValid(&table->next->tts_tid))
			ereport(ERROR, (errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
							errmsg("a trigger on table %s suppressed a row", copy->label)));
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(copy->row);
	ResetPerTupleExprContext(table->estate);
	CHECK_FOR_INTERRUPTS();
}
