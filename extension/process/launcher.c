/*
 * process/launcher.c
 *		The process that starts and stops the workers of all databases.
 *
 * One per server, connected to the shared catalogs only. As a background worker
 * cannot change its database, region worker 0 of each database is the probe
 * that finds out whether the extension is there: at server start in one
 * database after the other, later when CREATE EXTENSION commits. States of a
 * database: ShardDatabaseState in shmem.h; only advance() changes them.
 *
 * Woken by: CREATE EXTENSION (probe_wanted), CREATE, ALTER and DROP DATABASE
 * (bars and list_wanted, bar.c), workers that found something out
 * (probe_outcome), the postmaster when a worker starts or ends, reloads.
 *
 * A slot is given back when its database is gone, and when it has no extension: then no process can be using the slot,
 * since a sender holds a lock on the extension, and CREATE EXTENSION counts itself in "installing". For a database that
 * is merely closed to us (a template) the slot stays: sending works there.
 *
 * Should this process end, the postmaster starts it again, and it has all workers leave and come back (supervisor.c).
 * An error is therefore no harm.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "shared/bar.h"
#include "process/launcher.h"
#include "base/guc.h"
#include "base/next_start.h"
#include "shared/board.h"
#include "shared/visitor.h"
#include "process/worker.h"

#include "base/compat.h"

/* After this time a probe no longer keeps the next database waiting. */
#define PROBE_PATIENCE_MS (10 * 1000)

static bool warned_of_databases = false;

PGDLLEXPORT void ShardLauncherMain(Datum arg);

static void attach(void);
static void detach_at_exit(int code, Datum arg);
static void look_at_settings(void);
static void cycle(void);
static void drive(ShardDatabase *db);
static uint8 groups_wanted(ShardDatabase *db);
static void divide(ShardDatabase *db);
static void advance(ShardDatabase *db, int alive);
static void settle(ShardDatabase *db, bool barred);
static void begin_probe(ShardDatabase *db);
static void give_back(ShardDatabase *db);
static uint64 workers_wanted(ShardDatabase *db);
static bool probe_is_under_way(ShardDatabase *except);
static void probe_next(void);
static bool has_workers(Oid dboid);

/*
 * Registers the launcher. From _PG_init. During pg_upgrade the launcher is not registered.
 */
void
shard_launcher_init(void)
{
	BackgroundWorker description;

	if (IsBinaryUpgrade)
		return;
	memset(&description, 0, sizeof(description));
	description.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	description.bgw_start_time = BgWorkerStart_RecoveryFinished;
	description.bgw_restart_time = 5;
	strlcpy(description.bgw_library_name, "shard", BGW_MAXLEN);
	strlcpy(description.bgw_function_name, "ShardLauncherMain", BGW_MAXLEN);
	strlcpy(description.bgw_type, "shard launcher", BGW_MAXLEN);
	strlcpy(description.bgw_name, "shard launcher", BGW_MAXLEN);
	RegisterBackgroundWorker(&description);
}

/*
 * Main function of the launcher.
 */
void
ShardLauncherMain(Datum arg)
{
	uint32 wait_event;

	shard_worker_signals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	shard_worker_settings();
	wait_event = ShardWaitEvent("ShardLauncherMain");

	attach();
	shard_supervisor_adopt();
	pg_atomic_write_u32(&shard_shared->list_wanted, 1);
	for (;;)
	{
		long sleep;

		shard_worker_interrupts();
		pg_atomic_exchange_u32(&shard_shared->launcher_wake, 0);
		look_at_settings();
		cycle();

		/* A lock wait may have swallowed the latch, not the flag. */
		sleep = shard_supervisor_sleep();
		if (pg_atomic_read_u32(&shard_shared->launcher_wake) == 0)
			(void) shard_worker_wait(sleep, wait_event);
	}
}

/*
 * Lets others find this process.
 */
static void
attach(void)
{
	before_shmem_exit(detach_at_exit, (Datum) 0);
	SpinLockAcquire(&shard_shared->launcher_mutex);
	shard_shared->launcher_pid = MyProcPid;
	shard_shared->launcher_latch = MyLatch;
	SpinLockRelease(&shard_shared->launcher_mutex);
}

/*
 * The reverse, at exit.
 */
static void
detach_at_exit(int code, Datum arg)
{
	SpinLockAcquire(&shard_shared->launcher_mutex);
	shard_shared->launcher_pid = 0;
	shard_shared->launcher_latch = NULL;
	SpinLockRelease(&shard_shared->launcher_mutex);
}

/*
 * After each reload: will the server start with the settings that wait for a restart? One process of the server says so.
 */
