/*
 * core/entity/passivation_private.h
 *		What strategies of passivation are made of: segments by recency, lists by frequency, a sketch of frequencies.
 */
#pragma once

#include "core/entity/passivation.h"

/*
 * ---- passivation_frequency.c: Entities in the order of how often they were accessed: a heap.
 *
 * With aging, the priority of an entity is its number of accesses plus the age of the heap when it
 * was accessed last; the age is the priority of the entity that left last. So a newcomer soon
 * overtakes an entity that was popular long ago.
 */

typedef struct ShardFrequency
{
	ShardPassivationEntity **heap; /* the least one first */
	int size;
	int capacity;
	int64 age;
	bool aging;
} ShardFrequency;

extern void shard_passivation_frequency_init(ShardFrequency *frequency, bool aging);
extern void shard_passivation_frequency_free(ShardFrequency *frequency);

/* A newcomer has its first access. turn rises from access to access. */
extern void shard_passivation_frequency_insert(ShardFrequency *frequency,
											   ShardPassivationEntity *entity, uint64 turn);

/* An entity of the heap has another access. */
extern void shard_passivation_frequency_touch(ShardFrequency *frequency,
											  ShardPassivationEntity *entity, uint64 turn);

/* An entity leaves by itself; that does not make the others older. */
extern void
shard_passivation_frequency_remove(ShardFrequency *frequency, ShardPassivationEntity *entity);

/* If there are more than keep, remove the least frequent one and return it; NULL if not. */
extern ShardPassivationEntity *shard_passivation_frequency_pop(ShardFrequency *frequency, int keep);

/*
 * ---- passivation_segments.c: Entities in the order of their last access, in one level or several.
 *
 * A newcomer begins at the end of the lowest level. An entity that is accessed goes to the end of
 * the next level, or of its own if that is the highest; a level that overflows by this sends its
 * least recent entity one level down. The next to leave is the least recent entity of the lowest
 * level.
 */

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

/*
 * Divides a limit by the proportions of the levels; NULL: equally. No entity leaves by that: the caller that lowers a limit pops entities
 * until the segments are below it.
 */
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

/* The entity that would leave next, as the levels are; NULL if the lowest one is empty. */
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

/*
 * ---- passivation_sketch.c: How often something was accessed, roughly and in little memory: a count-min sketch.
 *
 * Rows of small counters; an access raises one counter in each row, the estimate is the least of
 * them. It is never too low until counters are full or are halved, which happens after a number of
 * accesses, so that what was popular long ago fades (TinyLFU).
 */

#define SHARD_SKETCH_MAX_DEPTH 8

/* Counters in a row at most; beyond, a sketch is coarser than it was asked to be. */
#define SHARD_SKETCH_MAX_WIDTH (INT64CONST(1) << 22)

typedef struct ShardSketch
{
	int depth;
	int counter_bits; /* 2, 4, 8, 16 or 32 */
	int64 width;	  /* counters in a row, a power of two */
	int64 row_words;
	int64 reset_at; /* accesses; 0: never */
	int64 size;		/* accesses counted since, halved with the counters */
	int64 row_size[SHARD_SKETCH_MAX_DEPTH];
	uint64 *words;
	int64 capacity; /* words there is memory for */
} ShardSketch;

/* An empty sketch for nothing: shard_passivation_sketch_reset says how large it is to be. */
extern void shard_passivation_sketch_init(ShardSketch *sketch, int depth, int counter_bits);
extern void shard_passivation_sketch_free(ShardSketch *sketch);

/*
 * Start from 0, for that number of entities at a time: in a row, width_multiplier times the next power of
 * two; counters are halved after reset_multiplier times as many accesses.
 */
extern void shard_passivation_sketch_reset(ShardSketch *sketch, int entities, int width_multiplier,
										   int reset_multiplier);

/* An access, by the hash of what is accessed. */
extern void shard_passivation_sketch_add(ShardSketch *sketch, uint32 hash);

/* The estimate. */
extern uint32 shard_passivation_sketch_estimate(const ShardSketch *sketch, uint32 hash);
