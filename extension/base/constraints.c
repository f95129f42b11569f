/*
 * base/constraints.c
 *		Constraints of the transaction.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "nodes/parsenodes.h"

#include "base/constraints.h"

#include "base/compat.h"

void
shard_constraints_immediate(void)
{
	ConstraintsSetStmt *statement = makeNode(ConstraintsSetStmt);

	statement->constraints = NIL;
	statement->deferred = false;
	AfterTriggerSetState(statement);
}
