/*
 * core/entity/fair_share.c
 *		The time of one worker, shared fairly by the entity types that have something to do in it.
 *
 * All of it is about time that has gone by, whatever became of it: an abort changes nothing here, and a process that
 * begins knows nothing.
 */
#include "core/entity/fair_share.h"

void
shard_fair_begin_turn(ShardFairShares *shares, bool served, int64 idle)
{
	/* time that nobody needed */
	shares->clock += Max(idle, 0);

	/* nobody but those that were put off has anything to do: the first of them goes on */
	if (!served && shares->next > shares->clock)
		shares->clock = shares->next;
	shares->next = 0;
	shares->before = shares->present;
	shares->present = 0;
	shares->turn++;
}

void
shard_fair_join(ShardFairShares *shares, ShardFairShare *share)
{
	if (share->turn == shares->turn)
		return;
	if (share->turn + 1 == shares->turn)
		shares->before--;
	share->turn = shares->turn;
	shares->present++;
	share->clock = Max(share->clock, shares->clock);
}

void
shard_fair_spend(ShardFairShares *shares, ShardFairShare *share, int64 took, int calls,
				 int messages)
{
	int types = shares->present + shares->before;
	int64 least =
		Max((int64) Max(calls, 1) * SHARD_FAIR_LONG, (int64) messages * SHARD_FAIR_LONG_MESSAGE);

	/* a clock that was set back says nothing */
	if (took <= 0)
		return;
	shares->clock += took / Max(types, 2);
#ifndef SHARD_MUTANT_SHARE_IGNORED
#ifdef SHARD_MUTANT_BATCH_COUNTED_AS_ONE
	least = (int64) Max(calls, 1) * SHARD_FAIR_LONG;
#endif
	if (took >= least)
		share->clock = Min(share->clock + took, shares->clock + SHARD_FAIR_MOST);
#endif
}

void
shard_fair_spend_alone(ShardFairShares *shares, ShardFairShare *share, int64 took)
{
#ifndef SHARD_MUTANT_ALONE_COUNTED
	shares->clock = Max(shares->clock + Max(took, 0), share->clock);
#else
	shard_fair_spend(shares, share, took, 1, 0);
#endif
}

void
shard_fair_put_off(ShardFairShares *shares, ShardFairShare *share)
{
	if (shares->next == 0 || share->clock < shares->next)
		shares->next = share->clock;
}
