/*
 * core/entity/passivation.h
 *		Which entities leave memory: the passivation strategies.
 *
 * One object for each region, that is for one entity type on one node. Its limit is divided evenly (integer
 * division) between the shards that are active there; each shard picks its own victims. A region worker, which has
 * all its entities of a type in one memory, has one object with one such shard for them (entity/passivate.c).
 *
 * Nothing is looked up and nothing is copied: the caller embeds a ShardPassivationEntity in whatever stands
 * for an entity in its memory, zeroed at first. All times are microseconds of any clock. Proportions are in
 * millionths, and shares of a limit are rounded down.
 *
 * Memory is taken in the current memory context when the object is made and when a shard is added; it grows in
 * place. An access costs O(1), with lfu and lfu_aging O(log entities of the shard).
 */
#pragma once

#include "lib/ilist.h"

/* 1.0 of a proportion or a multiplier. */
#define SHARD_PASSIVATION_WHOLE 1000000

#define SHARD_PASSIVATION_MAX_LEVELS 10

typedef enum ShardPassivationStrategy
{
	SHARD_PASSIVATION_NONE,
	SHARD_PASSIVATION_IDLE, /* entities that were not accessed for some time */
	SHARD_PASSIVATION_LRU,	/* the entity that was not accessed for longest */
	SHARD_PASSIVATION_SLRU, /* the same in levels: an entity that is accessed again is promoted */
	SHARD_PASSIVATION_MRU,	/* the entity that was accessed last before the newcomer */
	SHARD_PASSIVATION_LFU,	/* the entity accessed least often; of several, least recently */
	SHARD_PASSIVATION_LFU_AGING, /* as LFU, but old accesses count less */
	SHARD_PASSIVATION_COMPOSITE, /* a window (lru), then a filter by frequency, then slru */
	SHARD_PASSIVATION_STRATEGIES
} ShardPassivationStrategy;

/* Whether a strategy looks at active_entity_limit. */
static inline bool
shard_passivation_has_limit(ShardPassivationStrategy strategy)
{
	return strategy >= SHARD_PASSIVATION_LRU;
}

/* Fields that a strategy does not use are ignored, idle_after with all but none. */
typedef struct ShardPassivationSettings
{
	ShardPassivationStrategy strategy;
	int active_entity_limit; /* of the region */
	int64 idle_after;		 /* entities not accessed for longer leave; 0: no entity does */

	/* slru, composite: lowest level first, which gets what the others leave */
	int levels;
	bool equal_levels; /* proportions are not looked at */
	int proportion[SHARD_PASSIVATION_MAX_LEVELS];

	/* composite */
	int window_proportion;
	bool filter; /* false: each entity that drops out of the window is admitted */
	int sketch_depth;
	int sketch_counter_bits;
	int sketch_width_multiplier; /* of the shard's limit: counters in a row */
	int sketch_reset_multiplier; /* of the shard's limit: accesses until counters are halved */
} ShardPassivationSettings;

typedef struct ShardPassivation ShardPassivation;
typedef struct ShardPassivationShard ShardPassivationShard;

/* An entity, as the strategies see it. The caller sets hash and else only reads shard. */
typedef struct ShardPassivationEntity
{
	ShardPassivationShard *shard; /* NULL: not tracked, thus not in memory */
	uint32 hash;				  /* of its id; composite only */
	dlist_node place;			  /* among the victims, or in a level of its shard */
	dlist_node recency;			  /* among all entities of the region */
	int64 accessed_at;
	int level;
	bool in_window;

	/* lfu */
	int heap_index;
	int64 accesses;
	int64 priority;
	uint64 turn; /* number of its last access, among those of the region */
} ShardPassivationEntity;

/* The name of a strategy; and the other way round, false if there is none of the name. */
extern const char *shard_passivation_name(ShardPassivationStrategy strategy);
extern bool shard_passivation_find(const char *name, ShardPassivationStrategy *strategy);

/* The defaults of a strategy. */
extern ShardPassivationSettings shard_passivation_defaults(ShardPassivationStrategy strategy);

/* What is wrong with settings, as a sentence; NULL: nothing. */
extern const char *shard_passivation_problem(const ShardPassivationSettings *settings);

/* Whether two settings, but for their limits, come to the same. */
extern bool
shard_passivation_is_like(const ShardPassivationSettings *a, const ShardPassivationSettings *b);

/* A region without shards; settings must have no problem. */
extern ShardPassivation *shard_passivation_create(const ShardPassivationSettings *settings);

/* Free a region and its shards; entities that are tracked must not be used again. */
extern void shard_passivation_destroy(ShardPassivation *region);

/*
 * In all that follows, victims are entities that leave now: they are appended to the list in the
 * order in which they leave, chained by place, and are no longer tracked.
 */

/* Set another limit of the region, at least 1. The frequencies of composite start from 0. */
extern void shard_passivation_set_limit(ShardPassivation *region, int limit, dlist_head *victims);

/*
 * A shard becomes active. All shards' limits shrink; as with another limit, frequencies start from 0.
 */
extern ShardPassivationShard *
shard_passivation_add_shard(ShardPassivation *region, dlist_head *victims);

/*
 * A shard is no longer active. Its entities are no longer tracked, and are no victims: they left
 * with it. The others' limits grow.
 */
extern void shard_passivation_remove_shard(ShardPassivation *region, ShardPassivationShard *shard,
										   dlist_head *victims);

/*
 * An entity of a shard is accessed, and comes into memory if it was not tracked. It can be its own
 * victim: where the limit is 0, or where the filter of composite does not admit it.
 */
extern void
shard_passivation_accessed(ShardPassivation *region, ShardPassivationShard *shard,
						   ShardPassivationEntity *entity, int64 now, dlist_head *victims);

/* An entity has left memory by itself; nothing if it is not tracked. */
extern void shard_passivation_remove(ShardPassivation *region, ShardPassivationEntity *entity);

/* Entities that were not accessed for longer than idle_after leave. */
extern void shard_passivation_idle(ShardPassivation *region, int64 now, dlist_head *victims);

/*
 * The first moment at which shard_passivation_idle finds a victim; PG_INT64_MAX: never, as things
 * are.
 */
extern int64 shard_passivation_next_idle(const ShardPassivation *region);

/* Entities that a shard tracks, and its share of the limit. */
extern int shard_passivation_size(const ShardPassivationShard *shard);
extern int shard_passivation_share(const ShardPassivationShard *shard);
