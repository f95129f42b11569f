/*
 * core/allocation/allocation_rebalance.c
 *		Which shards move, and where to.
 *
 * Each strategy chooses shards in an order; then homes are given out for them in that order, as if
 * they had been taken away from their regions before.
 *
 * A property of the least-shard strategy that was kept, because its published results depend on it:
 * regions are walked from the one with the fewest shards on, so with a tight limit the most loaded
 * region may wait while another one gives shards away.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/allocation/allocation_private.h"

/* What is being put together. */
typedef struct Rebalance
{
	ShardAllocation *allocation;
	ShardCandidate **ordered; /* by suitability */
	int n_in_progress;
	int32 *in_progress; /* sorted, each once */
	int n_moves;
	ShardAllocationMove *moves; /* room for every shard */
} Rebalance;

static int
compare_candidates(const void *a, const void *b)
{
	return shard_allocation_compare(*(ShardCandidate *const *) a, *(ShardCandidate *const *) b);
}

static int
compare_by_node(const void *a, const void *b)
{
	int32 first = (*(ShardCandidate *const *) a)->node;
	int32 second = (*(ShardCandidate *const *) b)->node;

	return first < second ? -1 : first > second;
}

static int
compare_shards(const void *a, const void *b)
{
	int32 first = *(const int32 *) a;
	int32 second = *(const int32 *) b;

	return first < second ? -1 : first > second;
}

/* A sorted copy of shards. */
static int32 *
sort_shards(const int32 *shards, int n_shards)
{
	int32 *sorted = palloc(Max(n_shards, 1) * sizeof(int32));

	if (n_shards > 0)
		memcpy(sorted, shards, n_shards * sizeof(int32));
	qsort(sorted, n_shards, sizeof(int32), compare_shards);
	return sorted;
}

/* Keeps the shards whose moves have not finished, each once. */
static void
note_in_progress(Rebalance *rebalance, const int32 *shards, int n_shards)
{
	rebalance->in_progress = sort_shards(shards, n_shards);
	for (int i = 0; i < n_shards; i++)
		if (i == 0 || rebalance->in_progress[i] != rebalance->in_progress[i - 1])
			rebalance->in_progress[rebalance->n_in_progress++] = rebalance->in_progress[i];
}

static bool
is_in_progress(const Rebalance *rebalance, int32 shard)
{
	return rebalance->n_in_progress > 0 &&
		   bsearch(&shard, rebalance->in_progress, rebalance->n_in_progress, sizeof(int32),
				   compare_shards) != NULL;
}

/* Chooses a shard. */
static void
move_away(Rebalance *rebalance, const ShardCandidate *from, int32 shard)
{
	ShardAllocationMove *move = &rebalance->moves[rebalance->n_moves++];

	move->shard = shard;
	move->from = from->node;
	move->to = 0;
}

/*
 * Whether the cluster is at rest: there is a region, all have one version, and no member joins or
 * is unreachable. Until then what is balanced now would have to be balanced again.
 */
static bool
is_good_time(const ShardAllocation *allocation)
{
	const ShardCandidate *candidates = allocation->candidates;
	const ShardAllocationView *view = allocation->view;

	for (int i = 1; i < allocation->n_candidates; i++)
		if (shard_allocation_compare_versions(candidates[0].member->app_version,
											  candidates[i].member->app_version) != 0)
			return false;
	for (int i = 0; i < view->n_members; i++)
		if (!view->members[i].reachable || view->members[i].stage == SHARD_ALLOCATION_JOINING)
			return false;
	return allocation->n_candidates > 0;
}

/* The fair share of a candidate, rounded up. */
static int64
share_above(const ShardAllocation *allocation, const ShardCandidate *candidate)
{
	return (allocation->count * candidate->weight + allocation->weights - 1) / allocation->weights;
}

/* The fair share of a candidate, rounded down. */
static int64
share_below(const ShardAllocation *allocation, const ShardCandidate *candidate)
{
	return allocation->count * candidate->weight / allocation->weights;
}

