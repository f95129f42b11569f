/*
 * allocation_test.c
 *		Properties of the allocation strategies that tables of cases cannot show.
 *
 * Ids as L41 are those of the cases that the least-shard strategy is known by.
 */
#include "postgres_fe.h"

#include <time.h>

#include "core/allocation/allocation.h"
#include "unit.h"

#define MAX_REGIONS 20
#define MAX_SHARDS 10000

/* A cluster that shards are given to and moved in. */
typedef struct World
{
	int n;
	ShardAllocationMember members[MAX_REGIONS];
	ShardAllocationRegion regions[MAX_REGIONS];
	int32 *shards[MAX_REGIONS];
	ShardAllocationView view;
} World;

/* Same numbers in every run. */
static uint64 random_state = 0x2545F4914F6CDD1DULL;

static int
random_below(int limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (int) ((random_state >> 11) % (uint64) limit);
}

/* Nodes 1 .. n without shards, all up. */
static void
world_start(World *world, int n)
{
	memset(world, 0, sizeof(*world));
	world->n = n;
	for (int i = 0; i < n; i++)
	{
		world->shards[i] = palloc(MAX_SHARDS * sizeof(int32));
		world->regions[i].node = i + 1;
		world->regions[i].shards = world->shards[i];
		world->members[i].node = i + 1;
		world->members[i].stage = SHARD_ALLOCATION_STAYING;
		world->members[i].reachable = true;
		world->members[i].suitable = true;
		world->members[i].weight = SHARD_ALLOCATION_WEIGHT_ONE;
		world->members[i].app_version = "1.0.0";
	}
	world->view.n_members = world->view.n_regions = n;
	world->view.members = world->members;
	world->view.regions = world->regions;
}

static void
world_end(World *world)
{
	for (int i = 0; i < world->n; i++)
		pfree(world->shards[i]);
}

static void
world_add(World *world, int32 node, int32 shard)
{
	world->shards[node - 1][world->regions[node - 1].n_shards++] = shard;
}

/* Takes a shard away; false if the node does not have it. */
static bool
world_take(World *world, int32 node, int32 shard)
{
	ShardAllocationRegion *region = &world->regions[node - 1];
	int32 *shards = world->shards[node - 1];

	for (int i = 0; i < region->n_shards; i++)
		if (shards[i] == shard)
		{
			memmove(&shards[i], &shards[i + 1], (region->n_shards - i - 1) * sizeof(int32));
			region->n_shards--;
			return true;
		}
	return false;
}

/* Gives each region fewer than a number of shards, numbered one after the other. */
static int
world_fill(World *world, int limit)
{
	int total = 0;

	for (int i = 0; i < world->n; i++)
		for (int k = random_below(limit); k > 0; k--)
			world_add(world, i + 1, ++total);
	return total;
}

static int
world_total(const World *world)
{
	int total = 0;

	for (int i = 0; i < world->n; i++)
		total += world->regions[i].n_shards;
	return total;
}

/* Whether all have the same number of shards, give or take one. */
static bool
world_is_level(const World *world)
{
	int least = PG_INT32_MAX;
	int most = 0;

	for (int i = 0; i < world->n; i++)
	{
		least = Min(least, world->regions[i].n_shards);
		most = Max(most, world->regions[i].n_shards);
	}
	return most - least <= 1;
}

/* Whether each has its fair share by weight, rounded up or down. */
static bool
world_is_fair(const World *world)
{
	int64 total = world_total(world);
	int64 weights = 0;

	for (int i = 0; i < world->n; i++)
		weights += world->members[i].weight;
	for (int i = 0; i < world->n; i++)
	{
		int64 share = total * world->members[i].weight;
		int64 has = world->regions[i].n_shards;

		if (has < share / weights || has > (share + weights - 1) / weights)
			return false;
	}
	return true;
}

static ShardAllocationMove *
plan_round(World *world, const ShardAllocationSettings *settings, int *n_moves)
{
	return shard_allocation_rebalance(settings, &world->view, NULL, 0, n_moves);
}

/*
 * Rebalances once, each shard to where it is said to go, or, if "anew", all taken away and then
 * allocated by number as if nothing had been said. Returns the number of moves, -1 if one is
 * senseless.
 */
