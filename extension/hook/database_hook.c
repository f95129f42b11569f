/*
 * hook/database_hook.c
 *		DROP, ALTER and CREATE DATABASE while our workers run.
 *
 * These statements fail while another session is connected to the database, and the server waits five seconds at most.
 * So this hook looks at them first, and has our workers leave (bar.c). It does so only if the statement has a chance: a
 * role without rights to a database cannot stop its workers. Every other mistake is for the statement itself to report;
 * the bar then falls with its transaction.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/syscache.h"

#include "shared/bar.h"
#include "hook/hook.h"

#include "base/compat.h"

static ProcessUtility_hook_type previous_hook = NULL;

static void process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
							ProcessUtilityContext context, ParamListInfo params,
							QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc);
static void before_statement(Node *statement, ProcessUtilityContext context);
static void before_drop(DropdbStmt *statement);
static void before_create(CreatedbStmt *statement);
static void before_alter(AlterDatabaseStmt *statement, bool alone);
static void before_rename(RenameStmt *statement);
static Oid owned_database(const char *name);
static bool may_copy(Oid dboid);
static const char *string_option(List *options, const char *name);

/*
 * Chains the hook. From _PG_init.
 */
void
shard_database_hook_init(void)
{
	previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}

/*
 * The hook.
 */
static void
process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
				DestReceiver *dest, QueryCompletion *qc)
{
	before_statement(pstmt->utilityStmt, context);
	if (previous_hook)
		previous_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest,
								qc);
}

/*
 * Does what a statement on databases needs. All but RENAME are refused in a
 * transaction block, and then need nothing.
 */
static void
before_statement(Node *statement, ProcessUtilityContext context)
{
	bool alone =
		context == PROCESS_UTILITY_TOPLEVEL && !IsTransactionBlock() && !IsSubTransaction();

	if (!IsUnderPostmaster || shard_shared == NULL || !IsTransactionState())
		return;
	switch (nodeTag(statement))
	{
		case T_DropdbStmt:
			if (alone && !RecoveryInProgress())
				before_drop((DropdbStmt *) statement);
			break;
		case T_CreatedbStmt:
			if (alone && !RecoveryInProgress())
				before_create((CreatedbStmt *) statement);
			break;
		case T_AlterDatabaseStmt:
			if (!RecoveryInProgress())
				before_alter((AlterDatabaseStmt *) statement, alone);
			break;
		case T_RenameStmt:
			if (((RenameStmt *) statement)->renameType == OBJECT_DATABASE && !RecoveryInProgress())
				before_rename((RenameStmt *) statement);
			break;
		default:
			break;
	}
}

/*
 * DROP DATABASE, FORCE or not.
 */
static void
before_drop(DropdbStmt *statement)
{
	Oid dboid = owned_database(statement->dbname);

	if (!OidIsValid(dboid) || dboid == MyDatabaseId)
		return;
	shard_drop_hook_warn(dboid, statement->dbname);
	shard_bar_raise(dboid);
}

/*
 * Whether the current user may make databases. Not every minor release of the
 * server exports its own function.
 */
static bool
may_create_databases(void)
{
	HeapTuple role;
	bool may = superuser();

	role = may ? NULL : SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (HeapTupleIsValid(role))
	{
		may = ((Form_pg_authid) GETSTRUCT(role))->rolcreatedb;
		ReleaseSysCache(role);
	}
	return may;
}

/*
 * CREATE DATABASE: its template, which may be the database of this session. The
 * copy may have the extension.
 */
static void
before_create(CreatedbStmt *statement)
{
	const char *source = string_option(statement->options, "template");
	Oid dboid = get_database_oid(source ? source : "template1", true);

	if (!OidIsValid(dboid) || !may_create_databases() || !may_copy(dboid))
		return;
	shard_bar_raise(dboid);
	shard_bar_announce();
}

/*
 * ALTER DATABASE: SET TABLESPACE moves it. Other options may close or open it
 * to our workers.
 */
static void
before_alter(AlterDatabaseStmt *statement, bool alone)
{
	Oid dboid = owned_database(statement->dbname);

	if (!OidIsValid(dboid))
		return;
	if (string_option(statement->options, "tablespace") == NULL)
		shard_bar_announce();
	else if (alone && dboid != MyDatabaseId)
		shard_bar_raise(dboid);
}

/*
 * ALTER DATABASE RENAME.
 */
static void
before_rename(RenameStmt *statement)
{
	Oid dboid = owned_database(statement->subname);

	if (OidIsValid(dboid) && dboid != MyDatabaseId && may_create_databases())
		shard_bar_raise(dboid);
}

/*
 * The database of this name, if there is one and the current user owns it.
 */
static Oid
owned_database(const char *name)
{
	Oid dboid = get_database_oid(name, true);

	if (OidIsValid(dboid) && shard_database_ownercheck(dboid, GetUserId()))
		return dboid;
	return InvalidOid;
}

/*
 * Whether a user who may create databases may copy this one.
 */
static bool
may_copy(Oid dboid)
{
	HeapTuple tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	bool is_template;

	if (!HeapTupleIsValid(tuple))
		return false;
	is_template = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
	ReleaseSysCache(tuple);
	return is_template || shard_database_ownercheck(dboid, GetUserId());
}

/*
 * The value of an option, or NULL if it is not given, or without one.
 */
static const char *
string_option(List *options, const char *name)
{
	ListCell *cell;

	foreach (cell, options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0 && option->arg != NULL)
			return defGetString(option);
	}
	return NULL;
}
