/*
 * shared/shmem_counter.c
 *		Counters of what cannot be handled now, one per entity type in use.
 *
 * A counter is made for a process that sends or counts, not for one that only looks, and given back when its type is
 * gone: by a region worker that finds the type gone (buffer.c), or with its database's slot. A type that a transaction
 * made and sent to is gone unannounced when the transaction is rolled back; so workers are asked to look, too, whenever
 * a fixed number of counters more are in use, and when there is none left. A process that keeps a pointer compares the
 * key: readers without a lock, since what they read is a hint; a process that changes a number compares under the
 * control lock, so that it cannot become another type's meanwhile.
 */
#include "postgres.h"

#include "shared/shmem.h"

#include "base/compat.h"

/* Workers look whenever their database has this many counters more. */
#define LOOK_COUNTERS 64

/*
 * Looks a counter up, or, without a database, a free one; needs the control lock.
 */
static ShardTypeCounter *
find_counter(Oid dboid, int32 type_id)
{
	for (int i = 0; i < SHARD_TYPE_COUNTERS; i++)
	{
		ShardTypeCounter *counter = &shard_shared->counter[i];

		if (counter->dboid == dboid && (counter->type_id == type_id || !OidIsValid(dboid)))
			return counter;
	}
	return NULL;
}

int64
shard_shmem_held(ShardTypeCounter **counter, Oid dboid, int32 type_id)
{
	if (!shard_shmem_is_counter(*counter, dboid, type_id))
	{
		LWLockAcquire(shard_shared->lock, LW_SHARED);
		*counter = find_counter(dboid, type_id);
		LWLockRelease(shard_shared->lock);
	}
	return *counter == NULL ? 0 : (int64) pg_atomic_read_u64(&(*counter)->held);
}

/* Has workers look for counters that are not needed any more: of that database, or, as there is none left, of all. */
static void
want_free(Oid dboid, bool all)
{
	LWLockAcquire(shard_shared->lock, LW_SHARED);
	for (int i = 0; i < shard_shared->databases; i++)
	{
		ShardDatabase *db = &shard_shared->database[i];

		if (!OidIsValid(db->dboid) || (!all && db->dboid != dboid))
			continue;
		pg_atomic_write_u32(&db->counters_wanted, 1);
		shard_shmem_wake_worker(db, shard_shmem_caretaker(db));
	}
	LWLockRelease(shard_shared->lock);
}

bool
shard_shmem_counters_wanted(void)
{
	ShardDatabase *db = shard_shmem_database();

	return db != NULL && pg_atomic_read_u32(&db->counters_wanted) != 0 &&
		   pg_atomic_exchange_u32(&db->counters_wanted, 0) != 0;
}

static int
count_of(Oid dboid)
{
	int count = 0;

	for (int i = 0; i < SHARD_TYPE_COUNTERS; i++)
		count += shard_shared->counter[i].dboid == dboid;
	return count;
}

/*
 * Looks it up, or takes a free one; NULL if there is none, or the database has *count, which is as many as it may. Needs
 * the control lock in exclusive mode.
 */
static ShardTypeCounter *
take_counter(Oid dboid, int32 type_id, int *count)
{
	ShardTypeCounter *counter = find_counter(dboid, type_id);

	*count = 0;
	if (counter != NULL)
		return counter;
	*count = count_of(dboid);
	if (*count >= SHARD_DATABASE_COUNTERS)
		return NULL;
	counter = find_counter(InvalidOid, -1);
	if (counter == NULL)
		return NULL;
	counter->type_id = type_id;
	pg_atomic_write_u64(&counter->held, 0);
	pg_atomic_write_u32(&counter->aside, 0);
	pg_write_barrier();
	counter->dboid = dboid;
	return counter;
}

/*
 * The same under the control lock, made if there is none, and counted up by change messages. *full: true if the
 * database has as many counters as it may.
 */
static ShardTypeCounter *
make_counter(Oid dboid, int32 type_id, int64 change, bool *full)
{
	ShardTypeCounter *counter;
	int count;

	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	counter = take_counter(dboid, type_id, &count);
	if (counter != NULL && change != 0)
		pg_atomic_fetch_add_u64(&counter->held, change);
	LWLockRelease(shard_shared->lock);
	*full = count >= SHARD_DATABASE_COUNTERS;
	if (counter == NULL || (count > 0 && count % LOOK_COUNTERS == 0))
		want_free(dboid, counter == NULL && !*full);
	return counter;
}

ShardTypeCounter *
shard_shmem_type_counter(Oid dboid, int32 type_id)
{
	ShardTypeCounter *counter;
	bool full;

	shard_shmem_require();
	LWLockAcquire(shard_shared->lock, LW_SHARED);
	counter = find_counter(dboid, type_id);
	LWLockRelease(shard_shared->lock);
	if (counter != NULL)
		return counter;

	counter = make_counter(dboid, type_id, 0, &full);
	if (counter == NULL)
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						full ? errmsg("too many entity types in this database")
							 : errmsg("too many entity types in this server"),
						errdetail("At most %d entity types can be in use.",
								  full ? SHARD_DATABASE_COUNTERS : SHARD_TYPE_COUNTERS),
						errhint("Drop types that are not needed; then try again in a moment.")));
	return counter;
}

void
shard_shmem_count_held(ShardTypeCounter **counter, Oid dboid, int32 type_id, int64 change)
{
	bool full;

	LWLockAcquire(shard_shared->lock, LW_SHARED);
	if (!shard_shmem_is_counter(*counter, dboid, type_id))
		*counter = find_counter(dboid, type_id);
	if (*counter != NULL)
		pg_atomic_fetch_add_u64(&(*counter)->held, change);
	LWLockRelease(shard_shared->lock);

	/* the count of a type that is gone went with its counter */
	if (*counter != NULL || change <= 0)
		return;
	*counter = make_counter(dboid, type_id, change, &full);
}

int
shard_shmem_list_counters(Oid dboid, ShardTypeCounter **counters, int64 *held)
{
	int count = 0;

	LWLockAcquire(shard_shared->lock, LW_SHARED);
	for (int i = 0; i < SHARD_TYPE_COUNTERS; i++)
	{
		ShardTypeCounter *counter = &shard_shared->counter[i];

		if (counter->dboid != dboid)
			continue;
		counters[count] = counter;
		held[count++] = (int64) pg_atomic_read_u64(&counter->held);
	}
	LWLockRelease(shard_shared->lock);
	return count;
}

void
shard_shmem_free_counter(ShardTypeCounter *counter, Oid dboid, int32 type_id, int64 held)
{
	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	if (shard_shmem_is_counter(counter, dboid, type_id) &&
		(int64) pg_atomic_read_u64(&counter->held) == held)
		counter->dboid = InvalidOid;
	LWLockRelease(shard_shared->lock);
}
