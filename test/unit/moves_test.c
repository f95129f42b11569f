/*
 * moves_test.c
 *		Unit tests of moves, by whole nodes: what is asked before they begin, pins, nodes that are emptied.
 */
#include "postgres_fe.h"

#include "core/home/homes_private.h"
#include "core/member/membership.h"
#include "core/node/node_private.h"
#include "moves_world.h"

/* A move is done when it is decided, and the next one waits for it. */
static void
test_move(void)
{
	int32 shard;

	three(0);
	shard = shard_at(1);
	machines[1].mute = true;
	command(0, SHARD_COMMAND_MOVE, shard, 2, 1);
	command(0, SHARD_COMMAND_MOVE, shard, 3, 2);
	run(SHARD_SECOND);
	ok(machines[0].command != 1, "a move is not done before it is decided");
	machines[1].mute = false;
	wait_for(0, 1, 10 * SHARD_SECOND);
	ok(ended(0, 1, true), "it is when that is so");
	is_int(node_of(shard), 2, "that it is there");
	is_int(home_of(shard).reason, SHARD_HOME_REASON_OPERATOR, "by an operator's word");
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 1, "its begin was told");
	is_int(machines[0].decisions[SHARD_DECISION_MOVED], 1, "and its end");
	ok(strstr(machines[0].decision_text, "eve@somewhere") != NULL, "and who wanted it: %s",
	   machines[0].decision_text);
	wait_for(0, 2, 10 * SHARD_SECOND);
	ok(ended(0, 2, true) && node_of(shard) == 3, "the second one comes after the first");
	command(0, SHARD_COMMAND_MOVE, shard, 3, 3);
	wait_for(0, 3, 10 * SHARD_SECOND);
	ok(ended(0, 3, true), "where it is it stays");
	command(0, SHARD_COMMAND_MOVE, shard, 9, 4);
	ok(ended(0, 4, false), "nobody is there");
	command(0, SHARD_COMMAND_MOVE, SHARDS, 1, 5);
	ok(ended(0, 5, false), "there is no such shard");
}

/* A move does not wait for the time to pass: all its steps follow from one another. */
static void
test_no_ticks(void)
{
	int64 begun;
	int32 shard;

	three(0);
	run(5 * SHARD_SECOND);
	shard = shard_at(2);
	begun = now;
	command(0, SHARD_COMMAND_MOVE, shard, 3, 1);
	ok(ended(0, 1, true), "a move is done at once if all answer at once");
	is_int(now - begun, 0, "without a tick");
	shard = shard_at(1);
	command(0, SHARD_COMMAND_MOVE, shard, 2, 2);
	ok(ended(0, 2, true), "from the coordinator's own node, too");
	command(0, SHARD_COMMAND_MOVE, shard, 1, 3);
	run(STEP);
	ok(ended(0, 3, true) || machines[0].command == 2, "and back");
}

/* A target that cannot have the shard costs nothing, and is not asked all the time (M16). */
static void
test_refused(void)
{
	static char reason[100000];
	int32 shard;
	ShardHomeRecord before;

	three(0);
	shard = shard_at(1);
	before = home_of(shard);
	machines[1].unfit = true;
	command(0, SHARD_COMMAND_MOVE, shard, 2, 1);
	wait_for(0, 1, 10 * SHARD_SECOND);
	ok(ended(0, 1, false), "the target cannot have it: %s", machines[0].command_text);
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_REFUSED], 1, "which is told");
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 0, "nothing began");
	is_int(home_of(shard).move_id, before.move_id, "nor was anything decided");
	command(0, SHARD_COMMAND_PIN, shard, 2, 2);
	ok(ended(0, 2, true), "a pin");
	run(60 * SHARD_SECOND);
	ok(machines[0].decisions[SHARD_DECISION_MOVE_REFUSED] >= 4 &&
		   machines[0].decisions[SHARD_DECISION_MOVE_REFUSED] <= 9,
	   "is tried again after pauses that grow: %d times",
	   machines[0].decisions[SHARD_DECISION_MOVE_REFUSED]);
	memset(reason, 'x', sizeof(reason) - 1);
	reason[sizeof(reason) - 1] = '\0';
	machines[1].unfit_why = reason;
	command(0, SHARD_COMMAND_MOVE, shard, 2, 4);
	wait_for(0, 4, 10 * SHARD_SECOND);
	ok(ended(0, 4, false) && machines[0].decision.decision == SHARD_DECISION_MOVE_REFUSED &&
		   machines[0].decision_length > 100 && machines[0].decision_length <= 1000,
	   "a long reason is cut, at %zu bytes", machines[0].decision_length);
	ok(strncmp(machines[0].command_text, "node 2 says: xxx", 16) == 0 &&
		   strncmp(machines[0].decision_text, "node 2 says: xxx", 16) == 0,
	   "and it is told whose words these are");
	machines[1].unfit_why = NULL;
	machines[1].unfit = false;
	command(0, SHARD_COMMAND_MOVE, shard, 2, 3);
	wait_for(0, 3, 5 * SHARD_SECOND);
	ok(ended(0, 3, true), "an operator's move does not wait for that");
	machines[2].deaf = true;
	command(0, SHARD_COMMAND_MOVE, shard, 3, 4);
	wait_for(0, 4, 60 * SHARD_SECOND);
	ok(ended(0, 4, false), "no answer is one, too: %s", machines[0].command_text);
	is_int(node_of(shard), 2, "the shard stays");
}