/* How many shards least_shard may move in one round. */
static int
least_shard_limit(const ShardAllocation *allocation)
{
	const ShardAllocationSettings *settings = allocation->settings;
	double relative = settings->rebalance_relative_limit * (double) allocation->count;

	return Max(1, (int) Min(relative, (double) settings->rebalance_absolute_limit));
}

/* Phase 1: move the shards above the fair share, oldest first. */
static void
move_surplus(Rebalance *rebalance, int limit)
{
	const ShardAllocation *allocation = rebalance->allocation;

	for (int i = 0; i < allocation->n_candidates; i++)
	{
		const ShardCandidate *from = rebalance->ordered[i];
		int64 surplus = from->count - share_above(allocation, from);

		for (int64 k = 0; k < surplus && rebalance->n_moves < limit; k++)
			move_away(rebalance, from, from->region->shards[k]);
	}
}

/*
 * Phase 2: no region is above the fair share, but some are below; the others give them one shard
 * each.
 */
static void
level_rest(Rebalance *rebalance, int limit)
{
	const ShardAllocation *allocation = rebalance->allocation;
	int64 below = 0;

	for (int i = 0; i < allocation->n_candidates; i++)
		below +=
			Max(0, share_below(allocation, rebalance->ordered[i]) - rebalance->ordered[i]->count);
	for (int i = 0; i < allocation->n_candidates; i++)
	{
		const ShardCandidate *from = rebalance->ordered[i];

		if (from->count * allocation->weights > allocation->count * from->weight &&
			rebalance->n_moves < Min(below, limit))
			move_away(rebalance, from, from->region->shards[0]);
	}
}

static void
rebalance_least_shard(Rebalance *rebalance)
{
	const ShardAllocation *allocation = rebalance->allocation;
	int limit = least_shard_limit(allocation);

	if (rebalance->n_in_progress > 0 || !is_good_time(allocation))
		return;
	move_surplus(rebalance, limit);
	if (rebalance->n_moves == 0)
		level_rest(rebalance, limit);
}

/* How many of a region's shards do not move already. */
static int64
count_at_rest(const Rebalance *rebalance, const ShardCandidate *candidate)
{
	int64 count = 0;

	for (int i = 0; i < candidate->region->n_shards; i++)
		if (!is_in_progress(rebalance, candidate->region->shards[i]))
			count++;
	return count;
}

/* Chooses up to n shards of a region that do not move already, lowest number first. */
static void
move_lowest(Rebalance *rebalance, const ShardCandidate *from, int64 n)
{
	int32 *shards = sort_shards(from->region->shards, from->region->n_shards);

	for (int i = 0; i < from->region->n_shards && n > 0; i++)
		if (!is_in_progress(rebalance, shards[i]))
		{
			move_away(rebalance, from, shards[i]);
			n--;
		}
	pfree(shards);
}

/*
 * From the region with the most shards at rest, if it has more than the threshold more than the
 * most suitable one.
 */
static void
rebalance_threshold(Rebalance *rebalance)
{
	const ShardAllocation *allocation = rebalance->allocation;
	const ShardAllocationSettings *settings = allocation->settings;
	int64 slots = (int64) settings->max_simultaneous_rebalance - rebalance->n_in_progress;
	const ShardCandidate *most = NULL;
	int64 most_count = -1;
	int64 above;

	if (slots <= 0 || !is_good_time(allocation))
		return;
	for (int i = 0; i < allocation->n_candidates; i++)
	{
		int64 count = count_at_rest(rebalance, rebalance->ordered[i]);

		if (count > most_count)
		{
			most = rebalance->ordered[i];
			most_count = count;
		}
	}
	above = most_count - rebalance->ordered[0]->count - settings->rebalance_threshold;
	if (above > 0)
		move_lowest(rebalance, most, Min(Min(above, settings->rebalance_threshold), slots));
}

/* The node where a shard should be; 0 if there is nothing against where it is. */
typedef int32 (*WantedNode)(const ShardAllocation *allocation, int32 shard);

/* A pin counts for moving if its node can be expected to take the shard now. */
static int32
pinned_node(const ShardAllocation *allocation, int32 shard)
{
	const ShardAllocationView *view = allocation->view;
	int32 node = view->pin != NULL ? view->pin(shard, view->pin_arg) : 0;
	const ShardCandidate *candidate = shard_allocation_candidate(allocation, node);

	return candidate != NULL && candidate->member->reachable &&
				   candidate->member->stage != SHARD_ALLOCATION_LEAVING
			   ? node
			   : 0;
}

