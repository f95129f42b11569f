/*
 * sql/send/handler_guard.c
 *		What cannot be done from within a handler.
 */
#include "postgres.h"

#include "entity/execution.h"
#include "sql/send/handler_guard.h"

#include "base/compat.h"

void
shard_handler_guard_check(const char *what, const char *detail, const char *hint)
{
	if (shard_execution_in_handler())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot %s from within a handler", what),
						detail != NULL ? errdetail_internal("%s", detail) : 0,
						hint != NULL ? errhint("%s", hint) : 0));
}
