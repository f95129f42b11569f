/*
 * core/division.c
 *		Which region worker of a node has which lanes (doc/protocol.md W1, W5).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/division.h"

static bool
has(uint8 groups, int group)
{
	return (groups & (1 << group)) != 0;
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
		taken |= 1 << place;
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
			taken |= 1 << place;
		}
		else if (may_share)
			division->shared |= 1 << group;
		else
			division->waits |= 1 << group;
	}
}

/*
 * The number of a worker that has the lanes of a group. One that waits has numbers, too, those of places that
 * nobody has: who asks for its worker finds one that does not run.
 */
static int
first_worker(const ShardDivision *division, int group)
{
	int place = division->place[group];

	if (has(division->waits, group))
	{
		place = SHARD_GROUPS - 1;
		for (int other = 0; other < group; other++)
			place -= has(division->waits, other) ? 1 : 0;
	}
	return Max(place, 0) * division->per_owner;
}

ShardDivision
shard_division_make(const ShardDivision *before, uint8 groups, int per_owner, int most,
					bool may_share)
{
	ShardDivision division = {.groups = groups, .per_owner = Min(per_owner, most)};
	int places = Min(most / division.per_owner, SHARD_GROUPS);

	Assert(per_owner > 0 && per_owner <= SHARD_GROUP_LANES && most > 0);
	give_places(&division, keep_places(&division, before, places), places, may_share);
	division.workers = 1;
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		int group = lane / SHARD_GROUP_LANES;
		int worker = 0;

		if (has(groups, group))
			worker = first_worker(&division, group) + lane % SHARD_GROUP_LANES % division.per_owner;
		division.worker[lane] = (int8) worker;
		if (!has(division.waits, group))
			division.workers |= (uint64) 1 << worker;
	}
	return division;
}

bool
shard_division_equal(const ShardDivision *a, const ShardDivision *b)
{
	return a->groups == b->groups && a->shared == b->shared && a->waits == b->waits &&
		   a->per_owner == b->per_owner && a->workers == b->workers &&
		   memcmp(a->place, b->place, sizeof(a->place)) == 0 &&
		   memcmp(a->worker, b->worker, sizeof(a->worker)) == 0;
}

ShardLanes
shard_division_lanes(const ShardDivision *division, int worker)
{
	ShardLanes lanes = 0;

	if (worker >= SHARD_MAX_WORKERS || (division->workers & ((uint64) 1 << worker)) == 0)
		return 0;
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (division->worker[lane] == worker)
			lanes |= shard_lane_bit(lane);
	return lanes;
}

int
shard_division_group(const ShardDivision *division, int worker)
{
	int found = -1;

	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		int group = lane / SHARD_GROUP_LANES;

		if (division->worker[lane] != worker || !has(division->groups, group) || group == found)
			continue;
		if (found >= 0)
			return -1;
		found = group;
	}
	return found;
}
