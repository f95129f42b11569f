/*
 * core/entity/passivation_segments.h
 *		Entities in the order of their last access, in one level or several.
 *
 * A newcomer begins at the end of the lowest level. Who is accessed goes to the end of the next
 * level, or of its own if that is the highest; a level that overflows by this sends its least recent
 * one down. Who has to leave is the least recent of the lowest level.
 */
#pragma once

#include "core/entity/passivation.h"

typedef struct ShardSegments
{
	int levels;
	int limit; /* of all levels together */
	int limits[SHARD_PASSIVATION_MAX_LEVELS];
	int size;
	int sizes[SHARD_PASSIVATION_MAX_LEVELS];
	dlist_head list[SHARD_PASSIVATION_MAX_LEVELS]; /* least recent first */
} ShardSegments;

extern void shard_passivation_segments_init(ShardSegments *segments, int levels);

/* Divide a limit by the proportions of the levels, NULL: equally. Nobody leaves yet. */
extern void
shard_passivation_segments_set_limit(ShardSegments *segments, int limit, const int *proportion);

/* A newcomer; it may make the segments overflow. */
extern void
shard_passivation_segments_insert(ShardSegments *segments, ShardPassivationEntity *entity);

/* An entity that is in the segments was accessed. */
extern void
shard_passivation_segments_touch(ShardSegments *segments, ShardPassivationEntity *entity);

extern void
shard_passivation_segments_remove(ShardSegments *segments, ShardPassivationEntity *entity);

/* Whom it would hit, as the levels are; NULL if the lowest one is empty. */
extern ShardPassivationEntity *shard_passivation_segments_least(ShardSegments *segments);

/* If they overflow, remove the least recent one and return it; NULL if not. */
extern ShardPassivationEntity *shard_passivation_segments_pop(ShardSegments *segments);

/*
 * If there are more than keep, remove the most recent one but except (which may be NULL) and return
 * it; NULL if not. With one level only.
 */
extern ShardPassivationEntity *
shard_passivation_segments_pop_recent(ShardSegments *segments, int keep,
									  const ShardPassivationEntity *except);
