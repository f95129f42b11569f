/*
 * core/entity/passivation_sketch.c
 *		How often something was accessed, roughly and in little memory: a count-min sketch.
 *
 * Counters are packed into 64-bit words and never cross one.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "port/pg_bitutils.h"

#include "core/entity/passivation_private.h"

#define WORD_BITS 64

/* 2^64 divided by the golden ratio: sets the rows' hashes apart. */
#define ROW_STEP UINT64CONST(0x9E3779B97F4A7C15)

void
shard_passivation_sketch_init(ShardSketch *sketch, int depth, int counter_bits)
{
	Assert(depth >= 1 && depth <= SHARD_SKETCH_MAX_DEPTH);
	Assert(counter_bits >= 2 && counter_bits <= 32 && WORD_BITS % counter_bits == 0);

	memset(sketch, 0, sizeof(*sketch));
	sketch->depth = depth;
	sketch->counter_bits = counter_bits;
	sketch->capacity = depth;
	sketch->words = palloc(sizeof(uint64) * sketch->capacity);
	shard_passivation_sketch_reset(sketch, 0, 1, 1);
}

/* Free what the sketch has taken. */
void
shard_passivation_sketch_free(ShardSketch *sketch)
{
	pfree(sketch->words);
	sketch->words = NULL;
}

/* The next power of two, at most the greatest width. */
static int64
ceiling_power(int64 number)
{
	int64 power = 1;

	while (power < number && power < SHARD_SKETCH_MAX_WIDTH)
		power *= 2;
	return power;
}

void
shard_passivation_sketch_reset(ShardSketch *sketch, int entities, int width_multiplier,
							   int reset_multiplier)
{
	int64 words;

	sketch->width = ceiling_power(ceiling_power(entities) * width_multiplier);
	sketch->row_words = Max(sketch->width * sketch->counter_bits / WORD_BITS, 1);
	sketch->reset_at = (int64) entities * reset_multiplier;
	sketch->size = 0;
	memset(sketch->row_size, 0, sizeof(sketch->row_size));

	words = sketch->row_words * sketch->depth;
	if (words > sketch->capacity)
	{
		sketch->words = repalloc(sketch->words, sizeof(uint64) * words);
		sketch->capacity = words;
	}
	memset(sketch->words, 0, sizeof(uint64) * words);
}

/* Where the counter of a hash is in a row: its word, and by how many bits it is shifted there. */
static uint64 *
locate(const ShardSketch *sketch, int row, uint32 hash, int *shift)
{
	uint64 mixed = hash + ROW_STEP * (uint64) (row + 1);
	int64 bit;

	/* the finalizer of splitmix64 */
	mixed = (mixed ^ (mixed >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	mixed = (mixed ^ (mixed >> 27)) * UINT64CONST(0x94D049BB133111EB);
	mixed ^= mixed >> 31;

	bit = (int64) (mixed & (uint64) (sketch->width - 1)) * sketch->counter_bits;
	*shift = (int) (bit % WORD_BITS);
	return &sketch->words[row * sketch->row_words + bit / WORD_BITS];
}

/* The greatest value of a counter. */
static uint64
counter_mask(const ShardSketch *sketch)
{
	return (UINT64CONST(1) << sketch->counter_bits) - 1;
}

/* A word with the same value in each of its counters. */
static uint64
in_each_counter(const ShardSketch *sketch, uint64 value)
{
	uint64 word = 0;

	for (int shift = 0; shift < WORD_BITS; shift += sketch->counter_bits)
		word |= value << shift;
	return word;
}

/*
 * Halve all counters. A row's sum loses another half for each counter that was odd, since halves are
 * rounded down.
 */
static void
halve(ShardSketch *sketch)
{
	uint64 odd_bits = in_each_counter(sketch, 1);
	uint64 kept_bits = in_each_counter(sketch, counter_mask(sketch) >> 1);

	sketch->size = 0;
	for (int row = 0; row < sketch->depth; row++)
	{
		uint64 *words = &sketch->words[row * sketch->row_words];
		int64 odd = 0;

		for (int64 i = 0; i < sketch->row_words; i++)
		{
			odd += pg_popcount64(words[i] & odd_bits);
			words[i] = (words[i] >> 1) & kept_bits;
		}
		sketch->row_size[row] = (sketch->row_size[row] - odd) / 2;
		sketch->size = Max(sketch->size, sketch->row_size[row]);
	}
}

/* An access that finds all its counters full is not counted. */
void
shard_passivation_sketch_add(ShardSketch *sketch, uint32 hash)
{
	uint64 mask = counter_mask(sketch);
	bool counted = false;

	for (int row = 0; row < sketch->depth; row++)
	{
		int shift;
		uint64 *word = locate(sketch, row, hash, &shift);

		if ((*word >> shift & mask) == mask)
			continue;
		*word += UINT64CONST(1) << shift;
		sketch->row_size[row]++;
		counted = true;
	}
	if (counted && ++sketch->size == sketch->reset_at)
		halve(sketch);
}

uint32
shard_passivation_sketch_estimate(const ShardSketch *sketch, uint32 hash)
{
	uint64 mask = counter_mask(sketch);
	uint64 least = mask;

	for (int row = 0; row < sketch->depth; row++)
	{
		int shift;
		const uint64 *word = locate(sketch, row, hash, &shift);
		uint64 count = *word >> shift & mask;

		least = Min(least, count);
	}
	return (uint32) least;
}
