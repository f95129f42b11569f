/*
 * core/entity/passivation_frequency.h
 *		Entities in the order of how often they were accessed: a heap.
 *
 * With aging, the priority of an entity is its number of accesses plus the age of the heap when it
 * was accessed last; the age is the priority of the one that left last. So a newcomer soon overtakes
 * who was popular long ago.
 */
#pragma once

#include "core/entity/passivation.h"

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

/* Whoever leaves by itself does not make the others older. */
extern void
shard_passivation_frequency_remove(ShardFrequency *frequency, ShardPassivationEntity *entity);

/* If there are more than keep, remove the least frequent one and return it; NULL if not. */
extern ShardPassivationEntity *shard_passivation_frequency_pop(ShardFrequency *frequency, int keep);
