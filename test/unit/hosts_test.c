/*
 * hosts_test.c
 *		Unit tests of who may have shards (C16), and keep them (C17), by whole nodes: hosts of the type, whoever
 *		wishes something else.
 */
#include "postgres_fe.h"

#include "core/node/node_private.h"

#include "node_world.h"

#define SHARDS 12

static int64 last_token = 100;
static int32 asked = 1; /* the type whose shards are asked for, and looked at */

/* Three members; the type "thing" runs at the first two, and the third does not know it, or is a proxy. */
static void
begin_three(ShardAllocationKind strategy, bool proxy)
{
	ShardTypeRecord type = {.name = "thing",
							.number_of_shards = SHARDS,
							.strategy = (int32) strategy,
							.role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};

	memset(machines, 0, sizeof(machines));
	begin_world();
	rebalance_interval = 0;
	for (int i = 0; i < 3; i++)
		start(i);
	run(2 * SHARD_SECOND);
	join(1, 0);
	join(2, 0);
	run(10 * SHARD_SECOND);
	for (int i = 0; i < 3; i++)
	{
		event.flag = i == 2;
		if (i < 2 || proxy)
			happen(i, &event);
		deliver();
		run(SHARD_SECOND);
	}
	run(3 * SHARD_SECOND);
}

/* Somebody sends the first message to these shards, at a machine. */
static void
want(int at, int32 from, int n_shards)
{
	ShardShardRef refs[SHARDS];
	ShardNodeEvent event = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = n_shards, .shards = refs};

	for (int i = 0; i < n_shards; i++)
		refs[i] = (ShardShardRef){.type_id = asked, .shard = from + i};
	happen(at, &event);
	deliver();
	run(SHARD_SECOND);
}

/* The type's functions say that these shards are to be at a node; 0: they return NULL. */
static void
say(int32 from, int n_shards, int32 node)
{
	ShardShardRef refs[SHARDS];
	int32 nodes[SHARDS];
	ShardNodeEvent event = {.kind = SHARD_EVENT_STRATEGY,
							.number = machines[0].question.token,
							.n_shards = n_shards,
							.shards = refs,
							.n_nodes = n_shards,
							.nodes = nodes};

	for (int i = 0; i < n_shards; i++)
	{
		refs[i] = (ShardShardRef){.type_id = 1, .shard = from + i};
		nodes[i] = node;
	}
	happen(0, &event);
	deliver();
	run(SHARD_SECOND);
}

static void
pin(int32 shard, int32 node)
{
	ShardShardRef ref = {.type_id = 1, .shard = shard};
	ShardCommand event = {.kind = SHARD_COMMAND_PIN,
						  .node = node,
						  .type_id = ref.type_id,
						  .shard = ref.shard};

	event.asker.token = ++last_token;
	event.text = "eve@somewhere";
	order(0, &event);
	deliver();
	ok(machines[0].command == event.asker.token && machines[0].command_good, "shard %d is pinned",
	   shard);
	run(SHARD_SECOND);
}

/* Where a shard lives, as decided; 0: nowhere yet. */
static int32
node_of(int32 shard)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[0].node),
												 (ShardMapKey){SHARD_MAP_HOME, asked, shard});
	ShardHomeRecord home;

	return entry && shard_record_get_home(entry, &home) ? shard_record_home_node(&home) : 0;
}

/* X12: functions that name a member which does not host the type have failed, for first homes, too. */
static void
test_functions(bool proxy)
{
	begin_three(SHARD_ALLOCATION_FUNCTION, proxy);
	want(2, 0, 2);
	ok(machines[0].question_shards == 2, "the functions are asked");
	say(0, 2, 3);
	is_int(count_homes(0, 3), 0, "a node that does not host the type gets nothing");
	is_int(count_homes(0, 0), 2, "hosts do");
	is_int(machines[0].decisions[SHARD_DECISION_STRATEGY], 1, "which is told");
	ok(strstr(machines[0].decision_text, "node 3 was named for shard 0") != NULL,
	   "with the reason: %s", machines[0].decision_text);
	pin(2, 3);
	want(0, 2, 1);
	say(2, 1, 2);
	is_int(node_of(2), 2, "nor does a pin to it count");

	/* NULL is not nothing. */
	want(0, 3, 2);
	say(3, 2, 0);
	is_int(node_of(3), 0, "a shard that got NULL waits");
	is_int(machines[0].decisions[SHARD_DECISION_STRATEGY], 2, "and people are told");
	ok(strstr(machines[0].decision_text, "(NULL) for shard 3 and 1 more") != NULL,
	   "that it waits: %s", machines[0].decision_text);
	run(3 * SHARD_SECOND);
	say(3, 2, 0);
	is_int(machines[0].decisions[SHARD_DECISION_STRATEGY], 2, "once");
	run(3 * SHARD_SECOND);
	say(3, 2, 2);
	is_int(node_of(3), 2, "the functions are asked again until they name a node");

	/* The pin waits for its node to host the type. */
	add_type(2, "thing", SHARDS);
	run(5 * SHARD_SECOND);
	is_int(node_of(2), 3, "the pinned shard goes there then");
	end_world();
}

