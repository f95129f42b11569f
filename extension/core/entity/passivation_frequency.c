/*
 * core/entity/passivation_frequency.c
 *		Entities in the order of how often they were accessed: a heap.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/entity/passivation_private.h"

#define FIRST_CAPACITY 16

void
shard_passivation_frequency_init(ShardFrequency *frequency, bool aging)
{
	*frequency = (ShardFrequency){.capacity = FIRST_CAPACITY, .aging = aging};
	frequency->heap = palloc(sizeof(ShardPassivationEntity *) * FIRST_CAPACITY);
}

/* Free the heap, but not the entities, which are not ours. */
void
shard_passivation_frequency_free(ShardFrequency *frequency)
{
	pfree(frequency->heap);
	frequency->heap = NULL;
}

/* Whether one has to leave before another: no two entities have the same turn. */
static bool
is_less(const ShardPassivationEntity *a, const ShardPassivationEntity *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority;
	return a->turn < b->turn;
}

/* Put an entity at a place of the heap. */
static void
put(ShardFrequency *frequency, ShardPassivationEntity *entity, int index)
{
	frequency->heap[index] = entity;
	entity->heap_index = index;
}

/* Move an entity towards the root until its parent is less. */
static void
sift_up(ShardFrequency *frequency, ShardPassivationEntity *entity)
{
	int index = entity->heap_index;

	while (index > 0 && is_less(entity, frequency->heap[(index - 1) / 2]))
	{
		put(frequency, frequency->heap[(index - 1) / 2], index);
		index = (index - 1) / 2;
	}
	put(frequency, entity, index);
}

/* Move an entity away from the root until its children are not less. */
static void
sift_down(ShardFrequency *frequency, ShardPassivationEntity *entity)
{
	int index = entity->heap_index;

	for (;;)
	{
		int child = 2 * index + 1;

		if (child + 1 < frequency->size &&
			is_less(frequency->heap[child + 1], frequency->heap[child]))
			child++;
		if (child >= frequency->size || !is_less(frequency->heap[child], entity))
			break;
		put(frequency, frequency->heap[child], index);
		index = child;
	}
	put(frequency, entity, index);
}

/* Count an access. Accesses and age only rise, so the priority does, too. */
static void
count_access(ShardFrequency *frequency, ShardPassivationEntity *entity, uint64 turn)
{
	entity->accesses++;
	entity->priority = entity->accesses + frequency->age;
	entity->turn = turn;
}

void
shard_passivation_frequency_insert(ShardFrequency *frequency, ShardPassivationEntity *entity,
								   uint64 turn)
{
	if (frequency->size == frequency->capacity)
	{
		frequency->capacity *= 2;
		frequency->heap =
			repalloc(frequency->heap, sizeof(ShardPassivationEntity *) * frequency->capacity);
	}
	entity->accesses = 0;
	count_access(frequency, entity, turn);
	put(frequency, entity, frequency->size++);
	sift_up(frequency, entity);
}

void
shard_passivation_frequency_touch(ShardFrequency *frequency, ShardPassivationEntity *entity,
								  uint64 turn)
{
	count_access(frequency, entity, turn);
	sift_down(frequency, entity);
}

/* The last one takes the free place, and may belong on either side. */
void
shard_passivation_frequency_remove(ShardFrequency *frequency, ShardPassivationEntity *entity)
{
	ShardPassivationEntity *last = frequency->heap[--frequency->size];

	if (last == entity)
		return;
	put(frequency, last, entity->heap_index);
	sift_up(frequency, last);
	sift_down(frequency, last);
}

ShardPassivationEntity *
shard_passivation_frequency_pop(ShardFrequency *frequency, int keep)
{
	ShardPassivationEntity *entity;

	if (frequency->size <= keep)
		return NULL;
	entity = frequency->heap[0];
	if (frequency->aging)
		frequency->age = entity->priority;
	shard_passivation_frequency_remove(frequency, entity);
	return entity;
}
