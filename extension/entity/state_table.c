/*
 * entity/state_table.c
 *		State tables: opening them, what may be wrong with one, what is its own.
 *
 * The table belongs to the type's owner, who may alter it in any way. What a state table must keep is checked here: a
 * type whose table does not fit is suspended, as one whose handler does not, and the others go on.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "entity/state.h"
#include "entity/state_door.h"

#include "base/compat.h"

/* A reason why a table does not fit. */
typedef struct Problem
{
	int sqlstate;
	char *message; /* palloc'd; NULL: it fits */
} Problem;

/* The number of a column; 0 and a problem if it is not there, or not of the type. */
static AttrNumber
column(Relation rel, const char *name, Oid type, Problem *problem)
{
	TupleDesc desc = RelationGetDescr(rel);

	if (problem->message != NULL)
		return 0;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped || strcmp(NameStr(att->attname), name) != 0)
			continue;
		if (att->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
		{
			problem->sqlstate = ERRCODE_INVALID_TABLE_DEFINITION;
			problem->message = psprintf("column \"%s\" of state table \"%s\" is not stored", name,
										RelationGetRelationName(rel));
			return 0;
		}
		if (att->atttypid == type)
			return att->attnum;
		problem->sqlstate = ERRCODE_DATATYPE_MISMATCH;
		problem->message = psprintf("column \"%s\" of state table \"%s\" is of type %s, not %s",
									name, RelationGetRelationName(rel),
									format_type_be(att->atttypid), format_type_be(type));
		return 0;
	}
	problem->sqlstate = ERRCODE_UNDEFINED_COLUMN;
	problem->message =
		psprintf("state table \"%s\" lacks column \"%s\"", RelationGetRelationName(rel), name);
	return 0;
}

/* Which column each attribute of the composite state type is. */
static void
map_composite(ShardStateTable *table, const ShardType *type, Problem *problem)
{
	table->composite = lookup_rowtype_tupdesc(type->state_type, -1);
	table->attribute = palloc0(table->composite->natts * sizeof(AttrNumber));
	for (int i = 0; i < table->composite->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->composite, i);

		if (!att->attisdropped)
			table->attribute[i] = column(table->rel, NameStr(att->attname), att->atttypid, problem);
	}
}

/* Whether ids are looked up byte by byte, as entities are told apart: else 'a' may find the row of 'A'. */
static void
check_collation(ShardStateTable *table, Problem *problem)
{
	Form_pg_attribute att;

	if (problem->message != NULL)
		return;
	att = TupleDescAttr(RelationGetDescr(table->rel), table->entity_column - 1);
	if (get_collation_isdeterministic(att->attcollation))
		return;
	problem->sqlstate = ERRCODE_INVALID_TABLE_DEFINITION;
	problem->message =
		psprintf("column \"entity_id\" of state table \"%s\" has a nondeterministic collation",
				 RelationGetRelationName(table->rel));
}

/* Whether the primary key is that which rows are looked up by. */
static void
check_primary_key(ShardStateTable *table, Problem *problem)
{
	Relation index;
	const int2vector *key;

	if (problem->message != NULL)
		return;
	list_free(RelationGetIndexList(table->rel));
	table->primary_key = table->rel->rd_pkindex;
	if (OidIsValid(table->primary_key))
	{
		bool fits;

		index = index_open(table->primary_key, AccessShareLock);
		key = &index->rd_index->indkey;
		fits = index->rd_index->indimmediate && index->rd_index->indnkeyatts == 2 &&
			   key->values[0] == table->shard_column && key->values[1] == table->entity_column;
		index_close(index, NoLock);
		if (fits)
			return;
	}
	problem->sqlstate = ERRCODE_INVALID_TABLE_DEFINITION;
	problem->message = psprintf("the primary key of state table \"%s\" is not (shard, entity_id)",
								RelationGetRelationName(table->rel));
}

