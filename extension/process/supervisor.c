/*
 * process/supervisor.c
 *		The launcher's workers, region and control: starting, stopping, noticing their end.
 *
 * Workers are dynamic background workers that the postmaster never restarts: only the launcher knows whether one is
 * wanted, and the postmaster knows no back-off. The postmaster signals the launcher when one starts or ends.
 *
 * A handle dies with the launcher. The next launcher finds workers that are still there by their slots; as it cannot
 * see them end, it has them all leave and starts their successors. New tokens turn away workers that were registered
 * but have not attached yet.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/procarray.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "process/launcher.h"
#include "process/worker.h"
#include "shared/worker_log.h"

#include "base/compat.h"

/* A worker may end its turn; after that it is terminated. */
#define STOP_PATIENCE_MS 2000

/* The failure of a worker that lived this long counts as the first one again. */
#define LONG_LIFE_MS (30 * 1000)

/* Nothing relies on it: all that happens wakes the launcher. */
#define LONGEST_SLEEP_MS (60 * 1000)

typedef struct Supervised
{
	BackgroundWorkerHandle *handle; /* NULL: none was started */
	pid_t orphan;					/* started by an earlier launcher; 0: no */
	bool alive;
	TimestampTz started_at;
	TimestampTz stop_asked_at; /* 0: it was not asked to leave */
} Supervised;

static Supervised supervised[SHARD_MAX_DATABASES][SHARD_WORKER_SLOTS];

static TimestampTz next_wake = DT_NOEND;

/* A worker could not be registered, nor any since. Said once. */
static bool lacks_slots = false;

static Supervised *entry_of(ShardDatabase *db, int worker);
static bool is_alive(const Supervised *entry);
static void note_end(ShardDatabase *db, int worker);
static void fail(ShardWorkerSlot *slot, int worker);
static void start(ShardDatabase *db, int worker);
static void describe(ShardDatabase *db, int worker, BackgroundWorker *description);
static void terminate(ShardDatabase *db, int worker);

static Supervised *
entry_of(ShardDatabase *db, int worker)
{
	return &supervised[shard_shmem_database_index(db)][worker];
}

/*
 * Finds the workers of an earlier launcher. All databases are to be probed again, which makes these workers leave.
 */
void
shard_supervisor_adopt(void)
{
	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shard_shared->databases; i++)
	{
		ShardDatabase *db = &shard_shared->database[i];

		db->probe_wanted = OidIsValid(db->dboid);
		for (int worker = 0; worker < SHARD_WORKER_SLOTS; worker++)
		{
			Supervised *entry = entry_of(db, worker);
			ShardWorkerSlot *slot = &db->worker[worker];

			SpinLockAcquire(&slot->mutex);
			slot->start_token++;
			entry->orphan = slot->in_use ? slot->pid : 0;
			SpinLockRelease(&slot->mutex);
			entry->alive = entry->orphan != 0;
			entry->started_at = GetCurrentTimestamp();
		}
	}
	LWLockRelease(shard_shared->lock);
}

/*
 * Looks after all workers of a database.
 */
int
shard_supervisor_reap(ShardDatabase *db)
{
	for (int worker = 0; worker < SHARD_WORKER_SLOTS; worker++)
	{
		Supervised *entry = entry_of(db, worker);

		if (!entry->alive)
			continue;
		entry->alive = is_alive(entry);
		if (!entry->alive)
			note_end(db, worker);
		else if (entry->orphan != 0)
			shard_supervisor_come_back(TimestampTzPlusMilliseconds(GetCurrentTimestamp(), 100));
	}
	return shard_supervisor_alive(db);
}

/*
 * The number of workers alive.
 */
int
shard_supervisor_alive(ShardDatabase *db)
{
	int alive = 0;

	for (int worker = 0; worker < SHARD_WORKER_SLOTS; worker++)
		alive += entry_of(db, worker)->alive ? 1 : 0;
	return alive;
}

/*
 * Asks the postmaster, or, for a worker of an earlier launcher, looks for its process.
 */
static bool
is_alive(const Supervised *entry)
{
	pid_t pid;

	if (entry->handle == NULL)
		return BackendPidGetProc(entry->orphan) != NULL;
	switch (GetBackgroundWorkerPid(entry->handle, &pid))
	{
		case BGWH_STARTED:
		case BGWH_NOT_YET_STARTED:
			return true;
		case BGWH_POSTMASTER_DIED:
			proc_exit(1);
		case BGWH_STOPPED:
			break;
	}
	return false;
}

