/*
 * handler.c
 *	  A counter as a handler in C: the lower bound of what a handler costs.
 *
 * The same counter exists in PL/pgSQL and SQL in sql/schema.sql.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_counter);

/*
 * bench_counter(state int8, message jsonb) returns int8
 *
 * Adds the message's "delta" to the state; no state counts as zero.
 */
Datum
bench_counter(PG_FUNCTION_ARGS)
{
	int64 count = PG_ARGISNULL(0) ? 0 : PG_GETARG_INT64(0);
	Jsonb *message = PG_GETARG_JSONB_P(1);
	JsonbValue delta;

	if (getKeyJsonValueFromContainer(&message->root, "delta", strlen("delta"), &delta) == NULL ||
		delta.type != jbvNumeric)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("message has no numeric \"delta\"")));

	count += DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(delta.val.numeric)));
	PG_RETURN_INT64(count);
}
