/*
 * core/allocation/allocation.c
 *		The home of a shard: candidates in order of suitability, and the choice of each strategy.
 *
 * Weights (an improvement of our own, off by default): the fair share of a candidate is shards *
 * weight / weights. Homes are given out by the quota method: to the candidate for which (shards +
 * 1) / weight is least, among those that do not thereby exceed their fair share, rounded up.
 * Comparing shards + 1 fills each candidate up to its share, rounded down, before another one gets
 * more than that; the bound keeps the heaviest candidate from getting back what rebalancing just
 * took from it. Without the bound such shards would move again with each rebalance. With equal
 * weights the quota method comes to the same as without weights: the candidate with the fewest
 * shards wins.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/allocation/allocation_private.h"

/* The member of a node in the view, NULL if there is none. */
static const ShardAllocationMember *
find_member(const ShardAllocationView *view, int32 node)
{
	for (int i = 0; i < view->n_members; i++)
		if (view->members[i].node == node)
			return &view->members[i];
	return NULL;
}

static bool
is_leaving(const ShardCandidate *candidate)
{
	return candidate->member->stage == SHARD_ALLOCATION_LEAVING;
}

/* Whether a is better than b, even with more shards. */
static bool
is_of_better_tier(const ShardCandidate *a, const ShardCandidate *b)
{
	if (is_leaving(a) != is_leaving(b))
		return is_leaving(b);
	return shard_allocation_compare_versions(a->member->app_version, b->member->app_version) > 0;
}

/* Gives each candidate its tier; there are few, so they are compared pairwise. */
static void
rank_candidates(ShardAllocation *allocation)
{
	for (int i = 0; i < allocation->n_candidates; i++)
		for (int j = 0; j < allocation->n_candidates; j++)
			if (is_of_better_tier(&allocation->candidates[j], &allocation->candidates[i]))
				allocation->candidates[i].tier++;
}

/*
 * Order of suitability: negative if a comes first. Total, as positions differ; so sorting by it is
 * stable.
 */
int
shard_allocation_compare(const ShardCandidate *a, const ShardCandidate *b)
{
	int64 load_a = (a->count + 1) * b->weight;
	int64 load_b = (b->count + 1) * a->weight;

	if (a->tier != b->tier)
		return a->tier < b->tier ? -1 : 1;
	if (load_a != load_b)
		return load_a < load_b ? -1 : 1;
	return a->position - b->position;
}

/* The candidate of a node, NULL if the node has none. */
ShardCandidate *
shard_allocation_candidate(const ShardAllocation *allocation, int32 node)
{
	for (int i = 0; i < allocation->n_candidates; i++)
		if (allocation->candidates[i].node == node)
			return &allocation->candidates[i];
	return NULL;
}

/* The candidate of a node that is asked for by name: one that leaves is not taken. */
static ShardCandidate *
find_staying(const ShardAllocation *allocation, int32 node)
{
	ShardCandidate *candidate = shard_allocation_candidate(allocation, node);

	return candidate != NULL && !is_leaving(candidate) ? candidate : NULL;
}

/* The first in order of suitability, within its fair share if any of its tier is. */
static ShardCandidate *
find_most_suitable(const ShardAllocation *allocation)
{
	ShardCandidate *best = NULL;
	ShardCandidate *fair = NULL;

	for (int i = 0; i < allocation->n_candidates; i++)
	{
		ShardCandidate *candidate = &allocation->candidates[i];

		if (best == NULL || shard_allocation_compare(candidate, best) < 0)
			best = candidate;
		if (candidate->count * allocation->weights >= (allocation->count + 1) * candidate->weight)
			continue;
		if (fair == NULL || shard_allocation_compare(candidate, fair) < 0)
			fair = candidate;
	}
	return fair != NULL && fair->tier == best->tier ? fair : best;
}

