/*
 * entity/state_door.c
 *		The one door through which the server's executor and planner come to a state table.
 *
 * A state table is its owner's: indexes on expressions, predicates, statistics, triggers, constraints, defaults,
 * generated columns, rules, policies, children are the owner's code, and some of it runs as soon as a statement is
 * planned. So such tables are written here only, and each function works only as the owner in a security-restricted
 * operation, and refuses a caller that forgot to begin that. Whatever else is done to a state table, also for a
 * superuser, reads and deletes rows as the table access method has them, which runs no user code. test/lint.pl sees to
 * it that no other file plans or executes anything on a table of users.
 *
 * If the process dies right here: nothing was kept that the transaction does not take along.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "registry/security.h"
#include "entity/state.h"
#include "entity/state_door.h"

#include "base/compat.h"

/* Code of the table's owner, as of a moment ago, is about to run: the owner may have given the table away since. */
static inline void
check_user(const ShardStateTable *table)
{
	shard_security_require(table->rel->rd_rel->relowner);
}

/*
 * Our own triggers tell what others write (Q33); what is written here, the caller tells. Switched off in the executor's copy
 * of the table's triggers; if there are no others, it has none to look at.
 */
static void
leave_out_ours(ResultRelInfo *result)
{
	TriggerDesc *triggers = result->ri_TrigDesc;
	bool others = false;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
		if (shard_state_is_our_trigger(&triggers->triggers[i]))
			triggers->triggers[i].tgenabled = TRIGGER_DISABLED;
		else
			others = true;
	if (!others)
		result->ri_TrigDesc = NULL;
}

void
shard_state_door_begin_write(ShardStateTable *table)
{
	EState *estate;

	if (table->estate != NULL)
		return;
	check_user(table);
	estate = CreateExecutorState();
	shard_init_range_table(estate, table->rel);
	table->result = makeNode(ResultRelInfo);
	InitResultRelInfo(table->result, table->rel, 1, NULL, 0);
	leave_out_ours(table->result);
	ExecOpenIndices(table->result, false);

	/* where after-triggers look for it, or they would open it once more */
	estate->es_opened_result_relations = list_make1(table->result);
	ShardEvalPlanQualInit(&table->epq, estate);
	AfterTriggerBeginQuery();
	table->estate = estate;
}

void
shard_state_door_end_write(ShardStateTable *table)
{
	if (table->estate == NULL)
		return;
	check_user(table);
	AfterTriggerEndQuery(table->estate);
	EvalPlanQualEnd(&table->epq);
	ExecCloseIndices(table->result);
	ExecResetTupleTable(table->estate->es_tupleTable, false);
	FreeExecutorState(table->estate);
	table->estate = NULL;
}

/* Whether the extension writes a column. */
static bool
is_ours(const ShardStateTable *table, AttrNumber number)
{
	if (number == table->shard_column || number == table->entity_column ||
		number == table->version_column || number == table->remembered_column ||
		number == table->updated_column || number == table->state_column)
		return true;
	for (int i = 0; table->composite != NULL && i < table->composite->natts; i++)
		if (table->attribute[i] == number)
			return true;
	return false;
}

/* Prepares the defaults of columns that the users added, once per turn and table. */
static void
init_defaults(ShardStateTable *table)
{
	TupleDesc desc = RelationGetDescr(table->rel);
	MemoryContext old = MemoryContextSwitchTo(table->estate->es_query_cxt);

	table->defaults = palloc0(desc->natts * sizeof(ExprState *));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Node *expr;

		if (att->attisdropped || att->attgenerated != '\0' || is_ours(table, att->attnum))
			continue;
		expr = build_column_default(table->rel, att->attnum);
		if (expr != NULL)
			table->defaults[i] = ExecInitExpr(expression_planner((Expr *) expr), NULL);
	}
	MemoryContextSwitchTo(old);
}

void
shard_state_door_fill_defaults(ShardStateTable *table, TupleTableSlot *slot)
{
	ExprContext *econtext = GetPerTupleExprContext(table->estate);

	check_user(table);
	if (table->defaults == NULL)
		init_defaults(table);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
		if (table->defaults[i] != NULL)
			slot->tts_values[i] =
				ExecEvalExprSwitchContext(table->defaults[i], econtext, &slot->tts_isnull[i]);
}

/* The command that writes: rows that earlier ones of the transaction have written, or a trigger's, are there for BEFORE triggers. */
static inline void
begin_command(ShardStateTable *table)
{
	check_user(table);
	table->estate->es_output_cid = GetCurrentCommandId(true);
}

void
shard_state_door_insert(ShardStateTable *table)
{
	begin_command(table);
	ExecSimpleRelationInsert(table->result, table->estate, table->next);
}

void
shard_state_door_update(ShardStateTable *table)
{
	begin_command(table);
	ExecSimpleRelationUpdate(table->result, table->estate, &table->epq, table->row, table->next);
}

void
shard_state_door_delete(ShardStateTable *table)
{
	begin_command(table);
	ExecSimpleRelationDelete(table->result, table->estate, &table->epq, table->row);
}

