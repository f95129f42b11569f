/*
 * disk_test.c
 *		Unit tests of whole nodes whose disk is slow: what has to wait for it.
 */
#include "postgres_fe.h"

#include "node_world.h"

/* The end of a command is told when what it did is durable. */
static void
test_commands(void)
{
	for (int i = 0; i < 3; i++)
		start(i);
	run(2 * SHARD_SECOND);
	machines[1].slow = true;
	join(1, 0);
	ok(machines[1].command == 0, "a join that is under way is not answered");
	run(SHARD_SECOND);
	is_int(count_members(0), 1, "nor is it asked for before its beginning is durable");
	settle(1);
	machines[1].slow = true;
	for (int i = 0; i < 40 && shard_node_id(machines[1].node) == 1; i++)
		run(STEP);
	is_int(shard_node_id(machines[1].node), 2, "when it is welcome,");
	ok(machines[1].command == 0, "but has not written that down, it is not done");
	settle(1);
	ok(machines[1].command == 1 && machines[1].command_good, "then it is");
	run(10 * SHARD_SECOND);
}

/* Also that of voters that are forced, the only one of two being lost. */
static void
test_forced(void)
{
	static const int32 self[] = {2};
	ShardCommand force = {.kind = SHARD_COMMAND_FORCE_VOTERS, .n_nodes = 1, .nodes = self};

	end_world();
	begin_world();
	memset(machines, 0, sizeof(machines));
	start(0);
	start(1);
	run(2 * SHARD_SECOND);
	join(1, 0);
	run(5 * SHARD_SECOND);
	stop(0);
	run(5 * SHARD_SECOND);
	machines[1].slow = true;
	force.asker.token = 3;
	order(1, &force);
	ok(machines[1].command != 3, "what is not durable is not done");
	force.n_nodes = 0;
	force.asker.token = 4;
	order(1, &force);
	ok(machines[1].command == 4 && !machines[1].command_good, "a refusal says so at once");
	settle(1);
	ok(machines[1].command == 3 && machines[1].command_good, "done is told later");
}

/* Many may wait for the same leave; of more than eight the first one is told that others do. */
static void
test_leave_twice(void)
{
	ShardCommand leave = {.kind = SHARD_COMMAND_LEAVE, .asker.token = 11};

	run(5 * SHARD_SECOND);
	machines[1].cut = true;
	order(1, &leave);
	order(1, &leave);
	ok(machines[1].command == 1, "a repeated wish is the same one");
	for (leave.asker.token = 12; leave.asker.token < 19; leave.asker.token++)
		order(1, &leave);
	ok(machines[1].command == 1, "eight wait together");
	order(1, &leave);
	ok(machines[1].command == 11 && !machines[1].command_good, "a ninth one ends the first");
	machines[1].cut = false;
	run(20 * SHARD_SECOND);
	ok(machines[1].command == 19 && machines[1].command_good, "and is answered when it has left");
}

/* A coordinator whose disk does nothing any more makes way for one who can decide. */
static void
test_stuck(void)
{
	int64 stuck_at;

	end_world();
	begin_world();
	memset(machines, 0, sizeof(machines));
	for (int i = 0; i < 3; i++)
	{
		start(i);
		run(SHARD_SECOND);
		if (i > 0)
			join(i, 0);
	}
	run(20 * SHARD_SECOND);
	add_type(0, "thing", 100);
	add_type(1, "thing", 100);
	run(2 * SHARD_SECOND);
	ok(is_coordinator(0), "a coordinator");
	machines[0].slow = true;
	run(10 * SHARD_SECOND);
	ok(is_coordinator(0), "with a slow disk, and nothing to write, stays");
	add_type(0, "other", 100);
	stuck_at = now;
	while (!is_coordinator(1) && !is_coordinator(2) && now - stuck_at < 20 * SHARD_SECOND)
		run(STEP);
	ok(is_coordinator(1) || is_coordinator(2), "when it cannot write, another one takes its place");
	ok(now - stuck_at < 6 * SHARD_SECOND, "soon");
	ok(!is_coordinator(0), "and it is none");
	run(20 * SHARD_SECOND);
	ok(!is_coordinator(0) && shard_proposer_office(shard_node_proposer(machines[0].node)) == 0,
	   "nor wants to be");
	settle(0);
	run(10 * SHARD_SECOND);
	ok(is_coordinator(0) + is_coordinator(1) + is_coordinator(2) == 1, "then there is one");

	/* A node alone has nobody to make way for; it goes on when it can. */
	start(3);
	run(SHARD_SECOND);
	machines[3].slow = true;
	add_type(3, "thing", 100);
	run(10 * SHARD_SECOND);
	ok(!is_coordinator(3), "a node alone that cannot write is no coordinator");
	settle(3);
	run(SHARD_SECOND);
	ok(is_coordinator(3), "and is one again at once");
}

/* A node alone may sleep: it keeps its office, and writes nothing. */
static void
test_asleep(void)
{
	int64 ballot;
	int persists;

	end_world();
	begin_world();
	memset(machines, 0, sizeof(machines));
	start(0);
	run(SHARD_SECOND);
	ballot = shard_proposer_ballot(shard_node_proposer(machines[0].node));
	persists = machines[0].persists;
	for (int i = 0; i < 10; i++)
	{
		now += 60 * SHARD_SECOND;
		shard_node_tick(machines[0].node, now, out);
		act(0, NO_LINK);
	}
	ok(is_coordinator(0), "a node alone that slept is coordinator still");
	ok(shard_proposer_ballot(shard_node_proposer(machines[0].node)) == ballot,
	   "in the same office");
	is_int(machines[0].persists, persists, "and wrote nothing");
}

/* A database without any record is a new node, whatever it was copied from. */
static void
test_empty_copy(void)
{
	end_world();
	begin_world();
	memset(machines, 0, sizeof(machines));
	start_as(0, SHARD_START_COPY);
	run(SHARD_SECOND);
	ok(is_coordinator(0), "a copy without a past founds its cluster");
	ok(shard_node_admitted(machines[0].node), "as its member");
	stop(0);
	start_as(0, SHARD_START_COPY);
	run(5 * SHARD_SECOND);
	ok(!is_coordinator(0), "one with a past does not go on with it");
}

int
main(void)
{
	begin_world();
	test_commands();
	test_leave_twice();
	test_stuck();
	test_empty_copy();
	test_asleep();
	test_forced();
	end_world();
	return unit_done();
}
