/*
 * shared/shmem.c
 *		Shared memory: one slot per database, its workers, lanes and log.
 *
 * All of it is one fixed block, made at server start. Slots of databases are taken by the launcher and by CREATE
 * EXTENSION, and given back by the launcher alone, when the database is gone or has no extension (launcher.c says why
 * no process can then be using it). A server crash empties everything.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "shared/shmem.h"

#include "base/compat.h"

#define TRANCHE_NAME "shard"

ShardShared *shard_shared = NULL;
bool shard_preloaded = false;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

/* The parts of other files; ends with NULL. */
static const ShardShmemPart *const *parts = NULL;

/* This backend's database, valid while its dboid is MyDatabaseId. */
static ShardDatabase *my_database = NULL;

static void request(void);
static void startup(void);
static void init_control(ShardShared *control);
static void init_database(ShardDatabase *db);

/*
 * Chains the hooks that ask for shared memory and fill it. From _PG_init, in
 * the postmaster.
 */
void
shard_shmem_init(const ShardShmemPart *const *others)
{
	parts = others;
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup;
}

/*
 * Asks for the memory and the locks: the control lock and an append lock for
 * each database.
 */
static void
request(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(ShardShared)));
	for (const ShardShmemPart *const *part = parts; *part != NULL; part++)
	{
		RequestAddinShmemSpace((*part)->size());
		if ((*part)->request != NULL)
			(*part)->request();
	}
	RequestNamedLWLockTranche(TRANCHE_NAME, 1 + SHARD_MAX_DATABASES);
}

/*
 * Makes the block, at server start and after a crash. In any other process it
 * would find it; such processes exist where backends are not forked.
 */
static void
startup(void)
{
	bool found;

	if (previous_startup_hook)
		previous_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (const ShardShmemPart *const *part = parts; *part != NULL; part++)
		(*part)->startup();
	shard_shared = ShmemInitStruct("shard", sizeof(ShardShared), &found);
	if (!found)
		init_control(shard_shared);
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Fills the block for the first time.
 */
static void
init_control(ShardShared *control)
{
	LWLockPadded *locks = GetNamedLWLockTranche(TRANCHE_NAME);

	memset(control, 0, sizeof(ShardShared));
	control->lock = &locks[0].lock;
	SpinLockInit(&control->launcher_mutex);
	SpinLockInit(&control->gate.mutex);
	pg_atomic_init_u32(&control->launcher_wake, 0);
	pg_atomic_init_u32(&control->list_wanted, 0);
	ConditionVariableInit(&control->launcher_done);

	for (int i = 0; i < SHARD_MAX_DATABASES; i++)
	{
		ShardDatabase *db = &control->database[i];

		db->append_lock = &locks[1 + i].lock;
		for (int node = 0; node < SHARD_AWAY_COUNTERS; node++)
			pg_atomic_init_u32(&db->away[node], 0);
		pg_atomic_init_u32(&db->counters_wanted, 0);
		pg_atomic_init_u64(&db->workers, 0);
		pg_atomic_init_u32(&db->division_no, 0);
		pg_atomic_init_u32(&db->groups, 0);
		for (int j = 0; j < SHARD_WORKER_SLOTS; j++)
			SpinLockInit(&db->worker[j].mutex);
		for (int lane = 0; lane < SHARD_OWNERS; lane++)
			pg_atomic_init_u32(&db->owner[lane], 0);
		SpinLockInit(&db->trouble_mutex);
		init_database(db);
	}
	for (int i = 0; i < SHARD_TYPE_COUNTERS; i++)
	{
		pg_atomic_init_u64(&control->counter[i].held, 0);
		pg_atomic_init_u32(&control->counter[i].aside, 0);
	}
}

/*
 * Puts a slot into the state of a database that is not known yet. Its locks, owners and the generations of its workers
 * outlive that: other processes may remember them.
 */
static void
init_database(ShardDatabase *db)
{
	db->dboid = InvalidOid;
	db->state = SHARD_DATABASE_UNUSED;
	db->paused = false;
	db->probe_outcome = SHARD_PROBE_NONE;
	db->probe_wanted = false;
	db->installing = 0;
	memset(&db->division, 0, sizeof(ShardDivision));
	memset(db->group_missed_at, 0, sizeof(db->group_missed_at));
	pg_atomic_write_u32(&db->groups, 0);
	shard_shmem_divide(db, 0);

	memset(db->trouble, 0, sizeof(db->trouble));
	memset(db->told, 0, sizeof(db->told));
	memset(&db->log, 0, sizeof(ShardLog));
	pg_atomic_init_u64(&db->log.last_seq, 0);
	pg_atomic_init_u64(&db->log.switches, 0);
	pg_atomic_init_u64(&db->log.bytes, 0);

	for (int i = 0; i < SHARD_WORKER_SLOTS; i++)
	{
		ShardWorkerSlot *slot = &db->worker[i];

		slot->ask_head = -1;
		slot->stop_wanted = slot->no_room = false;
		slot->stuck = slot->stuck_guest = (ShardStuckCount){0};
		slot->failures = 0;
		slot->next_start = 0;
		slot->pause = 0;
		pg_atomic_init_u32(&slot->wake, 0);
		pg_atomic_init_u64(&slot->pass_wanted, 0);
		pg_atomic_init_u64(&slot->pass_asked_at, 0);
		pg_atomic_init_u32(&slot->batch_stuck, 0);
		pg_atomic_init_u64(&slot->drain_wanted, 0);
		pg_atomic_init_u64(&slot->drain_done, 0);
		pg_atomic_init_u64(&slot->messages, 0);
		pg_atomic_init_u64(&slot->turns, 0);
		pg_atomic_init_u64(&slot->errors, 0);
		pg_atomic_init_u64(&slot->recounts, 0);
		pg_atomic_init_u64(&slot->cache_entities, 0);
		pg_atomic_init_u64(&slot->cache_bytes, 0);
		pg_atomic_init_u64(&slot->void_replies, 0);
		pg_atomic_init_u64(&slot->commit_lsn, 0);
		pg_atomic_init_u64(&slot->caught_up_at, 0);
		pg_atomic_init_u64(&slot->turn_since, 0);
		pg_atomic_init_u64(&slot->turn_at, 0);
		memset(&slot->turns_now, 0, sizeof(ShardWorkerTurns));
		memset(&slot->long_call, 0, sizeof(ShardLongCall));
		pg_atomic_init_u64(&slot->long_call.since, 0);
	}
	shard_shmem_forget_lanes(db);
	for (const ShardShmemPart *const *part = parts; *part != NULL; part++)
		if ((*part)->forget != NULL)
			(*part)->forget(db);
}

/*
 * Forgets what former workers published of their lanes.
 */
void
shard_shmem_forget_lanes(ShardDatabase *db)
{
	for (int i = 0; i < SHARD_LANES; i++)
	{
		pg_atomic_init_u64(&db->lane[i].q, 0);
		pg_atomic_init_u64(&db->lane[i].needed, 0);
		pg_atomic_init_u64(&db->lane[i].cursor_seq, 0);
		pg_atomic_init_u32(&db->lane[i].stuck_type, 0);
		pg_atomic_init_u32(&db->lane[i].stuck_shard, 0);
		pg_atomic_init_u64(&db->lane[i].stuck_seq, 0);
		pg_atomic_init_u32(&db->lane[i].stuck_fatal, 0);
		pg_atomic_init_u32(&db->lane[i].stuck_numbered, 0);
		pg_atomic_init_u64(&db->lane[i].stuck_number, 0);
	}
}

/*
 * Raises the error that every entry point gives when the library came into
 * this process too late to have shared memory.
 */
void
shard_shmem_require(void)
{
	if (!shard_preloaded || shard_shared == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("shard must be loaded at server start"),
						errdetail("Its background workers and shared memory are made then."),
						errhint("Add shard to shared_preload_libraries and restart the server.")));
}

