/*
 * shared/copy_set.c
 *		Which shards this node has copies of, as home or backup: their sets and ends, in shared memory (Q4, Q8, Q9, Q36).
 *
 * A hash table for all databases, in dynamic shared memory, since nobody knows before how many copies there will be. It
 * is a cache of committed rows of table shard.copy: a process that dies between commit and shard_copy_set_put() takes
 * the server down, and the table is filled again; any other end of a process comes before or after both. So it is with
 * ends, of which rows of the log are the truth; and they outlive a worker, since backends change them.
 *
 * To find an entry may need memory to be mapped, as other processes make the table larger; which may fail, and must not after a
 * commit. So who changes an end then has its place from before the commit: it stays where it is as long as it is pinned, and what
 * goes meanwhile is marked as gone. What is marked goes with the next look at all of its lane.
 */
#include "postgres.h"

#include "access/xact.h"
#include "lib/dshash.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/dsa.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/base/message.h"
#include "shared/copy_set.h"

#include "base/compat.h"

#define TRANCHE_NAME "shard copies"

typedef struct CopySetShared
{
	LWLock *lock; /* guards what follows, while the table is made */
	int tranche;
	bool made; /* false: no copy was ever here */
	dsa_handle area;
	dshash_table_handle table;

	/* when a worker is to apply something, by shard_clock_now(); 0: nothing has come since it looked */
	pg_atomic_uint64 apply_at[SHARD_MAX_DATABASES][SHARD_WORKER_SLOTS];
} CopySetShared;

typedef struct CopySetEntry
{
	ShardCopySetKey key;
	ShardSet set;  /* all zero: reserved, or its worker has not read it yet */
	Oid extension; /* whose end is known; 0: it is not known */

	/* guards what follows, also where the table's own lock is held: not against others, but who has a place is without that */
	slock_t mutex;
	ShardCopyEnd end;
	int pins;
	uint32 life; /* how often it has gone, and come again */
	bool gone;
} CopySetEntry;

static CopySetShared *shared = NULL;

/* Of this process; NULL: not attached yet. */
static dsa_area *area = NULL;
static dshash_table *table = NULL;

static Size
shmem_size(void)
{
	return MAXALIGN(sizeof(CopySetShared));
}

