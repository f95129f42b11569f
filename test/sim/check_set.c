/*
 * check_set.c
 *		Sets of shards of types with replicas, as they are decided (Q1, VR9): never empty, of different nodes, and the same
 *		as long as the shard goes on with its state.
 *
 * It stands outside: it is shown every home that any node takes for decided, once.
 */
#include "world.h"

#include "core/map/set.h"

/* A life of a shard: since it began without a state. */
typedef struct SetKey
{
	int32 era;
	int32 type_id;
	int32 shard;
	int32 lost;
} SetKey;

typedef struct SetEntry
{
	SetKey key;
	uint32 status;
	int n_nodes;
	int32 nodes[SHARD_MAX_HOMES];
} SetEntry;

static inline uint32
hash_set_key(SetKey key)
{
	uint64 h = ((uint64) (uint32) key.type_id << 32 | (uint32) key.shard) *
				   UINT64CONST(0x9E3779B97F4A7C15) ^
			   (uint64) (uint32) key.lost << 20 ^ (uint32) key.era;

	return (uint32) (h >> 32 ^ h);
}

#include "common/logging.h"
#define SH_PREFIX sets
#define SH_ELEMENT_TYPE SetEntry
#define SH_KEY_TYPE SetKey
#define SH_KEY key
#define SH_HASH_KEY(table, k) hash_set_key(k)
#define SH_EQUAL(table, x, y) (memcmp(&(x), &(y), sizeof(SetKey)) == 0)
#define SH_SCOPE static inline
#define SH_RAW_ALLOCATOR palloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct Sets
{
	sets_hash *entries;
};

void
check_sets_destroy(World *world)
{
	if (!world->sets)
		return;
	sets_destroy(world->sets->entries);
	pfree(world->sets);
}

void
check_set(World *world, int32 era, const ShardMapEntry *entry)
{
	ShardHomeRecord home;
	SetEntry *known;
	bool found;

	if (entry->deleted || !shard_record_get_home(entry, &home) || !shard_set_is_of(&home))
		return;
	if (home.n_nodes > home.want)
		check_fail(world->check, "Q1: shard %d/%d has %d copies, and wants %d", entry->key.a,
				   entry->key.b, home.n_nodes, home.want);
	if (home.phase != SHARD_HOME_STABLE)
		check_fail(world->check, "Q27: shard %d/%d has copies, and moves", entry->key.a,
				   entry->key.b);
	if (!world->sets)
	{
		world->sets = palloc0(sizeof(struct Sets));
		world->sets->entries = sets_create(64, NULL);
	}
	known = sets_insert(world->sets->entries, (SetKey){era, entry->key.a, entry->key.b, home.lost},
						&found);
	if (!found)
	{
		known->n_nodes = home.n_nodes;
		memcpy(known->nodes, home.nodes, sizeof(known->nodes));
	}
	else if (known->n_nodes != home.n_nodes ||
			 memcmp(known->nodes, home.nodes, sizeof(int32) * home.n_nodes) != 0)
		check_fail(world->check,
				   "VR9: shard %d/%d has another set at n %lld, and goes on with its state",
				   entry->key.a, entry->key.b, (long long) entry->n);
}
