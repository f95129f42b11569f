/*
 * base/duration.c
 *		Spans of time as microseconds and as text that reads the same everywhere.
 *
 * The text does not depend on IntervalStyle, unlike an interval's output, and
 * interval input reads it back.
 */
#include "postgres.h"

#include "common/int.h"

#include "base/duration.h"

static const struct
{
	const char *name;
	int64 microseconds;
} duration_unit[] = {{"d", USECS_PER_DAY}, {"h", USECS_PER_HOUR}, {"min", USECS_PER_MINUTE},
					 {"s", USECS_PER_SEC}, {"ms", 1000},		  {"us", 1}};

/* The text form of a duration; the caller owns it. */
char *
shard_duration_format(int64 microseconds)
{
	int unit = 0;

	if (microseconds == 0)
		return pstrdup("0 s");
	while (microseconds % duration_unit[unit].microseconds != 0)
		unit++;
	return psprintf(INT64_FORMAT " %s", microseconds / duration_unit[unit].microseconds,
					duration_unit[unit].name);
}

/* For the rest of a time limit, which is seldom a whole number of any unit. */
char *
shard_duration_rounded(int64 microseconds)
{
	if (microseconds % 1000 == 0)
		return shard_duration_format(microseconds);
	if (microseconds < USECS_PER_SEC)
		return psprintf(INT64_FORMAT " ms", (microseconds + 999) / 1000);
	return psprintf("%.1f s", (double) microseconds / USECS_PER_SEC);
}

/* The microseconds of a text form; an internal error if it is none. */
int64
shard_duration_parse(const char *text)
{
	char *rest;
	int64 number = strtoll(text, &rest, 10);

	while (*rest == ' ')
		rest++;
	for (int unit = 0; unit < (int) lengthof(duration_unit); unit++)
		if (strcmp(rest, duration_unit[unit].name) == 0)
			return number * duration_unit[unit].microseconds;
	elog(ERROR, "invalid stored duration \"%s\"", text);
}

/* The microseconds of an interval, saturating. */
int64
shard_duration_from_interval(const Interval *interval)
{
	int64 days = (int64) interval->month * DAYS_PER_MONTH + interval->day;
	int64 result;

	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &result) ||
		pg_add_s64_overflow(result, interval->time, &result))
		return days < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	return result;
}
