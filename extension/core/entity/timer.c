/*
 * core/entity/timer.c
 *		When a timer of an entity is due again, and what becomes of the times that were missed (E34, E35).
 *
 * A clock that is set back makes nothing run twice: a period is never followed by itself or an earlier one. One that is
 * set forward makes times be missed, like a downtime. A timer whose next period begins no later than the present one, as
 * of a row that was damaged, would never come to an end: its present firing is the last.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/entity/timer.h"

const char *const shard_timer_missed_names[SHARD_TIMER_MISSED_KINDS] = {"", "once", "all", "skip"};

/* The first period behind the given one that begins later than now; steps double, then halve. */
static int64
next_after(int64 period, int64 now, ShardTimerAt at, const void *context)
{
	int64 low = period; /* not later, or the one that was met */
	int64 step = 1;

	while (at(context, low + step) <= now)
	{
		low += step;
		step *= 2;
	}
	for (step /= 2; step > 0; step /= 2)
		if (at(context, low + step) <= now)
			low += step;
#ifdef SHARD_MUTANT_TIMER_SAME_PERIOD
	return at(context, low) <= now ? low + 1 : low;
#endif
	return low + 1;
}

bool
shard_timer_advances(int64 period, ShardTimerAt at, const void *context)
{
	return at(context, period + 1) > at(context, period);
}

ShardTimerStep
shard_timer_step(ShardTimerMissed missed, int64 period, int64 now, ShardTimerAt at,
				 const void *context)
{
	ShardTimerStep step = {.runs = true, .period = period + 1};

	if (!shard_timer_advances(period, at, context))
		return step;
	if (missed != SHARD_TIMER_ALL)
		step.period = next_after(period, now, at, context);
#ifndef SHARD_MUTANT_TIMER_SKIPS_NOTHING
	if (missed == SHARD_TIMER_SKIP)
		step.runs = step.period == period + 1;
#endif
	step.goes_on = at(context, step.period) != SHARD_TIMER_NEVER;
	return step;
}

int64
shard_timer_rests_until(int64 heard, int64 idle, int64 now)
{
	/* a time of the future is one of a clock that was set back */
	if (heard <= 0 || heard > now || now - heard >= idle)
		return 0;
	return heard + idle;
}
