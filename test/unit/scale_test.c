/*
 * scale_test.c
 *		Unit tests of what plans cost where there are many types and homes: by homes that are looked at, not by a
 *		clock.
 */
#include "postgres_fe.h"

#include "core/home/homes_plan.h"
#include "core/node/node_private.h"
#include "node_world.h"

#define TYPES 60
#define SHARDS 500
#define HOMES (TYPES * SHARDS)

/* Homes that the plans of the coordinator have looked at. */
static int64
visited(void)
{
	return machines[0].node->homes->n_visited;
}

/* Is a round of rebalancing under way? */
static bool
round_goes_on(void)
{
	return machines[0].node->homes->rebalanced != 0;
}

/* Is it a while until the next round? */
static bool
is_at_rest(void)
{
	return !round_goes_on() && machines[0].node->homes->next_rebalance > now + 6 * SHARD_SECOND;
}

/* What is counted, and what a look at all homes finds: does it differ for a type? */
static int
count_differences(void)
{
	ShardHomes *homes = machines[0].node->homes;
	int differences = 0;

	for (int type = 1; type <= TYPES; type++)
	{
		PlanView seen;
		PlanView counted;
		int64 before = homes->n_visited;

		if (!shard_homes_view(&seen, homes, now, type, machines[0].node->roster, homes->arena) ||
			!shard_homes_view_numbers(&counted, homes, now, type, machines[0].node->roster) ||
			seen.view.n_regions != counted.view.n_regions)
			return -1;
		for (int r = 0; r < seen.view.n_regions; r++)
			differences += seen.view.regions[r].n_shards != counted.view.regions[r].n_shards;
		homes->n_visited = before;
	}
	return differences;
}

/* Regions meet the shards of all types from one number to another. */
static void
ask_for_homes(int first, int end)
{
	static ShardShardRef refs[HOMES];
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .shards = refs};

	for (int type = 1; type <= TYPES; type++)
	{
		for (int shard = first; shard < end; shard++)
			refs[wanted.n_shards++] = (ShardShardRef){.type_id = type, .shard = shard};
	}
	happen(1, &wanted);
	for (int64 last = now + 5 * SHARD_SECOND; now < last && count_homes(0, 0) < end * TYPES;)
		run(STEP);
	is_int(count_homes(0, 0), end * TYPES, "%d types have %d homes each", TYPES, end);
}

/* First homes need numbers only: what they cost does not grow with the homes that there are. */
static void
test_first_homes(void)
{
	int64 before;

	for (int i = 0; i < 3; i++)
	{
		char name[20];

		for (int t = 0; t < TYPES; t++)
		{
			snprintf(name, sizeof(name), "type%d", t);
			add_type(i, name, SHARDS);
		}
	}
	run(3 * SHARD_SECOND);
	ask_for_homes(0, SHARDS - 4);
	for (int shard = SHARDS - 4; shard < SHARDS; shard++)
	{
		while (!is_at_rest())
			run(STEP);
		before = visited();
		ask_for_homes(shard, shard + 1);
		ok(visited() - before <= TYPES, "one more home of each type looks at none that there are");
	}
	for (int i = 1; i <= 3; i++)
		ok(abs(count_homes(0, i) - HOMES / 3) <= TYPES, "node %d has its share", i);
}

/* A round looks at each home once, a bounded number in a tick, and the next one counts from its end. */
static void
test_round(void)
{
	int64 before;
	int64 most = 0;
	int64 end;
	int ticks = 0;

	while (round_goes_on())
		run(STEP);
	end = now + 2 * SHARD_REBALANCE_INTERVAL;
	while (!round_goes_on() && now < end)
	{
		before = visited();
		run(STEP);
		most = visited() - before;
	}
	ok(round_goes_on(), "a round does not do everything in one tick");
	end = visited() - most + HOMES;
	while (round_goes_on())
	{
		before = visited();
		run(STEP);
		most = Max(most, visited() - before);
		ticks++;
	}
	is_int(visited(), end, "a round looks at each home once");
	ok(most <= HOMES_AT_A_TIME + SHARDS, "a tick looks at so many at most: " INT64_FORMAT, most);
	ok(ticks >= HOMES / HOMES_AT_A_TIME - 1, "it takes some ticks: %d", ticks + 1);
	before = visited();
	run(SHARD_REBALANCE_INTERVAL - 2 * STEP);
	is_int(visited(), before, "the next round is due an interval after the end of this one");
	run(4 * STEP);
	ok(visited() > before, "then it begins");
}