/* A target that has just started, or whose coordinator has, may host the type, and has not said so yet (M16). */
static void
test_not_said_yet(void)
{
	HomesRegion *region;
	int32 shard;

	three(0);
	shard = shard_at(1);
	region = shard_homes_region(machines[0].node->homes, 2);
	region->n_hosted = 0;
	command(0, SHARD_COMMAND_MOVE, shard, 2, 1);
	wait_for(0, 1, 10 * SHARD_SECOND);
	ok(ended(0, 1, false) &&
		   strcmp(machines[0].command_text, "the target does not host the type") == 0,
	   "a target that hosts nothing: %s", machines[0].command_text);
	region->inc_no--;
	command(0, SHARD_COMMAND_MOVE, shard, 2, 2);
	wait_for(0, 2, 10 * SHARD_SECOND);
	ok(ended(0, 2, false) &&
		   strcmp(machines[0].command_text, "the target has not said yet what it hosts") == 0,
	   "one that has started since: %s", machines[0].command_text);
}

/*
 * However long it was refused, who still wants it has it soon after what kept it away is over; and many shards that are
 * refused for one reason are no reason to ask all the time (M16).
 */
static void
test_refused_for_long(void)
{
	int32 shard;
	int refused;

	three(0);
	machines[0].unfit = machines[1].unfit = true;
	shard = shard_at(3);
	command(0, SHARD_COMMAND_EVACUATE, -1, 3, 1);
	run(1800 * SHARD_SECOND);
	refused = machines[0].decisions[SHARD_DECISION_MOVE_REFUSED];
	ok(refused > 4 * 10 && refused < 4 * 20, "four shards are refused in half an hour: %d times",
	   refused);
	run(SHARD_MOVE_LONGEST_PAUSE);
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_REFUSED], refused + 4,
		   "and each of them within the longest pause");
	machines[0].unfit = machines[1].unfit = false;
	run(SHARD_MOVE_LONGEST_PAUSE + SHARD_SECOND);
	is_int(count_homes(0, 3), 0, "then they are taken");
	ok(node_of(shard) != 3, "all of them");
}

