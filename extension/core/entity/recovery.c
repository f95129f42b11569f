/*
 * core/entity/recovery.c
 *		How many remembered entities of a type may start now.
 *
 * Workers know nothing of one another's starts, so that each has the whole number, in a period that is longer by the
 * number of workers.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/entity/recovery.h"

int64
shard_recovery_time(const ShardRecoveryTime *time, int64 now, int64 *again)
{
	int64 others = now - time->started;

	*again = 0;
#ifndef SHARD_MUTANT_STARTS_STARVE_MESSAGES
	if (time->handled != 0 && now >= time->handled && now - time->handled < SHARD_RECOVERY_QUIET &&
		others >= 0)
	{
		if (others >= SHARD_RECOVERY_LEAST * SHARD_RECOVERY_OTHERS)
			return Min(others / SHARD_RECOVERY_OTHERS, SHARD_RECOVERY_MOST);
		*again = time->started + SHARD_RECOVERY_LEAST * SHARD_RECOVERY_OTHERS;
		return 0;
	}
#endif
	return SHARD_RECOVERY_TURN;
}

int64
shard_recovery_allows(const ShardRecoveryRate *rate, ShardRecoveryPace *pace, int64 now,
					  int64 *again)
{
	int64 period = rate->period * Max(rate->workers, 1);

	if (pace->began == 0 || now < pace->began || now - pace->began >= period)
		*pace = (ShardRecoveryPace){.began = now};
	*again = pace->began + period;
	return Max(rate->number - pace->started, 0);
}

void
shard_recovery_started(ShardRecoveryPace *pace, int64 count)
{
	pace->started += count;
}