static void
request(void)
{
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

/* Makes or finds it. The caller holds AddinShmemInitLock. */
static void
startup(void)
{
	bool found;

	shared = ShmemInitStruct("shard copies", sizeof(CopySetShared), &found);
	if (found)
		return;
	shared->lock = &GetNamedLWLockTranche(TRANCHE_NAME)->lock;
	shared->tranche = shared->lock->tranche;
	shared->made = false;
	for (int i = 0; i < SHARD_MAX_DATABASES; i++)
		for (int worker = 0; worker < SHARD_WORKER_SLOTS; worker++)
			pg_atomic_init_u64(&shared->apply_at[i][worker], 0);
}

static dshash_parameters
parameters(void)
{
	dshash_parameters params = {.key_size = sizeof(ShardCopySetKey),
								.entry_size = sizeof(CopySetEntry),
								.compare_function = dshash_memcmp,
								.hash_function = dshash_memhash,
								ShardDshashCopy.tranche_id = shared->tranche};

	return params;
}

/* The table is made by the first process that has a copy. What fails on the way is not found by others. */
static void
create(void)
{
	dshash_parameters params = parameters();

	area = dsa_create(shared->tranche);
	dsa_pin(area);
	dsa_pin_mapping(area);
	table = dshash_create(area, &params, NULL);
	shared->table = dshash_get_hash_table_handle(table);
	shared->area = dsa_get_handle(area);
	shared->made = true;
}

/* False: there is no table, and none is to be made. */
static bool
attach(bool make)
{
	MemoryContext old;

	if (table != NULL)
		return true;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	old = MemoryContextSwitchTo(TopMemoryContext);
	if (shared->made)
	{
		dshash_parameters params = parameters();

		if (area == NULL)
		{
			area = dsa_attach(shared->area);
			dsa_pin_mapping(area);
		}
		table = dshash_attach(area, &params, shared->table, NULL);
	}
	else if (make)
		create();
	MemoryContextSwitchTo(old);
	LWLockRelease(shared->lock);
	return table != NULL;
}

/* The entry, locked; NULL: there is none. Of a table that is attached. */
static CopySetEntry *
find(const ShardCopySetKey *key, bool exclusive)
{
	CopySetEntry *entry = dshash_find(table, key, exclusive);

	if (entry == NULL || !entry->gone)
		return entry;
	dshash_release_lock(table, entry);
	return NULL;
}

/* Whether it may be deleted at once, under an exclusive lock; else it is marked. */
static bool
is_free(CopySetEntry *entry)
{
	bool free;

	SpinLockAcquire(&entry->mutex);
	free = entry->pins == 0;
	entry->gone = true;
	entry->life++;
	SpinLockRelease(&entry->mutex);
	return free;
}

bool
shard_copy_set_get(const ShardCopySetKey *key, ShardSet *set)
{
	CopySetEntry *entry;

	memset(set, 0, sizeof(*set));
	if (!attach(false))
		return false;
	entry = find(key, false);
	if (entry == NULL)
		return false;
	*set = entry->set;
	dshash_release_lock(table, entry);
	return set->n_nodes > 0;
}

void
shard_copy_set_reserve(const ShardCopySetKey *key)
{
	CopySetEntry *entry;
	bool found;

	(void) attach(true);
	entry = dshash_find_or_insert(table, key, &found);
	if (!found)
	{
		memset((char *) entry + sizeof(*key), 0, sizeof(*entry) - sizeof(*key));
		SpinLockInit(&entry->mutex);
	}
	else if (entry->gone)
	{
		memset(&entry->set, 0, sizeof(entry->set));
		entry->extension = InvalidOid;
		SpinLockAcquire(&entry->mutex);
		memset(&entry->end, 0, sizeof(entry->end));
		entry->gone = false;
		SpinLockRelease(&entry->mutex);
	}
	dshash_release_lock(table, entry);
}

/* A history that was given up ends: the shard has begun without it. */
static void
follow_lost(ShardCopyEnd *end, int32 lost)
{
	int32 promise = end->copy.promise;

	if (end->copy.end.turn == 0 || end->copy.end.epoch >= lost)
		return;
	memset(&end->copy, 0, sizeof(end->copy));
	end->copy.promise = promise;
	end->kept = 0;
}

void
shard_copy_set_put(const ShardCopySetKey *key, const ShardSet *set)
{
	CopySetEntry *entry = find(key, true);
	bool other;

	if (entry == NULL)
		return;
	other = entry->set.lost != set->lost;
	entry->set = *set;
	if (set->n_nodes == 0)
	{
		if (is_free(entry))
			dshash_delete_entry(table, entry);
		else
			dshash_release_lock(table, entry);
		return;
	}
	SpinLockAcquire(&entry->mutex);
	if (other)
		entry->end.kept = 0; /* nothing is forgotten of the history that begins */
	follow_lost(&entry->end, set->lost);
	(void) shard_replica_promise(&entry->end.copy, set->epoch);
	SpinLockRelease(&entry->mutex);
	dshash_release_lock(table, entry);
}

void
shard_copy_set_drop(const ShardCopySetKey *key)
{
	CopySetEntry *entry = attach(false) ? find(key, true) : NULL;

	if (entry == NULL)
		return;
	if (is_free(entry))
		dshash_delete_entry(table, entry);
	else
		dshash_release_lock(table, entry);
}

/* ---- ends ----------------------------------------------------------------------------------------- */

static ShardCopyEnd
end_of(CopySetEntry *entry)
{
	ShardCopyEnd end;

	SpinLockAcquire(&entry->mutex);
	end = entry->end;
	SpinLockRelease(&entry->mutex);
	return end;
}

bool
shard_copy_end_get(const ShardCopySetKey *key, Oid extension, ShardCopyEnd *end)
{
	CopySetEntry *entry = attach(false) ? find(key, false) : NULL;
	bool known;

	memset(end, 0, sizeof(*end));
	if (entry == NULL)
		return false;
	known = entry->extension == extension && entry->set.n_nodes > 0;
	if (known)
		*end = end_of(entry);
	dshash_release_lock(table, entry);
	return known;
}

void
shard_copy_end_found(const ShardCopySetKey *key, Oid extension, const ShardReplicaCopy *copy)
{
	CopySetEntry *entry = find(key, true);

	if (entry == NULL)
		return;
	if (entry->extension != extension)
	{
		ShardReplicaCopy before;

		entry->extension = extension;
		SpinLockAcquire(&entry->mutex);
		before = entry->end.copy;
		entry->end = (ShardCopyEnd){.copy = *copy};
		(void) shard_replica_promise(&entry->end.copy, before.promise);
		entry->end.copy.applied = Min(before.applied, copy->end.turn);
		entry->end.copy.released = entry->end.copy.applied;
		SpinLockRelease(&entry->mutex);
	}
	dshash_release_lock(table, entry);
}

void
shard_copy_end_load(const ShardCopySetKey *key, Oid extension, int64 applied)
{
	CopySetEntry *entry = attach(false) ? find(key, true) : NULL;

	if (entry == NULL)
		return;
	if (entry->extension != extension)
	{
		entry->extension = InvalidOid;
		SpinLockAcquire(&entry->mutex);
		entry->end.copy.applied = applied;
		SpinLockRelease(&entry->mutex);
	}
	dshash_release_lock(table, entry);
}

void
shard_copy_end_applied(const ShardCopySetKey *key, int64 applied)
{
	CopySetEntry *entry = attach(false) ? find(key, true) : NULL;

	if (entry == NULL)
		return;
	SpinLockAcquire(&entry->mutex);
	shard_replica_applied(&entry->end.copy, applied);
	entry->end.kept = Max(entry->end.kept, applied);
	SpinLockRelease(&entry->mutex);
	dshash_release_lock(table, entry);
}

void
shard_copy_end_promise(const ShardCopySetKey *key, int32 epoch)
{
	CopySetEntry *entry = attach(false) ? find(key, true) : NULL;

	if (entry == NULL)
		return;
	SpinLockAcquire(&entry->mutex);
	(void) shard_replica_promise(&entry->end.copy, epoch);
	SpinLockRelease(&entry->mutex);
	dshash_release_lock(table, entry);
}

void
shard_copy_end_reserve(const ShardCopySetKey *key, ShardCopyPlace *place)
{
	CopySetEntry *entry;

	*place = (ShardCopyPlace){NULL, 0};
#ifndef SHARD_MUTANT_ENDS_MAPPED_AFTER_COMMIT
	shard_fault("copy_end_mapped");
#endif
	entry = attach(false) ? find(key, true) : NULL;
	if (entry == NULL)
		return;
	place->entry = entry;
	SpinLockAcquire(&entry->mutex);
	place->life = entry->life;
	entry->pins++;
	SpinLockRelease(&entry->mutex);
	dshash_release_lock(table, entry);
}

void
shard_copy_end_put(const ShardCopyPlace *place, const ShardReplicaCopy *copy)
{
	CopySetEntry *entry = place->entry;

#ifdef SHARD_MUTANT_ENDS_MAPPED_AFTER_COMMIT
	/* an error of a call that has stored nothing is one like any */
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		shard_fault("copy_end_mapped");
#endif
	if (entry == NULL)
		return;
	SpinLockAcquire(&entry->mutex);
	if (copy != NULL && entry->life == place->life)
	{
		ShardReplicaCopy before = entry->end.copy;

		entry->end.copy = *copy;
		(void) shard_replica_promise(&entry->end.copy, before.promise);
		entry->end.copy.applied = before.applied; /* the worker's, meanwhile */
	}
	entry->pins--;
	SpinLockRelease(&entry->mutex);
}

void
shard_copy_end_keep(const ShardCopySetKey *key, int64 kept)
{
	CopySetEntry *entry = attach(false) ? find(key, true) : NULL;

	if (entry == NULL)
		return;
	SpinLockAcquire(&entry->mutex);
	entry->end.kept = Max(entry->end.kept, kept);
	SpinLockRelease(&entry->mutex);
	dshash_release_lock(table, entry);
}

/* ---- when they are applied ------------------------------------------------------------------------ */

void
shard_copy_apply_soon(ShardDatabase *db, int lane)
{
	int worker = shard_shmem_lane_worker(db, lane);
	uint64 none = 0;

	if (pg_atomic_compare_exchange_u64(&shared->apply_at[shard_shmem_database_index(db)][worker],
									   &none,
									   (uint64) shard_clock_now() +
										   SHARD_APPLY_MS * INT64CONST(1000)))
		shard_shmem_wake_worker(db, worker);
}

static pg_atomic_uint64 *
my_apply_at(void)
{
	ShardDatabase *db = shard_shmem_database();

	return &shared->apply_at[shard_shmem_database_index(db)][shard_shmem_my_worker() - db->worker];
}

int64
shard_copy_apply_at(void)
{
	return (int64) pg_atomic_read_u64(my_apply_at());
}

void
shard_copy_apply_begin(void)
{
	(void) pg_atomic_exchange_u64(my_apply_at(), 0);
}

/* ---- all ------------------------------------------------------------------------------------------ */

int
shard_copy_set_compare(const void *a, const void *b)
{
	const ShardCopySetKey *x = &((const ShardCopySetItem *) a)->key;
	const ShardCopySetKey *y = &((const ShardCopySetItem *) b)->key;

	if (x->type_id != y->type_id)
		return x->type_id < y->type_id ? -1 : 1;
	return x->shard < y->shard ? -1 : x->shard > y->shard;
}

ShardCopySetItem *
shard_copy_set_list(Oid dboid, int *count)
{
	dshash_seq_status scan;
	CopySetEntry *entry;
	ShardCopySetItem *items = NULL;
	int space = 0;

	*count = 0;
	if (!attach(false))
		return NULL;
	dshash_seq_init(&scan, table, false);
	while ((entry = dshash_seq_next(&scan)) != NULL)
	{
		if (entry->key.dboid != dboid || entry->gone)
			continue;
		if (*count == space)
		{
			space = Max(64, 2 * space);
			items = items == NULL ? palloc(space * sizeof(*items))
								  : repalloc_huge(items, space * sizeof(*items));
		}
		items[(*count)++] = (ShardCopySetItem){entry->key, entry->set, end_of(entry)};
	}
	dshash_seq_term(&scan);
	return items;
}

/* What is to be done with the entries of a database in some lanes. */
typedef enum CopySetChange
{
	FORGET_SET, /* the worker that has read it is gone */
	DROP_BARE,	/* those without a set go */
	DROP_ALL
} CopySetChange;

static void
change(Oid dboid, ShardLanes lanes, CopySetChange how)
{
	dshash_seq_status scan;
	CopySetEntry *entry;

	if (!attach(false))
		return;
	dshash_seq_init(&scan, table, true);
	while ((entry = dshash_seq_next(&scan)) != NULL)
	{
		int lane = shard_message_lane(entry->key.type_id, entry->key.shard);

		if (entry->key.dboid != dboid || (lanes & shard_lane_bit(lane)) == 0)
			continue;
		if (how == FORGET_SET && !entry->gone)
			memset(&entry->set, 0, sizeof(entry->set));
		else if ((how == DROP_ALL || entry->gone || entry->set.n_nodes == 0) && is_free(entry))
			dshash_delete_current(&scan);
	}
	dshash_seq_term(&scan);
}

void
shard_copy_set_begin(Oid dboid, ShardLanes lanes)
{
	change(dboid, lanes, FORGET_SET);
}

void
shard_copy_set_loaded(Oid dboid, ShardLanes lanes)
{
	change(dboid, lanes, DROP_BARE);
}

void
shard_copy_set_free(ShardDatabase *db pg_attribute_unused(), Oid dboid)
{
	if (OidIsValid(dboid))
		change(dboid, SHARD_ALL_LANES, DROP_ALL);
}

const ShardShmemPart shard_copy_set_part = {
	.size = shmem_size,
	.startup = startup,
	.request = request,
	.free = shard_copy_set_free,
};