/* What the strategy says; NULL if there is no candidate. */
static ShardCandidate *
choose(const ShardAllocation *allocation, int32 shard, int32 requester)
{
	const ShardAllocationView *view = allocation->view;
	ShardCandidate *wanted = NULL;

	switch (allocation->settings->kind)
	{
		case SHARD_ALLOCATION_CONSISTENT_HASHING:
			return shard_allocation_candidate(allocation,
											  shard_allocation_ring_owner(allocation, shard));
		case SHARD_ALLOCATION_EXTERNAL:
			if (view->pin != NULL)
				wanted = find_staying(allocation, view->pin(shard, view->pin_arg));
			if (wanted == NULL)
				wanted = find_staying(allocation, requester);
			break;
		case SHARD_ALLOCATION_LOCALITY:
			wanted = find_staying(allocation, requester);
			break;
		case SHARD_ALLOCATION_LEAST_SHARD:
		case SHARD_ALLOCATION_LEAST_SHARD_THRESHOLD:
		case SHARD_ALLOCATION_FUNCTION: /* asked here only when the user's functions fail */
			break;
	}
	return wanted != NULL ? wanted : find_most_suitable(allocation);
}

/* The threshold strategy rebalances without weights, so it must not place with them. */
static bool
has_weights(const ShardAllocationSettings *settings)
{
	return settings->weighted && settings->kind != SHARD_ALLOCATION_LEAST_SHARD_THRESHOLD;
}

/*
 * Begins to give out homes. Settings and view must stay until the end. Costs of each home grow with
 * the number of regions only.
 */
ShardAllocation *
shard_allocation_begin(const ShardAllocationSettings *settings, const ShardAllocationView *view)
{
	ShardAllocation *allocation = palloc0(sizeof(ShardAllocation));

	Assert(view->n_regions <= SHARD_ALLOCATION_MAX_REGIONS);
	allocation->settings = settings;
	allocation->view = view;
	allocation->candidates = palloc0(Max(view->n_regions, 1) * sizeof(ShardCandidate));
	for (int i = 0; i < view->n_regions; i++)
	{
		const ShardAllocationRegion *region = &view->regions[i];
		const ShardAllocationMember *member = find_member(view, region->node);
		ShardCandidate *candidate = &allocation->candidates[allocation->n_candidates];

		if (member == NULL || !member->suitable)
			continue;
		Assert(member->weight > 0 && member->weight <= SHARD_ALLOCATION_MAX_WEIGHT);
		candidate->node = region->node;
		candidate->region = region;
		candidate->member = member;
		candidate->position = allocation->n_candidates++;
		candidate->weight = has_weights(settings) ? member->weight : 1;
		candidate->count = region->n_shards;
		allocation->weights += candidate->weight;
		allocation->count += candidate->count;
	}
	rank_candidates(allocation);
	if (settings->kind == SHARD_ALLOCATION_CONSISTENT_HASHING)
		shard_allocation_build_ring(allocation);
	return allocation;
}

/*
 * The home of one more shard, which counts as placed there from now on; 0 if no region can take it
 * now. The requester is the node that asked for it, 0 if none did.
 */
int32
shard_allocation_next(ShardAllocation *allocation, int32 shard, int32 requester)
{
	ShardCandidate *home;

	if (allocation->n_candidates == 0)
		return 0;
	home = choose(allocation, shard, requester);
	home->count++;
	allocation->count++;
	return home->node;
}

void
shard_allocation_end(ShardAllocation *allocation)
{
	if (allocation->points != NULL)
		pfree(allocation->points);
	pfree(allocation->candidates);
	pfree(allocation);
}

/* The home of a single shard, as shard_allocation_next. */
int32
shard_allocation_allocate(const ShardAllocationSettings *settings, const ShardAllocationView *view,
						  int32 shard, int32 requester)
{
	ShardAllocation *allocation = shard_allocation_begin(settings, view);
	int32 home = shard_allocation_next(allocation, shard, requester);

	shard_allocation_end(allocation);
	return home;
}