/*
 * Clears up after a worker that ended, and counts it as a failure unless there
 * was a reason to leave.
 */
static void
note_end(ShardDatabase *db, int worker)
{
	Supervised *entry = entry_of(db, worker);
	ShardWorkerSlot *slot = &db->worker[worker];
	bool expected =
		entry->stop_asked_at != 0 || !shard_enabled || db->probe_outcome == SHARD_PROBE_ABSENT;

	SpinLockAcquire(&slot->mutex);
	expected |= slot->starts_again;
	slot->starts_again = false;
	SpinLockRelease(&slot->mutex);
	if (expected)
		slot->failures = 0;
	else
	{
		if (shard_supervisor_age(db, worker) >= LONG_LIFE_MS)
			slot->failures = 0;
		fail(slot, worker);
	}
	if (entry->handle != NULL)
		pfree(entry->handle);
	memset(entry, 0, sizeof(Supervised));
}

/*
 * Counts a failure and sets the time of the next attempt.
 */
static void
fail(ShardWorkerSlot *slot, int worker)
{
	int failures = ++slot->failures;

	/* Without the control worker leases end: the first time it comes back at once. */
	if (worker == SHARD_CONTROL_WORKER)
		failures--;
	slot->pause = shard_worker_backoff(failures);
	slot->next_start = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), slot->pause);
}

/*
 * The lanes that a process holds, or is about to take; none if it has not come to that, since then it will
 * take those of the division.
 */
static ShardLanes
lanes_held(ShardDatabase *db, int worker)
{
	ShardWorkerSlot *slot = &db->worker[worker];
	ShardLanes lanes;

	SpinLockAcquire(&slot->mutex);
	lanes = slot->in_use ? slot->lanes : 0;
	SpinLockRelease(&slot->mutex);
	return lanes;
}

/*
 * Whether a worker has other lanes than the division says. Attaching takes the control lock, so a worker that has no
 * lanes yet cannot take those of the former division.
 */
bool
shard_supervisor_has_others_lanes(ShardDatabase *db, int worker)
{
	ShardLanes lanes = lanes_held(db, worker);

	return lanes != 0 && lanes != shard_shmem_worker_lanes(db, worker);
}

/*
 * Whether another process still has lanes that a worker is to have.
 */
static bool
are_lanes_taken(ShardDatabase *db, int worker)
{
	ShardLanes lanes = worker < SHARD_MAX_WORKERS ? shard_shmem_worker_lanes(db, worker) : 0;

	for (int other = 0; lanes != 0 && other < SHARD_MAX_WORKERS; other++)
		if (other != worker && (lanes_held(db, other) & lanes) != 0)
			return true;
	return false;
}

/*
 * Starts a worker if it is not alive and its time has come. A worker that lets go of lanes wakes the launcher.
 */
void
shard_supervisor_ensure(ShardDatabase *db, int worker)
{
	ShardWorkerSlot *slot = &db->worker[worker];

	if (entry_of(db, worker)->alive || are_lanes_taken(db, worker))
		return;
	/* a clock that was set back delays nothing for longer than the pause */
	slot->next_start =
		Min(slot->next_start, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), slot->pause));
	if (slot->failures == 0 || GetCurrentTimestamp() >= slot->next_start)
		start(db, worker);
	if (!entry_of(db, worker)->alive)
		shard_supervisor_come_back(slot->next_start);
}

/*
 * Registers a worker. If there is no room for one, the launcher logs that once and comes back later.
 */
static void
start(ShardDatabase *db, int worker)
{
	Supervised *entry = entry_of(db, worker);
	ShardWorkerSlot *slot = &db->worker[worker];
	BackgroundWorker description;
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	bool registered;

	describe(db, worker, &description);
	registered = RegisterDynamicBackgroundWorker(&description, &entry->handle);
	MemoryContextSwitchTo(caller);

	SpinLockAcquire(&slot->mutex);
	slot->no_room = !registered;
	SpinLockRelease(&slot->mutex);
	if (registered)
	{
		entry->alive = true;
		entry->started_at = GetCurrentTimestamp();
		lacks_slots = false;
		return;
	}
	entry->handle = NULL;
	fail(slot, worker);
	if (!lacks_slots)
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start %s of database %u: no background worker slot is free",
						description.bgw_type, db->dboid),
				 errdetail("Messages wait; the start is tried again."),
				 errhint("Increase max_worker_processes, which is %s, and restart the server.",
						 GetConfigOption("max_worker_processes", false, false))));
	lacks_slots = true;
}

