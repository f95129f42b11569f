/*
 * timer_test.c
 *		When a timer is due again, what becomes of missed times, and clocks that jump.
 */
#include "postgres_fe.h"

#include "core/entity/timer.h"
#include "unit.h"

/* A timer of every 10 from 100 on, with 1000 periods at most; it counts how often it is asked. */
static int asked;

static int64
tens(const void *context, int64 period)
{
	asked++;
	return period > *(const int64 *) context ? SHARD_TIMER_NEVER : 100 + 10 * period;
}

/* Days of 24, but the second has 23 and the fifth 25: as where summer time begins and ends. */
static int64
days(const void *context, int64 period)
{
	(void) context;
	return 24 * period - (period >= 2) + (period >= 5);
}

static void
is_step(ShardTimerMissed missed, int64 period, int64 now, bool runs, int64 next, const char *what)
{
	int64 last = 1000;
	ShardTimerStep step = shard_timer_step(missed, period, now, tens, &last);

	ok(step.runs == runs && step.goes_on && step.period == next, "%s, %s", what,
	   shard_timer_missed_names[missed]);
}

static void
test_in_time(void)
{
	for (int missed = SHARD_TIMER_ONCE; missed <= SHARD_TIMER_SKIP; missed++)
	{
		is_step(missed, 0, 100, true, 1, "met at once");
		is_step(missed, 3, 139, true, 4, "met a little late");
	}
}

static void
test_missed(void)
{
	is_step(SHARD_TIMER_ONCE, 0, 110, true, 2, "one period late");
	is_step(SHARD_TIMER_ALL, 0, 110, true, 1, "one period late");
	is_step(SHARD_TIMER_SKIP, 0, 110, false, 2, "one period late");
	is_step(SHARD_TIMER_ONCE, 2, 5005, true, 491, "after a downtime");
	is_step(SHARD_TIMER_ALL, 2, 5005, true, 3, "after a downtime");
	is_step(SHARD_TIMER_SKIP, 2, 5005, false, 491, "after a downtime");
}

/* A timer that fires while the clock says an earlier time was due before that: it is not due then once more. */
static void
test_clock_set_back(void)
{
	for (int missed = SHARD_TIMER_ONCE; missed <= SHARD_TIMER_SKIP; missed++)
	{
		is_step(missed, 7, 0, true, 8, "met before its time");
		is_step(missed, 7, 169, true, 8, "met just before its time");
	}
}

static void
test_end(void)
{
	int64 last = 5;

	ok(!shard_timer_step(SHARD_TIMER_ALL, 5, 150, tens, &last).goes_on,
	   "the last period is the last");
	ok(!shard_timer_step(SHARD_TIMER_ONCE, 1, 999, tens, &last).goes_on,
	   "so it is after a downtime");
	ok(shard_timer_step(SHARD_TIMER_ONCE, 1, 140, tens, &last).period == 5,
	   "the one before is not");
}

/* Periods of no length, or that go back: of a row that was damaged. */
static int64
stands(const void *context, int64 period)
{
	return 100 - *(const int64 *) context * period;
}

static void
test_damaged(void)
{
	for (int64 back = 0; back <= 1; back++)
		for (int missed = SHARD_TIMER_ONCE; missed <= SHARD_TIMER_SKIP; missed++)
		{
			ShardTimerStep step = shard_timer_step(missed, 3, 500, stands, &back);

			ok(step.runs && !step.goes_on, "a timer that does not advance runs once, and ends, %s",
			   shard_timer_missed_names[missed]);
		}
}

/* The period is looked for in steps that double: a century of milliseconds costs as much as a few of them. */
static void
test_cost(void)
{
	int64 last = PG_INT64_MAX / 100;
	ShardTimerStep step;

	asked = 0;
	step = shard_timer_step(SHARD_TIMER_ONCE, 0, INT64CONST(1) << 50, tens, &last);
	ok(100 + 10 * step.period > INT64CONST(1) << 50 && 90 + 10 * step.period <= INT64CONST(1) << 50,
	   "a distant period is found");
	ok(asked < 150, "in few steps");
}

static void
test_summer_time(void)
{
	for (int64 now = 0; now < 200; now++)
	{
		ShardTimerStep step = shard_timer_step(SHARD_TIMER_ONCE, 0, now, days, NULL);

		if (days(NULL, step.period) <= now ||
			(step.period > 1 && days(NULL, step.period - 1) > now))
		{
			ok(false, "day of hour %d", (int) now);
			return;
		}
	}
	ok(true, "each day begins when it begins");
}

static void
test_receive(void)
{
	is_int(shard_timer_rests_until(1000, 50, 1049), 1050, "heard a little less than the time ago");
	is_int(shard_timer_rests_until(1000, 50, 1050), 0, "heard the time ago");
	is_int(shard_timer_rests_until(0, 50, 1050), 0, "never heard");
	is_int(shard_timer_rests_until(2000, 50, 1050), 0, "the clock was set back");
}

int
main(void)
{
	test_in_time();
	test_missed();
	test_clock_set_back();
	test_end();
	test_damaged();
	test_cost();
	test_summer_time();
	test_receive();
	return unit_done();
}
