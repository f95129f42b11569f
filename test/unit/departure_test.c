/*
 * departure_test.c
 *		Unit tests of nodes that stop, leave or are written off, and of the shards that they had.
 */
#include "postgres_fe.h"

#include "moves_world.h"

/* A coordinator that goes down in good order is followed at once, and gets no shards. */
static void
test_stopping(void)
{
	ShardNodeEvent stopping = {.kind = SHARD_EVENT_STOPPING};
	ShardShardRef ref = {.type_id = 2};
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 1, .shards = &ref};
	int next = NO_LINK;

	three(0);
	happen(0, &stopping);
	ok(!is_coordinator(0), "the office is given up");
	run(700 * SHARD_MS);
	for (int i = 1; i < 3; i++)
	{
		if (is_coordinator(i))
			next = i;
	}
	ok(next != NO_LINK, "and taken before the election time-out");
	run(3 * SHARD_SECOND);
	ok(!is_coordinator(0), "by another node");
	for (int i = 0; i < 3; i++)
		add_type(i, "later", SHARDS);
	run(3 * SHARD_SECOND);
	for (ref.shard = 0; ref.shard < SHARDS; ref.shard++)
	{
		happen(1, &wanted);
		deliver();
	}
	run(3 * SHARD_SECOND);
	is_int(count_homes(1, 0), 2 * SHARDS, "new shards have homes");
	is_int(count_homes(1, 1), count_homes(0, 1), "as all know");
	for (int i = 0; i < SHARDS; i++)
		ok(machines[0].epochs[i] < 0 || node_of(i) == 1, "what runs there was there before");
	is_int(count_homes(1, 2) + count_homes(1, 3), 2 * SHARDS - SHARDS / 3, "but not there");
	ok(next != NO_LINK && shard_node_coordinator(machines[0].node, now) != 1, "who goes follows");
}

/* Who ends in good order is unreachable at once, until it is started again (R33). */
static void
test_goodbye(void)
{
	ShardNodeEvent goodbye = {.kind = SHARD_EVENT_GOODBYE};

	three(0);
	ok(shard_node_reachable(machines[0].node, 3, now) &&
		   shard_node_reachable(machines[1].node, 3, now),
	   "a node is reachable");
	happen(2, &goodbye);
	deliver();
	ok(!shard_node_reachable(machines[0].node, 3, now) &&
		   !shard_node_reachable(machines[1].node, 3, now),
	   "until it says good-bye");
	run(SHARD_SECOND);
	ok(!shard_node_reachable(machines[0].node, 3, now), "then it says nothing more");
	stop(2);
	start(2);
	run(3 * SHARD_SECOND);
	ok(shard_node_reachable(machines[0].node, 3, now) &&
		   shard_node_reachable(machines[1].node, 3, now),
	   "its next start is heard");
}

/* Nobody calls a node that was written off; when it calls, it hears what became of it. */
static void
test_written_off_is_left_alone(void)
{
	int before;

	three(0);
	machines[2].cut = true;
	run(15 * SHARD_SECOND);
	command(0, SHARD_COMMAND_WRITE_OFF, -1, 3, 61);
	run(10 * SHARD_SECOND);
	ok(ended(0, 61, true), "a node is written off: %s", machines[0].command_text);
	before = machines[2].letters;
	run(30 * SHARD_SECOND);
	is_int(machines[2].letters - before, 0, "nothing is sent to it any more");
	ok(!shard_node_fenced(machines[2].node), "of which it does not know");
	machines[2].cut = false;
	run(5 * SHARD_SECOND);
	ok(shard_node_fenced(machines[2].node), "when it is back it hears of it");
	run(10 * SHARD_SECOND);
	before = machines[2].letters;
	run(30 * SHARD_SECOND);
	is_int(machines[2].letters - before, 0, "and is left alone then, too");
}