/* The other strategies, and homes that are given anew. */
static void
test_others(ShardAllocationKind strategy)
{
	ShardCommand gone = {.kind = SHARD_COMMAND_WRITE_OFF, .node = 2, .asker.token = 7};

	begin_three(strategy, true);
	pin(0, 3);
	pin(1, 3);
	want(2, 0, SHARDS);
	is_int(count_homes(0, 0), SHARDS, "all have homes");
	is_int(count_homes(0, 3), 0, "none at the proxy, though it asked, and is the place of some");
	stop(1);
	run(30 * SHARD_SECOND);
	order(0, &gone);
	run(5 * SHARD_SECOND);
	ok(machines[0].command == 7 && machines[0].command_good, "the other host is written off");
	is_int(count_homes(0, 1), SHARDS, "its shards begin anew at a host");
	end_world();
}

/* The type runs at one of the machines, is a proxy there, or is dropped. */
static void
tell_type(int at, bool dropped, bool proxy)
{
	ShardTypeRecord type = {.name = "thing",
							.number_of_shards = SHARDS,
							.strategy = SHARD_ALLOCATION_LEAST_SHARD,
							.role = ""};
	ShardNodeEvent start = {.kind = SHARD_EVENT_TYPE, .type = &type, .flag = proxy};
	ShardNodeEvent drop = {.kind = SHARD_EVENT_DROP_TYPE, .text = "thing"};

	happen(at, dropped ? &drop : &start);
	deliver();
}

/* The reason of the last change of homes at a node; 0: they have several, or there are none. */
static int
reason_at(int32 node)
{
	int reason = -1;

	for (int32 shard = 0; shard < SHARDS; shard++)
	{
		const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[0].node),
													 (ShardMapKey){SHARD_MAP_HOME, 1, shard});
		ShardHomeRecord home;

		if (!entry || !shard_record_get_home(entry, &home) || shard_record_home_node(&home) != node)
			continue;
		reason = reason < 0 || reason == home.reason ? home.reason : 0;
	}
	return Max(reason, 0);
}

/* C17: a member that hosts the type no more loses its shards to others that do, not at once. */
static void
test_dropped(bool proxy)
{
	int n_there;

	begin_three(SHARD_ALLOCATION_LEAST_SHARD, false);
	want(0, 0, SHARDS);
	n_there = count_homes(0, 2);
	ok(n_there > 0, "the second host has %d shards", n_there);

	tell_type(1, true, false);
	run(3 * SHARD_SECOND);
	is_int(count_homes(0, 2), n_there, "dropped there they stay for a moment");
	tell_type(1, false, false);
	run(15 * SHARD_SECOND);
	is_int(count_homes(0, 2), n_there, "and for good, if it was started again");
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 0, "nothing was moved");

	tell_type(1, true, false);
	if (proxy)
		tell_type(1, false, true);
	run(20 * SHARD_SECOND);
	is_int(count_homes(0, 2), 0, "those of a node that goes on without the type move");
	is_int(count_homes(0, 1), SHARDS, "to one that hosts it");
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], n_there, "each once");

	tell_type(0, true, false);
	run(20 * SHARD_SECOND);
	is_int(count_homes(0, 1), SHARDS, "where nobody else hosts it they stay");
	tell_type(1, false, false);
	run(20 * SHARD_SECOND);
	is_int(count_homes(0, 2), SHARDS, "until somebody does");
	is_int(reason_at(2), SHARD_HOME_REASON_UNHOSTED, "which is the reason");
	end_world();
}

/* A target was asked when the home starts the type again: the shard stays. */
static void
test_dropped_and_back(void)
{
	int n_there;

	begin_three(SHARD_ALLOCATION_LEAST_SHARD, false);
	want(0, 0, SHARDS);
	n_there = count_homes(0, 2);
	machines[0].deaf = true;
	tell_type(1, true, false);
	run(8 * SHARD_SECOND);
	tell_type(1, false, false);
	run(2 * SHARD_SECOND);
	for (int32 shard = 0; shard < SHARDS; shard++)
	{
		ShardShardRef ref = {.type_id = 1, .shard = shard, .epoch = 1, .move_id = 1};
		ShardNodeEvent ready = {.kind = SHARD_EVENT_IMPORT_READY, .n_shards = 1, .shards = &ref};

		happen(0, &ready);
		deliver();
	}
	run(SHARD_SECOND);
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_WITHDRAWN], n_there, "moves were prepared");
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_REFUSED], 0, "which is no failure");
	ok(strstr(machines[0].decision_text, "hosts the type again") != NULL, "and do not begin: %s",
	   machines[0].decision_text);
	is_int(count_homes(0, 2), n_there, "what was to move stays");
	end_world();
}

