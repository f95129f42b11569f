/*
 * shared/copy_set.c
 *		Which shards this node has copies of, as home or backup, and their sets, in shared memory (Q4, Q36).
 *
 * A hash table for all databases, in dynamic shared memory, since nobody knows before how many copies there will be. It
 * is a cache of committed rows of table shard.copy: a process that dies between commit and shard_copy_set_put() takes
 * the server down, and the table is filled again; any other end of a process comes before or after both.
 */
#include "postgres.h"

#include "lib/dshash.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/dsa.h"
#include "utils/memutils.h"

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
} CopySetShared;

typedef struct CopySetEntry
{
	ShardCopySetKey key;
	ShardSet set; /* all zero: reserved */
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

bool
shard_copy_set_get(const ShardCopySetKey *key, ShardSet *set)
{
	CopySetEntry *entry;

	memset(set, 0, sizeof(*set));
	if (!attach(false))
		return false;
	entry = dshash_find(table, key, false);
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
		memset(&entry->set, 0, sizeof(entry->set));
	dshash_release_lock(table, entry);
}

void
shard_copy_set_put(const ShardCopySetKey *key, const ShardSet *set)
{
	CopySetEntry *entry = dshash_find(table, key, true);

	if (entry == NULL)
		return;
	entry->set = *set;
	if (set->n_nodes == 0)
		dshash_delete_entry(table, entry);
	else
		dshash_release_lock(table, entry);
}

/* Removes what a database has in these lanes. */
static void
forget(Oid dboid, ShardLanes lanes)
{
	dshash_seq_status scan;
	CopySetEntry *entry;

	if (!attach(false))
		return;
	dshash_seq_init(&scan, table, true);
	while ((entry = dshash_seq_next(&scan)) != NULL)
	{
		int lane = shard_message_lane(entry->key.type_id, entry->key.shard);

		if (entry->key.dboid == dboid && (lanes & shard_lane_bit(lane)) != 0)
			dshash_delete_current(&scan);
	}
	dshash_seq_term(&scan);
}

void
shard_copy_set_begin(Oid dboid, ShardLanes lanes)
{
	forget(dboid, lanes);
}

void
shard_copy_set_free(ShardDatabase *db pg_attribute_unused(), Oid dboid)
{
	if (OidIsValid(dboid))
		forget(dboid, SHARD_ALL_LANES);
}

const ShardShmemPart shard_copy_set_part = {
	.size = shmem_size,
	.startup = startup,
	.request = request,
	.free = shard_copy_set_free,
};
