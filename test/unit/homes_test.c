/*
 * homes_test.c
 *		Unit tests of the shard control's duties, by whole nodes: bulk allocation.
 */
#include "postgres_fe.h"

#include "node_world.h"

static ShardShardRef refs[MANY];

/* Three members; a region meets ten thousand shards at once. */
static void
test_bulk(void)
{
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = MANY, .shards = refs};
	int persists;
	int letters_before;

	min_members = 3;
	for (int i = 0; i < 3; i++)
		start(i);
	run(2 * SHARD_SECOND);
	ok(is_coordinator(0), "the first node is the coordinator");
	join(1, 0);
	join(2, 0);
	run(10 * SHARD_SECOND);
	for (int i = 0; i < 2; i++)
		add_type(i, "thing", MANY);
	run(3 * SHARD_SECOND);
	is_int(shard_node_id(machines[2].node), 3, "the third is node 3");

	for (int i = 0; i < MANY; i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = i};
	add_type(2, "thing", MANY);
	run(3 * SHARD_SECOND);
	persists = machines[0].persists;
	letters_before = letters;
	happen(1, &wanted);
	run(3 * SHARD_SECOND);
	is_int(count_homes(0, 0), MANY, "all have homes");
	is_int(count_homes(1, 0), MANY, "the one that asked knows them");
	for (int i = 0; i < 3; i++)
	{
		int homes = count_homes(0, i + 1);

		ok(homes >= MANY / 3 && homes <= MANY / 3 + 1, "node %d has its share", i + 1);
	}
	ok(machines[0].persists - persists <= 10, "in few transactions");
	ok(letters - letters_before <= 200, "and few messages");
}

/* A machine that holds the office; NO_LINK: none does. */
static int
coordinator(void)
{
	for (int i = 0; i < MACHINES; i++)
	{
		if (machines[i].node && is_coordinator(i))
			return i;
	}
	return NO_LINK;
}

/* A coordinator that has just taken office does not know what runs: nothing is given up by its word. */
static void
test_give_up(void)
{
	ShardShardRef ref = {.type_id = 1};
	ShardCommand event = {.kind = SHARD_COMMAND_GIVE_UP,
						  .type_id = ref.type_id,
						  .shard = ref.shard,
						  .asker.token = 9};
	int at;

	while (machines[1].epochs[ref.shard] < 0)
		ref.shard++;
	run(SHARD_START_TIMEOUT);
	stop(0);
	while ((at = coordinator()) == NO_LINK)
		run(STEP);
	order(at, &event);
	ok(machines[at].command == 9 && !machines[at].command_good, "a shard that may run stays");
	run(SHARD_START_TIMEOUT);
	event.asker.token = 10;
	order(at, &event);
	ok(machines[at].command == 10 && !machines[at].command_good, "one that runs does");
	run(SHARD_SECOND);
	is_int(machines[1].epochs[ref.shard], 0, "in its epoch");
}

/* A member that leaves hands over what it has, all of it, and goes. */
static void
test_leave(void)
{
	ShardCommand event = {.kind = SHARD_COMMAND_LEAVE, .asker.token = 11};
	ShardShardRef later = {.type_id = 2};
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 1, .shards = &later};

	start(0);
	run(10 * SHARD_SECOND);
	order(2, &event);
	for (int i = 0; i < 120 && machines[2].command != 11; i++)
		run(SHARD_SECOND);
	ok(machines[2].command == 11 && machines[2].command_good, "it has left");
	is_int(count_homes(0, 3), 0, "without homes");
	is_int(count_homes(0, 1) + count_homes(0, 2), MANY, "which the others have");

	/* C4: the minimum is for the beginning. */
	add_type(0, "later", 8);
	run(3 * SHARD_SECOND);
	happen(0, &wanted);
	run(3 * SHARD_SECOND);
	is_int(count_homes(0, 0), MANY + 1, "two are enough once there were three");
}

int
main(void)
{
	begin_world();
	test_bulk();
	test_give_up();
	test_leave();
	end_world();
	return unit_done();
}