/* What SQL changes of a type with replicas has to be told (Q33). */
static void
check_triggers(ShardStateTable *table, const ShardType *type, Problem *problem)
{
	const char *lacks;

	if (problem->message != NULL || type->replicas == 0)
		return;
	lacks = shard_state_lacks_trigger(table->rel);
	if (lacks == NULL)
		return;
	problem->sqlstate = ERRCODE_INVALID_TABLE_DEFINITION;
	problem->message =
		psprintf("trigger \"%s\" of state table \"%s\" was dropped, or does not fire always, so "
				 "that changes by SQL would not come to its replicas; shard_start(), called as "
				 "before, makes it anew",
				 lacks, RelationGetRelationName(table->rel));
}

/* Finds the columns of the table in table->rel. */
static void
map_columns(ShardStateTable *table, const ShardType *type, Problem *problem)
{
	table->shard_column = column(table->rel, "shard", INT4OID, problem);
	table->entity_column = column(table->rel, "entity_id", TEXTOID, problem);
	table->version_column = column(table->rel, "version", INT8OID, problem);
	table->remembered_column = column(table->rel, "remembered", BOOLOID, problem);
	table->updated_column = column(table->rel, "updated_at", TIMESTAMPTZOID, problem);
	table->composite = NULL;
	table->state_column = 0;
	if (type->composite)
		map_composite(table, type, problem);
	else
		table->state_column = column(table->rel, "state", type->state_type, problem);
	check_primary_key(table, problem);
	check_collation(table, problem);
	check_triggers(table, type, problem);
}

/* Opens the table, which is locked already; if there is none, the problem says so. */
static void
open_locked(ShardStateTable *table, const ShardType *type, Problem *problem)
{
	table->rel = try_table_open(type->state_table, NoLock);
	if (table->rel == NULL)
	{
		problem->sqlstate = ERRCODE_UNDEFINED_TABLE;
		problem->message = pstrdup("its state table does not exist");
	}
	else if (table->rel->rd_rel->relkind != RELKIND_RELATION)
	{
		problem->sqlstate = ERRCODE_WRONG_OBJECT_TYPE;
		problem->message = pstrdup("its state table is no longer a table");
	}
	else
		map_columns(table, type, problem);
}

/*
 * Locks the table to look at it. A turn that has it locked already takes no other lock: it would fail behind a session
 * that waits for the turn in order to alter the table, and a message would be blamed for what is wrong with the table.
 */
static bool
lock_to_look(const ShardType *type)
{
	LOCKTAG tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, type->state_table);
	return shard_lock_held(&tag, RowExclusiveLock) ||
		   ConditionalLockRelationOid(type->state_table, AccessShareLock);
}

char *
shard_state_problem(const ShardType *type, int *sqlstate)
{
	ShardStateTable table = {0};
	Problem problem = {0};

	/* a session that has it locked now may be about to mend it */
	if (!lock_to_look(type))
		return NULL;
	open_locked(&table, type, &problem);
	if (table.composite != NULL)
		ReleaseTupleDesc(table.composite);
	if (table.rel != NULL)
		table_close(table.rel, NoLock);
	*sqlstate = problem.sqlstate;
	return problem.message;
}

bool
shard_state_open(ShardStateTable *table, const ShardType *type)
{
	Problem problem = {0};

	if (table->rel != NULL)
		return true;
	if (!ConditionalLockRelationOid(type->state_table, RowExclusiveLock))
		return false;
	open_locked(table, type, &problem);
	if (problem.message != NULL)
		ereport(ERROR, (errcode(problem.sqlstate), errmsg_internal("%s", problem.message)));
	table->blocks = RelationGetNumberOfBlocks(table->rel);
	table->row = table_slot_create(table->rel, NULL);
	table->next = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), &TTSOpsVirtual);
	table->estate = NULL;
	return true;
}

void
shard_state_forget(ShardStateTable *table)
{
	memset(table, 0, sizeof(*table));
}

void
shard_state_close(ShardStateTable *table)
{
	if (table->rel == NULL)
		return;
	shard_state_door_end_write(table);
	ExecDropSingleTupleTableSlot(table->row);
	ExecDropSingleTupleTableSlot(table->next);
	if (table->composite != NULL)
		ReleaseTupleDesc(table->composite);
	table_close(table->rel, NoLock);
	shard_state_forget(table);
}
