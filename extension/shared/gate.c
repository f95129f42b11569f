/*
 * shared/gate.c
 *		The release gate: whether a commit may be shown outside this database (G1, G4).
 *
 * Local gate: the commit is flushed here. Standby gate: it is flushed on the quorum that synchronous_standby_names asks
 * for, as the walsenders have noted it. The gate reads that position itself instead of queueing with the backends that
 * commit synchronously: their wait depends on synchronous_commit, and a cancel ends it with a warning, as if all were
 * well.
 *
 * An LSN of zero stands for "nothing was written" and is always released.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/lwlock.h"

#include "shared/gate.h"
#include "base/guc.h"
#include "shared/shmem.h"
#include "base/nap.h"
#include "base/clock.h"

#include "base/compat.h"

/* No process wakes this one when a standby has flushed, so it looks again after this time, in ms. */
#define FIRST_NAP 1
#define LONGEST_NAP 16

/*
 * Whether the gate is at the standbys. "auto" follows
 * synchronous_standby_names, as the checkpointer has published it.
 */
static bool
at_standby(void)
{
	if (shard_gate == SHARD_GATE_SET_AUTO)
		return max_wal_senders > 0 && ShardSyncStandbysDefined();
	return shard_gate == SHARD_GATE_SET_STANDBY;
}

/*
 * How far the quorum of standbys has flushed; zero as long as there is none.
 */
static XLogRecPtr
standby_flushed(void)
{
	XLogRecPtr result;

	if (max_wal_senders == 0)
		return InvalidXLogRecPtr;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	result = WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH];
	LWLockRelease(SyncRepLock);
	return result;
}

/*
 * Notes since when something waits. A note whose position still waits stays as it is: the gate has not moved that far.
 */
static void
note_wait(XLogRecPtr lsn, XLogRecPtr flushed)
{
	TimestampTz now = GetCurrentTimestamp();
	ShardGateWatch *watch;

	if (shard_shared == NULL)
		return;
	watch = &shard_shared->gate;
	SpinLockAcquire(&watch->mutex);
	if (watch->lsn <= flushed)
	{
		watch->lsn = lsn;
		watch->waits_since = now;
	}
	SpinLockRelease(&watch->mutex);
}

/*
 * Whether the commit at lsn may be shown.
 */
bool
shard_gate_released(XLogRecPtr lsn)
{
	XLogRecPtr flushed;

	if (XLogRecPtrIsInvalid(lsn))
		return true;
	if (lsn > GetFlushRecPtr(NULL))
		return false;
	if (!at_standby())
		return true;
	flushed = standby_flushed();
	if (lsn <= flushed)
		return true;
	note_wait(lsn, flushed);
	return false;
}

/*
 * A position behind every commit so far. The next record may be on a new page: its header is not written yet and cannot
 * be flushed.
 */
XLogRecPtr
shard_gate_newest(void)
{
	XLogRecPtr lsn = GetXLogInsertRecPtr();
	uint64 on_page = lsn % XLOG_BLCKSZ;

	if (on_page == SizeOfXLogShortPHD ||
		XLogSegmentOffset(lsn, wal_segment_size) == SizeOfXLogLongPHD)
		lsn -= on_page;
	return lsn;
}

/*
 * Waits without a limit.
 */
void
shard_gate_wait(XLogRecPtr lsn)
{
	(void) shard_gate_wait_for(lsn, PG_INT64_MAX);
}

/*
 * Waits for a limited time. The flush on this server is not limited: it is as quick as any COMMIT.
 */
bool
shard_gate_wait_for(XLogRecPtr lsn, int64 microseconds)
{
	int64 start;
	long nap = FIRST_NAP;

	if (XLogRecPtrIsInvalid(lsn))
		return true;
	XLogFlush(lsn);
	start = shard_clock_now();

	while (!shard_gate_released(lsn))
	{
		if (shard_clock_now() - start >= microseconds)
			return false;
		shard_nap(nap, "ShardGate");
		nap = Min(nap * 2, LONGEST_NAP);
	}
	return true;
}

/*
 * How many synchronous standbys are connected and stream, of those that it takes.
 */
static int
connected_standbys(int *wanted)
{
	SyncRepStandbyData *standbys = NULL;
	int count;

	*wanted = max_wal_senders > 0 && SyncRepConfig != NULL ? SyncRepConfig->num_sync : 0;
	if (*wanted == 0)
		return 0;
	count = SyncRepGetCandidateStandbys(&standbys);
	if (standbys != NULL)
		pfree(standbys);
	return count;
}

/*
 * One look, by a process that looks often.
 */
void
shard_gate_watch(void)
{
	ShardGateWatch *watch = &shard_shared->gate;
	TimestampTz now = GetCurrentTimestamp();
	bool standby = at_standby();
	int wanted;
	bool alone = standby && (connected_standbys(&wanted) < wanted || wanted == 0);

	SpinLockAcquire(&watch->mutex);
	if (!standby)
		watch->lsn = InvalidXLogRecPtr;
	if (!alone)
		watch->alone_since = 0;
	else if (watch->alone_since == 0)
		watch->alone_since = now;
	SpinLockRelease(&watch->mutex);
}

bool
shard_gate_look(ShardGateLook *look)
{
	ShardGateWatch *watch = &shard_shared->gate;
	XLogRecPtr flushed;

	memset(look, 0, sizeof(*look));
	if (!at_standby())
		return false;
	look->connected = connected_standbys(&look->wanted);
	flushed = standby_flushed();
	SpinLockAcquire(&watch->mutex);
	if (watch->lsn > flushed)
		look->waits_since = watch->waits_since;
	if (look->connected < look->wanted || look->wanted == 0)
		look->alone_since = watch->alone_since;
	SpinLockRelease(&watch->mutex);
	return true;
}
