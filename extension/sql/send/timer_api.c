/*
 * sql/send/timer_api.c
 *		shard_schedule, shard_cancel, shard_set_receive_timeout; and shard_timer, by which a handler sees what fired.
 *
 * What the first two do is done at once if the handler of that entity calls, as for the receive time-out: it runs at the
 * home. Else they send a message to the entity, which its home obeys in the order in which it came (E31). What can be
 * judged here is refused here, and nothing is sent.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "base/argument.h"
#include "base/duration.h"
#include "entity/request.h"
#include "sql/send/api.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_schedule);
PG_FUNCTION_INFO_V1(shard_cancel);
PG_FUNCTION_INFO_V1(shard_set_receive_timeout);
PG_FUNCTION_INFO_V1(shard_timer);

/* How far a time may lie in the past: clocks differ. */
#define MOST_PAST (60 * USECS_PER_SEC)

/* The shortest period, and the shortest receive time-out. */
#define LEAST_PERIOD (10 * INT64CONST(1000))

/* ---- what is wrong with it --------------------------------------------------------------------- */

static void
check_name(const char *name, int len, const char *empty_hint)
{
	if (len == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("name of a timer must not be empty"), errhint("%s", empty_hint)));
	if (len > SHARD_TIMER_MAX_NAME)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("name of a timer is too long"),
				 errdetail("It has %d bytes, at most %d are possible.", len,
						   SHARD_TIMER_MAX_NAME)));
	if (shard_request_is_name(name, len))
		ereport(ERROR, (errcode(ERRCODE_RESERVED_NAME),
						errmsg("name of a timer must not begin with \"" SHARD_REQUEST_PREFIX "\""),
						errdetail("So begin the names of requests that wait for their answer.")));
}

/* An interval in microseconds, a month being 30 days. */
static int64
length_of(const Interval *interval)
{
	return shard_duration_from_interval(interval);
}

static char *
text_of(const Interval *interval)
{
	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(interval)));
}

static void
check_every(const Interval *every)
{
	int64 length = length_of(every);

	if (every->month < 0 || every->day < 0 || every->time < 0 || length < LEAST_PERIOD)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("period of a timer is too short: %s", text_of(every)),
						errdetail("It is at least 10 ms, and no part of it is negative.")));
	if (length == PG_INT64_MAX)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("period of a timer is too long: %s", text_of(every))));
}

static void
check_at(TimestampTz at)
{
	if (TIMESTAMP_NOT_FINITE(at))
		ereport(ERROR, (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
						errmsg("time of a timer must be finite")));
	if (at < GetCurrentTimestamp() - MOST_PAST)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("time of a timer is in the past: %s", timestamptz_to_str(at)),
						errdetail("It may lie one minute in the past, since clocks differ.")));
}

/* The time that lies so far in the future, by this session's calendar. */
static TimestampTz
time_after(const Interval *after)
{
	if (length_of(after) < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("time of a timer is in the past: after %s", text_of(after))));
	if (length_of(after) == PG_INT64_MAX)
		ereport(ERROR, (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
						errmsg("time of a timer is out of range: after %s", text_of(after)),
						errhint("Timers are due in the year 294276 at the latest.")));
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(GetCurrentTimestamp()),
												   IntervalPGetDatum(after)));
}

/* ---- arguments --------------------------------------------------------------------------------- */

/* Arguments 3, 4 and 5: at, after, every. */
static void
get_times(FunctionCallInfo fcinfo, ShardTimer *timer)
{
	bool at = !PG_ARGISNULL(3);
	bool after = !PG_ARGISNULL(4);

	timer->repeats = !PG_ARGISNULL(5);
	if (at && after)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("a timer has one first time"),
				 errdetail("Both \"at\" and \"after\" are given."), errhint("Give one of them.")));
	if (!at && !after && !timer->repeats)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("a timer needs a time"),
						errhint("Give \"at\", \"after\" or \"every\".")));
	if (timer->repeats)
	{
		timer->every = *PG_GETARG_INTERVAL_P(5);
		check_every(&timer->every);
		if (timer->every.month != 0 || timer->every.day != 0)
			timer->zone = pg_get_timezone_name(session_timezone);
	}
	if (at)
		timer->due = PG_GETARG_TIMESTAMPTZ(3);
	else
		timer->due = time_after(after ? PG_GETARG_INTERVAL_P(4) : &timer->every);
	if (at)
		check_at(timer->due);
	timer->first = timer->due;
}

/* Argument 6: the name, or one that no other timer has. */
static void
get_name(FunctionCallInfo fcinfo, ShardTimer *timer)
{
	char unique[16];
	char *name;

	if (!PG_ARGISNULL(6))
	{
		timer->name = text_to_cstring(PG_GETARG_TEXT_PP(6));
		timer->name_len = (int) strlen(timer->name);
		check_name(timer->name, timer->name_len,
				   "Without a name, NULL, the timer gets a unique one.");
		return;
	}
	if (!pg_strong_random(unique, sizeof(unique)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
						errmsg("could not generate random values for the name of a timer")));
	name = palloc(2 * sizeof(unique) + 1);
	timer->name_len = (int) hex_encode(unique, sizeof(unique), name);
	name[timer->name_len] = '\0';
	timer->name = name;
}

/* Argument 7: what becomes of missed times. */
static ShardTimerMissed
get_missed(FunctionCallInfo fcinfo)
{
	char *name;

	shard_argument_check(fcinfo, 7, "missed must not be null");
	name = text_to_cstring(PG_GETARG_TEXT_PP(7));
	for (int i = SHARD_TIMER_ONCE; i < SHARD_TIMER_MISSED_KINDS; i++)
		if (strcmp(name, shard_timer_missed_names[i]) == 0)
			return (ShardTimerMissed) i;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("a timer does not know what to do about missed times: \"%s\"", name),
					errhint("Values are \"once\", \"all\" and \"skip\".")));
}