/* C4, Y05: minimums are of members that are up, and of those with a role; not of those that host the type. */
static void
test_minimum(void)
{
	ShardTypeRecord type = {.name = "thing", .number_of_shards = SHARDS, .role = "Back"};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};

	memset(machines, 0, sizeof(machines));
	begin_world();
	rebalance_interval = 0;
	min_members = 4;
	role_minimum = (ShardRoleMinimum){shard_record_role("Back"), 2};
	for (int i = 0; i < MACHINES; i++)
	{
		role = i == 0 || i == 3 ? "Back" : "back";
		start(i);
	}
	run(2 * SHARD_SECOND);
	join(1, 0);
	join(2, 0);
	run(10 * SHARD_SECOND);
	happen(0, &event);
	deliver();
	run(3 * SHARD_SECOND);
	want(0, 0, SHARDS);
	run(3 * SHARD_SECOND);
	is_int(count_homes(0, 0), 0, "three of four members are too few, and so is one with the role");
	join(3, 0);
	run(10 * SHARD_SECOND);
	is_int(count_homes(0, 1), SHARDS,
		   "four are enough, and two with the role, though one hosts the type");
	role = NULL;
	min_members = 0;
	role_minimum = (ShardRoleMinimum){0};
	end_world();
}

/* A node that comes back can be given shards as soon as it is admitted, whatever it has answered before. */
static void
test_back(void)
{
	begin_three(SHARD_ALLOCATION_LEAST_SHARD, false);
	all_call = true;
	stop(1);
	add_type(0, "learned later", 1);
	run(20 * SHARD_SECOND);
	ok(!shard_roster_reachable(machines[0].node->roster, 2, now),
	   "a node that is stopped is missed");
	start(1);
	for (int i = 0; i < 100 && !shard_node_admitted(machines[1].node); i++)
		run(STEP);
	ok(shard_roster_reachable(machines[0].node->roster, 2, now),
	   "when it is admitted the coordinator hears it");
	all_call = false;
	end_world();
}

/* A type is there, or is wished for: it claims that the entities are at the machine. */
static void
bring(int at, bool wish, bool claims)
{
	ShardTypeRecord type = {.name = "moved", .number_of_shards = SHARDS, .role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type, .flag = wish};

	type.claims = claims;
	happen(at, &event);
	deliver();
	run(2 * SHARD_SECOND);
}

/* How many shards have their home at a node; 0: nowhere. */
static int
count_at(int32 node)
{
	int count = 0;

	for (int i = 0; i < SHARDS; i++)
		count += node_of(i) == node;
	return count;
}

/* The member that brings a type had its entities (E65): no shard has its first home elsewhere, whoever comes first. */
static void
test_claim(bool is_lost)
{
	begin_three(SHARD_ALLOCATION_LEAST_SHARD, false);
	asked = 2;
	bring(2, true, true);
	bring(0, false, false);
	bring(1, false, false);
	want(0, 0, SHARDS);
	want(1, 0, SHARDS);
	ok(count_at(0) == SHARDS, "a type with a claim has no homes before its member hosts it");
	if (is_lost)
	{
		ShardCommand down = {.kind = SHARD_COMMAND_DOWN, .node = 3, .text = "eve@somewhere"};
		ShardCommand off = {.kind = SHARD_COMMAND_WRITE_OFF, .node = 3, .text = "eve@somewhere"};

		stop(2);
		run(SHARD_SECOND);
		down.asker.token = ++last_token;
		order(0, &down);
		deliver();
		run(2 * SHARD_SECOND);
		ok(count_at(0) == SHARDS, "nor while that member is down");
		off.asker.token = ++last_token;
		order(0, &off);
		deliver();
		run(5 * SHARD_SECOND);
		ok(count_at(0) == 0 && count_at(3) == 0, "when that member is lost it is a type like any");
	}
	else
	{
		bring(2, false, false);
		ok(count_at(3) == SHARDS, "then all shards have their homes there, unasked");
	}
	asked = 1;
	end_world();
}

int
main(void)
{
	test_claim(false);
	test_claim(true);
	test_back();
	test_minimum();
	test_dropped(false);
	test_dropped(true);
	test_dropped_and_back();
	test_functions(true);
	test_functions(false);
	for (int kind = 1; kind <= SHARD_ALLOCATION_KINDS; kind++)
	{
		if (kind != SHARD_ALLOCATION_FUNCTION)
			test_others((ShardAllocationKind) kind);
	}
	return unit_done();
}
