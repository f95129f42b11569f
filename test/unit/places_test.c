/*
 * places_test.c
 *		Unit tests of the places of moves: which moves may be under way at the same time, and which wait.
 */
#include "postgres_fe.h"

#include "moves_world.h"

/* Homes that a type has at a node. */
static int
count_of_type(int32 type_id, int n_shards, int32 node)
{
	int count = 0;

	for (int i = 0; i < n_shards; i++)
	{
		ShardHomeRecord home;

		if (!shard_record_get_home(shard_map_value(shard_node_learned(machines[0].node),
												   (ShardMapKey){SHARD_MAP_HOME, type_id, i}),
								   &home))
			ok(false, "shard %d of type %d has a home", i, type_id);
		count += shard_record_home_node(&home) == node;
	}
	return count;
}

/* A type whose shards cannot go keeps no others from leaving. */
static void
test_types_share(void)
{
	static ShardShardRef refs[300 + SHARDS];
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED,
							 .n_shards = lengthof(refs),
							 .shards = refs};

	three(0);
	for (int i = 0; i < 3; i++)
	{
		add_type(i, "stuck", 300);
		add_type(i, "free", SHARDS);
	}
	run(3 * SHARD_SECOND);
	for (int i = 0; i < (int) lengthof(refs); i++)
		refs[i] = i < 300 ? (ShardShardRef){.type_id = 2, .shard = i}
						  : (ShardShardRef){.type_id = 3, .shard = i - 300};
	happen(0, &wanted);
	run(5 * SHARD_SECOND);
	is_int(count_of_type(2, 300, 3), 100, "a third of a type's shards");
	is_int(count_of_type(3, SHARDS, 3), SHARDS / 3, "and of another one's");
	machines[0].deaf_type = machines[1].deaf_type = 2;
	command(0, SHARD_COMMAND_EVACUATE, -1, 3, 1);
	run(5 * SHARD_SECOND);
	is_int(count_of_type(3, SHARDS, 3), 0, "a type that can leaves");
	is_int(count_of_type(2, 300, 3), 100, "though one that comes before it cannot");
}

/* A type of 300 shards, at all nodes. Those of node 3 are not copied anywhere. */
static void
add_slow_type(int32 type_id, const char *owner)
{
	static ShardShardRef refs[300];
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED,
							 .n_shards = lengthof(refs),
							 .shards = refs};
	char name[16];

	snprintf(name, sizeof(name), "slow%d", type_id);
	for (int i = 0; i < 3; i++)
		add_type_of(i, name, lengthof(refs), owner);
	run(3 * SHARD_SECOND);
	for (int i = 0; i < (int) lengthof(refs); i++)
		refs[i] = (ShardShardRef){.type_id = type_id, .shard = i};
	happen(0, &wanted);
	run(5 * SHARD_SECOND);
	is_int(count_of_type(type_id, lengthof(refs), 3), 100, "a third of a type's shards");
	for (int i = 0; i < 2; i++)
	{
		if (type_id == 2)
			machines[i].mute_type = type_id;
		else
			machines[i].mute_type_too = type_id;
	}
}

/* An operator moves twenty shards of a type from node 3 to the others. */
static void
move_twenty(int32 type_id)
{
	for (int32 shard = 0, begun = 0; begun < 20; shard++)
	{
		ShardShardRef ref = {.type_id = type_id, .shard = shard};
		const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[0].node),
													 (ShardMapKey){SHARD_MAP_HOME, type_id, shard});
		ShardHomeRecord home;
		ShardCommand move = {.kind = SHARD_COMMAND_MOVE,
							 .type_id = ref.type_id,
							 .shard = ref.shard,
							 .node = 1 + begun % 2,
							 .asker.token = 100 * type_id + begun,
							 .text = "eve@somewhere"};

		if (!entry || !shard_record_get_home(entry, &home) || shard_record_home_node(&home) != 3)
			continue;
		order(0, &move);
		deliver();
		begun++;
	}
}

