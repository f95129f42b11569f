/*
 * entity/execution.c
 *		Statements that a handler must not run because others would pay for them.
 *
 * A turn is one transaction for the messages of many owners, and the server keeps for the whole of it which
 * constraints are deferred. Deferred checks are refused to code that runs as somebody else, so one handler that
 * defers them would have those of others fail.
 */
#include "postgres.h"

#include "nodes/parsenodes.h"
#include "tcop/utility.h"

#include "entity/turn.h"
#include "registry/guest.h"

#include "base/compat.h"

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
			 errdetail("Its transaction is that of other messages, too, also of other owners."),
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
