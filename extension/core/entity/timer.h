/*
 * core/entity/timer.h
 *		When a timer of an entity is due again, and what becomes of the times that were missed (E34, E35).
 *
 * A timer that repeats is due at a first time and then period after period. Its times come from the caller, who knows
 * calendars and time zones: they never go back, and the present is an argument.
 */
#pragma once

/* What a repeating timer does about the times that passed before its message could be handled. Stored. */
typedef enum ShardTimerMissed
{
	SHARD_TIMER_ONCE = 1, /* one message for all of them */
	SHARD_TIMER_ALL = 2,  /* one for each */
	SHARD_TIMER_SKIP = 3  /* none, if a whole period has passed */
} ShardTimerMissed;

#define SHARD_TIMER_MISSED_KINDS 4

/* Their names in SQL; the first is unused. */
extern const char *const shard_timer_missed_names[SHARD_TIMER_MISSED_KINDS];

/* A time behind all times: no such period comes any more. */
#define SHARD_TIMER_NEVER PG_INT64_MAX

/* The time at which the period with this number begins; 0: the first time. */
typedef int64 (*ShardTimerAt)(const void *context, int64 period);

typedef struct ShardTimerStep
{
	bool runs;	  /* its message is handled now */
	bool goes_on; /* it is due again, */
	int64 period; /* with this period */
} ShardTimerStep;

/* Whether the next period begins later than this one; always, but for a row that was damaged. */
extern bool shard_timer_advances(int64 period, ShardTimerAt at, const void *context);

/* A timer that repeats is met now, in this period. */
extern ShardTimerStep shard_timer_step(ShardTimerMissed missed, int64 period, int64 now,
									   ShardTimerAt at, const void *context);

/*
 * A receive time-out is met now: the time until which it rests because the entity was heard meanwhile; 0: it fires.
 * heard 0: never.
 */
extern int64 shard_timer_rests_until(int64 heard, int64 idle, int64 now);
