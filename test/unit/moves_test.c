/*
 * moves_test.c
 *		Unit tests of moves, by whole nodes: what is asked before they begin, who may begin them, and what
 *		those who wait are told.
 */
#include "postgres_fe.h"

#include "core/node/node_private.h"
#include "node_world.h"

#define SHARDS 12

/* A cluster of three that are up, all with the type and homes for its shards. */
static void
three(int64 interval)
{
	static ShardShardRef refs[SHARDS];
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = SHARDS, .shards = refs};

	end_world();
	memset(machines, 0, sizeof(machines));
	for (int i = 0; i < MACHINES; i++)
	{
		for (int k = 0; k < MANY; k++)
			machines[i].epochs[k] = -1;
	}
	begin_world();
	rebalance_interval = interval;
	min_members = 3;
	for (int i = 0; i < 3; i++)
		start(i);
	run(2 * SHARD_SECOND);
	join(1, 0);
	join(2, 0);
	run(10 * SHARD_SECOND);
	for (int i = 0; i < 3; i++)
		add_type(i, "thing", SHARDS);
	run(3 * SHARD_SECOND);
	for (int i = 0; i < SHARDS; i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = i};
	happen(0, &wanted);
	run(3 * SHARD_SECOND);
	is_int(count_homes(0, 0), SHARDS, "three nodes with homes");
	for (int i = 0; i < 3; i++)
		memset(machines[i].decisions, 0, sizeof(machines[i].decisions));
}

/* The decided home of a shard. */
static ShardHomeRecord
home_of(int32 shard)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[0].node),
												 (ShardMapKey){SHARD_MAP_HOME, 1, shard});
	ShardHomeRecord home = {0};

	if (!entry || !shard_record_get_home(entry, &home))
		ok(false, "shard %d has a home", shard);
	return home;
}

static int32
node_of(int32 shard)
{
	ShardHomeRecord home = home_of(shard);

	return shard_record_home_node(&home);
}

/* A shard of a node. */
static int32
shard_at(int32 node)
{
	for (int32 shard = 0; shard < SHARDS; shard++)
	{
		if (node_of(shard) == node)
			return shard;
	}
	ok(false, "node %d has a shard", node);
	return 0;
}

/* An operator's word about a shard, or none (-1). */
static void
command(int at, ShardCommandKind kind, int32 shard, int32 node, int64 token)
{
	ShardCommand command = {.kind = kind,
							.node = node,
							.asker.token = token,
							.text = "eve@somewhere"};

	command.type_id = shard >= 0 ? 1 : 0;
	command.shard = Max(shard, 0);
	command.flag = true;
	order(at, &command);
	deliver();
}

/* Is a command over, with that outcome? */
static bool
ended(int at, int64 token, bool good)
{
	return machines[at].command == token && machines[at].command_good == good;
}

