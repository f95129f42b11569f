/*
 * core/entity/recovery.h
 *		How many remembered entities of a type may start now.
 *
 * With recovery strategy all as many as the worker has time for: while there are messages a part of its time, else all of
 * it. With constant a number in each period, whichever shards they are of: a node that comes up with many shards starts
 * no more of them at once than one with few.
 */
#pragma once

/* How long entities start in one turn, in microseconds, if there are no messages; then the worker looks for some. */
#define SHARD_RECOVERY_TURN 5000

/* A worker had messages when it has handled some within this time. */
#define SHARD_RECOVERY_QUIET 5000

/* Then entities start for one part of the time, and all else has this many; in pieces that are no shorter, and no longer. */
#define SHARD_RECOVERY_OTHERS 6
#define SHARD_RECOVERY_LEAST 1000
#define SHARD_RECOVERY_MOST 15000

/* When a worker did what, in microseconds, on any clock. 0: never. */
typedef struct ShardRecoveryTime
{
	int64 handled; /* messages, last */
	int64 started; /* entities, last: the end of that */
} ShardRecoveryTime;

/*
 * How long entities may start now, in microseconds; if not at all, 0, and not before *again, which is 0 else. A clock that
 * went back holds nothing up.
 */
extern int64 shard_recovery_time(const ShardRecoveryTime *time, int64 now, int64 *again);

/* A period that has begun; all 0: none has. */
typedef struct ShardRecoveryPace
{
	int64 began;   /* microseconds, on any clock */
	int64 started; /* entities, since then */
} ShardRecoveryPace;

/* number: entities that may start in each period, in microseconds, of all workers that have shards of the type. */
typedef struct ShardRecoveryRate
{
	int64 number;
	int64 period;
	int workers;
} ShardRecoveryRate;

/* How many entities this worker may start now; if none, not before *again. A clock that went back begins a period. */
extern int64 shard_recovery_allows(const ShardRecoveryRate *rate, ShardRecoveryPace *pace,
								   int64 now, int64 *again);

/* They have started. */
extern void shard_recovery_started(ShardRecoveryPace *pace, int64 count);
