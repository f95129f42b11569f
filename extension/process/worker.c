/*
 * process/worker.c
 *		What every background process of the extension does: start, wait, leave.
 *
 * A region worker is registered by the launcher with a token that its slot knows, so that a worker that comes late -
 * its launcher died, or does not want it any more - is turned away before it connects. A worker attaches before it
 * connects, too: from then on a bar (bar.c) is not ready until it has gone.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "access/xact.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/pidfile.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "shared/bar.h"
#include "registry/catalog.h"
#include "base/guc.h"
#include "registry/owner_session.h"
#include "link/peer.h"
#include "registry/registry.h"
#include "process/worker.h"
#include "shared/worker_cancel.h"
#include "shared/worker_log.h"

#include "base/compat.h"

#define MAX_BACKOFF_MS (30 * 1000)

/* The control worker ends the others; they end by themselves if it does not, or is gone. */
#define LINGER_MARGIN_MS 2000

/* A signal handler does not look at the clock. */
#define LINGER_SOON 1

/* This worker's database; NULL in the launcher. */
static ShardDatabase *my_database = NULL;

/* The server shuts down, and this worker goes on until then; 0: it does not. */
static volatile TimestampTz lingers_until = 0;

static void (*at_stop)(void) = NULL;

static void handle_sigterm(int signo, siginfo_t *info, void *context);
static void end_if_due(void);
static Oid attach(ShardDatabase *db, int worker);
static bool is_wanted(ShardDatabase *db, int worker);
static void look_for_extension(int worker);
static void note_groups(uint8 groups);
static void record_outcome(ShardProbeOutcome outcome);
static void set_option(const char *name, const char *value);
static void set_lock_timeout(void);
static long report_statistics(void);

ShardDatabase *
shard_worker_start(Datum argument, int *worker)
{
	int packed = DatumGetInt32(argument);
	ShardDatabase *db = &shard_shared->database[packed / SHARD_WORKER_SLOTS];
	Oid dboid;

	*worker = packed % SHARD_WORKER_SLOTS;
	shard_worker_signals();
	dboid = attach(db, *worker);
	my_database = db;

	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	shard_owner_session_serve();
	shard_worker_settings();
	look_for_extension(*worker);
	return db;
}

/*
 * What the postmaster says in its lock file. Uses nothing that a signal handler may not.
 */
bool
shard_worker_server_stops(void)
{
	char text[4 * MAXPGPATH];
	const char *line = text;
	int fd = open("postmaster.pid", O_RDONLY, 0); /* the working folder is the data directory */
	ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[Max(length, 0)] = '\0';
	for (int i = 1; line != NULL && i < LOCK_FILE_LINE_PM_STATUS; i++)
	{
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return line != NULL && strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
}

/*
 * Handler of SIGTERM: the first one of a shutdown lets a worker linger. The postmaster signals a child and then the
 * child's process group, so one request may arrive as two signals.
 */
static void
handle_sigterm(int signo, siginfo_t *info, void *context)
{
	int saved_errno = errno;

	if (lingers_until != 0 && info->si_pid == PostmasterPid)
		return;
	if (info->si_pid == MyProcPid)
	{
		shard_worker_log_self = true;
		shard_worker_log_why = "code that it ran told it to";
	}

	/* Without a control worker no process would end a handler that takes long. */
	if (my_database != NULL && lingers_until == 0 && info->si_pid == PostmasterPid &&
		shard_shutdown_timeout > 0 && my_database->worker[SHARD_CONTROL_WORKER].in_use &&
		shard_worker_server_stops())
	{
		lingers_until = LINGER_SOON;
		SetLatch(MyLatch);
	}
	else
		die(signo);
	errno = saved_errno;
}

bool
shard_worker_lingers(void)
{
	return lingers_until != 0;
}

void
shard_worker_at_stop(void (*callback)(void))
{
	at_stop = callback;
}

/*
 * Ends a worker that was to end: by a shutdown of the server, or by a signal to it alone. One that lingers ends, too,
 * when the control worker is gone, however that ended.
 */
static void
end_if_due(void)
{
	void (*last)(void) = at_stop;
	TimestampTz now;

	if (ProcDiePending)
	{
		at_stop = NULL;
		if (last != NULL && shard_worker_server_stops())
			last();
		shard_worker_log_end();
		proc_exit(1);
	}
	if (lingers_until == 0)
		return;
	if (!shard_shmem_worker_runs(my_database, SHARD_CONTROL_WORKER))
		proc_exit(1);
	now = GetCurrentTimestamp();
	if (lingers_until == LINGER_SOON)
		lingers_until = TimestampTzPlusMilliseconds(now, shard_shutdown_timeout + LINGER_MARGIN_MS);
	else if (now >= lingers_until)
		proc_exit(1);
}

/*
 * Installs the signal handlers. SIGTERM acts at the next interrupt check, also
 * in the midst of user code, unless the worker may linger; SIGUSR1 is as the server set it.
 */
void
shard_worker_signals(void)
{
	struct sigaction term = {.sa_sigaction = handle_sigterm, .sa_flags = SA_RESTART | SA_SIGINFO};

	sigemptyset(&term.sa_mask);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, shard_worker_cancel_handle);

	/* pqsignal() does not tell which process sent the signal */
	if (sigaction(SIGTERM, &term, NULL) != 0)
		elog(FATAL, "could not set the handler of SIGTERM: %m");
	/* The server has a background worker ignore SIGHUP until now: a reload since the fork would not be heard of. */
	ConfigReloadPending = true;
	BackgroundWorkerUnblockSignals();
}