/* Wait for the end of a command. */
static void
wait_for(int at, int64 token, int64 most)
{
	for (int64 end = now + most; now < end && machines[at].command != token;)
		run(STEP);
}

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
	ok(machines[0].decisions[SHARD_DECISION_MOVE_REFUSED] > 0, "which is told: %s",
	   machines[0].decision_text);
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
		const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[0].node),
													 (ShardMapKey){SHARD_MAP_HOME, type_id, shard});
		ShardHomeRecord home;
		ShardCommand move = {.kind = SHARD_COMMAND_MOVE,
							 .type_id = type_id,
							 .shard = shard,
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

/* A command that another node carries out: once, or nobody knows. */
static void
test_forwarded(void)
{
	int32 shard;

	three(0);
	shard = shard_at(1);
	command(1, SHARD_COMMAND_MOVE, shard, 3, 1);
	wait_for(1, 1, 10 * SHARD_SECOND);
	ok(ended(1, 1, true) && node_of(shard) == 3, "a move, by way of another node");
	ok(strstr(machines[0].decision_text, "eve@somewhere") != NULL, "the coordinator knows whose");
	command(1, SHARD_COMMAND_DOWN, -1, 1, 2);
	wait_for(1, 2, 5 * SHARD_SECOND);
	ok(ended(1, 2, false) && strstr(machines[1].command_text, "coordinator") != NULL,
	   "its reasons come back: %s", machines[1].command_text);

	/* The coordinator dies with the command. */
	machines[2].deaf = true;
	command(1, SHARD_COMMAND_MOVE, shard_at(2), 3, 3);
	run(SHARD_SECOND);
	stop(0);
	wait_for(1, 3, 30 * SHARD_SECOND);
	ok(ended(1, 3, false) && machines[1].command_unknown, "then nobody knows: %s",
	   machines[1].command_text);

	/* What was not sent yet waits for the next one. */
	machines[2].deaf = false;
	start(0);
	run(15 * SHARD_SECOND);
	stop(0);
	stop(2);
	run(5 * SHARD_SECOND);
	command(1, SHARD_COMMAND_LEASE_TTL, -1, 0, 4);
	run(5 * SHARD_SECOND);
	ok(machines[1].command != 4, "a command without a coordinator waits");
	start(0);
	wait_for(1, 4, 20 * SHARD_SECOND);
	ok(machines[1].command == 4, "until there is one");
	ok(!machines[1].command_unknown, "and is carried out then");
}

/* The same command twice on the wire is carried out once. */
static void
test_once(void)
{
	ShardControl message = {.kind = SHARD_CONTROL_COMMAND, .from = 2, .from_inc = 0, .to = 1};
	ShardMemberRecord member;
	StringInfoData buffer;
	const ShardMapEntry *entry;
	ShardArena *arena = shard_arena_create();
	ShardShardRef ref = {.type_id = 1};

	three(0);
	entry = shard_map_value(shard_node_learned(machines[0].node),
							(ShardMapKey){SHARD_MAP_MEMBER, 2, 0});
	(void) shard_record_get_member(entry, &member, arena);
	ref.shard = shard_at(1);
	message.cluster = shard_node_cluster(machines[0].node);
	message.protocol_version = SHARD_PROTOCOL_VERSION;
	message.from_inc = member.inc_no;
	message.b = shard_proposer_ballot(shard_node_proposer(machines[0].node));
	message.token = 77;
	message.command = SHARD_COMMAND_PIN;
	message.node = 3;
	message.shards = &ref;
	message.n_shards = 1;
	/* Without the code of its sender it is nothing; he hears the code. */
	initStringInfo(&buffer);
	shard_control_encode(&buffer, &message);
	shard_node_receive(machines[0].node, now, message.from, buffer.data, buffer.len, out);
	act(0, NO_LINK);
	pfree(buffer.data);
	run(SHARD_SECOND);
	is_int(machines[0].decisions[SHARD_DECISION_PINNED], 0, "without a code nothing is done");
	message.uuid = machines[1].node->code;
	for (int i = 0; i < 3; i++)
	{
		int answers = 0;

		initStringInfo(&buffer);
		shard_control_encode(&buffer, &message);
		shard_node_receive(machines[0].node, now, message.from, buffer.data, buffer.len, out);
		for (int k = 0; i > 0 && k < out->n_actions; k++)
			answers += out->actions[k].kind == SHARD_ACTION_SEND &&
					   out->actions[k].message->kind == SHARD_CONTROL_COMMAND_ANSWER &&
					   out->actions[k].message->token == message.token &&
					   out->actions[k].message->flag;
		is_int(answers, i > 0, "time %d: the answer, which was lost, is given again", i + 1);
		act(0, NO_LINK);
		pfree(buffer.data);
		run(2 * SHARD_SECOND);
		/* In between somebody else has another wish. */
		if (i == 0)
			command(0, SHARD_COMMAND_PIN, ref.shard, 2, 5);
		run(10 * SHARD_SECOND);
	}
	is_int(machines[0].decisions[SHARD_DECISION_PINNED], 2, "a command is carried out once");
	is_int(node_of(ref.shard), 2, "not again when it comes again");
	message.token = 78;
	message.b--;
	initStringInfo(&buffer);
	shard_control_encode(&buffer, &message);
	shard_node_receive(machines[0].node, now, message.from, buffer.data, buffer.len, out);
	act(0, NO_LINK);
	pfree(buffer.data);
	run(5 * SHARD_SECOND);
	is_int(node_of(ref.shard), 2, "nor one for another office");
	shard_arena_destroy(arena);
}

/* A pin that node 2 asks node 1 for, which comes again and again. Returns the status of the answer; -1: there is none. */
static int
comes_again(const ShardControl *message, bool *good)
{
	StringInfoData buffer;
	int status = -1;

	initStringInfo(&buffer);
	shard_control_encode(&buffer, message);
	shard_node_receive(machines[0].node, now, message->from, buffer.data, buffer.len, out);
	for (int i = 0; i < out->n_actions; i++)
	{
		const ShardAction *action = &out->actions[i];

		if (action->kind != SHARD_ACTION_SEND ||
			action->message->kind != SHARD_CONTROL_COMMAND_ANSWER ||
			action->message->token != message->token)
			continue;
		status = action->message->outcome;
		*good = action->message->flag;
	}
	act(0, NO_LINK);
	pfree(buffer.data);
	return status;
}

/* Only what was certainly not carried out is "not me", which the next coordinator may carry out (C12). */
static void
test_after_office(void)
{
	enum
	{
		KNOWN,
		UNKNOWN,
		NOT_ME
	};
	ShardControl message = {.kind = SHARD_CONTROL_COMMAND, .from = 2, .to = 1};
	ShardMemberRecord member;
	ShardArena *arena = shard_arena_create();
	ShardShardRef ref = {.type_id = 1};
	bool good = false;

	three(0);
	(void) shard_record_get_member(shard_map_value(shard_node_learned(machines[0].node),
												   (ShardMapKey){SHARD_MAP_MEMBER, 2, 0}),
								   &member, arena);
	ref.shard = shard_at(1);
	/* so that node 1 has a code for it */
	command(1, SHARD_COMMAND_PIN, ref.shard, 2, 1);
	wait_for(1, 1, 10 * SHARD_SECOND);
	message.cluster = shard_node_cluster(machines[0].node);
	message.protocol_version = SHARD_PROTOCOL_VERSION;
	message.from_inc = member.inc_no;
	message.uuid = machines[1].node->code;
	message.b = shard_proposer_ballot(shard_node_proposer(machines[0].node));
	message.token = now + SHARD_SECOND;
	message.command = SHARD_COMMAND_PIN;
	message.node = 3;
	message.shards = &ref;
	message.n_shards = 1;
	is_int(comes_again(&message, &good), -1, "a pin is carried out, and not decided yet");
	run(SHARD_SECOND);
	is_int(comes_again(&message, &good), KNOWN, "then it is");
	ok(good, "and that is answered");

	/* The answer is lost, and so is the office. */
	stop(1);
	stop(2);
	run(20 * SHARD_SECOND);
	ok(!machines[0].node->in_office, "a coordinator without a majority has no office");
	good = false;
	is_int(comes_again(&message, &good), KNOWN, "what it has carried out it does not disown");
	ok(good, "it gives the same answer");
	message.token--;
	is_int(comes_again(&message, &good), UNKNOWN,
		   "of a number that it may have passed nobody knows");
	message.token += 2;
	is_int(comes_again(&message, &good), NOT_ME, "what it has never seen may go to the next one");

	/* Another process of it. */
	stop(0);
	start(0);
	run(SHARD_SECOND);
	is_int(comes_again(&message, &good), UNKNOWN, "nor what an earlier process may have done");
	shard_arena_destroy(arena);
}

/* SQLSTATE of errors of the functions; 0: they come from elsewhere. */
static int32 raised = 0;

/* Somebody's word about a type whose strategy is its functions. */
static void
say(bool rebalance, int n, const int32 *shards, const int32 *nodes, const char *error)
{
	ShardShardRef refs[SHARDS];
	ShardNodeEvent event = {.kind = SHARD_EVENT_STRATEGY,
							.flag = rebalance,
							.text = error,
							.node = error ? raised : 0};

	for (int i = 0; i < n; i++)
		refs[i] =
			(ShardShardRef){.type_id = machines[0].question.shard.type_id, .shard = shards[i]};
	event.number = machines[0].question.token;
	event.n_shards = n;
	event.shards = refs;
	event.n_nodes = nodes ? n : 0;
	event.nodes = nodes;
	happen(0, &event);
	deliver();
}

/* A type with functions of its own: asked, believed within limits, and done without. */
static void
test_function(void)
{
	ShardTypeRecord type = {.name = "own",
							.number_of_shards = SHARDS,
							.strategy = SHARD_ALLOCATION_FUNCTION,
							.role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};
	ShardShardRef refs[3] = {{2, 0, 0, 0}, {2, 1, 0, 0}, {2, 2, 0, 0}};
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 2, .shards = refs};
	const int32 shards[] = {0, 1};
	const int32 nodes[] = {3, 3};
	const int32 wrong[] = {3, 8};
	const int32 first[] = {0};
	const int32 target[] = {2};
	int64 token;

	three(0);
	for (int i = 0; i < 3; i++)
		happen(i, &event);
	run(3 * SHARD_SECOND);
	happen(1, &wanted);
	run(SHARD_SECOND);
	is_int(machines[0].question.shard.type_id, 2, "the functions are asked");
	ok(!machines[0].question_rebalances && machines[0].question_shards == 2, "where shards go");
	is_int(count_homes(0, 0), SHARDS, "until then they have no home");
	token = machines[0].question.token;
	run(2 * SHARD_SECOND);
	is_int(machines[0].question.token, token, "one question at a time");
	say(false, 2, shards, nodes, NULL);
	run(SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS / 3 + 2, "they get what was said");

	/* Nonsense and errors. */
	wanted.shards = &refs[2];
	wanted.n_shards = 1;
	happen(1, &wanted);
	run(2 * SHARD_SECOND);
	ok(machines[0].question.token > token, "the next question");
	token = machines[0].question.token;
	say(false, 2, shards, wrong, NULL);
	run(SHARD_SECOND);
	is_int(count_homes(0, 0), SHARDS + 3, "nonsense is done without");
	say(false, 1, first, target, NULL);
	run(SHARD_SECOND);
	is_int(count_homes(0, 0), SHARDS + 3, "a late answer finds nobody");

	/* Moves: which, and then where to. */
	command(0, SHARD_COMMAND_REBALANCE, -1, 0, 50);
	ok(machines[0].command != 50, "a round waits for the functions");
	ok(machines[0].question_rebalances, "which are asked for moves");
	say(true, 1, first, NULL, NULL);
	ok(!machines[0].question_rebalances && machines[0].question_shards == 1, "and for targets");
	say(false, 1, first, target, NULL);
	ok(ended(0, 50, true), "then it is over");
	ok(machines[0].command_number == 1, "with one move");
	run(5 * SHARD_SECOND);
	command(0, SHARD_COMMAND_REBALANCE, -1, 0, 51);
	wait_for(0, 51, 2 * SHARD_STRATEGY_TIMEOUT + 10 * SHARD_SECOND);
	ok(ended(0, 51, true), "functions that never answer are done without");
	command(0, SHARD_COMMAND_REBALANCE, -1, 0, 52);
	say(true, 0, NULL, NULL, "division by zero");
	ok(ended(0, 52, true), "nor do errors keep anybody waiting");

	/* A round by way of another node, as long as two answers may take. */
	run(5 * SHARD_SECOND);
	token = machines[0].question.token;
	command(1, SHARD_COMMAND_REBALANCE, -1, 0, 53);
	run(SHARD_STRATEGY_TIMEOUT - 2 * SHARD_SECOND);
	ok(machines[0].question.token == token + 1 && machines[0].question_rebalances, "asked once");
	say(true, 1, first, NULL, NULL);
	ok(machines[0].question.token == token + 2, "asked for targets");
	run(SHARD_STRATEGY_TIMEOUT - 2 * SHARD_SECOND);
	ok(machines[1].command != 53, "whoever wants it waits");
	say(false, 1, first, nodes, NULL);
	wait_for(1, 53, 5 * SHARD_SECOND);
	ok(ended(1, 53, true) && machines[1].command_number == 1, "and hears how it ends: %s",
	   machines[1].command_text);
}

