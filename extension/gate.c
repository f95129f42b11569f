/*
 * gate.c
 *		The release gate: whether a commit may be shown outside this database (G1, G4).
 *
 * Local gate: the commit is flushed here. Standby gate: it is flushed on the
 * quorum that synchronous_standby_names asks for, as the walsenders have noted
 * it. We read that position ourselves instead of queueing with the backends
 * that commit synchronously: their wait depends on synchronous_commit, and a
 * cancel ends it with a warning, as if all were well.
 *
 * An LSN of zero stands for "nothing was written" and is always released.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#include "gate.h"
#include "guc.h"

#include "compat.h"

/* Nobody wakes us when a standby has flushed, so we look again after so many ms. */
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
 * Whether the commit at lsn may be shown.
 */
bool
shard_gate_released(int32 type_id, int32 shard, uint64 turn, XLogRecPtr lsn)
{
	if (XLogRecPtrIsInvalid(lsn))
		return true;
	if (lsn > GetFlushRecPtr(NULL))
		return false;
	return !at_standby() || lsn <= standby_flushed();
}

/*
 * A position behind every commit so far. The next record may be on a new page: its header is not written yet, and
 * nobody could flush it.
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
shard_gate_wait(int32 type_id, int32 shard, uint64 turn, XLogRecPtr lsn)
{
	(void) shard_gate_wait_for(type_id, shard, turn, lsn, PG_INT64_MAX);
}

/*
 * Waits for a limited time. Our own flush is not limited: it is as quick as
 * any COMMIT.
 */
bool
shard_gate_wait_for(int32 type_id, int32 shard, uint64 turn, XLogRecPtr lsn, int64 microseconds)
{
	static uint32 wait_event = 0;
	instr_time start;
	long nap = FIRST_NAP;

	if (XLogRecPtrIsInvalid(lsn))
		return true;
	XLogFlush(lsn);
	INSTR_TIME_SET_CURRENT(start);
	if (wait_event == 0)
		wait_event = ShardWaitEvent("ShardGate");

	while (!shard_gate_released(type_id, shard, turn, lsn))
	{
		instr_time now;

		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, start);
		if ((int64) INSTR_TIME_GET_MICROSEC(now) >= microseconds)
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, nap, wait_event);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		nap = Min(nap * 2, LONGEST_NAP);
	}
	return true;
}