/*
 * Attaches to the slot and returns the database's OID, or ends the process if
 * it is not the one that is waited for.
 */
static Oid
attach(ShardDatabase *db, int worker)
{
	Oid dboid = InvalidOid;

	LWLockAcquire(shard_shared->lock, LW_SHARED);
	if (shard_enabled && is_wanted(db, worker))
	{
		dboid = db->dboid;
		shard_shmem_attach_worker(db, worker, shard_shmem_worker_lanes(db, worker));
	}
	LWLockRelease(shard_shared->lock);

	if (!OidIsValid(dboid))
		proc_exit(0);
	return dboid;
}

/*
 * Whether the launcher still wants the process that it started with this process's token. Needs the control lock.
 */
static bool
is_wanted(ShardDatabase *db, int worker)
{
	ShardWorkerSlot *slot = &db->worker[worker];
	uint32 token;
	bool wanted;

	memcpy(&token, MyBgworkerEntry->bgw_extra, sizeof(token));
	SpinLockAcquire(&slot->mutex);
	wanted = slot->start_token == token && !slot->stop_wanted;
	SpinLockRelease(&slot->mutex);
	if (worker < SHARD_MAX_WORKERS && shard_shmem_worker_lanes(db, worker) == 0)
		return false;
	return wanted && OidIsValid(db->dboid) && !shard_bar_stands(db->dboid);
}

/*
 * Tells the launcher whether the extension is in this worker's database; ends the process if it is not.
 */
static void
look_for_extension(int worker)
{
	bool present;
	uint8 groups = 0;

	StartTransactionCommand();
	shard_worker_log_begin(worker == SHARD_CONTROL_WORKER ? "shard control"
														  : psprintf("shard region %d", worker));
	present = shard_catalog_find() != NULL;
	if (present && worker == 0)
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		groups = shard_registry_groups();
		PopActiveSnapshot();
	}
	CommitTransactionCommand();

	if (!present)
		shard_worker_leave_absent();
	if (worker == 0)
		note_groups(groups);
	record_outcome(SHARD_PROBE_PRESENT);
}

/*
 * The probe finds out which owners have types, too: the other workers are started with that known. No other worker runs
 * yet.
 */
static void
note_groups(uint8 groups)
{
	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	if (my_database->state == SHARD_DATABASE_PROBE &&
		my_database->probe_outcome == SHARD_PROBE_NONE)
	{
		pg_atomic_write_u32(&my_database->groups, groups);
		shard_shmem_divide(my_database, groups);
		shard_shmem_attach_worker(my_database, 0, shard_shmem_worker_lanes(my_database, 0));
	}
	LWLockRelease(shard_shared->lock);
}

/*
 * Ends the process for want of the extension.
 */
void
shard_worker_leave_absent(void)
{
	record_outcome(SHARD_PROBE_ABSENT);
	proc_exit(0);
}