/*
 * Shards of a type that are ready to go to two targets, and are copied there for ever; others may go, too, if the owner is
 * not the only one: the first type has none. How many moves of it are under way.
 */
static int
copied_for_ever(const char *owner)
{
	three(0);
	add_slow_type(2, owner);
	/* before the others come */
	move_twenty(2);
	run(5 * SHARD_SECOND);
	return machines[0].decisions[SHARD_DECISION_MOVE_BEGUN];
}

/* An owner whose shards are copied for as long as he likes has not all places at a target, if there are others (M24). */
static void
test_owners_share(void)
{
	is_int(copied_for_ever("mallory"), 6, "of one of two owners three at a time go to each target");
	command(0, SHARD_COMMAND_EVACUATE, -1, 3, 1);
	run(5 * SHARD_SECOND);
	is_int(count_homes(0, 3), 100, "the other's shards leave");
	is_int(count_of_type(2, 300, 3), 100, "though his cannot");
	is_int(copied_for_ever(NULL), 8, "of the only owner four go");
}

/* Nor have two of them, who take all those places together: the third one has his own. */
static void
test_two_owners_leave_a_place(void)
{
	three(0);
	add_slow_type(2, "mallory");
	add_slow_type(3, "mary");
	move_twenty(2);
	move_twenty(3);
	run(10 * SHARD_SECOND);
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 8, "two owners have four places");
	command(0, SHARD_COMMAND_EVACUATE, -1, 3, 1);
	run(15 * SHARD_SECOND);
	is_int(count_of_type(1, SHARDS, 3), 0, "a third one's shards leave");
	is_int(count_of_type(2, 300, 3) + count_of_type(3, 300, 3), 200, "though theirs cannot");
}

/* A home that stands still holds places at a target; shards of other homes go there all the same (M24). */
static void
test_standing_home(void)
{
	int32 shard;
	int n = 0;

	three(0);
	machines[2].mute = true;
	for (int32 s = 0; s < SHARDS; s++)
	{
		if (node_of(s) == 3)
			command(0, SHARD_COMMAND_MOVE, s, 1, 10 + n++);
	}
	is_int(n, 4, "a home has four shards");
	run(2 * SHARD_SECOND);
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 4, "it is to stop all of them");
	shard = shard_at(2);
	command(0, SHARD_COMMAND_MOVE, shard, 1, 1);
	wait_for(0, 1, 10 * SHARD_SECOND);
	ok(ended(0, 1, true) && node_of(shard) == 1, "another home's shard goes meanwhile: %s",
	   machines[0].command_text);
	wait_for(0, 10 + n - 1, 80 * SHARD_SECOND);
	ok(strstr(machines[0].command_text, "home has not stopped") != NULL,
	   "who stands still is named: %s", machines[0].command_text);
}

/* A move that fails since its home is away says so, and nothing of the target (M16, M9). */
static void
test_home_is_to_blame(void)
{
	int32 shard;

	three(0);
	shard = shard_at(3);
	/* the target waits for the home */
	machines[1].deaf = true;
	command(0, SHARD_COMMAND_MOVE, shard, 2, 1);
	machines[2].cut = true;
	wait_for(0, 1, 30 * SHARD_SECOND);
	ok(ended(0, 1, false) && strstr(machines[0].command_text, "home cannot be reached") != NULL &&
		   strstr(machines[0].decision_text, "target") == NULL,
	   "before it begins: %s", machines[0].decision_text);
	machines[2].cut = machines[1].deaf = false;
	run(30 * SHARD_SECOND);

	machines[1].mute = true;
	shard = shard_at(3);
	command(0, SHARD_COMMAND_MOVE, shard, 2, 2);
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 1, "a move is copied");
	machines[2].cut = true;
	run(SHARD_HANDOFF_TIMEOUT + 2 * SHARD_SECOND);
	ok(machines[0].decision.decision == SHARD_DECISION_MOVE_ABORTED &&
		   strstr(machines[0].decision_text, "its home cannot be reached") != NULL,
	   "while it is copied: %s", machines[0].decision_text);
}

