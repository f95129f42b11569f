/*
 * entity/timer_message.c
 *		The contents of the messages SCHEDULE, CANCEL and TIMER, which are jsonb like any message's (E31).
 *
 * So they pass all checks of contents on their way between nodes, and operators can read them among dead letters. What
 * they say is judged at the home alone.
 */
#include "postgres.h"

#include "common/int.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "entity/content.h"
#include "entity/timer.h"

#include "base/compat.h"

/* ---- writing ----------------------------------------------------------------------------------- */

Jsonb *
shard_timer_put_schedule(const ShardTimer *timer)
{
	JsonbParseState *state = NULL;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	shard_content_put_text(&state, "name", timer->name, timer->name_len);
	shard_content_put_json(&state, "message", timer->message, timer->message_len);
	shard_content_put_number(&state, "due", timer->due);
	if (timer->repeats)
	{
		shard_content_put_number(&state, "months", timer->every.month);
		shard_content_put_number(&state, "days", timer->every.day);
		shard_content_put_number(&state, "time", timer->every.time);
		shard_content_put_number(&state, "missed", timer->missed);
	}
	if (timer->zone != NULL)
		shard_content_put_text(&state, "zone", timer->zone, (int) strlen(timer->zone));
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

Jsonb *
shard_timer_put_cancel(const char *name, int name_len)
{
	JsonbParseState *state = NULL;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	shard_content_put_text(&state, "name", name, name_len);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* One string: there is one for each firing. */
Jsonb *
shard_timer_put_firing(const ShardTimer *timer)
{
	JsonbValue value = {.type = jbvString};

	value.val.string.val =
		psprintf(INT64_FORMAT " " INT64_FORMAT " %u %u %.*s", timer->due, timer->generation,
				 ItemPointerGetBlockNumberNoCheck(&timer->tid),
				 ItemPointerGetOffsetNumberNoCheck(&timer->tid), timer->name_len, timer->name);
	value.val.string.len = (int) strlen(value.val.string.val);
	return JsonbValueToJsonb(&value);
}

/* ---- reading ----------------------------------------------------------------------------------- */

static bool
is_interval(int64 months, int64 days, int64 us)
{
	return months >= 0 && months <= PG_INT32_MAX && days >= 0 && days <= PG_INT32_MAX && us >= 0 &&
		   months + days + (us != 0) > 0;
}

/* What says when it repeats. */
static bool
get_every(Jsonb *json, ShardTimer *timer)
{
	int64 months = shard_content_number(json, "months");
	int64 days = shard_content_number(json, "days");
	int64 us = shard_content_number(json, "time");
	int64 missed = shard_content_number(json, "missed");
	int length;

	if (!is_interval(months, days, us) || missed < SHARD_TIMER_ONCE || missed > SHARD_TIMER_SKIP)
		return false;
	timer->repeats = true;
	timer->every = (Interval){.month = (int32) months, .day = (int32) days, .time = us};
	timer->missed = (ShardTimerMissed) missed;
	return shard_content_get(json, "zone") == NULL ||
		   shard_content_text(json, "zone", TZ_STRLEN_MAX, &timer->zone, &length);
}

bool
shard_timer_get_schedule(const char *payload, int payload_len, ShardTimer *timer)
{
	Jsonb *json = shard_content_open(payload, payload_len);
	JsonbValue *message;
	Jsonb *copy;

	memset(timer, 0, sizeof(*timer));
	if (json == NULL || !JB_ROOT_IS_OBJECT(json) ||
		(message = shard_content_get(json, "message")) == NULL ||
		!shard_content_text(json, "name", SHARD_TIMER_MAX_NAME, &timer->name, &timer->name_len))
		return false;
	copy = JsonbValueToJsonb(message);
	timer->message = VARDATA(copy);
	timer->message_len = VARSIZE(copy) - VARHDRSZ;
	timer->missed = SHARD_TIMER_ONCE;
	timer->due = timer->first = shard_content_number(json, "due");
	if (shard_content_get(json, "missed") != NULL && !get_every(json, timer))
		return false;
	return IS_VALID_TIMESTAMP(timer->due) && timer->name_len > 0;
}

bool
shard_timer_get_cancel(const char *payload, int payload_len, ShardTimer *timer)
{
	Jsonb *json = shard_content_open(payload, payload_len);

	memset(timer, 0, sizeof(*timer));
	return json != NULL && JB_ROOT_IS_OBJECT(json) &&
		   shard_content_text(json, "name", SHARD_TIMER_MAX_NAME, &timer->name, &timer->name_len);
}

/* A number with a space behind it. Moves on behind that. */
static bool
get_number(char **text, int64 *number)
{
	char *end;

	*number = strtoll(*text, &end, 10);
	if (*end != ' ')
		return false;
	*text = end + 1;
	return true;
}

bool
shard_timer_get_firing(const char *payload, int payload_len, ShardTimer *timer)
{
	Jsonb *json = shard_content_open(payload, payload_len);
	JsonbValue value;
	int64 block;
	int64 offset;
	char *text;

	memset(timer, 0, sizeof(*timer));
	if (json == NULL || !JB_ROOT_IS_SCALAR(json) || !JsonbExtractScalar(&json->root, &value) ||
		value.type != jbvString)
		return false;
	text = pnstrdup(value.val.string.val, value.val.string.len);
	if (!get_number(&text, &timer->due) || !get_number(&text, &timer->generation) ||
		!get_number(&text, &block) || !get_number(&text, &offset))
		return false;
	ItemPointerSet(&timer->tid, (BlockNumber) block, (OffsetNumber) offset);
	timer->name = text;
	timer->name_len = (int) strlen(text);
	return true;
}
