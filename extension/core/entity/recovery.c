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
