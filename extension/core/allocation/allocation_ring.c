/*
 * core/allocation/allocation_ring.c
 *		The ring of consistent hashing.
 *
 * Nodes are hashed by id, so a node keeps its shards when its address changes; shards by number
 * alone, so the same number of different types is at home on the same node, as long as both types
 * have the same regions and the same number of virtual nodes. Hashes decide homes: they may never
 * change under a protocol version.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/allocation/allocation_private.h"
#include "core/base/message.h"

/* murmur2 of two numbers as eight bytes, the lowest first on every machine. */
static uint32
hash_pair(uint32 first, uint32 second)
{
	char bytes[8];

	for (int i = 0; i < 4; i++)
	{
		bytes[i] = (char) (first >> (8 * i) & 0xFF);
		bytes[4 + i] = (char) (second >> (8 * i) & 0xFF);
	}
	return (uint32) shard_message_hash_murmur2(bytes, sizeof(bytes));
}

/* By hash; of two nodes with the same one the lower comes first. */
static int
compare_points(const void *a, const void *b)
{
	const ShardRingPoint *first = a;
	const ShardRingPoint *second = b;

	if (first->hash != second->hash)
		return first->hash < second->hash ? -1 : 1;
	return first->node < second->node ? -1 : first->node > second->node;
}

/* Puts the candidates of the best stage there is on the ring. */
void
shard_allocation_build_ring(ShardAllocation *allocation)
{
	int virtual_nodes = allocation->settings->virtual_nodes;
	bool all_leave = true;

	for (int i = 0; i < allocation->n_candidates; i++)
		if (allocation->candidates[i].member->stage != SHARD_ALLOCATION_LEAVING)
			all_leave = false;

	allocation->points =
		palloc(Max(allocation->n_candidates * virtual_nodes, 1) * sizeof(ShardRingPoint));
	for (int i = 0; i < allocation->n_candidates; i++)
	{
		const ShardCandidate *candidate = &allocation->candidates[i];

		if (candidate->member->stage == SHARD_ALLOCATION_LEAVING && !all_leave)
			continue;
		for (int number = 1; number <= virtual_nodes; number++)
		{
			ShardRingPoint *point = &allocation->points[allocation->n_points++];

			point->hash = hash_pair((uint32) candidate->node, (uint32) number);
			point->node = candidate->node;
		}
	}
	qsort(allocation->points, allocation->n_points, sizeof(ShardRingPoint), compare_points);
}

/*
 * The node of the first point that is not before the shard's hash, around the ring. A shard's
 * second number is 0, which is no virtual node's. There must be a candidate.
 */
int32
shard_allocation_ring_owner(const ShardAllocation *allocation, int32 shard)
{
	uint32 hash = hash_pair((uint32) shard, 0);
	int low = 0;
	int high = allocation->n_points;

	Assert(allocation->n_points > 0);
	while (low < high)
	{
		int middle = low + (high - low) / 2;

		if (allocation->points[middle].hash < hash)
			low = middle + 1;
		else
			high = middle;
	}
	return allocation->points[low < allocation->n_points ? low : 0].node;
}