static int
run_round(World *world, const ShardAllocationSettings *settings, bool anew)
{
	int n_moves;
	ShardAllocationMove *moves = plan_round(world, settings, &n_moves);
	bool sane = true;

	for (int i = 0; i < n_moves; i++)
		sane = world_take(world, moves[i].from, moves[i].shard) && moves[i].to != 0 &&
			   moves[i].to != moves[i].from && sane;
	for (int shard = 1; anew && shard <= MAX_SHARDS; shard++)
		for (int i = 0; i < n_moves; i++)
			if (moves[i].shard == shard)
				world_add(world, shard_allocation_allocate(settings, &world->view, shard, 0),
						  shard);
	for (int i = 0; !anew && i < n_moves; i++)
		world_add(world, moves[i].to, moves[i].shard);
	pfree(moves);
	return sane ? n_moves : -1;
}

/*
 * Starts at random and rebalances: never a shard lost, never more moves than allowed, level after
 * so many rounds, and then at rest.
 */
static void
test_balance(const char *name, int max_regions, int max_shards, int absolute, double relative,
			 int max_rounds)
{
	ShardAllocationSettings settings = shard_allocation_defaults(SHARD_ALLOCATION_LEAST_SHARD);
	bool held = true;

	settings.rebalance_absolute_limit = absolute;
	settings.rebalance_relative_limit = relative;
	for (int run = 0; run < 40 && held; run++)
	{
		World world;
		int total;
		int limit;
		int moves = 1;

		world_start(&world, 1 + random_below(max_regions));
		total = world_fill(&world, max_shards);
		limit = Max(1, Min((int) (relative * total), absolute));
		for (int round = 0; round < max_rounds && moves > 0; round++)
		{
			moves = run_round(&world, &settings, run % 2 == 1);
			held = held && moves >= 0 && moves <= limit && world_total(&world) == total;
		}
		held = held && world_is_level(&world) && run_round(&world, &settings, false) == 0;
		world_end(&world);
	}
	ok(held, "%s: up to %d regions with fewer than %d shards are level after %d rounds", name,
	   max_regions, max_shards, max_rounds);
}

/* Equal weights, whatever they are, change nothing: neither what moves nor where it goes. */
static void
test_equal_weights(void)
{
	bool same = true;

	for (int run = 0; run < 300 && same; run++)
	{
		ShardAllocationSettings plain = shard_allocation_defaults(SHARD_ALLOCATION_LEAST_SHARD);
		ShardAllocationSettings weighted;
		int32 weight = 1 + random_below(SHARD_ALLOCATION_MAX_WEIGHT);
		ShardAllocationMove *moves[2];
		int n_moves[2];
		World world;

		plain.rebalance_absolute_limit = random_below(2) ? 1000 : 1 + random_below(4);
		plain.rebalance_relative_limit = 1.0;
		weighted = plain;
		weighted.weighted = true;
		world_start(&world, 1 + random_below(9));
		world_fill(&world, 1 + random_below(30));
		for (int i = 0; i < world.n; i++)
		{
			world.members[i].weight = weight;
			if (random_below(6) == 0)
				world.members[i].stage = SHARD_ALLOCATION_LEAVING;
		}

		moves[0] = plan_round(&world, &plain, &n_moves[0]);
		moves[1] = plan_round(&world, &weighted, &n_moves[1]);
		same = n_moves[0] == n_moves[1] &&
			   memcmp(moves[0], moves[1], n_moves[0] * sizeof(ShardAllocationMove)) == 0 &&
			   shard_allocation_allocate(&plain, &world.view, 1, 0) ==
				   shard_allocation_allocate(&weighted, &world.view, 1, 0);
		pfree(moves[0]);
		pfree(moves[1]);
		world_end(&world);
	}
	ok(same, "equal weights give exactly what no weights give");
}

