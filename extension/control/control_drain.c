/*
 * control/control_drain.c
 *		A round of all region workers: what was there at its begin is passed, and what this put into the
 *		outbox is taken in by its homes, as for shard_drain() (drain.c); or, when the server goes down, is
 *		stored there.
 */
#include "postgres.h"

#include "access/xlog.h"

#include "control/control_private.h"

#include "base/compat.h"

void
shard_control_drain_begin(ControlDrain *drain)
{
	ShardDatabase *db = shard_control.db;

	drain->division = shard_shmem_division(db);
	drain->workers = shard_shmem_workers(db);
	shard_each_lane (worker, drain->workers)
	{
		drain->wanted[worker] = pg_atomic_fetch_add_u64(&db->worker[worker].drain_wanted, 1) + 1;
		shard_shmem_wake_worker(db, worker);
	}
}

bool
shard_control_drain_is_void(const ControlDrain *drain)
{
	return drain->workers == 0 || drain->division != shard_shmem_division(shard_control.db);
}

bool
shard_control_drain_over(const ControlDrain *drain)
{
	ShardDatabase *db = shard_control.db;

	if (shard_control_drain_is_void(drain))
		return false;
	shard_each_lane (worker, drain->workers)
		if (pg_atomic_read_u64(&db->worker[worker].drain_done) < drain->wanted[worker])
			return false;
	return true;
}

void
shard_control_drain_flush(void)
{
	XLogRecPtr newest = InvalidXLogRecPtr;

	for (int worker = 0; worker < SHARD_MAX_WORKERS; worker++)
		newest = Max(newest, pg_atomic_read_u64(&shard_control.db->worker[worker].commit_lsn));
	if (!XLogRecPtrIsInvalid(newest))
		XLogFlush(newest);
}
