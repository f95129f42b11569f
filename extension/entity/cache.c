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

/* Entities of one type that go at once when memory is short, before the next type is looked at. */
#define EVICTED_AT_ONCE 64

/* The most entities that are looked at after one turn: more than a turn can have brought. */
#define EVICTED_PER_TURN 100000

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
shard_cache_remove(ShardEntity *entity)
{
	CacheKey key = {entity->local->type->type_id, entity->shard, entity->id_len, entity->id};

	free_saved(entity);
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

/* Whether an entity may leave memory between turns: nothing of it waits. */
static inline bool
is_idle(const ShardEntity *entity)
{
	return !entity->wait.deferred && entity->wait.waiting == 0 && !entity->listed;
}

static Size
limit(void)
{
	return (Size) shard_cache_size * 1024;
}

typedef struct Passivation
{
	TimestampTz now;
	TimestampTz next; /* 0: never */
} Passivation;

/* Lets go of a type's idle entities. */
static void
passivate_type(ShardLocalType *local, void *arg)
{
	Passivation *pass = arg;
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &local->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);
		TimestampTz due = entity->last_message_at + local->type->passivate_idle_after;

		if (!is_idle(entity))
			continue;
		if (!local->type->passivate_idle)
			break;
		if (due > pass->now)
		{
			if (pass->next == 0 || due < pass->next)
				pass->next = due;
			break;
		}
		shard_life_passivate(entity, false);
		shard_cache_remove(entity);
	}
}

TimestampTz
shard_cache_passivate(TimestampTz now)
{
	Passivation pass = {now, 0};

	shard_local_each(passivate_type, &pass);
	return pass.next;
}

/* The type whose first entity in the list was not used for longest. */
static void
find_oldest(ShardLocalType *local, void *arg)
{
	ShardLocalType **oldest = arg;

	if (dlist_is_empty(&local->lru))
		return;
	if (*oldest == NULL ||
		dlist_head_element(ShardEntity, lru, &local->lru)->last_message_at <
			dlist_head_element(ShardEntity, lru, &(*oldest)->lru)->last_message_at)
		*oldest = local;
}

/* Removes the first entities of a type's list. Those that stay go to its end, so that they are not met again. */
static void
evict_some(ShardLocalType *local)
{
	for (int i = 0; i < EVICTED_AT_ONCE && total_bytes > limit(); i++)
	{
		ShardEntity *entity;

		if (dlist_is_empty(&local->lru))
			return;
		entity = dlist_head_element(ShardEntity, lru, &local->lru);
		if (is_idle(entity))
		{
			shard_life_passivate(entity, false);
			shard_cache_remove(entity);
		}
		else
		{
			dlist_delete(&entity->lru);
			dlist_push_tail(&local->lru, &entity->lru);
		}
	}
}

void
shard_cache_evict(void)
{
	int left = Min(table->members, EVICTED_PER_TURN) / EVICTED_AT_ONCE + 1;

	while (total_bytes > limit() && left-- > 0)
	{
		ShardLocalType *local = NULL;

		shard_local_each(find_oldest, &local);
		if (local == NULL)
			return;
		evict_some(local);
	}
}

bool
shard_cache_is_full(void)
{
	return total_bytes > limit();
}

Size
shard_cache_turn_limit(void)
{
	return limit() / 8;
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