/* Different weights: from any start to the fair shares, and then at rest. */
static void
test_weights(bool anew)
{
	ShardAllocationSettings settings = shard_allocation_defaults(SHARD_ALLOCATION_LEAST_SHARD);
	bool held = true;
	int most_rounds = 0;

	settings.weighted = true;
	settings.rebalance_absolute_limit = 1000;
	settings.rebalance_relative_limit = 1.0;
	for (int run = 0; run < 300 && held; run++)
	{
		World world;
		int rounds = 0;

		world_start(&world, 1 + random_below(9));
		for (int i = 0; i < world.n; i++)
			world.members[i].weight = 1 + random_below(random_below(2) ? 10 : 5000);
		world_fill(&world, 1 + random_below(60));
		while (held && rounds < 10)
		{
			int moves = run_round(&world, &settings, anew);

			if (moves == 0)
				break;
			held = moves > 0;
			rounds++;
		}
		held = held && rounds < 10 && world_is_fair(&world);
		most_rounds = Max(most_rounds, rounds);
		world_end(&world);
	}
	ok(held, "different weights lead to fair shares, %s, after at most %d rounds",
	   anew ? "allocated by number" : "moved as planned", most_rounds);
}

/* Homes given out from nothing are fair at every step. */
static void
test_weighted_allocation(void)
{
	ShardAllocationSettings settings = shard_allocation_defaults(SHARD_ALLOCATION_LEAST_SHARD);
	bool fair = true;

	settings.weighted = true;
	for (int run = 0; run < 20 && fair; run++)
	{
		ShardAllocation *allocation;
		World world;

		world_start(&world, 1 + random_below(9));
		for (int i = 0; i < world.n; i++)
			world.members[i].weight = 1 + random_below(5000);
		allocation = shard_allocation_begin(&settings, &world.view);
		for (int shard = 0; shard < 500 && fair; shard++)
		{
			/* The allocation counts for itself; the world only looks on. */
			world_add(&world, shard_allocation_next(allocation, shard, 0), shard);
			fair = world_is_fair(&world);
		}
		shard_allocation_end(allocation);
		world_end(&world);
	}
	ok(fair, "homes given out one after the other are fair by weight at every step");
}

/* The answer for many is that for one, asked again and again. */
static void
test_bulk_is_one_by_one(void)
{
	bool same = true;

	for (int kind = 1; kind <= SHARD_ALLOCATION_KINDS; kind++)
		for (int run = 0; run < 4 && same; run++)
		{
			ShardAllocationSettings settings = shard_allocation_defaults(kind);
			ShardAllocation *allocation;
			World start;
			World world;

			settings.weighted = run % 2 == 1;
			world_start(&start, 5);
			world_start(&world, 5);
			for (int i = 0; i < 5; i++)
			{
				start.members[i].app_version = i < run ? "1.0.0" : "1.0.1";
				start.members[i].weight = 1 + random_below(3000);
				world.members[i] = start.members[i];
			}
			allocation = shard_allocation_begin(&settings, &start.view);
			for (int shard = 0; shard < 200 && same; shard++)
			{
				int requester = random_below(7);
				int32 home = shard_allocation_allocate(&settings, &world.view, shard, requester);

				same = shard_allocation_next(allocation, shard, requester) == home;
				world_add(&world, home, shard);
			}
			shard_allocation_end(allocation);
			world_end(&start);
			world_end(&world);
		}
	ok(same, "many homes at once are those given out one by one, with every strategy");
}

/* The first homes of a large type, and what a new node gets of them. */
static void
test_large(int kind)
{
	ShardAllocationSettings settings = shard_allocation_defaults(kind);
	ShardAllocation *allocation;
	ShardAllocationMove *moves;
	int n_moves;
	World world;
	clock_t start = clock();
	double seconds;

	settings.rebalance_absolute_limit = MAX_SHARDS;
	settings.rebalance_relative_limit = 1.0;
	world_start(&world, 10);
	world.view.n_regions = 9;
	allocation = shard_allocation_begin(&settings, &world.view);
	for (int shard = 0; shard < MAX_SHARDS; shard++)
	{
		int32 home = shard_allocation_next(allocation, shard, 1 + shard % 9);

		world_add(&world, home, shard);
	}
	shard_allocation_end(allocation);
	world.view.n_regions = 10;
	moves = plan_round(&world, &settings, &n_moves);
	seconds = (double) (clock() - start) / CLOCKS_PER_SEC;
	is_int(world_total(&world), MAX_SHARDS, "%s: every shard of %d has a home",
		   shard_allocation_kind_names[kind], MAX_SHARDS);
	ok(seconds < 0.5, "%s: 9 nodes, then a tenth, take no time, %d moves",
	   shard_allocation_kind_names[kind], n_moves);
	pfree(moves);
	world_end(&world);
}

