/*
 * hook/drop_hook.c
 *		The warning when a database that is a member of a cluster is dropped, or its extension; and how a DROP or ALTER
 *		of the extension waits for the transactions that use it.
 *
 * The statement takes the lock of the extension (catalog.c) before the server locks one table of ours, so it cannot
 * deadlock with senders and turns, which take that lock first, too. Rights are looked at before, since a statement that
 * waits holds up all senders. For the same reason it waits only a short while for locks of others.
 *
 * Both drops are always allowed: a role that has to get rid of a database or of the extension can. But the other
 * members hear nothing of it, and take the node for one that may come back. So the role that drops one of them is told
 * what that means, and what to do instead, or afterwards.
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/guc.h"

#include "registry/catalog.h"
#include "hook/hook.h"
#include "shared/board.h"
#include "shared/shmem.h"

#include "base/compat.h"

static object_access_hook_type previous_hook = NULL;
static ProcessUtility_hook_type previous_utility = NULL;

static void
warn(const ShardBoardView *view, const char *what)
{
	ereport(
		WARNING,
		(errmsg("%s is node %d of a cluster with %d other member%s, and has not left it", what,
				view->node, view->members - 1, view->members == 2 ? "" : "s"),
		 errdetail(
			 "When this is dropped, the other members take the node for lost: the shards of the "
			 "node, and messages for them, wait in vain. States that are here, and messages that "
			 "have not been delivered, are lost."),
		 errhint("Call shard_leave() first. If it is too late, call shard_write_off(%d) at "
				 "another member: the shards of the node start again there, empty. If no "
				 "coordinator is left, call shard_force_voters() before that.",
				 view->node)));
}

/* A node that has left, or was written off, is fenced; a copy is not known. */
void
shard_drop_hook_warn(Oid dboid, const char *name)
{
	ShardDatabase *db;
	ShardBoardView view;

	LWLockAcquire(shard_shared->lock, LW_SHARED);
	db = shard_shmem_find_database(dboid);
	shard_board_get(db, &view);
	LWLockRelease(shard_shared->lock);
	if (view.known && !view.fenced && view.members > 1)
		warn(&view, name != NULL ? psprintf("database \"%s\"", name) : "this database");
}

/*
 * The extension is dropped: by its own command, or with its schema or owner.
 */
static void
object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (previous_hook)
		previous_hook(access, class_id, object_id, sub_id, arg);
	if (access == OAT_DROP && class_id == ExtensionRelationId && IsUnderPostmaster &&
		shard_shared != NULL)
	{
		const char *name = get_extension_name(object_id);

		if (name != NULL && strcmp(name, SHARD_EXTENSION_NAME) == 0)
		{
			shard_drop_hook_warn(MyDatabaseId, NULL);

			/* the extension may go with its schema or owner, and then no statement here names it */
			(void) shard_catalog_lock_alone(false);
		}
	}
}

/* Whether the statement drops or alters the extension, and its role has the right to. */
static bool
is_about_extension(Node *statement)
{
	Oid extension;
	bool named = false;

	if (IsA(statement, AlterExtensionStmt))
		named = strcmp(((AlterExtensionStmt *) statement)->extname, SHARD_EXTENSION_NAME) == 0;
	else if (IsA(statement, DropStmt) && ((DropStmt *) statement)->removeType == OBJECT_EXTENSION)
	{
		ListCell *cell;

		foreach (cell, ((DropStmt *) statement)->objects)
			named = named || strcmp(strVal(lfirst(cell)), SHARD_EXTENSION_NAME) == 0;
	}
	if (!named)
		return false;
	extension = get_extension_oid(SHARD_EXTENSION_NAME, true);
	return OidIsValid(extension) && shard_extension_ownercheck(extension, GetUserId());
}

/* How long a DROP or ALTER of the extension waits for a lock that the server takes: senders wait behind it. */
#define PATIENCE_MS 5000

static void
explain_lock_timeout(void *arg)
{
	if (geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE)
		errhint("Another transaction has sent messages and is open or prepared, waits for the "
				"answer to an ask, or has locked a "
				"table or view of the extension, or an object that depends on it: see pg_locks "
				"and pg_prepared_xacts. Senders wait behind a session that drops or "
				"alters the extension, so that session waits %d s at most.",
				PATIENCE_MS / 1000);
}

/*
 * Any role may lock the tables that it may read or send through, and keep them locked for long. Returns the nest level
 * of settings.
 */
static int
limit_lock_waits(ErrorContextCallback *explain)
{
	int level = NewGUCNestLevel();

	explain->callback = explain_lock_timeout;
	explain->previous = error_context_stack;
	error_context_stack = explain;
	if (LockTimeout == 0 || LockTimeout > PATIENCE_MS)
		(void) set_config_option("lock_timeout", CppAsString2(PATIENCE_MS), PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return level;
}

static void
process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
				DestReceiver *dest, QueryCompletion *qc)
{
	ErrorContextCallback explain = {0};
	int level = 0;

	if (IsTransactionState() && !RecoveryInProgress() && is_about_extension(pstmt->utilityStmt))
	{
		level = limit_lock_waits(&explain);
		(void) shard_catalog_lock_alone(false);
	}
	if (previous_utility)
		previous_utility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest,
								qc);
	if (level > 0)
	{
		error_context_stack = explain.previous;
		AtEOXact_GUC(true, level);
	}
}

void
shard_drop_hook_init(void)
{
	previous_hook = object_access_hook;
	object_access_hook = object_access;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
