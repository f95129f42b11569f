/*
 * core/entity/recovery.h
 *		How many remembered entities of a type may start now.
 *
 * With recovery strategy all as many as the turn has time for. With constant a number in each period, whichever shards
 * they are of: a node that comes up with many shards starts no more of them at once than one with few.
 */
#pragma once

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