/* A pin goes before the strategy, as long as its node can have the shard. */
static void
test_pin(void)
{
	int32 shard;

	three(SHARD_SECOND);
	shard = shard_at(1);
	command(2, SHARD_COMMAND_PIN, shard, 3, 1);
	wait_for(2, 1, 5 * SHARD_SECOND);
	ok(ended(2, 1, true), "any node takes a pin");
	is_int(machines[0].decisions[SHARD_DECISION_PINNED], 1, "which is told");
	run(10 * SHARD_SECOND);
	is_int(node_of(shard), 3, "the shard goes there");
	is_int(home_of(shard).reason, SHARD_HOME_REASON_PIN, "because of it");
	for (int32 i = 0; i < SHARDS; i++)
		command(0, SHARD_COMMAND_PIN, i, 3, 100 + i);
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS, "all, against the strategy");
	stop(2);
	run(5 * SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS, "also while it is away");
	start(2);
	add_type(2, "thing", SHARDS);
	run(20 * SHARD_SECOND);
	for (int32 i = 0; i < SHARDS; i++)
		command(0, SHARD_COMMAND_PIN, i, 0, 200 + i);
	command(0, SHARD_COMMAND_PIN, 3, 0, 300);
	wait_for(0, 300, 5 * SHARD_SECOND);
	ok(ended(0, 300, true), "what is not pinned need not be unpinned");
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS / 3, "then the strategy has its way again");
	command(0, SHARD_COMMAND_PIN, SHARDS, 1, 301);
	ok(ended(0, 301, false), "there is no such shard to be pinned");
	command(0, SHARD_COMMAND_PIN, 1, 9, 302);
	ok(ended(0, 302, false), "nor such a node");

	three(0);
	command(0, SHARD_COMMAND_PIN, shard_at(1), 3, 1);
	run(10 * SHARD_SECOND);
	is_int(machines[0].decisions[SHARD_DECISION_MOVED], 1, "a pinned shard moves");
	ok(strcmp(machines[0].decision_text, "pinned, by eve@somewhere") == 0,
	   "by whose wish is told: %s", machines[0].decision_text);
	command(0, SHARD_COMMAND_PIN, shard_at(2), 3, 2);
	command(0, SHARD_COMMAND_PIN, shard_at(2), 0, 3);
	run(SHARD_SECOND);
	ok(strcmp(machines[0].decision_text, "no longer pinned, by eve@somewhere") == 0,
	   "who ends a pin is told: %s", machines[0].decision_text);
}

/* The pins that a machine has learned, to a node. */
static int
count_pins(int at, int32 node)
{
	ShardArena *arena = shard_arena_create();
	int count;
	int n = 0;
	ShardMapEntry *pins =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_PIN, arena, &count);

	for (int i = 0; i < count; i++)
		n += shard_record_get_pin(&pins[i]) == node;
	shard_arena_destroy(arena);
	return n;
}

/* The node of a pin to one, as a machine sees it: 0 if it counts for nothing. */
static int32
pin_counts(int at, int32 node)
{
	ShardArena *arena = shard_arena_create();
	ShardMapEntry pin = shard_record_put_pin(1, 0, node, 0, arena);

	node = shard_membership_pinned(shard_node_learned(machines[at].node), &pin);
	shard_arena_destroy(arena);
	return node;
}

/* C13: pins end with their node, by whomever the office is held then, and other pins do not. */
static void
test_pin_ends(void)
{
	int32 kept;

	three(SHARD_SECOND);
	kept = shard_at(2);
	for (int32 i = 0; i < SHARDS; i++)
		command(0, SHARD_COMMAND_PIN, i, i == kept ? 2 : 3, 100 + i);
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS - 1, "all but one are pinned to a node");
	stop(2);
	run(15 * SHARD_SECOND);
	command(0, SHARD_COMMAND_DOWN, -1, 3, 1);
	wait_for(0, 1, 5 * SHARD_SECOND);
	run(10 * SHARD_SECOND);
	is_int(count_pins(0, 3), SHARDS - 1, "pins wait for a node that is down");
	is_int(pin_counts(0, 3), 3, "and count");
	command(0, SHARD_COMMAND_WRITE_OFF, -1, 3, 2);
	wait_for(0, 2, 5 * SHARD_SECOND);
	ok(ended(0, 2, true), "it is written off: %s", machines[0].command_text);
	is_int(pin_counts(0, 3), 0, "then they count for nothing");
	run(60 * SHARD_SECOND);
	is_int(count_pins(0, 3), 0, "and end");
	is_int(count_pins(0, 2), 1, "that to another node does not");
	is_int(pin_counts(0, 2), 2, "and counts");
	is_int(machines[0].decisions[SHARD_DECISION_PINNED], 2 * SHARDS - 1, "which is told");
	is_int(count_homes(0, 1), SHARDS / 2, "and the strategy has its way");

	/* The coordinator itself goes: the next one has heard of its pins from the map alone. */
	three(SHARD_SECOND);
	for (int32 i = 0; i < SHARDS; i++)
		command(0, SHARD_COMMAND_PIN, i, 1, 100 + i);
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 1), SHARDS, "all are pinned to the coordinator");
	command(0, SHARD_COMMAND_LEAVE, -1, 0, 1);
	wait_for(0, 1, 120 * SHARD_SECOND);
	ok(ended(0, 1, true) && is_coordinator(1), "which leaves");
	run(20 * SHARD_SECOND);
	is_int(count_pins(1, 1), 0, "the next one ends them");
	is_int(count_homes(1, 2), SHARDS / 2, "and the strategy has its way");
}

