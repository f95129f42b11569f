/*
 * shmem_counter.c
 *		Counters of what cannot be handled now, one per entity type in use.
 *
 * A counter is made when somebody sends or counts, not for who only looks, and given back when its type is gone: by a region worker that
 * finds so (executor.c), or with its database's slot. Whoever keeps a pointer compares the key: readers without
 * a lock, since what they read is a hint; who changes a number does so under the control lock, so that it
 * cannot become another type's meanwhile.
 */
#include "postgres.h"

#include "shmem.h"

#include "compat.h"

/*
 * Looks a counter up, or, without a database, a free one; needs the control lock.
 */
static ShardTypeCounter *
find_counter(Oid dboid, int32 type_id)
{
	for (int i = 0; i < SHARD_TYPE_COUNTERS; i++)
	{
		ShardTypeCounter *counter = &shard_control->counter[i];

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
		LWLockAcquire(shard_control->lock, LW_SHARED);
		*counter = find_counter(dboid, type_id);
		LWLockRelease(shard_control->lock);
	}
	return *counter == NULL ? 0 : (int64) pg_atomic_read_u64(&(*counter)->held);
}

/*
 * Looks it up, or takes a free one; NULL if there is none. Needs the control lock in exclusive mode.
 */
static ShardTypeCounter *
make_counter(Oid dboid, int32 type_id)
{
	ShardTypeCounter *counter = find_counter(dboid, type_id);

	if (counter != NULL)
		return counter;
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

ShardTypeCounter *
shard_shmem_type_counter(Oid dboid, int32 type_id)
{
	ShardTypeCounter *counter;

	shard_shmem_require();
	LWLockAcquire(shard_control->lock, LW_SHARED);
	counter = find_counter(dboid, type_id);
	LWLockRelease(shard_control->lock);
	if (counter != NULL)
		return counter;

	LWLockAcquire(shard_control->lock, LW_EXCLUSIVE);
	counter = make_counter(dboid, type_id);
	LWLockRelease(shard_control->lock);

	if (counter == NULL)
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("too many entity types in this server"),
						errdetail("At most %d entity types can be in use.", SHARD_TYPE_COUNTERS),
						errhint("Drop types that are not needed; then try again in a moment.")));
	return counter;
}

void
shard_shmem_count_held(ShardTypeCounter **counter, Oid dboid, int32 type_id, int64 change)
{
	LWLockAcquire(shard_control->lock, LW_SHARED);
	if (!shard_shmem_is_counter(*counter, dboid, type_id))
		*counter = find_counter(dboid, type_id);
	if (*counter != NULL)
		pg_atomic_fetch_add_u64(&(*counter)->held, change);
	LWLockRelease(shard_control->lock);

	/* what was counted of a type that is gone went with its counter */
	if (*counter != NULL || change <= 0)
		return;
	LWLockAcquire(shard_control->lock, LW_EXCLUSIVE);
	*counter = make_counter(dboid, type_id);
	if (*counter != NULL)
		pg_atomic_fetch_add_u64(&(*counter)->held, change);
	LWLockRelease(shard_control->lock);
}

int
shard_shmem_list_counters(Oid dboid, ShardTypeCounter **counters, int64 *held)
{
	int count = 0;

	LWLockAcquire(shard_control->lock, LW_SHARED);
	for (int i = 0; i < SHARD_TYPE_COUNTERS; i++)
	{
		ShardTypeCounter *counter = &shard_control->counter[i];

		if (counter->dboid != dboid)
			continue;
		counters[count] = counter;
		held[count++] = (int64) pg_atomic_read_u64(&counter->held);
	}
	LWLockRelease(shard_control->lock);
	return count;
}

void
shard_shmem_free_counter(ShardTypeCounter *counter, Oid dboid, int32 type_id, int64 held)
{
	LWLockAcquire(shard_control->lock, LW_EXCLUSIVE);
	if (shard_shmem_is_counter(counter, dboid, type_id) &&
		(int64) pg_atomic_read_u64(&counter->held) == held)
		counter->dboid = InvalidOid;
	LWLockRelease(shard_control->lock);
}