/*
 * This backend's database slot, or NULL.
 */
ShardDatabase *
shard_shmem_database(void)
{
	if (likely(my_database != NULL && my_database->dboid == MyDatabaseId))
		return my_database;
	if (shard_shared == NULL || !OidIsValid(MyDatabaseId))
		return NULL;

	LWLockAcquire(shard_shared->lock, LW_SHARED);
	my_database = shard_shmem_find_database(MyDatabaseId);
	LWLockRelease(shard_shared->lock);
	return my_database;
}

/*
 * The slot of a database, made if needed; the launcher then hears of it. Error
 * when the library was not preloaded or all slots are taken.
 */
ShardDatabase *
shard_shmem_database_or_make(Oid dboid)
{
	ShardDatabase *db;
	bool made = false;

	shard_shmem_require();
	if (dboid == MyDatabaseId && (db = shard_shmem_database()) != NULL)
		return db;

	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	db = shard_shmem_find_database(dboid);
	if (db == NULL)
	{
		db = shard_shmem_make_database(dboid);
		if (db != NULL)
		{
			db->probe_wanted = true;
			made = true;
		}
	}
	LWLockRelease(shard_shared->lock);

	if (db == NULL)
		shard_shmem_too_many_databases(ERROR);
	if (made)
	{
		pg_atomic_write_u32(&shard_shared->list_wanted, 1);
		shard_shmem_wake_launcher();
	}
	if (dboid == MyDatabaseId)
		my_database = db;
	return db;
}

/*
 * Complains, at the level given, that no slot is free.
 */
void
shard_shmem_too_many_databases(int level)
{
	ereport(level, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					errmsg("too many databases use extension \"shard\""),
					errdetail("At most %d databases of a server can.", SHARD_MAX_DATABASES),
					errhint("Drop the extension in databases that do not need it.")));
}

/*
 * The slot of a database, or NULL. Needs the control lock.
 */
ShardDatabase *
shard_shmem_find_database(Oid dboid)
{
	for (int i = 0; i < shard_shared->databases; i++)
		if (shard_shared->database[i].dboid == dboid)
			return &shard_shared->database[i];
	return NULL;
}

/*
 * Takes a free slot, or returns NULL. Needs the control lock in exclusive mode.
 */
ShardDatabase *
shard_shmem_make_database(Oid dboid)
{
	Assert(OidIsValid(dboid));
	for (int i = 0; i < SHARD_MAX_DATABASES; i++)
	{
		ShardDatabase *db = &shard_shared->database[i];

		if (OidIsValid(db->dboid))
			continue;
		init_database(db);
		shard_shared->databases = Max(shard_shared->databases, i + 1);
		/* last: readers compare it without the lock */
		pg_write_barrier();
		db->dboid = dboid;
		return db;
	}
	return NULL;
}

/*
 * Gives a slot and its counters back. Needs the control lock in exclusive mode.
 */
void
shard_shmem_free_database(ShardDatabase *db)
{
	for (int i = 0; i < SHARD_TYPE_COUNTERS; i++)
		if (shard_shared->counter[i].dboid == db->dboid)
			shard_shared->counter[i].dboid = InvalidOid;
	for (const ShardShmemPart *const *part = parts; *part != NULL; part++)
		if ((*part)->free != NULL)
			(*part)->free(db, db->dboid);
	init_database(db);
}