/* A member is emptied, gets nothing, and may have shards again when it starts anew. */
static void
test_evacuate(void)
{
	three(SHARD_SECOND);
	command(1, SHARD_COMMAND_EVACUATE, -1, 3, 1);
	wait_for(1, 1, 5 * SHARD_SECOND);
	ok(ended(1, 1, true), "any node takes the wish");
	run(20 * SHARD_SECOND);
	is_int(count_homes(0, 3), 0, "it is emptied");
	is_int(machines[0].decisions[SHARD_DECISION_EVACUATION], 1, "which is told");
	run(20 * SHARD_SECOND);
	is_int(count_homes(0, 3), 0, "and gets nothing");
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], SHARDS / 3, "the others keep theirs");
	command(0, SHARD_COMMAND_MOVE, shard_at(1), 3, 2);
	ok(ended(0, 2, false), "not even by an operator's word");
	stop(2);
	run(3 * SHARD_SECOND);
	start(2);
	add_type(2, "thing", SHARDS);
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS / 3, "until it starts anew");
	command(0, SHARD_COMMAND_EVACUATE, -1, 1, 3);
	command(0, SHARD_COMMAND_EVACUATE, -1, 2, 4);
	run(5 * SHARD_SECOND);
	command(0, SHARD_COMMAND_EVACUATE, -1, 3, 5);
	ok(ended(0, 5, false), "somebody must be left: %s", machines[0].command_text);
}

/* A member that is not to be emptied any more gives away nothing, though others were asked already (M16). */
static void
test_evacuate_no_more(void)
{
	ShardCommand event = {.kind = SHARD_COMMAND_EVACUATE,
						  .node = 3,
						  .asker.token = 2,
						  .text = "eve@somewhere"};

	three(0);
	machines[0].deaf = machines[1].deaf = true;
	command(0, SHARD_COMMAND_EVACUATE, -1, 3, 1);
	run(3 * SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS / 3, "a member to be emptied waits for the others");
	order(0, &event);
	deliver();
	run(SHARD_SECOND);
	ok(ended(0, 2, true), "it is to be emptied no more");
	machines[0].deaf = machines[1].deaf = false;
	run(20 * SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS / 3, "it keeps what it has");
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 0, "no move begins");
	ok(machines[0].decisions[SHARD_DECISION_MOVE_WITHDRAWN] > 0, "which is told: %s",
	   machines[0].decision_text);
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_REFUSED], 0, "and is no failure");
}

/* All are to be emptied at the same time: somebody is left who has the shards. */
static void
test_evacuate_all(void)
{
	three(SHARD_SECOND);
	machines[1].slow = machines[2].slow = true;
	for (int i = 0; i < 3; i++)
	{
		command(0, SHARD_COMMAND_EVACUATE, -1, i + 1, i + 101);
		ok(machines[0].command != i + 101 || i == 2, "two are being decided");
	}
	ok(ended(0, 103, false), "all but one: %s", machines[0].command_text);
	ok(strstr(machines[0].command_text, "try again") != NULL, "which may change");
	machines[0].n_commands = 0;
	settle(1);
	settle(2);
	deliver();
	ok(machines[0].n_commands == 2 && ended(0, 102, true), "the two are done then");
	run(60 * SHARD_SECOND);
	command(0, SHARD_COMMAND_EVACUATE, -1, 3, 4);
	ok(ended(0, 4, false) && strstr(machines[0].command_text, "could have its shards") != NULL,
	   "then there is nobody: %s", machines[0].command_text);
	is_int(count_homes(0, 3), SHARDS, "the last has all, and keeps them");
}

int
main(void)
{
	begin_world();
	test_move();
	test_no_ticks();
	test_refused();
	test_not_said_yet();
	test_refused_for_long();
	test_pin();
	test_pin_ends();
	test_evacuate();
	test_evacuate_no_more();
	test_evacuate_all();
	end_world();
	return unit_done();
}
