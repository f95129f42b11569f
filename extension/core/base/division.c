/*
 * core/base/division.c
 *		Which region worker of a node has which lanes (doc/protocol.md W1, W5).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/division.h"

static bool
has(uint8 groups, int group)
{
	return (groups & shard_group_bit(group)) != 0;
}

/* Those that had a place keep it, as long as there is one of that number. */
static uint8
keep_places(ShardDivision *division, const ShardDivision *before, int places)
{
	uint8 taken = 0;

	for (int group = 0; group < SHARD_GROUPS; group++)
	{
		int place = before->workers != 0 ? before->place[group] : -1;

#ifdef SHARD_MUTANT_PLACES_ANEW
		place = -1;
#endif
		division->place[group] = -1;
		if (!has(division->groups, group) || place < 0 || place >= places)
			continue;
		division->place[group] = (int8) place;
		taken |= shard_group_bit(place);
	}
	return taken;
}

/* The others get what is free, in their order. */
static void
give_places(ShardDivision *division, uint8 taken, int places, bool may_share)
{
	int place = 0;

	for (int group = 0; group < SHARD_GROUPS; group++)
	{
		if (!has(division->groups, group) || division->place[group] >= 0)
			continue;
		while (place < places && has(taken, place))
			place++;
		if (place < places)
		{
			division->place[group] = (int8) place;
			taken |= shard_group_bit(place);
		}
		else if (may_share)
			division->shared |= shard_group_bit(group);
		else
			division->waits |= shard_group_bit(group);
	}
}

/* The numbers of workers of the places that are in use, as a mask; *places: how many these are. */
static uint64
placed_workers(const ShardDivision *division, int *places)
{
	uint64 mine = division->per_owner < SHARD_MAX_WORKERS ? ((uint64) 1 << division->per_owner) - 1
														  : ~UINT64CONST(0);
	uint64 workers = 0;

	*places = 0;
	for (int group = 0; group < SHARD_GROUPS; group++)
	{
		if (division->place[group] < 0)
			continue;
		workers |= mine << (division->place[group] * division->per_owner);
		(*places)++;
	}
	return workers;
}

/*
 * The number of the keeper; -1: there is nothing for one. It is the highest that no place has: there is one, since a
 * group that has no place leaves it one of eight.
 */
static int
find_keeper(const ShardDivision *division)
{
	int places;
	uint64 taken = placed_workers(division, &places);
	uint8 without = 0;
	int keeper = SHARD_MAX_WORKERS - 1;

	for (int group = 0; group < SHARD_GROUPS; group++)
		if (division->place[group] < 0 && !has(division->shared, group))
			without |= shard_group_bit(group);
	if (without == 0 || (division->waits == 0 && places <= 1))
		return -1;
	while ((taken & shard_worker_bit(keeper)) != 0)
		keeper--;
	return keeper;
}

/* The worker of a lane. A group that shares has the workers of place 0. */
static int
worker_of(const ShardDivision *division, int lane, int keeper)
{
	int group = lane / SHARD_GROUP_LANES;
	int place = division->place[group];

	if (place < 0 && !has(division->shared, group))
		return Max(keeper, 0);
	return Max(place, 0) * division->per_owner + lane % SHARD_GROUP_LANES % division->per_owner;
}

ShardDivision
shard_division_make(const ShardDivision *before, uint8 groups, int per_owner, int most,
					bool may_share)
{
	ShardDivision division = {.groups = groups, .per_owner = Min(per_owner, most)};
	int places = Min(most / division.per_owner, SHARD_GROUPS);
	int keeper;

	Assert(per_owner > 0 && per_owner <= SHARD_GROUP_LANES && most > 0);
	give_places(&division, keep_places(&division, before, places), places, may_share);
	keeper = find_keeper(&division);
	if (keeper >= 0)
		division.keeper = shard_worker_bit(keeper);
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		division.worker[lane] = (int8) worker_of(&division, lane, keeper);
		division.workers |= shard_worker_bit(division.worker[lane]);
	}
	return division;
}

bool
shard_division_equal(const ShardDivision *a, const ShardDivision *b)
{
	return a->groups == b->groups && a->shared == b->shared && a->waits == b->waits &&
		   a->per_owner == b->per_owner && a->workers == b->workers && a->keeper == b->keeper &&
		   memcmp(a->place, b->place, sizeof(a->place)) == 0 &&
		   memcmp(a->worker, b->worker, sizeof(a->worker)) == 0;
}

ShardLanes
shard_division_lanes(const ShardDivision *division, int worker)
{
	ShardLanes lanes = 0;

	if (worker >= SHARD_MAX_WORKERS || (division->workers & shard_worker_bit(worker)) == 0)
		return 0;
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (division->worker[lane] == worker)
			lanes |= shard_lane_bit(lane);
	return lanes;
}
