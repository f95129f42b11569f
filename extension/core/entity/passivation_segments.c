/*
 * core/entity/passivation_segments.c
 *		Entities in the order of their last access, in one level or several.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/entity/passivation_private.h"

void
shard_passivation_segments_init(ShardSegments *segments, int levels)
{
	Assert(levels >= 1 && levels <= SHARD_PASSIVATION_MAX_LEVELS);

	memset(segments, 0, sizeof(*segments));
	segments->levels = levels;
	for (int level = 0; level < levels; level++)
		dlist_init(&segments->list[level]);
}

/*
 * The higher levels' shares are rounded down; the lowest level gets the
 * rest, so that the limit of all is exact.
 */
void
shard_passivation_segments_set_limit(ShardSegments *segments, int limit, const int *proportion)
{
	int rest = limit;

	segments->limit = limit;
	for (int level = 1; level < segments->levels; level++)
	{
		int64 share = proportion == NULL
						  ? limit / segments->levels
						  : (int64) limit * proportion[level] / SHARD_PASSIVATION_WHOLE;

		segments->limits[level] = (int) Min(share, rest);
		rest -= segments->limits[level];
	}
	segments->limits[0] = rest;
}

/* Put an entity at the end of a level. */
static void
append(ShardSegments *segments, ShardPassivationEntity *entity, int level)
{
	entity->level = level;
	dlist_push_tail(&segments->list[level], &entity->place);
	segments->sizes[level]++;
}

/* Take an entity out of its level. */
static void
detach(ShardSegments *segments, ShardPassivationEntity *entity)
{
	dlist_delete(&entity->place);
	segments->sizes[entity->level]--;
}

/* The least recent entity of a level that is not empty. */
static ShardPassivationEntity *
least_of(ShardSegments *segments, int level)
{
	return dlist_head_element(ShardPassivationEntity, place, &segments->list[level]);
}

/* Whatever a level has too many goes down by one, the least recent first. */
static void
demote(ShardSegments *segments, int level)
{
	while (segments->sizes[level] > segments->limits[level])
	{
		ShardPassivationEntity *entity = least_of(segments, level);

		detach(segments, entity);
		append(segments, entity, level - 1);
	}
}

void
shard_passivation_segments_insert(ShardSegments *segments, ShardPassivationEntity *entity)
{
	append(segments, entity, 0);
	segments->size++;
}

void
shard_passivation_segments_touch(ShardSegments *segments, ShardPassivationEntity *entity)
{
	int level = Min(entity->level + 1, segments->levels - 1);
	bool promoted = level != entity->level;

	detach(segments, entity);
	append(segments, entity, level);
	if (promoted)
		demote(segments, level);
}

void
shard_passivation_segments_remove(ShardSegments *segments, ShardPassivationEntity *entity)
{
	detach(segments, entity);
	segments->size--;
}

ShardPassivationEntity *
shard_passivation_segments_least(ShardSegments *segments)
{
	return dlist_is_empty(&segments->list[0]) ? NULL : least_of(segments, 0);
}

/*
 * After the higher levels have sent down what they have too many, the
 * lowest one holds at least the excess.
 */
ShardPassivationEntity *
shard_passivation_segments_pop(ShardSegments *segments)
{
	ShardPassivationEntity *entity;

	if (segments->size <= segments->limit)
		return NULL;
	for (int level = segments->levels - 1; level > 0; level--)
		demote(segments, level);
	entity = least_of(segments, 0);
	shard_passivation_segments_remove(segments, entity);
	return entity;
}

ShardPassivationEntity *
shard_passivation_segments_pop_recent(ShardSegments *segments, int keep,
									  const ShardPassivationEntity *except)
{
	dlist_head *list = &segments->list[0];
	ShardPassivationEntity *entity;

	Assert(segments->levels == 1);
	if (segments->size <= keep)
		return NULL;
	entity = dlist_tail_element(ShardPassivationEntity, place, list);
	if (entity == except)
	{
		if (!dlist_has_prev(list, &entity->place))
			return NULL;
		entity =
			dlist_container(ShardPassivationEntity, place, dlist_prev_node(list, &entity->place));
	}
	shard_passivation_segments_remove(segments, entity);
	return entity;
}
