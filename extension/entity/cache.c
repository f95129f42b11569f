/*
 * entity/cache.c
 *		Entities in a region worker's memory.
 *
 * Comes from: turn_entity.c and residents.c, which look entities up; turn.c, after the commit.
 *
 * A hash table by (type, id); per type a list in order of use, so that idle
 * entities are found at its front.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "entity/internal.h"

#include "base/compat.h"

typedef struct CacheKey
{
	int32 type_id;
	int shard;
	int id_len;
	const char *id;
} CacheKey;

typedef struct CacheEntry
{
	CacheKey key;
	uint32 hash;
	char status;
	ShardEntity *entity;
} CacheEntry;

static inline uint32
hash_key(CacheKey key)
{
	return hash_combine(murmurhash32(key.type_id),
						hash_bytes((const unsigned char *) key.id, key.id_len));
}

#define SH_PREFIX cache
#define SH_ELEMENT_TYPE CacheEntry
#define SH_KEY_TYPE CacheKey
#define SH_KEY key
#define SH_HASH_KEY(tb, k) hash_key(k)
#define SH_EQUAL(tb, a, b) \
	((a).type_id == (b).type_id && (a).shard == (b).shard && (a).id_len == (b).id_len && \
	 memcmp((a).id, (b).id, (a).id_len) == 0)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, e) (e)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static MemoryContext context;
static cache_hash *table;
static Size total_bytes = 0;

void
shard_cache_init(void)
{
	context = AllocSetContextCreate(TopMemoryContext, "shard entities", ALLOCSET_DEFAULT_SIZES);
	table = cache_create(TopMemoryContext, 1024, NULL);
}

ShardEntity *
shard_cache_get(ShardLocalType *local, int shard, const char *id, int id_len, bool make)
{
	CacheKey key = {local->type->type_id, shard, id_len, id};
	bool found;
	CacheEntry *entry;
	ShardEntity *entity;

	if (!make)
	{
		entry = cache_lookup(table, key);
		return entry == NULL ? NULL : entry->entity;
	}
	entry = cache_insert(table, key, &found);
	if (found)
		return entry->entity;
	entity = MemoryContextAllocZero(context, offsetof(ShardEntity, id) + id_len + 1);
	entity->local = local;
	entity->shard = shard;
	entity->id_len = id_len;
	memcpy(entity->id, id, id_len);
	entry->key.id = entity->id;
	entry->entity = entity;
	entity->bytes = GetMemoryChunkSpace(entity) + sizeof(CacheEntry);
	total_bytes += entity->bytes;
	dlist_push_tail(&local->lru, &entity->lru);
	shard_local_count(local, shard)->entities++;
	return entity;
}

/* Frees the saved state. */
static void
free_saved(ShardEntity *entity)
{
	ShardLocalType *local = entity->local;

	if (!local->by_value && entity->saved.known && !entity->saved.state_null)
	{
		Size size = GetMemoryChunkSpace(DatumGetPointer(entity->saved.state));

		pfree(DatumGetPointer(entity->saved.state));
		entity->bytes -= size;
		total_bytes -= size;
	}
}

void
shard_cache_keep(ShardEntity *entity)
{
	ShardLocalType *local = entity->local;

	if (!local->by_value && entity->now.known && !entity->now.state_null &&
		!(entity->saved.known && !entity->saved.state_null &&
		  entity->saved.state == entity->now.state))
	{
		MemoryContext old = MemoryContextSwitchTo(context);
		Datum state = datumCopy(entity->now.state, false, local->length);
		Size size = GetMemoryChunkSpace(DatumGetPointer(state));

		MemoryContextSwitchTo(old);
		free_saved(entity);
		entity->now.state = state;
		entity->bytes += size;
		total_bytes += size;
	}
	else if (entity->now.state_null || !entity->now.known)
		free_saved(entity);
	entity->saved = entity->now;
}

void
shard_cache_forget(ShardEntity *entity)
{
	free_saved(entity);
	memset(&entity->saved, 0, sizeof(ShardCopy));
}

void
shard_cache_make_ordering(ShardEntity *entity)
{
	entity->ordering = MemoryContextAllocZero(context, sizeof(ShardOrdering));
	entity->bytes += GetMemoryChunkSpace(entity->ordering);
	total_bytes += GetMemoryChunkSpace(entity->ordering);
}

void
shard_cache_make_place(ShardEntity *entity)
{
	ShardPlace *place = MemoryContextAllocZero(context, sizeof(ShardPlace));

	place->entity = entity;
	place->core.hash = hash_bytes((const unsigned char *) entity->id, entity->id_len);
	entity->place = place;
	entity->bytes += GetMemoryChunkSpace(place);
	total_bytes += GetMemoryChunkSpace(place);
}

void
shard_cache_drop_place(ShardEntity *entity)
{
	ShardPlace *place = entity->place;

	if (place == NULL)
		return;
	if (place->leaves)
	{
		dlist_delete(&place->core.place);
		shard_turn.victims--;
	}
	else
		shard_passivation_remove(entity->local->region, &place->core);
	entity->bytes -= GetMemoryChunkSpace(place);
	total_bytes -= GetMemoryChunkSpace(place);
	pfree(place);
	entity->place = NULL;
}

void
shard_cache_remove(ShardEntity *entity)
{
	CacheKey key = {entity->local->type->type_id, entity->shard, entity->id_len, entity->id};

	free_saved(entity);
	shard_cache_drop_place(entity);
	dlist_delete(&entity->lru);
	shard_local_count(entity->local, entity->shard)->entities--;
	total_bytes -= entity->bytes;
	cache_delete(table, key);
	if (entity->batch != NULL)
		pfree(entity->batch);
	if (entity->ordering != NULL)
		pfree(entity->ordering);
	pfree(entity);
}

void
shard_cache_touch(ShardEntity *entity, TimestampTz now)
{
	entity->last_message_at = now;
	dlist_delete(&entity->lru);
	dlist_push_tail(&entity->local->lru, &entity->lru);
}

Size
shard_cache_turn_limit(void)
{
	return (Size) shard_cache_size * 1024 / 8;
}

int64
shard_cache_entities(void)
{
	return table->members;
}

int64
shard_cache_bytes(void)
{
	return total_bytes;
}

void
shard_cache_each(void (*visit)(ShardEntity *entity, void *arg), void *arg)
{
	cache_iterator iterator;
	CacheEntry *entry;

	cache_start_iterate(table, &iterator);
	while ((entry = cache_iterate(table, &iterator)) != NULL)
		visit(entry->entity, arg);
}

bool
shard_cache_some(ShardCacheWalk *walk, int places, void (*visit)(ShardEntity *entity, void *arg),
				 void *arg)
{
	if (walk->size != table->size)
		*walk = (ShardCacheWalk){.size = table->size, .left = table->size};

	/* downwards: a removal moves later entries into earlier places, and none of them is left out */
	for (int i = 0; i < places && walk->left > 0; i++)
	{
		CacheEntry *entry = &table->data[--walk->left];

		if (entry->status == cache_SH_IN_USE)
			visit(entry->entity, arg);
	}
	if (walk->left == 0)
		walk->size = 0;
	return walk->left > 0;
}