/* How many rows of the table itself there are now, up to the limit. */
static uint64
count_rows(Relation rel, uint64 limit)
{
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	uint64 count = 0;

	while (count < limit && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		count++;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return count;
}

ShardDoorRows
shard_state_door_rows(Oid table)
{
	ShardDoorRows rows = SHARD_DOOR_EMPTY;
	Relation rel;

	if (!ConditionalLockRelationOid(table, AccessShareLock))
		return SHARD_DOOR_BUSY;
	rel = try_relation_open(table, NoLock);
	if (rel != NULL && rel->rd_rel->relkind == RELKIND_RELATION && count_rows(rel, 1) > 0)
		rows = SHARD_DOOR_FILLED;
	if (rel != NULL)
		relation_close(rel, NoLock);
	UnlockRelationOid(table, AccessShareLock);
	return rows;
}

uint64
shard_state_door_count(Oid table)
{
	Relation rel = try_relation_open(table, AccessShareLock);
	uint64 count = 0;

	if (rel == NULL)
		return 0;
	if (rel->rd_rel->relkind == RELKIND_RELATION)
		count = count_rows(rel, PG_UINT64_MAX);
	relation_close(rel, NoLock);
	return count;
}

/* Whether there is a primary key by shards. */
static bool
has_shard_key(Relation rel, AttrNumber column)
{
	Relation index;
	bool fits;

	list_free(RelationGetIndexList(rel));
	if (column <= 0 || !OidIsValid(rel->rd_pkindex) ||
		TupleDescAttr(RelationGetDescr(rel), column - 1)->atttypid != INT4OID)
		return false;
	index = index_open(rel->rd_pkindex, NoLock);
	fits = index->rd_index->indkey.values[0] == column;
	index_close(index, NoLock);
	return fits;
}

/* The first shard behind that one, of those up to another one. */
static bool
next_shard(Relation rel, AttrNumber column, int32 after, int32 upto, Snapshot snapshot,
		   int32 *shard)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple tuple;
	bool isnull;

	ScanKeyInit(&keys[0], column, BTGreaterStrategyNumber, F_INT4GT, Int32GetDatum(after));
	ScanKeyInit(&keys[1], column, BTLessEqualStrategyNumber, F_INT4LE, Int32GetDatum(upto));
	scan = systable_beginscan(rel, rel->rd_pkindex, true, snapshot, 2, keys);
	tuple = systable_getnext(scan);
	if (tuple != NULL)
		*shard = DatumGetInt32(heap_getattr(tuple, column, RelationGetDescr(rel), &isnull));
	systable_endscan(scan);
	return tuple != NULL;
}

/* The same, with its primary key locked. */
static ShardDoorRows
read_shards(Relation rel, int32 after, int32 upto, bool soon, int32 *shards, int limit, int *count)
{
	AttrNumber column = get_attnum(RelationGetRelid(rel), "shard");
	Snapshot latest;
	SnapshotData dirty;

	if (!has_shard_key(rel, column))
		return count_rows(rel, 1) > 0 ? SHARD_DOOR_UNFIT : SHARD_DOOR_EMPTY;
	InitDirtySnapshot(dirty);
	latest = RegisterSnapshot(GetLatestSnapshot());
	while (*count < limit && next_shard(rel, column, after, upto, soon ? &dirty : latest, &after))
	{
		CHECK_FOR_INTERRUPTS();
		shards[(*count)++] = after;
	}
	UnregisterSnapshot(latest);
	return *count > 0 ? SHARD_DOOR_FILLED : SHARD_DOOR_EMPTY;
}

/* The same for a table that is locked already. */
static ShardDoorRows
lock_and_read(Relation rel, int32 after, int32 upto, bool soon, int32 *shards, int limit,
			  int *count)
{
	ShardDoorRows rows;
	Oid key;

	list_free(RelationGetIndexList(rel));
	key = rel->rd_pkindex;
	if (OidIsValid(key) && !ConditionalLockRelationOid(key, AccessShareLock))
		return SHARD_DOOR_BUSY;
	rows = read_shards(rel, after, upto, soon, shards, limit, count);
	if (OidIsValid(key))
		UnlockRelationOid(key, AccessShareLock);
	return rows;
}

ShardDoorRows
shard_state_door_shards(Oid table, int32 after, int32 upto, bool soon, int32 *shards, int limit,
						int *count)
{
	ShardDoorRows rows = SHARD_DOOR_EMPTY;
	Relation rel;

	*count = 0;
	if (!ConditionalLockRelationOid(table, AccessShareLock))
		return SHARD_DOOR_BUSY;
	rel = try_relation_open(table, NoLock);
	if (rel != NULL && rel->rd_rel->relkind == RELKIND_RELATION)
		rows = lock_and_read(rel, after, upto, soon, shards, limit, count);
	if (rel != NULL)
		relation_close(rel, NoLock);
	UnlockRelationOid(table, AccessShareLock);
	return rows;
}