static void
look_at_settings(void)
{
	static TimestampTz looked = 0;

	if (looked == PgReloadTime)
		return;
	looked = PgReloadTime;
	shard_next_start_warn();
}

/*
 * One look at everything. Bars come first, so that workers that they keep out are not started.
 */
static void
cycle(void)
{
	if (shard_bar_sweep())
		shard_supervisor_come_back(TimestampTzPlusMilliseconds(GetCurrentTimestamp(), 1000));
	if (!shard_enabled)
		/* what happened meanwhile is looked up in the next cycle */
		pg_atomic_write_u32(&shard_shared->list_wanted, 1);
	else if (pg_atomic_exchange_u32(&shard_shared->list_wanted, 0) != 0)
		shard_databases_read();

	for (int i = 0; i < shard_shared->databases; i++)
		if (OidIsValid(shard_shared->database[i].dboid))
			drive(&shard_shared->database[i]);
	if (shard_enabled)
		probe_next();

	shard_bar_acknowledge(has_workers);
}

/*
 * Starts and stops workers of a database, one step nearer to those that are wanted.
 */
static void
drive(ShardDatabase *db)
{
	uint64 wanted;

	advance(db, shard_supervisor_reap(db));
	if (OidIsValid(db->dboid))
		divide(db);
	wanted = OidIsValid(db->dboid) ? workers_wanted(db) : 0;

	/* Lanes go from one worker to another: first the former worker lets go of them. */
	for (int worker = 0; worker < SHARD_MAX_WORKERS; worker++)
		if ((wanted & shard_worker_bit(worker)) == 0 ||
			shard_supervisor_has_others_lanes(db, worker))
			shard_supervisor_stop(db, worker);
	/* the keeper first: without it the inbox would not be emptied */
	shard_each_lane (worker, wanted & db->division.keeper)
		shard_supervisor_ensure(db, worker);
	shard_each_lane (worker, wanted)
		shard_supervisor_ensure(db, worker);

	/* Not to be needed to find out whether the extension is here. */
	if (wanted != 0 && db->state == SHARD_DATABASE_ACTIVE)
		shard_supervisor_ensure(db, SHARD_CONTROL_WORKER);
	else
		shard_supervisor_stop(db, SHARD_CONTROL_WORKER);
}

/*
 * Groups of lanes that shall have workers of their own: those with types, and those that had some a moment ago, so that
 * a role that makes and drops types all the time seldom has the workers of others start again. Who has no types gives
 * way as soon as a worker finds no slot.
 */
static uint8
groups_wanted(ShardDatabase *db)
{
	uint8 found = (uint8) pg_atomic_read_u32(&db->groups);
	uint8 wanted = found;
	TimestampTz now = GetCurrentTimestamp();

	for (int group = 0; group < SHARD_GROUPS; group++)
	{
		TimestampTz *missed_at = &db->group_missed_at[group];
		TimestampTz end;

		if ((found & shard_group_bit(group)) != 0 ||
			(db->division.groups & shard_group_bit(group)) == 0)
		{
			*missed_at = 0;
			continue;
		}
		if (*missed_at == 0)
			*missed_at = now;
		end = TimestampTzPlusMilliseconds(*missed_at, shard_owner_workers_keep);
		if (now >= end || shard_supervisor_lacks_slots())
			continue;
		wanted |= shard_group_bit(group);
		shard_supervisor_come_back(end);
	}
	return wanted;
}

/*
 * Divides the lanes again, if types have come or gone, or settings have changed.
 */
static void
divide(ShardDatabase *db)
{
	uint8 groups;

	/* The probe says what there is. */
	if (db->state != SHARD_DATABASE_ACTIVE)
		return;
	groups = groups_wanted(db);
	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	shard_shmem_divide(db, groups);
	LWLockRelease(shard_shared->lock);
}

/*
 * Takes a database to its next state, if it is time. Everything but the end of
 * a successful probe waits until no worker is left.
 */
static void
advance(ShardDatabase *db, int alive)
{
	if (!shard_enabled)
		return;
	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	if (db->state == SHARD_DATABASE_PROBE && db->probe_outcome == SHARD_PROBE_PRESENT)
		db->state = SHARD_DATABASE_ACTIVE;
	if (alive == 0)
		settle(db, shard_bar_stands(db->dboid));
	LWLockRelease(shard_shared->lock);
}

/*
 * Decides on a database without workers. Under the control lock.
 */
