/*
 * shared/shmem_worker.c
 *		Worker slots in shared memory: which process has one, with which lanes, and how to wake it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "shared/shmem.h"
#include "core/base/division.h"

#include "base/compat.h"

/* The slot that this process is attached to. */
static ShardWorkerSlot *my_worker = NULL;

/* Where this process owns something; NULL: nowhere. */
static ShardDatabase *owned_in = NULL;

static void detach_at_exit(int code, Datum arg);

/*
 * The lanes of a worker as a mask; none if it is not to run.
 */
ShardLanes
shard_shmem_worker_lanes(const ShardDatabase *db, int worker)
{
	return shard_division_lanes(&db->division, worker);
}

/*
 * Divides the lanes again, if there is a reason. A process that reads without the lock may see a lane with its old
 * worker and another with its new one; each of them is right, since workers take over their lanes one after the other.
 */
void
shard_shmem_divide(ShardDatabase *db, uint8 groups)
{
	ShardDivision division =
		shard_division_make(&db->division, groups, shard_region_workers, shard_max_region_workers,
							shard_owners_may_share_workers);

	if (shard_division_equal(&db->division, &division))
		return;
	db->division = division;
	pg_atomic_write_u64(&db->workers, division.workers);
	pg_atomic_fetch_add_u32(&db->division_no, 1);
}

/*
 * Notes the groups that have types.
 */
void
shard_shmem_found_groups(ShardDatabase *db, uint8 groups)
{
	if (pg_atomic_exchange_u32(&db->groups, groups) != groups)
		shard_shmem_wake_launcher();
}

/*
 * Wakes the workers of some lanes, each of them once.
 */
void
shard_shmem_wake_lanes(ShardDatabase *db, ShardLanes lanes)
{
	uint64 workers = 0;

	shard_each_lane (lane, lanes)
		workers |= shard_worker_bit(shard_shmem_lane_worker(db, lane));
	shard_each_lane (worker, workers)
		shard_shmem_wake_worker(db, worker);
}

/*
 * Wakes all region workers.
 */
void
shard_shmem_wake_region(ShardDatabase *db)
{
	shard_each_worker (worker, db)
		shard_shmem_wake_worker(db, worker);
}

/*
 * Wakes a worker. Its flag says that it has to look, its latch ends its sleep.
 *
 * If the flag was set already, the process that set it sets the latch too, and the worker clears the flag before it
 * looks: the worker will see what this process has done.
 */
void
shard_shmem_wake_worker(ShardDatabase *db, int worker)
{
	ShardWorkerSlot *slot = &db->worker[worker];
	Latch *latch;

	if (pg_atomic_exchange_u32(&slot->wake, 1) != 0)
		return;

	SpinLockAcquire(&slot->mutex);
	latch = slot->latch;
	SpinLockRelease(&slot->mutex);

	/* The latch is in a PGPROC, which stays: a process that has gone meanwhile does no harm. */
	if (latch != NULL)
		SetLatch(latch);
}

/*
 * Wakes the launcher.
 */
void
shard_shmem_wake_launcher(void)
{
	Latch *latch;

	pg_atomic_write_u32(&shard_shared->launcher_wake, 1);
	pg_memory_barrier();

	SpinLockAcquire(&shard_shared->launcher_mutex);
	latch = shard_shared->launcher_latch;
	SpinLockRelease(&shard_shared->launcher_mutex);

	if (latch != NULL)
		SetLatch(latch);
}

/*
 * Attaches the calling process to a worker slot, with the lanes it holds. The slot's counters start at zero. Error if
 * another process has it. The caller holds the control lock, so that the lanes, and whether the worker is the keeper,
 * are of one division.
 */
