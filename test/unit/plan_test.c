/*
 * plan_test.c
 *		Unit tests of plans (SHARD_COMMAND_PLAN), by whole nodes: what would move is what then does, and a plan moves nothing.
 */
#include "postgres_fe.h"

#include "core/node/node_private.h"
#include "moves_world.h"

/* Moves for that reason in the plan that a machine was told. */
static int
count_planned(int at, ShardHomeReason reason)
{
	int count = 0;

	for (int i = 0; i < machines[at].n_planned; i++)
		count += machines[at].planned_home[i].reason == (int32) reason;
	return count;
}

/* What would move is asked of the coordinator, from any node, and is what then does. */
static void
test_plan(void)
{
	ShardHomeRecord home;
	int32 shard;

	three(0);
	command(1, SHARD_COMMAND_PLAN, -1, 0, 1);
	ok(ended(1, 1, true), "a plan is answered");
	is_int(machines[1].n_planned, 0, "where all is well nothing would move");
	for (int32 i = 0; i < SHARDS; i++)
	{
		command(0, SHARD_COMMAND_MOVE, i, 1, 100 + i);
		wait_for(0, 100 + i, 10 * SHARD_SECOND);
	}
	run(2 * SHARD_SECOND);
	memset(machines[0].decisions, 0, sizeof(machines[0].decisions));
	for (int i = 2; i >= 0; i--)
	{
		command(i, SHARD_COMMAND_PLAN, i == 1 ? 0 : -1, 0, 2);
		if (i == 1)
			ok(!ended(i, 2, true), "plans leave the coordinator time for other things");
		wait_for(i, 2, 3 * SHARD_SECOND);
		ok(ended(i, 2, true), "node %d is told what would move", i + 1);
		is_int(machines[i].n_planned, 1, "as many as the strategy wants");
		is_int(count_planned(i, SHARD_HOME_REASON_REBALANCE), 1, "because of it");
		is_int(machines[i].command_number, 0, "all of them are listed");
	}
	for (int token = 11; token <= 13; token++)
		command(0, SHARD_COMMAND_PLAN, -1, 0, token);
	for (int token = 11; token <= 13; token++)
	{
		wait_for(0, token, 3 * SHARD_SECOND);
		ok(ended(0, token, true), "the coordinator's own operators are told, plan %d", token - 10);
	}
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 1), SHARDS, "nothing moves by a plan");
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 0, "nor begins to");
	shard = machines[2].planned[0].b;
	home = machines[2].planned_home[0];
	is_int(shard_record_home_node(&home), 1, "its home is told");
	command(2, SHARD_COMMAND_REBALANCE, -1, 0, 3);
	run(10 * SHARD_SECOND);
	is_int(node_of(shard), home.to, "the round moves that shard there");
	is_int(count_homes(0, 1), SHARDS - 1, "and no other");
}

/* Moves that begin by themselves are in a plan, all of them. */
static void
test_plan_of_the_coordinator(void)
{
	ShardCommand no_type = {.kind = SHARD_COMMAND_PLAN, .type_id = 9, .asker.token = 9};
	int32 shard;

	three(0);
	shard = shard_at(1);
	command(0, SHARD_COMMAND_PIN, shard, 2, 4);
	command(2, SHARD_COMMAND_PLAN, -1, 0, 5);
	is_int(count_planned(2, SHARD_HOME_REASON_PIN), 1, "a shard follows its pin");
	run(10 * SHARD_SECOND);
	is_int(node_of(shard), 2, "and does");
	command(0, SHARD_COMMAND_EVACUATE, -1, 3, 6);
	command(1, SHARD_COMMAND_PLAN, -1, 0, 7);
	is_int(count_planned(1, SHARD_HOME_REASON_EVACUATION), 4,
		   "shards leave a node that is emptied");
	is_int(machines[1].n_planned, 4, "each is told once");
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 3), 0, "they do");
	order(2, &no_type);
	deliver();
	ok(ended(2, 9, false), "there is no such type: %s", machines[2].command_text);
	stop(0);
	stop(1);
	run(5 * SHARD_SECOND);
	command(2, SHARD_COMMAND_PLAN, -1, 0, 8);
	wait_for(2, 8, 2 * SHARD_COMMAND_PATIENCE);
	ok(ended(2, 8, false) && !machines[2].command_unknown,
	   "without a coordinator there is no plan: %s", machines[2].command_text);
}

int
main(void)
{
	begin_world();
	test_plan();
	test_plan_of_the_coordinator();
	end_world();
	return unit_done();
}
