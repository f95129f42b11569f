/*
 * shared/bar.c
 *		Keeping our workers out of a database until a transaction ends.
 *
 * An entry is made by a backend, set ready by the launcher and removed by the backend's transaction callback. Should
 * the backend have no time for that, the launcher sees that its virtual transaction is over. A launcher that is started
 * again finds the entries and obeys; a worker that is about to attach looks for one, too (worker.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/timestamp.h"

#include "shared/bar.h"

#include "base/compat.h"

/* How long the backend that raises a bar waits for the workers to go. */
#define PATIENCE_MS (30 * 1000)

/* Whether this transaction raised bars, and under which id; whether it made databases come or go. */
static bool raised = false;
static VirtualTransactionId raised_in;
static bool announced = false;

static bool add_bar(Oid dboid);
static bool is_ready(Oid dboid);
static bool has_attached_workers(Oid dboid);
static void transaction_changed(XactEvent event, void *arg);
static void remove_bars(VirtualTransactionId vxid);

/*
 * Registers the transaction callback. From _PG_init.
 */
void
shard_bar_init(void)
{
	RegisterXactCallback(transaction_changed, NULL);
}

/*
 * Raises a bar and waits until the launcher says that the workers are gone. If
 * they stay, the statement that wants the database to itself will say so.
 */
void
shard_bar_raise(Oid dboid)
{
	static uint32 wait_event = 0;
	TimestampTz deadline;

	if (wait_event == 0)
		wait_event = ShardWaitEvent("ShardDatabaseBar");

	ShardVxid(raised_in, MyProc);
	raised = true;
	if (!add_bar(dboid))
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("too many databases are being dropped, altered or copied at once"),
						errdetail("At most %d such statements can run while shard is loaded.",
								  SHARD_MAX_BARS)));
	shard_shmem_wake_launcher();

	deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), PATIENCE_MS);
	ConditionVariablePrepareToSleep(&shard_shared->launcher_done);
	while (!is_ready(dboid))
	{
		if (GetCurrentTimestamp() >= deadline)
		{
			ereport(WARNING,
					(errmsg("background workers of shard did not leave database \"%s\" in time",
							get_database_name(dboid))));
			break;
		}
		ConditionVariableTimedSleep(&shard_shared->launcher_done, 1000, wait_event);
	}
	ConditionVariableCancelSleep();
}

/*
 * Makes an entry for this transaction; false if there is no room.
 */
static bool
add_bar(Oid dboid)
{
	bool added = false;

	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SHARD_MAX_BARS && !added; i++)
	{
		ShardBar *bar = &shard_shared->bar[i];

		if (OidIsValid(bar->dboid))
			continue;
		bar->dboid = dboid;
		bar->vxid = raised_in;
		bar->ready = false;
		added = true;
	}
	LWLockRelease(shard_shared->lock);
	return added;
}

/*
 * Whether the workers are gone. Without a launcher no workers are started, and the next launcher begins by obeying the
 * bars.
 */
static bool
is_ready(Oid dboid)
{
	bool ready = false;
	pid_t launcher;

	SpinLockAcquire(&shard_shared->launcher_mutex);
	launcher = shard_shared->launcher_pid;
	SpinLockRelease(&shard_shared->launcher_mutex);

	LWLockAcquire(shard_shared->lock, LW_SHARED);
	for (int i = 0; i < SHARD_MAX_BARS; i++)
	{
		ShardBar *bar = &shard_shared->bar[i];

		if (bar->dboid == dboid && VirtualTransactionIdEquals(bar->vxid, raised_in))
			ready = bar->ready || (launcher == 0 && !has_attached_workers(dboid));
	}
	LWLockRelease(shard_shared->lock);
	return ready;
}

/*
 * Whether a process is attached to a worker slot of the database. Needs the
 * control lock.
 */
static bool
has_attached_workers(Oid dboid)
{
	ShardDatabase *db = shard_shmem_find_database(dboid);
	bool attached = false;

	for (int i = 0; db != NULL && i < SHARD_WORKER_SLOTS; i++)
		attached |= shard_shmem_worker_runs(db, i);
	return attached;
}

/*
 * Remembers to tell the launcher, when this transaction ends, that databases
 * may have come, gone or changed.
 */
void
shard_bar_announce(void)
{
	announced = true;
}

/*
 * Transaction callback. At PREPARE, too: the transaction's own lock on the
 * database then keeps workers waiting at its door.
 */
static void
transaction_changed(XactEvent event, void *arg)
{
	if (!raised && !announced)
		return;
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;

	/* First the list: a process that sees the bar gone must see that the list is old. */
	pg_atomic_write_u32(&shard_shared->list_wanted, 1);
	pg_memory_barrier();
	if (raised)
		remove_bars(raised_in);
	raised = false;
	announced = false;
	shard_shmem_wake_launcher();
}

/*
 * Removes what a transaction raised.
 */
static void
remove_bars(VirtualTransactionId vxid)
{
	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SHARD_MAX_BARS; i++)
	{
		ShardBar *bar = &shard_shared->bar[i];

		if (OidIsValid(bar->dboid) && VirtualTransactionIdEquals(bar->vxid, vxid))
			bar->dboid = InvalidOid;
	}
	LWLockRelease(shard_shared->lock);
}

/*
 * Whether a bar stands. Needs the control lock.
 */
bool
shard_bar_stands(Oid dboid)
{
	for (int i = 0; i < SHARD_MAX_BARS; i++)
		if (shard_shared->bar[i].dboid == dboid)
			return true;
	return false;
}

/*
 * Drops the bars of transactions that ended without their callback. Returns
 * whether any bar is left, so the launcher has to come back.
 */
bool
shard_bar_sweep(void)
{
	VirtualTransactionId vxid[SHARD_MAX_BARS];
	int count = 0;
	bool left = false;

	LWLockAcquire(shard_shared->lock, LW_SHARED);
	for (int i = 0; i < SHARD_MAX_BARS; i++)
		if (OidIsValid(shard_shared->bar[i].dboid))
			vxid[count++] = shard_shared->bar[i].vxid;
	LWLockRelease(shard_shared->lock);

	if (count == 0)
		return false;

	StartTransactionCommand();
	for (int i = 0; i < count; i++)
	{
		if (!VirtualXactLock(vxid[i], false))
		{
			left = true;
			continue;
		}
		pg_atomic_write_u32(&shard_shared->list_wanted, 1);
		remove_bars(vxid[i]);
	}
	CommitTransactionCommand();
	return left;
}

/*
 * Tells the waiting backends of the databases that have no worker any more.
 */
void
shard_bar_acknowledge(bool (*has_workers)(Oid dboid))
{
	bool any = false;

	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SHARD_MAX_BARS; i++)
	{
		ShardBar *bar = &shard_shared->bar[i];

		/* Also behind ready ones: sessions of other nodes may come at any time. */
		if (!OidIsValid(bar->dboid) || has_workers(bar->dboid) || bar->ready)
			continue;
		bar->ready = true;
		any = true;
	}
	LWLockRelease(shard_shared->lock);

	if (any)
		ConditionVariableBroadcast(&shard_shared->launcher_done);
}
