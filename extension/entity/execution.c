/*
 * entity/execution.c
 *		The handler that runs in this process, and statements that it must not run because others would pay for them.
 *
 * Comes from: call.c, which sets what runs in a region worker, and shard_try(). Asked by the functions that handlers call
 * (sql/send), and by those that a handler may not call.
 *
 * A turn is one transaction for the messages of many owners, and the server keeps for the whole of it which constraints
 * are deferred. Deferred checks are refused to code that runs as another role, so one handler that defers them would
 * have the handlers of others fail.
 */
#include "postgres.h"

#include "nodes/parsenodes.h"
#include "tcop/utility.h"

#include "entity/internal.h"
#include "registry/guest.h"

#include "base/compat.h"

ShardExecution *shard_execution = NULL;

static bool is_worker = false;

void
shard_execution_init(void)
{
	is_worker = true;
}

ShardExecution *
shard_execution_current(void)
{
	return shard_execution;
}

void
shard_execution_set_current(ShardExecution *execution)
{
	shard_execution = execution;
}

void
shard_execution_end_user_code(void)
{
	shard_security_end(&shard_turn.security);
}

bool
shard_execution_in_handler(void)
{
	return is_worker || shard_execution != NULL;
}

static ProcessUtility_hook_type previous_hook = NULL;

static void
check_statement(const Node *statement)
{
	if (!IsA(statement, ConstraintsSetStmt) ||
		!((const ConstraintsSetStmt *) statement)->deferred || !shard_execution_in_handler())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("cannot defer constraints in a handler"),
			 errdetail("The handler shares its transaction with other messages, also of other "
					   "owners."),
			 errhint("Constraints are checked at the end of each statement of a handler.")));
}

static void
process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
				DestReceiver *dest, QueryCompletion *qc)
{
	check_statement(pstmt->utilityStmt);
	shard_guest_check_statement(pstmt->utilityStmt);
	(previous_hook != NULL ? previous_hook : standard_ProcessUtility)(pstmt, queryString,
																	  readOnlyTree, context, params,
																	  queryEnv, dest, qc);
}

void
shard_execution_hook_init(void)
{
	previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
