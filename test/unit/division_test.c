/*
 * division_test.c
 *		Which worker has which lanes: each lane has one, owners have their own, and keep them.
 */
#include "postgres_fe.h"

#include "core/division.h"
#include "unit.h"

static const ShardDivision none;

/* Each lane that does not wait is of exactly one worker that runs, and each of these has some. */
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
	for (int group = 0; group < SHARD_GROUPS; group++)
		if (((seen & shard_group_lanes(group)) != 0) == ((division->waits & (1 << group)) != 0))
			return false;
	return true;
}

/* No worker has lanes of two groups with types, unless they share. */
static bool
is_apart(const ShardDivision *division)
{
	uint64 workers[SHARD_GROUPS] = {0};

	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (division->groups & (1 << (lane / SHARD_GROUP_LANES)))
			workers[lane / SHARD_GROUP_LANES] |= (uint64) 1 << division->worker[lane];
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
	is_int(shard_division_group(&one, 0), 1, "the group of worker 0");
	ok(shard_division_lanes(&two, 1) == shard_group_lanes(4) &&
		   shard_division_lanes(&two, 0) == ~shard_group_lanes(4),
	   "the second owner has a worker of his own");
	ok(shard_division_lanes(&second, 1) == shard_group_lanes(4),
	   "and keeps it when the first one goes");
	ok(shard_division_lanes(&third, 0) == ~shard_group_lanes(4), "the place is given to the next");
	ok(all.workers == 0xFF && all.waits == 0, "there are places for all groups");
	is_int(shard_division_group(&all, 1), 4, "who had one keeps it then");
}

static void
test_bounds(void)
{
	ShardDivision many = make(&none, 0xFF, 8, 64, false);
	ShardDivision one = make(&none, 1 << 3, 4, 64, false);
	ShardDivision few = make(&one, 1 << 3 | 1 << 0 | 1 << 5, 2, 4, false);
	ShardDivision shared = make(&few, 1 << 3 | 1 << 0 | 1 << 5, 2, 4, true);
	ShardDivision fewer = make(&few, 1 << 3 | 1 << 0, 4, 2, false);

	ok(many.workers == ~UINT64CONST(0), "64 workers at most");
	ok(one.workers == 0xF, "one owner, four workers");
	is_int(shard_division_group(&one, 3), 3, "they are his");
	is_int(few.waits, 1 << 5, "who came last waits if there is no worker");
	is_int(shard_division_group(&few, few.worker[5 * SHARD_GROUP_LANES]), 5,
		   "for one that does not run");
	ok((few.workers & ((uint64) 1 << few.worker[5 * SHARD_GROUP_LANES])) == 0,
	   "which has a number");
	is_int(shared.waits, 0, "or shares");
	is_int(shared.shared, 1 << 5, "and is known for it");
	is_int(shard_division_group(&shared, 0), -1, "worker 0 has two owners then");
	ok(fewer.per_owner == 2 && fewer.workers == 3, "an owner has not more than there are");
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