/*
 * Notes the outcome of the probe and wakes the launcher. Once a worker found the extension gone, an older look of
 * another worker does not count.
 */
static void
record_outcome(ShardProbeOutcome outcome)
{
	bool changed;

	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	changed = my_database->probe_outcome < outcome;
	if (changed)
		my_database->probe_outcome = outcome;
	LWLockRelease(shard_shared->lock);
	if (changed)
		shard_shmem_wake_launcher();
}

/*
 * Forces what a worker relies on, as autovacuum does. ALTER DATABASE and ALTER
 * ROLE could change any of it.
 */
void
shard_worker_settings(void)
{
	set_option("application_name", MyBgworkerEntry->bgw_name);
	set_option("role", "none");
	set_option("search_path", "pg_catalog, pg_temp");
	set_option("default_transaction_isolation", "read committed");
	set_option("default_transaction_read_only", "off");
	set_option("default_transaction_deferrable", "off");
	set_option("statement_timeout", "0");
	set_option("transaction_timeout", "0");
	set_option("idle_in_transaction_session_timeout", "0");
	set_option("idle_session_timeout", "0");
	set_option("synchronous_commit", "off");
	set_option("session_replication_role", "origin");
	set_option("zero_damaged_pages", "off");
	/* Handlers read tables of others: policies filter for them as for any session. */
	set_option("row_security", "on");
	set_lock_timeout();
}

/*
 * Sets an option, if this version of the server has it.
 */
static void
set_option(const char *name, const char *value)
{
	if (GetConfigOption(name, true, false) != NULL)
		SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * Workers never wait long for a user's lock.
 */
static void
set_lock_timeout(void)
{
	char value[32];

	snprintf(value, sizeof(value), "%dms", shard_handler_lock_timeout);
	set_option("lock_timeout", value);
}

void
shard_worker_interrupts(void)
{
	ShardWorkerSlot *slot = shard_shmem_my_worker();

	Assert(!IsTransactionState());

	/* A busy worker may never come to wait on its latch. */
	if (!PostmasterIsAlive())
		proc_exit(1);
	/* Nothing was interrupted, so there is nothing to say about it. */
	end_if_due();
	QueryCancelPending = false;
	(void) shard_worker_cancel_take();
	CHECK_FOR_INTERRUPTS();

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		set_lock_timeout();
	}
	if (slot != NULL && (!shard_enabled || *(volatile bool *) &slot->stop_wanted))
		proc_exit(0);
}

bool
shard_worker_wait(long timeout_ms, uint32 wait_event)
{
	ShardWorkerSlot *slot = shard_shmem_my_worker();
	long flush;

	ShardAssert(!IsTransactionState());
	ShardAssert(!HaveRegisteredOrActiveSnapshot());

	flush = report_statistics();
	if (flush > 0 && (timeout_ms < 0 || flush < timeout_ms))
		timeout_ms = flush;

	/* Lock waits use the same latch, so the flag decides. */
	if (slot == NULL || pg_atomic_read_u32(&slot->wake) == 0)
		shard_peer_wait(timeout_ms, wait_event);
	ResetLatch(MyLatch);
	shard_worker_interrupts();
	return slot != NULL && pg_atomic_exchange_u32(&slot->wake, 0) != 0;
}

/*
 * Reports statistics, which the server takes at most once a second. Returns in how many ms to come back for those that
 * it did not take; 0: none. Its clock is the end of the last transaction, so after a while the worker forces a report.
 */
static long
report_statistics(void)
{
	static TimestampTz pending_since = 0;
	long flush = pgstat_report_stat(false);
	TimestampTz now;

	if (flush <= 0)
	{
		pending_since = 0;
		return 0;
	}
	now = GetCurrentTimestamp();
	if (pending_since == 0)
		pending_since = now;
	else if (TimestampDifferenceExceeds(pending_since, now, (int) flush))
	{
		flush = pgstat_report_stat(true);
		pending_since = flush > 0 ? now : 0;
	}
	return flush;
}

/*
 * The pause in ms after this many failures in a row.
 */
int
shard_worker_backoff(int failures)
{
	if (failures <= 0)
		return 0;
	if (failures > 5)
		return MAX_BACKOFF_MS;
	return Min(1000 << (failures - 1), MAX_BACKOFF_MS);
}
