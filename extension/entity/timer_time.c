/*
 * entity/timer_time.c
 *		The times at which a repeating timer is due: first + period * every (E34).
 *
 * Months and days are added to the local time of the timer's zone, always from the first time: a timer of 8 o'clock
 * stays one of 8 o'clock when summer time begins, and one of the 31st comes back to the 31st after February.
 */
#include "postgres.h"

#include "common/int.h"
#include "pgtime.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "entity/timer.h"

#include "base/compat.h"

/* More months and days than there are in all times. */
#define MOST_MONTHS (300000 * MONTHS_PER_YEAR)
#define MOST_DAYS (300000 * INT64CONST(366))

/* Adds months and days in the time zone. False: out of range. */
static bool
add_calendar(TimestampTz first, int64 months, int64 days, pg_tz *zone, TimestampTz *result)
{
	struct pg_tm tm;
	fsec_t fsec;
	int offset;
	int64 month;
	int64 date;

	if (timestamp2tm(first, &offset, &tm, &fsec, NULL, zone) != 0)
		return false;
	month = tm.tm_year * INT64CONST(12) + tm.tm_mon - 1 + months;
	tm.tm_year = (int) (month / MONTHS_PER_YEAR);
	tm.tm_mon = (int) (month % MONTHS_PER_YEAR) + 1;
	if (tm.tm_mday > day_tab[isleap(tm.tm_year)][tm.tm_mon - 1])
		tm.tm_mday = day_tab[isleap(tm.tm_year)][tm.tm_mon - 1];
	if (!IS_VALID_JULIAN(tm.tm_year, tm.tm_mon, tm.tm_mday))
		return false;
	date = date2j(tm.tm_year, tm.tm_mon, tm.tm_mday) + days;
	if (date > PG_INT32_MAX)
		return false;
	j2date((int) date, &tm.tm_year, &tm.tm_mon, &tm.tm_mday);
	if (!IS_VALID_JULIAN(tm.tm_year, tm.tm_mon, tm.tm_mday))
		return false;
	offset = DetermineTimeZoneOffset(&tm, zone);
	return tm2timestamp(&tm, fsec, &offset, result) == 0;
}

int64
shard_timer_at(const void *context, int64 period)
{
	const ShardTimer *timer = context;
	TimestampTz base = timer->first;
	int64 months;
	int64 days;
	int64 us;
	int64 result;

	if (pg_mul_s64_overflow(timer->every.month, period, &months) || months > MOST_MONTHS ||
		pg_mul_s64_overflow(timer->every.day, period, &days) || days > MOST_DAYS ||
		pg_mul_s64_overflow(timer->every.time, period, &us))
		return SHARD_TIMER_NEVER;
	if (months != 0 || days != 0)
	{
		pg_tz *zone = timer->zone == NULL ? NULL : pg_tzset(timer->zone);

		/* a zone that this server does not know */
		if (zone == NULL)
			zone = pg_tzset("GMT");
		if (!add_calendar(base, months, days, zone, &base))
			return SHARD_TIMER_NEVER;
	}
	if (pg_add_s64_overflow(base, us, &result) || !IS_VALID_TIMESTAMP(result))
		return SHARD_TIMER_NEVER;
	return result;
}