/*
 * Describes a worker to the postmaster, and its token to its slot.
 */
static void
describe(ShardDatabase *db, int worker, BackgroundWorker *description)
{
	ShardWorkerSlot *slot = &db->worker[worker];
	uint32 token;

	SpinLockAcquire(&slot->mutex);
	token = ++slot->start_token;
	slot->stop_wanted = false;
	SpinLockRelease(&slot->mutex);

	memset(description, 0, sizeof(BackgroundWorker));
	description->bgw_flags =
		BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION | BGWORKER_INTERRUPTIBLE;
	description->bgw_start_time = BgWorkerStart_RecoveryFinished;
	description->bgw_restart_time = BGW_NEVER_RESTART;
	description->bgw_main_arg = shard_worker_argument(shard_shmem_database_index(db), worker);
	description->bgw_notify_pid = MyProcPid;
	strlcpy(description->bgw_library_name, "shard", BGW_MAXLEN);
	if (worker == SHARD_CONTROL_WORKER)
	{
		strlcpy(description->bgw_function_name, "ShardControlMain", BGW_MAXLEN);
		strlcpy(description->bgw_type, "shard control", BGW_MAXLEN);
		snprintf(description->bgw_name, BGW_MAXLEN, "shard control of database %u", db->dboid);
	}
	else
	{
		strlcpy(description->bgw_function_name, "ShardRegionMain", BGW_MAXLEN);
		strlcpy(description->bgw_type, "shard region", BGW_MAXLEN);
		snprintf(description->bgw_name, BGW_MAXLEN, "shard region %d of database %u", worker,
				 db->dboid);
	}
	memcpy(description->bgw_extra, &token, sizeof(token));
}

/*
 * Asks a worker to leave after its turn, and sees to it that it does.
 */
void
shard_supervisor_stop(ShardDatabase *db, int worker)
{
	Supervised *entry = entry_of(db, worker);
	ShardWorkerSlot *slot = &db->worker[worker];
	TimestampTz now = GetCurrentTimestamp();

	if (!entry->alive)
		return;
	if (entry->stop_asked_at == 0)
	{
		SpinLockAcquire(&slot->mutex);
		slot->stop_wanted = true;
		SpinLockRelease(&slot->mutex);
		shard_shmem_wake_worker(db, worker);
		entry->stop_asked_at = now;
	}
	else if (TimestampDifferenceExceeds(entry->stop_asked_at, now, STOP_PATIENCE_MS))
	{
		terminate(db, worker);
		entry->stop_asked_at = now;
	}
	shard_supervisor_come_back(TimestampTzPlusMilliseconds(entry->stop_asked_at, STOP_PATIENCE_MS));
}

/*
 * Terminates a worker that did not end when it was asked to.
 */
static void
terminate(ShardDatabase *db, int worker)
{
	Supervised *entry = entry_of(db, worker);
	pid_t pid = shard_worker_log_terminate(
		&db->worker[worker],
		psprintf("it was asked to end, and its turn did not end within %d ms", STOP_PATIENCE_MS));

	if (pid != 0)
	{
		ereport(LOG, (errmsg("shard: process %d of database %u does not end when asked, and is "
							 "terminated",
							 (int) pid, db->dboid)));
		return;
	}
	if (entry->handle != NULL)
		TerminateBackgroundWorker(entry->handle);
	else if (BackendPidGetProc(entry->orphan) != NULL)
		(void) kill(entry->orphan, SIGTERM);
}

/*
 * Time since a worker was started, in ms.
 */
int64
shard_supervisor_age(ShardDatabase *db, int worker)
{
	Supervised *entry = entry_of(db, worker);

	if (entry->started_at == 0)
		return -1;
	return (GetCurrentTimestamp() - entry->started_at) / 1000;
}

/*
 * Whether there was no slot for a worker, and none has started since.
 */
bool
shard_supervisor_lacks_slots(void)
{
	return lacks_slots;
}

/*
 * Has the launcher come back at this time.
 */
void
shard_supervisor_come_back(TimestampTz at)
{
	next_wake = Min(next_wake, at);
}

/*
 * The time to sleep in ms, until the earliest of the times given.
 */
long
shard_supervisor_sleep(void)
{
	long sleep = LONGEST_SLEEP_MS;

	if (next_wake != DT_NOEND)
		sleep = Min(sleep, TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next_wake));
	next_wake = DT_NOEND;
	return sleep;
}
