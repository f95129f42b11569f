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
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "entity/timer.h"

#include "base/compat.h"

/* ---- writing ----------------------------------------------------------------------------------- */

static void
put(JsonbParseState **state, const char *key, JsonbValue *value)
{
	JsonbValue name = {.type = jbvString};

	name.val.string.val = unconstify(char *, key);
	name.val.string.len = (int) strlen(key);
	(void) pushJsonbValue(state, WJB_KEY, &name);
	(void) pushJsonbValue(state, WJB_VALUE, value);
}

static void
put_text(JsonbParseState **state, const char *key, const char *text, int len)
{
	JsonbValue value = {.type = jbvString};

	value.val.string.val = unconstify(char *, text);
	value.val.string.len = len;
	put(state, key, &value);
}

static void
put_number(JsonbParseState **state, const char *key, int64 number)
{
	JsonbValue value = {.type = jbvNumeric};

	value.val.numeric = int64_to_numeric(number);
	put(state, key, &value);
}

Jsonb *
shard_timer_put_schedule(const ShardTimer *timer)
{
	JsonbParseState *state = NULL;
	JsonbValue message = {.type = jbvBinary};
	char *copy = palloc(timer->message_len);

	memcpy(copy, timer->message, timer->message_len);
	message.val.binary.data = (JsonbContainer *) copy;
	message.val.binary.len = timer->message_len;
	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	put_text(&state, "name", timer->name, timer->name_len);
	put(&state, "message", &message);
	if (timer->idle != 0)
		put_number(&state, "idle", timer->idle);
	else
		put_number(&state, "due", timer->due);
	if (timer->repeats)
	{
		put_number(&state, "months", timer->every.month);
		put_number(&state, "days", timer->every.day);
		put_number(&state, "time", timer->every.time);
		put_number(&state, "missed", timer->missed);
	}
	if (timer->zone != NULL)
		put_text(&state, "zone", timer->zone, (int) strlen(timer->zone));
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

Jsonb *
shard_timer_put_cancel(const char *name, int name_len)
{
	JsonbParseState *state = NULL;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	put_text(&state, "name", name, name_len);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* One string: there is one for each firing. */
Jsonb *
shard_timer_put_firing(const ShardTimer *timer)
{
	JsonbValue value = {.type = jbvString};

	value.val.string.val = psprintf(INT64_FORMAT " " INT64_FORMAT " %.*s", timer->due,
									timer->generation, timer->name_len, timer->name);
	value.val.string.len = (int) strlen(value.val.string.val);
	return JsonbValueToJsonb(&value);
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* A message as jsonb, in aligned memory. */
static Jsonb *
open_json(const char *payload, int payload_len)
{
	Jsonb *json = palloc(payload_len + VARHDRSZ);

	SET_VARSIZE(json, payload_len + VARHDRSZ);
	memcpy(VARDATA(json), payload, payload_len);
	return json;
}

static JsonbValue *
get(Jsonb *json, const char *key)
{
	return getKeyJsonValueFromContainer(&json->root, key, (int) strlen(key), NULL);
}

/* The text of a key; false if there is none. */
static bool
get_text(Jsonb *json, const char *key, int most, const char **text, int *len)
{
	const JsonbValue *value = get(json, key);

	if (value == NULL || value->type != jbvString || value->val.string.len > most)
		return false;
	*text = pnstrdup(value->val.string.val, value->val.string.len);
	*len = value->val.string.len;
	return true;
}

/* The number of a key, 0 if there is none; one that is too large is the largest: nothing here raises an error. */
static int64
get_number(Jsonb *json, const char *key)
{
	const JsonbValue *value = get(json, key);

	if (value == NULL || value->type != jbvNumeric)
		return 0;
	return strtoll(numeric_normalize(value->val.numeric), NULL, 10);
}

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
	int64 months = get_number(json, "months");
	int64 days = get_number(json, "days");
	int64 us = get_number(json, "time");
	int64 missed = get_number(json, "missed");
	int length;

	if (!is_interval(months, days, us) || missed < SHARD_TIMER_ONCE || missed > SHARD_TIMER_SKIP)
		return false;
	timer->repeats = true;
	timer->every = (Interval){.month = (int32) months, .day = (int32) days, .time = us};
	timer->missed = (ShardTimerMissed) missed;
	return get(json, "zone") == NULL ||
		   get_text(json, "zone", TZ_STRLEN_MAX, &timer->zone, &length);
}

bool
shard_timer_get_schedule(const char *payload, int payload_len, ShardTimer *timer)
{
	Jsonb *json = open_json(payload, payload_len);
	JsonbValue *message;
	Jsonb *copy;

	memset(timer, 0, sizeof(*timer));
	if (!JB_ROOT_IS_OBJECT(json) || (message = get(json, "message")) == NULL ||
		!get_text(json, "name", SHARD_TIMER_MAX_NAME, &timer->name, &timer->name_len))
		return false;
	copy = JsonbValueToJsonb(message);
	timer->message = VARDATA(copy);
	timer->message_len = VARSIZE(copy) - VARHDRSZ;
	timer->missed = SHARD_TIMER_ONCE;
	timer->idle = get_number(json, "idle");
	timer->due = timer->first = get_number(json, "due");
	if (get(json, "missed") != NULL && !get_every(json, timer))
		return false;
	return IS_VALID_TIMESTAMP(timer->due) && timer->idle >= 0 &&
		   (timer->idle > 0) == (timer->name_len == 0);
}

bool
shard_timer_get_cancel(const char *payload, int payload_len, ShardTimer *timer)
{
	Jsonb *json = open_json(payload, payload_len);

	memset(timer, 0, sizeof(*timer));
	return JB_ROOT_IS_OBJECT(json) &&
		   get_text(json, "name", SHARD_TIMER_MAX_NAME, &timer->name, &timer->name_len);
}

bool
shard_timer_get_firing(const char *payload, int payload_len, ShardTimer *timer)
{
	Jsonb *json = open_json(payload, payload_len);
	JsonbValue value;
	char *text;
	char *end;

	memset(timer, 0, sizeof(*timer));
	if (!JB_ROOT_IS_SCALAR(json) || !JsonbExtractScalar(&json->root, &value) ||
		value.type != jbvString)
		return false;
	text = pnstrdup(value.val.string.val, value.val.string.len);
	timer->due = strtoll(text, &end, 10);
	if (*end != ' ')
		return false;
	timer->generation = strtoll(end, &end, 10);
	if (*end != ' ')
		return false;
	timer->name = end + 1;
	timer->name_len = (int) strlen(timer->name);
	return true;
}