static int last_round = 1000;

/* Rounds in each of which the functions fail, with words of its own. */
static void
fail_rounds(int n_rounds, int32 sqlstate, int32 step)
{
	for (int i = 0; i < n_rounds; i++)
	{
		char words[40];

		snprintf(words, sizeof(words), "attempt %d has failed", i);
		raised = sqlstate + i * step;
		command(0, SHARD_COMMAND_REBALANCE, -1, 0, ++last_round);
		say(true, 0, NULL, NULL, words);
		ok(ended(0, last_round, true), "round %d is over", last_round);
	}
	raised = 0;
}

/* People are told of functions that go on failing, but not each time, whatever the words. */
static void
test_failing_function(void)
{
	ShardTypeRecord type = {.name = "own",
							.number_of_shards = SHARDS,
							.strategy = SHARD_ALLOCATION_FUNCTION,
							.role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};
	const int *told = &machines[0].decisions[SHARD_DECISION_STRATEGY];

	three(0);
	for (int i = 0; i < 3; i++)
		happen(i, &event);
	run(3 * SHARD_SECOND);
	fail_rounds(10, 100, 0);
	is_int(*told, 1, "one failure is told of ten");
	fail_rounds(10, 200, 0);
	is_int(*told, 2, "and one of another kind");
	fail_rounds(10, 0, 0);
	is_int(*told, 3, "that it cannot be asked is another one");
	run(61 * SHARD_SECOND);
	fail_rounds(10, 100, 0);
	is_int(*told, 4, "after a minute it is told again");
	run(61 * SHARD_SECOND);
	fail_rounds(50, 100, 1);
	is_int(*told, 12, "of many kinds not all are told");
}

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

