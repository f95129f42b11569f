/*
 * coordinator/coordinator_drain.c
 *		A round of all region workers: what was there at its begin is passed, and what this put into the
 *		outbox is taken in by its homes, as for shard_drain() (drain.c); or, when the server goes down, is
 *		stored there.
 */
#include "postgres.h"

#include "access/xlog.h"

#include "coordinator/coordinator_private.h"

#include "base/compat.h"

void
shard_coordinator_drain_begin(CoordinatorDrain *drain)
{
	ShardDatabase *db = shard_coordinator.db;

	drain->division = shard_shmem_division(db);
	drain->workers = shard_shmem_workers(db);
	shard_each_lane (worker, drain->workers)
	{
		drain->wanted[worker] = pg_atomic_fetch_add_u64(&db->worker[worker].drain_wanted, 1) + 1;
		shard_shmem_wake_worker(db, worker);
	}
}

bool
shard_coordinator_drain_is_void(const CoordinatorDrain *drain)
{
	return drain->workers == 0 || drain->division != shard_shmem_division(shard_coordinator.db);
}

bool
shard_coordinator_drain_over(const CoordinatorDrain *drain)
{
	ShardDatabase *db = shard_coordinator.db;

	if (shard_coordinator_drain_is_void(drain))
		return false;
	shard_each_lane (worker, drain->workers)
		if (pg_atomic_read_u64(&db->worker[worker].drain_done) < drain->wanted[worker])
			return false;
	return true;
}

void
shard_coordinator_drain_flush(void)
{
	XLogRecPtr newest = InvalidXLogRecPtr;

	for (int worker = 0; worker < SHARD_MAX_WORKERS; worker++)
		newest = Max(newest, pg_atomic_read_u64(&shard_coordinator.db->worker[worker].commit_lsn));
	if (!XLogRecPtrIsInvalid(newest))
		XLogFlush(newest);
}
