/*
 * entity/passivate.c
 *		Which entities leave memory, and when (doc/protocol/passivation.md E1, E2).
 *
 * Comes from: handle.c and deliver_ask.c, for each message or ask; turn.c, between turns and when settings have changed;
 * process/region.c, before the worker sleeps. Goes to: cache.c, which removes an entity; stop.c has those leave that get
 * a stop message first.
 *
 * Idle entities are at the front of their type's list. For a type with a limit the core (core/entity/passivation.c) is
 * told of each message, and says which entities are to leave; until the end of the turn they stay. When memory is
 * scarce the least recently used ones of all types go.
 *
 * An entity leaves between turns only, and only if nothing of it waits: its row has all. If the process dies right here,
 * all of them have left.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "core/base/message.h"
#include "entity/internal.h"

#include "base/compat.h"

/* Entities of one type that go at once when memory is short, before the next type is looked at. */
#define EVICTED_AT_ONCE 64

/* The most entities that are looked at after one turn: more than a turn can have brought. */
#define EVICTED_PER_TURN 100000

bool
shard_passivate_may_leave(const ShardEntity *entity)
{
#ifdef SHARD_MUTANT_PASSIVATED_WAITING
	return entity->life != SHARD_ENTITY_PASSIVATING && entity->stop == 0;
#else
	return !entity->wait.deferred && entity->wait.waiting == 0 && !entity->listed &&
		   entity->life != SHARD_ENTITY_PASSIVATING && entity->stop == 0;
#endif
}

/* Between turns: the entity leaves. */
static void
leave(ShardEntity *entity, ShardLeaveReason reason)
{
#ifdef SHARD_MUTANT_PASSIVATED_WAITING
	if (entity->listed)
		dlist_delete(&entity->due);
	entity->listed = false;
#endif
	shard_local_count(entity->local, entity->shard)->left[reason]++;
	shard_life_passivate(entity, false);
	shard_cache_remove(entity);
}

/* ---- a limit of entities in memory -------------------------------------------------------------- */

/* The worker's part of a limit: as many as it has of the type's shards, and one at least. */
static int
part_of(const ShardType *type, int limit)
{
	int64 own = 0;

	for (int shard = 0; shard < type->number_of_shards; shard++)
		own += (shard_turn.lanes & shard_lane_bit(shard_message_lane(type->type_id, shard))) != 0;
	return (int) Max(limit * own / type->number_of_shards, 1);
}

/* Entities that the core lets go are marked; they stay in its list. */
static void
take_victims(ShardLocalType *local, dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		ShardPlace *place = dlist_container(ShardPlace, core.place, dlist_pop_head_node(list));

		place->leaves = true;
		dlist_push_tail(&local->victims, &place->core.place);
		shard_turn.victims++;
	}
}

/* It stays after all. */
static void
spare(ShardPlace *place)
{
	dlist_delete(&place->core.place);
	place->leaves = false;
	shard_turn.victims--;
}

void
shard_passivate_access(ShardEntity *entity, TimestampTz now)
{
	ShardLocalType *local = entity->local;
	dlist_head list;

	if (entity->place == NULL)
		shard_cache_make_place(entity);
	else if (entity->place->leaves)
		spare(entity->place);
	dlist_init(&list);
	shard_passivation_accessed(local->region, local->region_shard, &entity->place->core, now,
							   &list);
	take_victims(local, &list);
}

/* The type has no limit any more, or another strategy. */
static void
end_region(ShardLocalType *local)
{
	dlist_iter iter;

	if (local->region == NULL)
		return;
	dlist_foreach (iter, &local->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		if (entity->place != NULL && entity->place->leaves)
			spare(entity->place);
		shard_cache_drop_place(entity);
	}
	local->region = NULL;
	MemoryContextDelete(local->region_context);
}

