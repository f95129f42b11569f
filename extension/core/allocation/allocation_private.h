/*
 * core/allocation/allocation_private.h
 *		The candidates for a shard, shared by the files allocation*.c alone.
 */
#pragma once

#include "core/allocation/allocation.h"

/* A region that counts. */
typedef struct ShardCandidate
{
	int32 node;
	const ShardAllocationRegion *region;
	const ShardAllocationMember *member;
	int tier;	  /* how many candidates are better by stage or version */
	int position; /* in order of registration */
	int64 weight; /* 1 for all unless weighted */
	int64 count;  /* shards it has by now */
} ShardCandidate;

/* A virtual node. */
typedef struct ShardRingPoint
{
	uint32 hash;
	int32 node;
} ShardRingPoint;

struct ShardAllocation
{
	const ShardAllocationSettings *settings;
	const ShardAllocationView *view;
	int n_candidates;
	ShardCandidate *candidates; /* in order of registration */
	int64 weights;				/* sum */
	int64 count;				/* sum of what they have by now */
	int n_points;
	ShardRingPoint *points; /* by hash; of consistent hashing alone */
};

extern ShardCandidate *shard_allocation_candidate(const ShardAllocation *allocation, int32 node);
extern int shard_allocation_compare(const ShardCandidate *a, const ShardCandidate *b);

extern void shard_allocation_build_ring(ShardAllocation *allocation);
extern int32 shard_allocation_ring_owner(const ShardAllocation *allocation, int32 shard);