/* A new start brings its settings along. */
static void
test_settings_at_start(void)
{
	ShardMemberRecord member;
	ShardArena *arena = shard_arena_create();

	three(0);
	stop(2);
	run(3 * SHARD_SECOND);
	app_version = "2";
	role = "back";
	start(2);
	run(10 * SHARD_SECOND);
	app_version = "1";
	role = NULL;
	(void) shard_record_get_member(shard_map_value(shard_node_learned(machines[0].node),
												   (ShardMapKey){SHARD_MAP_MEMBER, 3, 0}),
								   &member, arena);
	ok(strcmp(member.app_version, "2") == 0, "the version of the application");
	ok(member.n_roles == 1 && strcmp(member.roles[0], "back") == 0, "and roles");
	ok(strcmp(member.dsn, "m2") == 0, "not the address");
	shard_arena_destroy(arena);
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
	run(15 * SHARD_SECOND);
	command(0, SHARD_COMMAND_WRITE_OFF, -1, 3, 2);
	wait_for(0, 1, 5 * SHARD_SECOND);
	ok(ended(0, 1, false), "a target is written off");
	is_int(node_of(shard), 2, "the shard stays");
	is_int(home_of(shard).lost, 0, "with its state");
	is_int(home_of(shard).reason, SHARD_HOME_REASON_ABORTED, "the move was aborted");
}

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
		ok(ended(i, 2, true), "node %d is told what would move", i + 1);
		is_int(machines[i].n_planned, 1, "as many as the strategy wants");
		is_int(count_planned(i, SHARD_HOME_REASON_REBALANCE), 1, "because of it");
		is_int(machines[i].command_number, 0, "all of them are listed");
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
	test_move();
	test_no_ticks();
	test_refused();
	test_refused_for_long();
	test_pin();
	test_pin_ends();
	test_evacuate();
	test_evacuate_no_more();
	test_evacuate_all();
	test_types_share();
	test_owners_share();
	test_two_owners_leave_a_place();
	test_standing_home();
	test_home_is_to_blame();
	test_undecided_count();
	test_rebalance();
	test_plan();
	test_plan_of_the_coordinator();
	test_forwarded();
	test_once();
	test_after_office();
	test_function();
	test_failing_function();
	test_goodbye();
	test_written_off_is_left_alone();
	test_stopping();
	test_settings_at_start();
	test_last_one();
	test_oldest_leave();
	test_write_off();
	end_world();
	return unit_done();
}