/* The type has a limit from now on; its entities count as accessed in the order in which they were. */
static void
begin_region(ShardLocalType *local, const ShardPassivationSettings *settings)
{
	MemoryContext old;
	dlist_head list;
	dlist_iter iter;

	local->region_context =
		AllocSetContextCreate(TopMemoryContext, "shard passivation", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(local->region_context);
	dlist_init(&list);
	local->region_settings = *settings;
	local->region = shard_passivation_create(settings);
	local->region_shard = shard_passivation_add_shard(local->region, &list);
	MemoryContextSwitchTo(old);
	dlist_foreach (iter, &local->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		shard_passivate_access(entity, entity->last_message_at);
	}
}

/* The same strategy with another limit. */
static void
set_limit(ShardLocalType *local, int limit)
{
	dlist_head list;

	if (local->region_settings.active_entity_limit == limit)
		return;
	local->region_settings.active_entity_limit = limit;
	dlist_init(&list);
	shard_passivation_set_limit(local->region, limit, &list);
	take_victims(local, &list);
}

void
shard_passivate_follow(ShardLocalType *local)
{
	const ShardType *type = local->type;
	ShardPassivationSettings settings = type->passivation;

	shard_stop_follow(local);
	if (!type->exists || !shard_passivation_has_limit(settings.strategy))
	{
		end_region(local);
		return;
	}
	/* idle entities are found by the worker's own lists */
	settings.idle_after = 0;
	if (local->region == NULL || local->region_limit != settings.active_entity_limit)
	{
		local->region_limit = settings.active_entity_limit;
		settings.active_entity_limit = part_of(type, settings.active_entity_limit);
	}
	else
		settings.active_entity_limit = local->region_settings.active_entity_limit;
	if (local->region != NULL && shard_passivation_is_like(&settings, &local->region_settings))
		set_limit(local, settings.active_entity_limit);
	else
	{
		end_region(local);
		begin_region(local, &settings);
	}
}

/* Those over the limit leave; with a stop message in the next turn. */
static void
leave_by_limit(ShardLocalType *local, void *arg)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &local->victims)
	{
		ShardPlace *place = dlist_container(ShardPlace, core.place, iter.cur);
		ShardEntity *entity = place->entity;

		if (!shard_passivate_may_leave(entity) ||
			(shard_stop_is_due(local) && shard_pause_until(local, entity->shard) != 0))
			spare(place);
		else if (!shard_stop_is_due(local))
		{
			spare(place);
			leave(entity, SHARD_LEAVES_LIMIT);
		}
	}
}

void
shard_passivate_each_victim(ShardLocalType *local, void (*visit)(ShardEntity *entity, void *arg),
							void *arg)
{
	dlist_iter iter;

	dlist_foreach (iter, &local->victims)
		visit(dlist_container(ShardPlace, core.place, iter.cur)->entity, arg);
}

/* ---- idle entities ------------------------------------------------------------------------------ */

typedef struct Passivation
{
	TimestampTz now;
	TimestampTz next; /* 0: never */
} Passivation;

static void
come_again(Passivation *pass, TimestampTz at)
{
	if (pass->next == 0 || at < pass->next)
		pass->next = at;
}

bool
shard_passivate_is_idle(const ShardEntity *entity, TimestampTz now, TimestampTz *due)
{
	const ShardPassivationSettings *settings = &entity->local->type->passivation;

	*due = settings->strategy == SHARD_PASSIVATION_NONE
			   ? DT_NOEND
			   : entity->last_message_at + settings->idle_after;
	return *due <= now;
}

/* Lets go of a type's idle entities. */
static void
passivate_type(ShardLocalType *local, void *arg)
{
	Passivation *pass = arg;
	dlist_mutable_iter iter;
	TimestampTz due;

	if (!dlist_is_empty(&local->victims))
		come_again(pass, pass->now);
	dlist_foreach_modify (iter, &local->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		if (!shard_passivate_may_leave(entity))
			continue;
		if (!shard_passivate_is_idle(entity, pass->now, &due))
		{
			if (due != DT_NOEND)
				come_again(pass, due);
			break;
		}
		if (shard_stop_is_due(local) && (due = shard_pause_until(local, entity->shard)) != 0)
		{
			come_again(pass, due);
			continue;
		}
		if (shard_stop_is_due(local))
		{
			/* in the next turn, at once */
			come_again(pass, pass->now);
			break;
		}
		leave(entity, SHARD_LEAVES_IDLE);
	}
}

TimestampTz
shard_cache_passivate(TimestampTz now)
{
	Passivation pass = {now, 0};

	shard_local_each(passivate_type, &pass);
	return pass.next;
}

/* ---- memory ------------------------------------------------------------------------------------- */

bool
shard_passivate_is_short(void)
{
	return shard_cache_bytes() > (int64) shard_cache_size * 1024;
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
	for (int i = 0; i < EVICTED_AT_ONCE && shard_passivate_is_short(); i++)
	{
		ShardEntity *entity;

		if (dlist_is_empty(&local->lru))
			return;
		entity = dlist_head_element(ShardEntity, lru, &local->lru);
		if (shard_passivate_may_leave(entity))
			leave(entity, SHARD_LEAVES_MEMORY);
		else
		{
			dlist_delete(&entity->lru);
			dlist_push_tail(&local->lru, &entity->lru);
		}
	}
}

void
shard_passivate_between_turns(void)
{
	int left = Min(shard_cache_entities(), EVICTED_PER_TURN) / EVICTED_AT_ONCE + 1;

	if (unlikely(shard_turn.victims > 0))
		shard_local_each(leave_by_limit, NULL);
	while (shard_passivate_is_short() && left-- > 0)
	{
		ShardLocalType *local = NULL;

		shard_local_each(find_oldest, &local);
		if (local == NULL)
			return;
		evict_some(local);
	}
}