static void
settle(ShardDatabase *db, bool barred)
{
	ShardStanding where = shard_databases_standing(db);

	if (barred)
		db->state = SHARD_DATABASE_BARRED;
	else if (pg_atomic_read_u32(&shard_shared->list_wanted) != 0)
		/* what the launcher knows of it may be old: it looks again next time */;
	else if (where == SHARD_STANDING_GONE)
		give_back(db);
	else if (where == SHARD_STANDING_CLOSED)
	{
		db->state = SHARD_DATABASE_UNUSED;
		db->probe_wanted = true;
	}
	else if (db->probe_wanted || db->state == SHARD_DATABASE_BARRED)
		begin_probe(db);
	else if (db->probe_outcome == SHARD_PROBE_ABSENT || db->state == SHARD_DATABASE_UNUSED)
	{
		/* none there, or CREATE EXTENSION was rolled back */
		db->state = SHARD_DATABASE_ABSENT;
		db->probe_outcome = SHARD_PROBE_ABSENT;
		if (db->installing == 0)
			give_back(db);
	}
}

/*
 * Prepares for a probe. No worker of an extension that was here before is left, so its positions are not published any
 * more.
 */
static void
begin_probe(ShardDatabase *db)
{
	db->state = SHARD_DATABASE_PROBE;
	db->probe_wanted = false;
	db->probe_outcome = SHARD_PROBE_NONE;
	memset(&db->division, 0, sizeof(ShardDivision));
	shard_shmem_divide(db, 0);
	shard_shmem_forget_lanes(db);
	shard_board_forget(db);
}

/*
 * Gives the slot of a database back that is gone or has no extension.
 */
static void
give_back(ShardDatabase *db)
{
	shard_databases_slot_lost(db);
	shard_shmem_free_database(db);
}

/*
 * Which region workers of a database should be running now, as a mask.
 */
static uint64
workers_wanted(ShardDatabase *db)
{
	bool kept_out;

	LWLockAcquire(shard_shared->lock, LW_SHARED);
	kept_out = shard_bar_stands(db->dboid) || db->probe_wanted;
	LWLockRelease(shard_shared->lock);

	if (!shard_enabled || kept_out || db->probe_outcome == SHARD_PROBE_ABSENT ||
		shard_databases_standing(db) != SHARD_STANDING_OPEN)
		return 0;
	if (db->state == SHARD_DATABASE_ACTIVE)
		return shard_shmem_workers(db);
	if (db->state == SHARD_DATABASE_PROBE && !probe_is_under_way(db))
		return 1;
	return 0;
}

/*
 * Whether some other database is being probed right now. A probe that takes
 * too long does not count any more.
 */
static bool
probe_is_under_way(ShardDatabase *except)
{
	for (int i = 0; i < shard_shared->databases; i++)
	{
		ShardDatabase *db = &shard_shared->database[i];

		if (db == except || db->state != SHARD_DATABASE_PROBE ||
			db->probe_outcome != SHARD_PROBE_NONE || shard_supervisor_alive(db) == 0)
			continue;
		if (shard_supervisor_age(db, 0) >= PROBE_PATIENCE_MS)
			continue;
		shard_supervisor_come_back(
			TimestampTzPlusMilliseconds(GetCurrentTimestamp(), PROBE_PATIENCE_MS));
		return true;
	}
	return false;
}

/*
 * Begins with the next database that no probe has looked into. A database under a bar comes again with the list that is
 * read when the bar falls.
 */
static void
probe_next(void)
{
	Oid dboid;

	while (!probe_is_under_way(NULL) && OidIsValid(dboid = shard_databases_next()))
	{
		ShardDatabase *db = NULL;
		bool full = false;

		LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
		if (!shard_bar_stands(dboid) && shard_shmem_find_database(dboid) == NULL)
		{
			db = shard_shmem_make_database(dboid);
			full = db == NULL;
		}
		if (db != NULL)
		{
			shard_databases_slot_made(db);
			begin_probe(db);
		}
		LWLockRelease(shard_shared->lock);

		if (db != NULL)
			drive(db);
		else if (full && !warned_of_databases)
		{
			warned_of_databases = true;
			shard_shmem_too_many_databases(WARNING);
		}
	}
}

/*
 * Whether a database has workers that are not gone yet, or sessions of other nodes, which are ended.
 * Under the control lock.
 */
static bool
has_workers(Oid dboid)
{
	ShardDatabase *db = shard_shmem_find_database(dboid);

	if (shard_visitor_end(dboid) > 0)
	{
		/* New ones may have come in before they found the door closed. */
		shard_supervisor_come_back(TimestampTzPlusMilliseconds(GetCurrentTimestamp(), 100));
		return true;
	}
	return db != NULL && shard_supervisor_alive(db) > 0;
}