/* The only other one leaves: the last one hears that it cannot. */
static void
test_last_one(void)
{
	three(0);
	command(1, SHARD_COMMAND_LEAVE, -1, 0, 1);
	command(2, SHARD_COMMAND_LEAVE, -1, 0, 2);
	wait_for(1, 1, 120 * SHARD_SECOND);
	wait_for(2, 2, 120 * SHARD_SECOND);
	ok(ended(1, 1, true) && ended(2, 2, true), "two leave together");
	is_int(count_homes(0, 1), SHARDS, "all shards are with the third");
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 2 * SHARDS / 3, "which kept its own");
	command(0, SHARD_COMMAND_LEAVE, -1, 0, 3);
	wait_for(0, 3, 5 * SHARD_SECOND);
	ok(ended(0, 3, false), "which cannot: %s", machines[0].command_text);
}

/* The coordinator, the oldest, leaves together with the next. */
static void
test_oldest_leave(void)
{
	three(0);
	command(0, SHARD_COMMAND_LEAVE, -1, 0, 1);
	command(1, SHARD_COMMAND_LEAVE, -1, 0, 2);
	wait_for(0, 1, 120 * SHARD_SECOND);
	wait_for(1, 2, 120 * SHARD_SECOND);
	ok(ended(0, 1, true) && ended(1, 2, true), "the two oldest leave together");
	is_int(count_homes(2, 3), SHARDS, "all shards are with the youngest");
	ok(is_coordinator(2), "and the office");
}

/* What is moving when its home, or its target, is written off. */
static void
test_write_off(void)
{
	int32 shard;

	/* The old home, before it was sealed: its state is lost. */
	three(0);
	shard = shard_at(2);
	machines[1].mute = true;
	command(0, SHARD_COMMAND_MOVE, shard, 3, 1);
	run(SHARD_SECOND);
	stop(1);
	run(20 * SHARD_SECOND);
	command(0, SHARD_COMMAND_WRITE_OFF, -1, 2, 2);
	ok(ended(0, 2, true), "a home is written off: %s", machines[0].command_text);
	run(5 * SHARD_SECOND);
	ok(machines[0].command == 1 || home_of(shard).lost > 0, "its shard begins anew");
	is_int(home_of(shard).lost, home_of(shard).epoch, "without its state");
	is_int(home_of(shard).reason, SHARD_HOME_REASON_LOST, "for that reason");

	/* After it was staged: nothing is lost. */
	three(0);
	shard = shard_at(2);
	machines[2].mute = true;
	command(0, SHARD_COMMAND_MOVE, shard, 3, 1);
	run(SHARD_SECOND);
	stop(1);
	run(15 * SHARD_SECOND);
	command(0, SHARD_COMMAND_WRITE_OFF, -1, 2, 2);
	ok(ended(0, 2, true), "a home is written off while it is copied: %s", machines[0].command_text);
	run(3 * SHARD_SECOND);
	machines[2].mute = false;
	wait_for(0, 1, 60 * SHARD_SECOND);
	ok(ended(0, 1, true), "its copy may be complete");
	is_int(home_of(shard).lost, 0, "then nothing is lost");
	is_int(node_of(shard), 3, "and it moved");

	/* The node comes back, and learns that it is out. */
	start(1);
	run(10 * SHARD_SECOND);
	ok(shard_node_fenced(machines[1].node), "who comes back hears that it was written off");

	/* The target: the shard stays. */
	three(0);
	shard = shard_at(2);
	machines[2].mute = true;
	command(0, SHARD_COMMAND_MOVE, shard, 3, 1);
	run(SHARD_SECOND);
	stop(2);
	wait_for(0, 1, 15 * SHARD_SECOND);
	ok(ended(0, 1, false), "a target falls silent");
	run(10 * SHARD_SECOND);
	command(0, SHARD_COMMAND_WRITE_OFF, -1, 3, 2);
	run(5 * SHARD_SECOND);
	ok(ended(0, 2, true), "and is written off: %s", machines[0].command_text);
	is_int(node_of(shard), 2, "the shard stays");
	is_int(home_of(shard).lost, 0, "with its state");
	is_int(home_of(shard).reason, SHARD_HOME_REASON_ABORTED, "the move was aborted");
}

int
main(void)
{
	begin_world();
	test_goodbye();
	test_written_off_is_left_alone();
	test_stopping();
	test_last_one();
	test_oldest_leave();
	test_write_off();
	end_world();
	return unit_done();
}