void
shard_shmem_attach_worker(ShardDatabase *db, int worker, ShardLanes lanes)
{
	ShardWorkerSlot *slot = &db->worker[worker];
	TimestampTz now = GetCurrentTimestamp();
	pid_t holder = 0;

	SpinLockAcquire(&slot->mutex);
	if (slot->in_use)
		holder = slot->pid;
	else
	{
		slot->in_use = true;
		slot->generation++;
		slot->pid = MyProcPid;
		slot->latch = MyLatch;
		slot->why[0] = '\0';
		/* one that ended by itself, again and again, has not moved since it did last */
		if (slot->turns_now.moved_at == 0)
			slot->turns_now.moved_at = now;
		else
			slot->turns_now.ended++;
		slot->turns_now.began_at = now;
		slot->turns_now.failures = 0;
	}
	if (holder == 0 || holder == MyProcPid)
	{
		slot->lanes = lanes;
		slot->keeper = shard_division_is_keeper(&db->division, worker);
	}
	SpinLockRelease(&slot->mutex);

	if (holder == MyProcPid)
		return;
	if (holder != 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("worker %d of database %u is process %d already", worker, db->dboid,
							   (int) holder)));

	/* the one before may have ended in its turn */
	shard_shmem_turn_ended(slot);
	my_worker = slot;
	before_shmem_exit(detach_at_exit, (Datum) 0);

	/* Before the first look for work: from now on wakers find the latch. */
	pg_atomic_exchange_u32(&slot->wake, 0);
	pg_atomic_write_u64(&slot->pass_wanted, 0);
	pg_atomic_write_u64(&slot->messages, 0);
	pg_atomic_write_u64(&slot->turns, 0);
	pg_atomic_write_u64(&slot->errors, 0);
	pg_atomic_write_u64(&slot->recounts, 0);
	pg_atomic_write_u64(&slot->cache_entities, 0);
	pg_atomic_write_u64(&slot->cache_bytes, 0);
	pg_atomic_write_u64(&slot->void_replies, 0);
	shard_shmem_call_ended(slot);
}

bool
shard_shmem_own(ShardDatabase *db, int lane)
{
	uint32 nobody = 0;

	Assert(my_worker != NULL);
	owned_in = db;
	return pg_atomic_compare_exchange_u32(&db->owner[lane], &nobody, (uint32) MyProcPid) ||
		   nobody == (uint32) MyProcPid;
}

void
shard_shmem_disown(ShardDatabase *db, int lane)
{
	uint32 pid = (uint32) MyProcPid;

	(void) pg_atomic_compare_exchange_u32(&db->owner[lane], &pid, 0);
}

/*
 * Before the slot is free for another process, and when the last transaction of this one is over.
 */
static void
disown(void)
{
	if (owned_in == NULL)
		return;
	for (int lane = 0; lane < SHARD_OWNERS; lane++)
		shard_shmem_disown(owned_in, lane);
	owned_in = NULL;
}

/*
 * Detaches the calling process from its slot, if it has one.
 */
static void
detach_worker(void)
{
	ShardWorkerSlot *slot = my_worker;

	if (slot == NULL)
		return;
	disown();
	my_worker = NULL;
	SpinLockAcquire(&slot->mutex);
	slot->in_use = false;
	slot->pid = 0;
	slot->latch = NULL;
	slot->lanes = 0;
	if (slot->stop_wanted)
	{
		slot->turns_now.moved_at = 0;
		slot->turns_now.ended = 0;
	}
	SpinLockRelease(&slot->mutex);
	shard_shmem_wake_launcher();
}

/*
 * The same, when the process exits. It attached before it connected, so its last transaction is over by then.
 */
static void
detach_at_exit(int code, Datum arg)
{
	detach_worker();
}

/*
 * The slot that this process is attached to, or NULL.
 */
ShardWorkerSlot *
shard_shmem_my_worker(void)
{
	return my_worker;
}

int
shard_shmem_worker_pid(ShardDatabase *db, int worker)
{
	ShardWorkerSlot *slot = &db->worker[worker];
	int pid;

	SpinLockAcquire(&slot->mutex);
	pid = slot->in_use ? (int) slot->pid : 0;
	SpinLockRelease(&slot->mutex);
	return pid;
}
