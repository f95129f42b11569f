/*
 * core/entity/passivation_sketch.h
 *		How often something was accessed, roughly and in little memory: a count-min sketch.
 *
 * Rows of small counters; an access raises one counter in each row, the estimate is the least of
 * them. It is never too low until counters are full or are halved, which happens after a number of
 * accesses, so that what was popular long ago fades (TinyLFU).
 */
#pragma once

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
 * Begin anew, for so many entities at a time: in a row, width_multiplier times the next power of
 * two; counters are halved after reset_multiplier times as many accesses.
 */
extern void shard_passivation_sketch_reset(ShardSketch *sketch, int entities, int width_multiplier,
										   int reset_multiplier);

/* An access, by the hash of what is accessed. */
extern void shard_passivation_sketch_add(ShardSketch *sketch, uint32 hash);

/* The estimate. */
extern uint32 shard_passivation_sketch_estimate(const ShardSketch *sketch, uint32 hash);
