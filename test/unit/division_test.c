/*
 * division_test.c
 *		Which worker has which lanes: each lane has one, owners have their own, and keep them.
 */
#include "postgres_fe.h"

#include "core/base/division.h"
#include "unit.h"

static const ShardDivision none;

/* The group whose types a worker runs; -1: it has those of several, or of none. */
static int
group_of(const ShardDivision *division, int worker)
{
	int found = -1;

	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		int group = lane / SHARD_GROUP_LANES;

		if (division->worker[lane] != worker || (division->groups & 1 << group) == 0 ||
			group == found)
			continue;
		if (found >= 0)
			return -1;
		found = group;
	}
	return found;
}

/* Each lane is of exactly one worker that is to run, whoever waits, and each of these has some. */
static bool
is_whole(const ShardDivision *division)
{
	ShardLanes seen = 0;

	for (int worker = 0; worker < SHARD_MAX_WORKERS; worker++)
	{
		ShardLanes lanes = shard_division_lanes(division, worker);

		if ((seen & lanes) != 0 ||
			(lanes != 0) != ((division->workers & ((uint64) 1 << worker)) != 0))
			return false;
		seen |= lanes;
	}
	return seen == SHARD_ALL_LANES;
}

/*
 * The keeper has the lanes of all groups that have no place, and of no other, where anybody would be held up by
 * somebody else's worker otherwise: of two places, or where one waits.
 */
static bool
is_kept(const ShardDivision *division)
{
	ShardLanes unplaced = 0;
	uint8 places = 0;
	int keeper = shard_lane_next(division->keeper, 0);

	for (int group = 0; group < SHARD_GROUPS; group++)
		if (division->place[group] >= 0)
			places |= shard_group_bit(division->place[group]);
		else if ((division->shared & (1 << group)) == 0)
			unplaced |= shard_group_lanes(group);
	if ((places & (places - 1)) == 0 && division->waits == 0)
		unplaced = 0;
	return shard_division_lanes(division, keeper) == unplaced &&
		   (division->keeper & ~division->workers) == 0;
}

/* No worker has lanes of two groups with types, unless they share; but the keeper, who runs none. */
static bool
is_apart(const ShardDivision *division)
{
	uint64 workers[SHARD_GROUPS] = {0};

	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (division->groups & (1 << (lane / SHARD_GROUP_LANES)))
			workers[lane / SHARD_GROUP_LANES] |=
				shard_worker_bit(division->worker[lane]) & ~division->keeper;
	for (int group = 0; group < SHARD_GROUPS; group++)
		for (int other = 0; other < group; other++)
			if ((workers[group] & workers[other]) != 0 &&
				((division->shared & (1 << group)) | (division->shared & (1 << other))) == 0)
				return false;
	return true;
}

static ShardDivision
make(const ShardDivision *before, uint8 groups, int per_owner, int most, bool may_share)
{
	ShardDivision division = shard_division_make(before, groups, per_owner, most, may_share);

	ok(is_whole(&division), "groups %02x, %d each, %d at most: each lane has one worker", groups,
	   per_owner, most);
	ok(is_apart(&division), "owners have their own");
	ok(is_kept(&division), "nobody has what is nobody's");
	return division;
}

static void
test_owners(void)
{
	ShardDivision empty = make(&none, 0, 1, 64, false);
	ShardDivision one = make(&empty, 1 << 1, 1, 64, false);
	ShardDivision two = make(&one, 1 << 1 | 1 << 4, 1, 64, false);
	ShardDivision second = make(&two, 1 << 4, 1, 64, false);
	ShardDivision third = make(&second, 1 << 4 | 1 << 0, 1, 64, false);
	ShardDivision all = make(&third, 0xFF, 1, 64, false);

	ok(empty.workers == 1 && shard_division_lanes(&empty, 0) == SHARD_ALL_LANES,
	   "without types worker 0 has all lanes");
	ok(one.workers == 1 && shard_division_lanes(&one, 0) == SHARD_ALL_LANES,
	   "with one owner it has them, too");
	is_int(group_of(&one, 0), 1, "the group of worker 0");
	ok(shard_division_lanes(&two, 1) == shard_group_lanes(4) &&
		   shard_division_lanes(&two, 0) == shard_group_lanes(1),
	   "the second owner has a worker of his own");
	ok(two.keeper == UINT64CONST(1) << 63 &&
		   shard_division_lanes(&two, 63) == ~(shard_group_lanes(4) | shard_group_lanes(1)),
	   "and a third one has what is nobody's");
	ok(shard_division_lanes(&second, 1) == shard_group_lanes(4),
	   "he keeps his when the first one goes");
	ok(second.keeper == 0, "one owner needs no keeper");
	ok(shard_division_lanes(&third, 0) == shard_group_lanes(0), "the place is given to the next");
	ok(all.workers == 0xFF && all.waits == 0 && all.keeper == 0, "there are places for all groups");
	is_int(group_of(&all, 1), 4, "who had one keeps it then");
}

static void
test_bounds(void)
{
	ShardDivision many = make(&none, 0xFF, 8, 64, false);
	ShardDivision one = make(&none, 1 << 3, 4, 64, false);
	ShardDivision few = make(&one, 1 << 3 | 1 << 0 | 1 << 5, 2, 4, false);
	ShardDivision full = make(&many, 0xFF & ~(1 << 2 | 1 << 6), 8, 64, false);
	ShardDivision shared = make(&few, 1 << 3 | 1 << 0 | 1 << 5, 2, 4, true);
	ShardDivision fewer = make(&few, 1 << 3 | 1 << 0, 4, 2, false);

	ok(many.workers == ~UINT64CONST(0), "64 workers at most");
	ok(one.workers == 0xF, "one owner, four workers");
	is_int(group_of(&one, 3), 3, "they are his");
	is_int(few.waits, 1 << 5, "who came last waits if there is no worker");
	ok(shard_division_is_keeper(&few, few.worker[5 * SHARD_GROUP_LANES]) && few.keeper != 0,
	   "the keeper has his lanes");
	ok(shard_division_is_keeper(&full, 55) &&
		   shard_division_lanes(&full, 55) == (shard_group_lanes(2) | shard_group_lanes(6)),
	   "where places have the last numbers its is another one");
	is_int(shared.waits, 0, "or shares");
	is_int(shared.shared, 1 << 5, "and is known for it");
	is_int(group_of(&shared, 0), -1, "worker 0 has two owners then");
	ok(fewer.per_owner == 2 && (fewer.workers & ~fewer.keeper) == 3,
	   "an owner has not more than there are");
	is_int(fewer.waits, 1 << 0, "who had the first place keeps it");
}

/* Any change whatever. */
static void
test_changes(void)
{
	ShardDivision division = none;
	uint32 random = 1;

	for (int i = 0; i < 500; i++)
	{
		random = random * 1664525 + 1013904223;
		division = make(&division, (uint8) (random >> 8), 1 + (random >> 16) % 8,
						1 + (random >> 20) % 64, (random >> 27) % 2 != 0);
	}
}

int
main(void)
{
	test_owners();
	test_bounds();
	test_changes();
	return unit_done();
}