/* A node more takes shards from the others; nothing moves between those. */
static void
test_ring_is_consistent(void)
{
	ShardAllocationSettings settings =
		shard_allocation_defaults(SHARD_ALLOCATION_CONSISTENT_HASHING);
	/* Known answers: a changed ring is a changed protocol. */
	static const int32 owners[] = {2, 3, 3, 3, 1, 1, 1, 3, 2, 1, 1, 2, 1, 3, 3, 2, 3, 1, 3, 1};
	bool consistent = true;
	World world;

	for (int n = 1; n < MAX_REGIONS; n++)
	{
		ShardAllocation *before;
		ShardAllocation *after;

		world_start(&world, n + 1);
		after = shard_allocation_begin(&settings, &world.view);
		world.view.n_regions = n;
		before = shard_allocation_begin(&settings, &world.view);
		for (int shard = 0; shard < 500; shard++)
		{
			int32 home = shard_allocation_next(after, shard, 0);

			if (home != n + 1 && home != shard_allocation_next(before, shard, 0))
				consistent = false;
			if (n == 2 && shard < (int) lengthof(owners) && home != owners[shard])
				consistent = false;
		}
		shard_allocation_end(before);
		shard_allocation_end(after);
		world_end(&world);
	}
	ok(consistent, "a node more moves shards to itself only, and owners are what they ever were");
}

static void
test_versions(void)
{
	/* From old to new. */
	static const char *const versions[] = {
		"1.0.0-M1",
		"1.0.0-RC1",
		"1.0.0",
		"1.0.0-3-abcdef",
		"1.0.0-10-abcdef",
		"1.0.0+11",
		"1.0.1-SNAPSHOT",
		"1.0.1",
		"1.0.2",
		"1.0.10",
		"1.1",
		"1.1.0.1",
		"1.2",
		"2-alpha",
		"2",
		"10",
		"99999999999999999999999",
		"100000000000000000000000",
	};
	static const char *const equal[][2] = {
		{"", "0"}, {"1", "1.0.0"}, {"1.0", "1.0.0.0"}, {"01.2", "1.02"}, {"1.0-M1", "1.0.0-M1"},
	};
	bool sorted = true;

	for (int i = 0; i < (int) lengthof(versions); i++)
		for (int k = 0; k < (int) lengthof(versions); k++)
		{
			int order = shard_allocation_compare_versions(versions[i], versions[k]);

			if ((order > 0) - (order < 0) != (i > k) - (i < k))
				sorted = ok(false, "version %s against %s", versions[i], versions[k]);
		}
	ok(sorted, "versions are ordered by their numbers");
	for (int i = 0; i < (int) lengthof(equal); i++)
		is_int(shard_allocation_compare_versions(equal[i][0], equal[i][1]), 0,
			   "version \"%s\" is \"%s\"", equal[i][0], equal[i][1]);
	ok(shard_allocation_compare_versions("latest", "0") < 0, "a version without a number is old");
}

int
main(void)
{
	test_balance("L41", 5, 5, MAX_SHARDS, 1.0, 2);
	test_balance("L42", 5, 100, MAX_SHARDS, 1.0, 2);
	test_balance("L43", 20, 5, MAX_SHARDS, 1.0, 2);
	test_balance("default limits", 9, 50, 20, 0.1, 100);
	test_balance("one at a time", 9, 20, 1, 1.0, 200);
	test_equal_weights();
	test_weights(false);
	test_weights(true);
	test_weighted_allocation();
	test_bulk_is_one_by_one();
	for (int kind = 1; kind <= SHARD_ALLOCATION_KINDS; kind++)
		test_large(kind);
	test_ring_is_consistent();
	test_versions();
	return unit_done();
}