/* ---- the functions ----------------------------------------------------------------------------- */

/* The entity whose handler calls, if it is the one that is named here; NULL: another one, or none. In a trial none is. */
static const ShardEntity *
own_entity(const ShardType *type, const text *entity)
{
	const ShardExecution *execution = shard_execution_current();
	const ShardEntity *own = execution == NULL || execution->trial ? NULL : execution->entity;

#ifdef SHARD_MUTANT_OWN_TIMER_SENT
	return NULL;
#endif
	if (own == NULL || own->local->type->type_id != type->type_id ||
		own->id_len != VARSIZE_ANY_EXHDR(entity) ||
		memcmp(own->id, VARDATA_ANY(entity), own->id_len) != 0)
		return NULL;
	return own;
}

static void
send(ShardType *type, ShardKind kind, const text *entity, const Jsonb *content)
{
	shard_api_send(type, kind, VARDATA_ANY(entity), VARSIZE_ANY_EXHDR(entity), content);
}

static void
set_message(ShardTimer *timer, Jsonb *message)
{
	timer->message = VARDATA(message);
	timer->message_len = VARSIZE(message) - VARHDRSZ;
}

/*
 * shard_schedule(type_name text, entity_id text, message jsonb, at timestamptz, after interval, every interval, name text,
 * missed text) returns text
 */
Datum
shard_schedule(PG_FUNCTION_ARGS)
{
	ShardTimer timer = {0};
	ShardType *type;
	text *entity;
	const ShardEntity *own;

	shard_argument_check(fcinfo, 0, "entity type must not be null");
	shard_argument_check(fcinfo, 1, "entity id must not be null");
	shard_argument_check(fcinfo, 2, "message must not be null");
	set_message(&timer, PG_GETARG_JSONB_P(2));
	timer.missed = get_missed(fcinfo);
	get_times(fcinfo, &timer);
	get_name(fcinfo, &timer);
	type = shard_api_open(text_to_cstring(PG_GETARG_TEXT_PP(0)), timer.message_len);
	entity = PG_GETARG_TEXT_PP(1);
	own = own_entity(type, entity);
	if (own != NULL)
		shard_timer_make_own(own, &timer);
	else
		send(type, SHARD_KIND_SCHEDULE, entity, shard_timer_put_schedule(&timer));
	PG_RETURN_TEXT_P(cstring_to_text_with_len(timer.name, timer.name_len));
}

/* shard_cancel(type_name text, entity_id text, name text) returns void */
Datum
shard_cancel(PG_FUNCTION_ARGS)
{
	ShardType *type;
	text *entity;
	text *name;
	const ShardEntity *own;

	shard_argument_check(fcinfo, 0, "entity type must not be null");
	shard_argument_check(fcinfo, 1, "entity id must not be null");
	shard_argument_check(fcinfo, 2, "name of a timer must not be null");
	name = PG_GETARG_TEXT_PP(2);
	check_name(
		VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name),
		"Give the name that shard_schedule() has returned; shard_timers has those that wait.");
	type = shard_api_open(text_to_cstring(PG_GETARG_TEXT_PP(0)), 0);
	entity = PG_GETARG_TEXT_PP(1);
	own = own_entity(type, entity);
	if (own != NULL)
		shard_timer_end_own(own, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
	else
		send(type, SHARD_KIND_CANCEL, entity,
			 shard_timer_put_cancel(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name)));
	PG_RETURN_VOID();
}

/* shard_set_receive_timeout(after interval, message jsonb) returns void */
Datum
shard_set_receive_timeout(PG_FUNCTION_ARGS)
{
	ShardExecution *execution = shard_api_require_handler("shard_set_receive_timeout()");
	const ShardEntity *entity = execution->entity;
	Jsonb *message;
	int64 idle;

	if (PG_ARGISNULL(0))
	{
		if (!execution->trial)
			shard_timer_end_receive(entity);
		PG_RETURN_VOID();
	}
	shard_argument_check(fcinfo, 1, "message must not be null");
	idle = length_of(PG_GETARG_INTERVAL_P(0));
	if (idle < LEAST_PERIOD || idle == PG_INT64_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("receive time-out is out of range: %s", text_of(PG_GETARG_INTERVAL_P(0))),
				 errdetail("It is at least 10 ms, and finite.")));
	message = PG_GETARG_JSONB_P(1);
	shard_api_check_size(entity->local->type, VARSIZE(message) - VARHDRSZ);
	if (!execution->trial)
		shard_timer_set_receive(entity, idle, message);
	PG_RETURN_VOID();
}

/* shard_timer(OUT name text, OUT due timestamptz, OUT fired int8) */
Datum
shard_timer(PG_FUNCTION_ARGS)
{
	const ShardExecution *execution = shard_api_require_handler("shard_timer()");
	const ShardTimer *timer = execution->trial ? NULL : shard_timer_of(execution->message);
	bool is_timer = timer != NULL && !shard_request_is_name(timer->name, timer->name_len);
	TupleDesc desc;
	Datum values[3] = {0};
	bool nulls[3] = {true, true, true};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (is_timer)
	{
		values[0] = PointerGetDatum(cstring_to_text_with_len(timer->name, timer->name_len));
		values[1] = TimestampTzGetDatum(timer->due);
		values[2] = Int64GetDatum(timer->fired + 1);
		memset(nulls, false, sizeof(nulls));
	}
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}