/* A target that falls silent does not hold the shard: its home goes on, and another node gets the shard (M9). */
static void
test_silent_target(void)
{
	int32 shard;

	three(0);
	machines[2].mute = true;
	shard = shard_at(3);
	command(0, SHARD_COMMAND_MOVE, shard, 2, 1);
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 1, "a move has begun");
	machines[1].cut = true;
	wait_for(0, 1, SHARD_HANDOFF_TIMEOUT / 2);
	ok(ended(0, 1, false) && node_of(shard) == 3 && home_of(shard).phase == SHARD_HOME_STABLE &&
		   machines[0].decision.decision == SHARD_DECISION_MOVE_ABORTED &&
		   strstr(machines[0].decision_text, "target cannot be reached") != NULL,
	   "its home goes on at once: %s", machines[0].decision_text);
	machines[2].mute = false;
	machines[1].cut = false;
	run(10 * SHARD_SECOND);
	is_int(node_of(shard), 3, "also when the target is back");
	command(0, SHARD_COMMAND_MOVE, shard, 2, 2);
	wait_for(0, 2, 10 * SHARD_SECOND);
	ok(ended(0, 2, true) && node_of(shard) == 2, "then it may go there");

	/* With its home silent, too, nobody would go on: the copy may be all that is left (N5). */
	three(0);
	machines[1].mute = true;
	shard = shard_at(3);
	command(0, SHARD_COMMAND_MOVE, shard, 2, 1);
	machines[1].cut = machines[2].cut = true;
	run(SHARD_HANDOFF_TIMEOUT / 2);
	is_int(home_of(shard).phase, SHARD_HOME_MOVING, "a move between two that are silent waits");
	machines[1].cut = machines[2].cut = false;
}

/* First homes that are asked for one after the other, while none of them is decided yet, are even, too. */
static void
test_undecided_count(void)
{
	ShardShardRef ref = {.type_id = 2};
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 1, .shards = &ref};

	three(0);
	for (int i = 0; i < 3; i++)
		add_type(i, "next", SHARDS);
	run(3 * SHARD_SECOND);
	machines[1].slow = machines[2].slow = true;
	for (ref.shard = 0; ref.shard < SHARDS; ref.shard++)
	{
		happen(0, &wanted);
		run(STEP);
	}
	is_int(count_homes(0, 0), SHARDS, "of the new type no home is decided");
	settle(1);
	settle(2);
	run(3 * SHARD_SECOND);
	for (int i = 1; i <= 3; i++)
		is_int(count_of_type(2, SHARDS, i), SHARDS / 3, "then each node has its share");
}

/* The number of moves that begin, from any node. */
static void
test_rebalance(void)
{
	three(0);
	for (int32 i = 0; i < SHARDS; i++)
	{
		command(0, SHARD_COMMAND_MOVE, i, 1, 100 + i);
		wait_for(0, 100 + i, 10 * SHARD_SECOND);
	}
	run(2 * SHARD_SECOND);
	is_int(count_homes(0, 1), SHARDS, "all in one place");
	command(2, SHARD_COMMAND_REBALANCE, 0, 0, 2);
	wait_for(2, 2, 5 * SHARD_SECOND);
	ok(ended(2, 2, true), "a round by hand");
	is_int(machines[2].command_number, 1, "begins as many moves as the strategy wants");
	run(10 * SHARD_SECOND);
	is_int(count_homes(0, 1), SHARDS - 1, "and they are done");
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 1), SHARDS - 1, "no more without one");
}

int
main(void)
{
	begin_world();
	test_types_share();
	test_owners_share();
	test_two_owners_leave_a_place();
	test_standing_home();
	test_home_is_to_blame();
	test_silent_target();
	test_undecided_count();
	test_rebalance();
	end_world();
	return unit_done();
}
