/*
 * sql/send/request_api.c
 *		shard_request, by which the handler of an entity asks another entity; and shard_response (E48, E50).
 *
 * The request is a message, and a timer of the entity that asks, both of the handler's transaction. What can be judged
 * here is refused here, and nothing is sent.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "base/argument.h"
#include "base/duration.h"
#include "entity/request.h"
#include "sql/send/api.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_request);
PG_FUNCTION_INFO_V1(shard_response);

/* The shortest time that a request waits. */
#define LEAST_TIMEOUT (10 * INT64CONST(1000))

/* The handler that asks. */
static ShardExecution *
require_asker(void)
{
	ShardExecution *execution = shard_execution_current();

	if (execution == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("shard_request() can be called in a handler only"),
						errdetail("The answer is a message to the entity whose handler it is."),
						errhint("A session asks with shard_ask().")));
	return execution;
}

static void
check_arguments(FunctionCallInfo fcinfo)
{
	shard_argument_check(fcinfo, 0, "entity type must not be null");
	shard_argument_check(fcinfo, 1, "entity id must not be null");
	shard_argument_check(fcinfo, 2, "message must not be null");
	shard_argument_check(fcinfo, 3, "timeout must not be null");
}

/* When the time is over that an answer may take. */
static TimestampTz
end_of(const Interval *timeout)
{
	int64 length = shard_duration_from_interval(timeout);
	TimestampTz now = GetCurrentTimestamp();

	if (length < LEAST_TIMEOUT || length >= END_TIMESTAMP - now)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("timeout of a request is out of range: %s",
							   DatumGetCString(
								   DirectFunctionCall1(interval_out, IntervalPGetDatum(timeout)))),
						errdetail("It is at least 10 ms, and ends in the time that timestamps "
								  "can tell.")));
	return now + length;
}

static ShardUuid
random_key(void)
{
	ShardUuid key;

	if (!pg_strong_random(&key, sizeof(key)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
						errmsg("could not generate a random key of a request")));
	return key;
}

/*
 * shard_request(type_name text, entity_id text, message jsonb, timeout interval, reply_with jsonb) returns text: the
 * request's id
 */
Datum
shard_request(PG_FUNCTION_ARGS)
{
	ShardExecution *execution = require_asker();
	ShardAsking asking = {.key = random_key(), .shard = execution->entity->shard};
	const char *name = shard_request_name(asking.key);
	const char *id = name + strlen(SHARD_REQUEST_PREFIX);
	const char *type_name;
	text *entity;
	Jsonb *message;
	TimestampTz until;
	Jsonb *timeout;

	check_arguments(fcinfo);
	type_name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	entity = PG_GETARG_TEXT_PP(1);
	message = PG_GETARG_JSONB_P(2);
	until = end_of(PG_GETARG_INTERVAL_P(3));
	timeout = shard_request_put_timeout(id, type_name, entity,
										PG_ARGISNULL(4) ? NULL : PG_GETARG_JSONB_P(4));
	shard_api_check_size(execution->entity->local->type, VARSIZE(timeout) - VARHDRSZ);
	asking.message = VARDATA(message);
	asking.message_len = VARSIZE(message) - VARHDRSZ;
	if (execution->trial)
		shard_api_tell(type_name, VARDATA_ANY(entity), VARSIZE_ANY_EXHDR(entity), message);
	else
	{
		shard_api_send(shard_api_open(type_name, asking.message_len), SHARD_KIND_REQUEST,
					   VARDATA_ANY(entity), VARSIZE_ANY_EXHDR(entity), shard_request_put(&asking));
		shard_request_open(execution->entity, name, until, timeout);
	}
	PG_RETURN_TEXT_P(cstring_to_text(id));
}

/* shard_response() returns text: the id of the request that the message answers, or whose time is over */
Datum
shard_response(PG_FUNCTION_ARGS)
{
	const ShardExecution *execution = shard_api_require_message("shard_response()");
	const ShardTimer *timer = execution->trial ? NULL : shard_timer_of(execution->message);

	if (timer == NULL || !shard_request_is_name(timer->name, timer->name_len))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(timer->name + strlen(SHARD_REQUEST_PREFIX)));
}