/* A member is emptied: its types have their turns, a bounded number of homes in a tick. */
static void
test_evacuation(void)
{
	ShardCommand event = {
		.kind = SHARD_COMMAND_EVACUATE, .node = 3, .flag = true, .asker.token = 7, .text = "eve"};
	int64 most = 0;
	int before_homes = count_homes(0, 3);
	int differences = 0;
	int most_moves = 0;
	int moved;

	while (round_goes_on())
		run(STEP);
	order(0, &event);
	deliver();
	for (int64 end = now + 6 * SHARD_SECOND; now < end;)
	{
		int64 before = visited();

		machines[2].mute = end - now > 4 * SHARD_SECOND;
		run(STEP);
		most = Max(most, visited() - before);
		differences += count_differences();
		most_moves = Max(most_moves, machines[0].node->homes->n_moves);
	}
	moved = before_homes - count_homes(0, 3);
	ok(moved > 0, "shards leave it: %d", moved);
	ok(most_moves > 0, "several move at a time: %d", most_moves);
	is_int(differences, 0, "what is counted is what a look at all homes finds");
	ok(most <= 2 * HOMES_AT_A_TIME + HOMES / 3 + TYPES,
	   "a tick looks at a bounded number of homes: " INT64_FORMAT, most);
}

/* Of more moves than fit an answer the first ones are told, and that there are more; nothing is left of it. */
static void
test_plan(void)
{
	ShardCommand plan = {.kind = SHARD_COMMAND_PLAN, .asker.token = 8};
	int n_moves = machines[0].node->homes->n_moves;

	order(1, &plan);
	deliver();
	ok(machines[1].command == 8 && machines[1].command_good, "a plan of all types is answered");
	is_int(machines[1].n_planned, SHARD_PLAN_MOVES, "with as many moves as an answer has");
	is_int(machines[1].command_number, 1, "and that there are more");
	is_int(machines[0].node->homes->n_moves, n_moves, "none has begun");
	is_int(count_differences(), 0, "what is counted is as it was");
}

/* Whoever takes the office takes the map by age, in which homes are in any order: none shifts the others. */
static void
test_take_over(void)
{
	int at = NO_LINK;

	stop(0);
	for (int64 end = now + 20 * SHARD_SECOND; now < end && at == NO_LINK;)
	{
		run(STEP);
		for (int i = 1; i < MACHINES; i++)
			at = machines[i].node && is_coordinator(i) ? i : at;
	}
	ok(at != NO_LINK, "another one takes the office");
	ok(shard_map_shifted(shard_proposer_decided(shard_node_proposer(machines[at].node))) <= HOMES,
	   "and each home once, at most: " INT64_FORMAT,
	   shard_map_shifted(shard_proposer_decided(shard_node_proposer(machines[at].node))));
	ok(shard_map_shifted(shard_node_learned(machines[at].node)) < 10 * HOMES,
	   "nor was it otherwise when they were learned: " INT64_FORMAT,
	   shard_map_shifted(shard_node_learned(machines[at].node)));
	stop(at);
	start(at);
	ok(shard_map_shifted(shard_node_learned(machines[at].node)) <= HOMES,
	   "nor is it when a process that begins reads them: " INT64_FORMAT,
	   shard_map_shifted(shard_node_learned(machines[at].node)));
}

int
main(void)
{
	begin_world();
	three_nodes();
	test_first_homes();
	test_round();
	test_evacuation();
	test_plan();
	test_take_over();
	end_world();
	return unit_done();
}
