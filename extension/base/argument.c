/*
 * base/argument.c
 *		Arguments of SQL functions.
 */
#include "postgres.h"

#include "base/argument.h"

#include "base/compat.h"

void
shard_argument_check(FunctionCallInfo fcinfo, int number, const char *message)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg_internal("%s", message)));
}
