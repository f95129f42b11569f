/*
 * hook/table_hook.c
 *		SQL commands on the extension's own tables (doc/protocol.md D3), and on those of states.
 *
 * Only the owner of these tables or a superuser may change them at all. What moves a table's file or packs it, row by
 * row and in order, the workers get along with: VACUUM, also FULL, and SET TABLESPACE. What makes other rows of them,
 * in another order or for other snapshots than before, or has them vanish in a crash, would lose messages in silence,
 * and is refused.
 *
 * State tables are their owners', who may do what they like, but for having states vanish in a crash: entities would go
 * on without them, and nobody would hear of it.
 *
 * VACUUM FULL begins to read where another scan of the table is, if such scans are synchronized; what it writes
 * would not be in the order of the log any more. So it does that alone.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/namespace.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"

#include "registry/catalog.h"
#include "registry/registry.h"
#include "hook/hook.h"

#include "base/compat.h"

static ProcessUtility_hook_type previous_hook = NULL;

/* The relation that a command names, if it is an internal one; else InvalidOid. */
static Oid
internal_relation(const RangeVar *name)
{
	const ShardCatalog *catalog;
	Oid relid = name == NULL ? InvalidOid : RangeVarGetRelid(name, NoLock, true);

	if (!OidIsValid(relid))
		return InvalidOid;
	catalog = shard_catalog_find();
	return catalog != NULL && get_rel_namespace(relid) == catalog->schema ? relid : InvalidOid;
}

/* Segments have a trigger for TRUNCATE, which lets our own pass. */
static bool
is_segment(Oid relid)
{
	const ShardCatalog *catalog = shard_catalog_get();

	for (int i = 0; i < SHARD_SEGMENTS; i++)
		if (relid == catalog->segment[i])
			return true;
	return false;
}

static void
refuse(const char *command, Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot %s \"%s\", which belongs to extension \"shard\"", command,
					get_rel_name(relid)),
			 errdetail("Workers that use the table meanwhile would lose messages."),
			 errhint("VACUUM, also FULL, SET TABLESPACE and storage parameters are possible.")));
}

/* Whether a part of ALTER TABLE leaves the rows as they are. */
static bool
is_harmless(const AlterTableCmd *command)
{
	switch (command->subtype)
	{
		case AT_SetRelOptions:
		case AT_ResetRelOptions:
		case AT_SetTableSpace:
		case AT_SetStatistics:
		case AT_ChangeOwner:
		case AT_ReplicaIdentity:
			return true;
		default:
			return false;
	}
}

/* What is looked for among the types: whose state table it is. */
typedef struct Owned
{
	Oid table;
	const char *type; /* NULL: no type's */
} Owned;

static void
look_for_table(ShardType *type, void *arg)
{
	Owned *owned = arg;

	if (type->state_table == owned->table)
		owned->type = type->name;
}

static void
refuse_unlogged(const RangeVar *name)
{
	Owned owned = {.table = RangeVarGetRelid(name, NoLock, true)};

	if (!OidIsValid(owned.table) || shard_catalog_find() == NULL)
		return;
	shard_registry_catch_up();
	shard_registry_each(look_for_table, &owned);
	if (owned.type != NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot set table \"%s\" unlogged", get_rel_name(owned.table)),
			 errdetail("It has the states of entity type \"%s\". A crash of the server would empty "
					   "it, and entities would go on without state.",
					   owned.type),
			 errhint("Keep what may be lost in another table, which the handler writes.")));
}

static void
check_alter(const AlterTableStmt *statement)
{
	Oid relid = internal_relation(statement->relation);
	ListCell *cell;

	if (!OidIsValid(relid))
	{
		foreach (cell, statement->cmds)
			if (lfirst_node(AlterTableCmd, cell)->subtype == AT_SetUnLogged)
				refuse_unlogged(statement->relation);
		return;
	}
	foreach (cell, statement->cmds)
		if (!is_harmless(lfirst_node(AlterTableCmd, cell)))
			refuse("alter table", relid);
}

static void
check_truncate(const TruncateStmt *statement)
{
	ListCell *cell;

	foreach (cell, statement->relations)
	{
		Oid relid = internal_relation(lfirst_node(RangeVar, cell));

		if (OidIsValid(relid) && !is_segment(relid))
			refuse("truncate table", relid);
	}
}

/* An order by an index would be another one; and rows that are appended to a segment enter none. */
static void
check_order(const char *command, const RangeVar *name)
{
	Oid relid = internal_relation(name);

	if (OidIsValid(relid))
		refuse(command, relid);
}

static void
check_statement(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_AlterTableStmt:
			check_alter((AlterTableStmt *) statement);
			break;
		case T_TruncateStmt:
			check_truncate((TruncateStmt *) statement);
			break;
		case T_ClusterStmt:
			check_order("cluster table", ((ClusterStmt *) statement)->relation);
			break;
		case T_IndexStmt:
			check_order("create an index on table", ((IndexStmt *) statement)->relation);
			break;
		default:
			break;
	}
}

static bool
is_vacuum_full(Node *statement)
{
	ListCell *cell;
	bool full = false;

	if (!IsA(statement, VacuumStmt))
		return false;
	foreach (cell, ((VacuumStmt *) statement)->options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "full") == 0)
			full = defGetBoolean(option);
	}
	return full;
}

static void
run(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree, ProcessUtilityContext context,
	ParamListInfo params, QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	if (previous_hook)
		previous_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest,
								qc);
}

/* The hook. */
static void
process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
				DestReceiver *dest, QueryCompletion *qc)
{
	bool synchronized = synchronize_seqscans;

	/* not while the tables are made or updated */
	if (IsUnderPostmaster && !creating_extension && !IsBinaryUpgrade)
		check_statement(pstmt->utilityStmt);
	if (!is_vacuum_full(pstmt->utilityStmt))
	{
		run(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
		return;
	}
	synchronize_seqscans = false;
	PG_TRY();
	{
		run(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	}
	PG_FINALLY();
	{
		synchronize_seqscans = synchronized;
	}
	PG_END_TRY();
}

void
shard_table_hook_init(void)
{
	previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