/*
 * Chooses what is not where it should be, by node and shard number, so that the answer does not
 * depend on the order of what is given.
 */
static void
move_misplaced(Rebalance *rebalance, WantedNode wanted_node)
{
	const ShardAllocation *allocation = rebalance->allocation;
	int limit = allocation->settings->rebalance_limit;

	if (limit == 0)
		limit = PG_INT32_MAX;
	qsort(rebalance->ordered, allocation->n_candidates, sizeof(ShardCandidate *), compare_by_node);
	for (int i = 0; i < allocation->n_candidates && rebalance->n_moves < limit; i++)
	{
		const ShardCandidate *from = rebalance->ordered[i];
		int32 *shards = sort_shards(from->region->shards, from->region->n_shards);

		for (int k = 0; k < from->region->n_shards && rebalance->n_moves < limit; k++)
		{
			int32 node = wanted_node(allocation, shards[k]);

			if (node != 0 && node != from->node && !is_in_progress(rebalance, shards[k]))
				move_away(rebalance, from, shards[k]);
		}
		pfree(shards);
	}
}

/* Gives the chosen shards their new homes. */
static void
choose_targets(Rebalance *rebalance)
{
	ShardAllocation *allocation = rebalance->allocation;

	for (int i = 0; i < rebalance->n_moves; i++)
	{
		shard_allocation_candidate(allocation, rebalance->moves[i].from)->count--;
		allocation->count--;
	}
	for (int i = 0; i < rebalance->n_moves; i++)
		rebalance->moves[i].to = shard_allocation_next(allocation, rebalance->moves[i].shard, 0);
}

/*
 * Chooses by strategy. A strategy that places each shard at the node that asks first moves nothing:
 * no shard is misplaced.
 */
static void
choose_moves(Rebalance *rebalance)
{
	switch (rebalance->allocation->settings->kind)
	{
		case SHARD_ALLOCATION_LEAST_SHARD:
			rebalance_least_shard(rebalance);
			break;
		case SHARD_ALLOCATION_LEAST_SHARD_THRESHOLD:
			rebalance_threshold(rebalance);
			break;
		case SHARD_ALLOCATION_CONSISTENT_HASHING:
			if (is_good_time(rebalance->allocation))
				move_misplaced(rebalance, shard_allocation_ring_owner);
			break;
		case SHARD_ALLOCATION_EXTERNAL:
			move_misplaced(rebalance, pinned_node);
			break;
		case SHARD_ALLOCATION_LOCALITY:
		case SHARD_ALLOCATION_FUNCTION:
			break;
	}
}

/*
 * The shards that are to move, in the order chosen, each with its new home; the array is the
 * caller's. "In progress" are shards whose move has started and not finished; their regions in the
 * view are those they come from.
 */
ShardAllocationMove *
shard_allocation_rebalance(const ShardAllocationSettings *settings, const ShardAllocationView *view,
						   const int32 *in_progress, int n_in_progress, int *n_moves)
{
	Rebalance rebalance = {.allocation = shard_allocation_begin(settings, view)};
	ShardAllocation *allocation = rebalance.allocation;

	rebalance.ordered = palloc(Max(allocation->n_candidates, 1) * sizeof(ShardCandidate *));
	for (int i = 0; i < allocation->n_candidates; i++)
		rebalance.ordered[i] = &allocation->candidates[i];
	qsort(rebalance.ordered, allocation->n_candidates, sizeof(ShardCandidate *),
		  compare_candidates);
	note_in_progress(&rebalance, in_progress, n_in_progress);
	rebalance.moves = palloc(Max(allocation->count, 1) * sizeof(ShardAllocationMove));

	choose_moves(&rebalance);
	choose_targets(&rebalance);

	*n_moves = rebalance.n_moves;
	pfree(rebalance.in_progress);
	pfree(rebalance.ordered);
	shard_allocation_end(allocation);
	return rebalance.moves;
}
