/*
 * type_test.c
 *		Unit tests of types on whole nodes: ids that are wished for, registration; and how many steps lie between
 *		a start and the first home.
 */
#include "postgres_fe.h"

#include "common/pg_prng.h"
#include "core/member/difference.h"
#include "type_world.h"

/* A cluster of one is there, and gives homes, without waiting for anything but its own disk. */
static void
test_no_waiting(void)
{
	int persists;

	fresh_world();
	start(0);
	wish(0, "thing", 1, false, 1);
	want(0, 1, 0);
	is_int(ticks_until(0, 1), 4, "ticks from the start of a new node to the first home");
	is_int(machines[0].facts, 1, "the workers hear of it");
	ok(machines[0].persists <= 10, "with few transactions: %d", machines[0].persists);
	persists = machines[0].persists;
	want(0, 1, 1);
	is_int(ticks_until(0, 2), 1, "ticks to the next home");
	is_int(machines[0].persists - persists, 2, "transactions for it");
	wish(0, "other", 2, false, 1);
	want(0, 2, 0);
	ok(ticks_until(0, 3) <= 4, "a home of another type follows at once");

	stop(0);
	start(0);
	wish(0, "thing", 1, false, 1);
	wish(0, "other", 2, false, 1);
	want(0, 1, 2);
	ok(ticks_until(0, 4) <= 6, "and a new home after a restart");
}

static void
test_wishes(void)
{
	fresh_world();
	start(0);
	wish(0, "seven", 7, false, 1);
	run(2 * SHARD_SECOND);
	is_int(id_of(0, "seven"), 7, "a wish is granted");
	wish(0, "three", 3, false, 1);
	run(SHARD_SECOND);
	is_int(id_of(0, "three"), 8, "but no number that may have been given before");
	wish(0, "any", 0, false, 1);
	run(SHARD_SECOND);
	is_int(id_of(0, "any"), 9, "no wish: the next one");
	wish(0, "huge", PG_INT32_MAX, false, 1);
	run(SHARD_SECOND);
	is_int(id_of(0, "huge"), 10, "a wish that would use up the numbers is none");
	wish(0, "a", 20, false, 1);
	wish(0, "b", 21, false, 1);
	wish(0, "c", 22, false, 1);
	for (int i = 0; i < 10; i++)
		run(1);
	ok(id_of(0, "a") == 20 && id_of(0, "b") == 21 && id_of(0, "c") == 22,
	   "several at once, each with its number, without waiting");
}

/* The same name again, as a proxy or not, with other settings. */
static void
test_again(void)
{
	fresh_world();
	start(0);
	start(1);
	run(SHARD_SECOND);
	join(1, 0);
	run(10 * SHARD_SECOND);
	wish(0, "thing", 1, false, 1);
	wish(1, "thing", 1, true, 1);
	run(2 * SHARD_SECOND);
	for (int i = 0; i < 10; i++)
		want(0, 1, i);
	run(SHARD_SECOND);
	is_int(count_homes(0, 1), 10, "a proxy gets no homes");
	wish(1, "thing", 1, false, 1);
	wish(0, "thing", 1, true, 1);
	run(2 * SHARD_SECOND);
	for (int i = 10; i < 20; i++)
		want(0, 1, i);
	run(SHARD_SECOND);
	is_int(count_homes(0, 2), 10, "after it has changed places with the other, it does");

	wish(1, "thing", 1, false, 2);
	run(SHARD_SECOND);
	is_int(id_of(1, "thing"), 1, "what was granted stays");
	wish(0, "new", 5, false, 1);
	run(SHARD_SECOND);
	wish(1, "new", 5, false, 2);
	run(SHARD_SECOND);
	want(1, 5, 1);
	run(SHARD_SECOND);
	is_int(homes_of_type(1, 5), 1, "a type with other settings is not hosted here");
	is_int(count_homes(1, 1), 11, "but there");
	wish(1, "new", 5, false, 1);
	run(SHARD_SECOND);
	for (int i = 2; i < 8; i++)
		want(1, 5, i);
	run(SHARD_SECOND);
	is_int(homes_of_type(1, 5), 7, "with the same settings it is");
	ok(count_homes(1, 1) < 17, "hosted here");
}

/* A type whose states have that structure. */
static void
wish_state(int at, const char *name, int32 number, bool proxy, const char *state)
{
	ShardTypeRecord type = {.name = name, .number_of_shards = 100, .settings_hash = 1};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type, .flag = proxy};

	type.state = state;
	event.number = number;
	happen(at, &event);
	deliver();
}

/* The structure that the cluster knows, as a machine has learned it. */
static bool
state_is(int at, int32 type_id, const char *expected)
{
	ShardArena *arena = shard_arena_create();
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[at].node),
												 (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});
	ShardTypeRecord type;
	bool is =
		entry && shard_record_get_type(entry, &type, arena) && strcmp(type.state, expected) == 0;

	shard_arena_destroy(arena);
	return is;
}

static bool
registered(int at)
{
	return shard_node_registered(machines[at].node);
}

/* The structure of states: of newcomers it has to be the cluster's; hosts say when it has changed. */
static void
test_structure(void)
{
	fresh_world();
	start(0);
	start(1);
	run(SHARD_SECOND);
	join(1, 0);
	run(10 * SHARD_SECOND);
	wish_state(0, "thing", 1, false, "a\nx integer");
	run(2 * SHARD_SECOND);
	ok(state_is(1, 1, "a\nx integer"), "the cluster knows the structure of a state");
	wish_state(0, "thing", 1, false, "a\nx integer\ny text");
	run(2 * SHARD_SECOND);
	ok(state_is(1, 1, "a\nx integer\ny text"), "and of one that was altered");
	wish_state(1, "thing", 1, true, "");
	run(2 * SHARD_SECOND);
	ok(state_is(0, 1, "a\nx integer\ny text"), "a proxy says nothing of it");
	wish_state(1, "thing", 1, false, "a\nx integer\ny text");
	run(2 * SHARD_SECOND);
	wish_state(1, "thing", 1, false, "a\nx bigint");
	run(2 * SHARD_SECOND);
	ok(state_is(0, 1, "a\nx bigint"), "the last word counts");
	run(20 * SHARD_SECOND);
	ok(state_is(0, 1, "a\nx bigint"), "a host that has learned another structure is silent");
	wish_state(0, "thing", 1, false, "a\nx integer\ny text");
	run(2 * SHARD_SECOND);
	ok(state_is(1, 1, "a\nx integer\ny text"), "until it is told of its type again, as it was");
	ok(registered(0) && registered(1), "and all is known");
	stop(0);
	start(0);
	wish_state(0, "thing", 1, false, "a\nx text");
	run(12 * SHARD_SECOND);
	ok(state_is(1, 1, "a\nx text"), "also of one that was altered while its node was away");
}

/* What newcomers are held to: only what a member may host. A wish is a proxy's until the start is committed. */
static void
test_structure_of_nobody(void)
{
	fresh_world();
	start(0);
	start(1);
	run(SHARD_SECOND);
	join(1, 0);
	run(10 * SHARD_SECOND);
	wish_state(0, "thing", 1, false, "a\nx integer");
	run(2 * SHARD_SECOND);
	wish_state(1, "thing", 0, true, "a\nx text");
	run(5 * SHARD_SECOND);
	ok(state_is(1, 1, "a\nx integer"), "a newcomer is held to what a member hosts");
	ok(!shard_node_asks_for_type(machines[1].node, "thing"), "and hears so");
	stop(0);
	wish_state(1, "thing", 0, true, "a\nx text");
	run(5 * SHARD_SECOND);
	start(0);
	run(12 * SHARD_SECOND);
	wish_state(1, "thing", 0, true, "a\nx text");
	run(5 * SHARD_SECOND);
	ok(state_is(1, 1, "a\nx text"), "once no member hosts it, its own is what counts");
	ok(!shard_node_asks_for_type(machines[1].node, "thing"), "and it hears so");
	wish_state(1, "thing", 0, true, "a\nx bigint");
	run(5 * SHARD_SECOND);
	ok(state_is(0, 1, "a\nx bigint"), "also when its start was rolled back");
	wish_state(1, "thing", 0, false, "a\nx bigint");
	run(5 * SHARD_SECOND);
	wish_state(0, "thing", 0, true, "a\nx integer");
	run(5 * SHARD_SECOND);
	ok(state_is(0, 1, "a\nx bigint"), "from then on others are held to it");
}

static bool
differs(const ShardTypeRecord *cluster, const ShardTypeRecord *node, const char *expected)
{
	const char *text = shard_difference_of_types(cluster, node, true, out->arena);

	return text && strcmp(text, expected) == 0;
}

/* What is said of types that differ. */
static void
test_differences(void)
{
	ShardTypeRecord cluster = {.name = "thing",
							   .number_of_shards = 10,
							   .settings_hash = 1,
							   .strategy = SHARD_ALLOCATION_LEAST_SHARD,
							   .role = "a",
							   .hashing = "murmur2",
							   .handoff_timeout_ms = 1000,
							   .state = "public.s\nx integer"};
	ShardTypeRecord node = cluster;
	char longer[300];
	char other[300];
	const char *text;

	ok(!shard_difference_of_types(&cluster, &node, true, out->arena), "equal types do not differ");
	cluster.owner = "alice";
	node.owner = "Alice";
	ok(differs(&cluster, &node, "its owner is \"alice\" in the cluster, \"Alice\" on the node"),
	   "a role");
	node.owner = "alice";
	node.state = "public.s\nx integer\ny text";
	ok(differs(
		   &cluster, &node,
		   "in the type of the state, an attribute is nothing in the cluster, \"y text\" on the "
		   "node"),
	   "an attribute more");
	ok(!shard_difference_of_types(&cluster, &node, false, out->arena), "where it counts");
	memset(longer, 'l', sizeof(longer));
	memcpy(longer, "s\n", 2);
	memcpy(&longer[SHARD_DIFFERENCE_TEXT], "\303\244", 2);
	strlcpy(&longer[sizeof(longer) - 5], " int", 5);
	strlcpy(other, longer, sizeof(other));
	strlcpy(&other[sizeof(other) - 4], "oid", 4);
	cluster.state = longer;
	node.state = other;
	text = shard_difference_of_types(&cluster, &node, true, out->arena);
	ok(text && strstr(text, "llll\" in the cluster, \"l") && !strstr(text, "\303"),
	   "what differs only at the end of a long name, which is cut before a character");
	cluster.state = "public.s\nx integer";
	node.state = "";
	ok(!shard_difference_of_types(&cluster, &node, true, out->arena), "a state that is not known");
	node.settings_hash = 2;
	node.number_of_shards = 11;
	ok(differs(&cluster, &node, "\"number_of_shards\" is 10 in the cluster, 11 on the node"),
	   "a number");
	node.number_of_shards = 10;
	node.hashing = "murmur2 f(text)";
	ok(differs(&cluster, &node,
			   "hash and \"shard_id_extractor\" is \"murmur2\" in the cluster, \"murmur2 f(text)\" "
			   "on the node"),
	   "an extractor");
	node.hashing = cluster.hashing;
	node.role = "";
	ok(differs(&cluster, &node, "\"role\" is \"a\" in the cluster, \"\" on the node"), "a role");
	node.role = cluster.role;
	node.allocation = shard_allocation_defaults(SHARD_ALLOCATION_LEAST_SHARD);
	node.allocation.rebalance_relative_limit = 0.5;
	ok(differs(&cluster, &node,
			   "\"rebalance_relative_limit\" of \"allocation_settings\" is 0.1 in the cluster, 0.5 "
			   "on the node"),
	   "a setting of the strategy");
	node.allocation = cluster.allocation;
	node.handoff_timeout_ms = 5;
	ok(differs(&cluster, &node, "\"handoff_timeout\" in ms is 1000 in the cluster, 5 on the node"),
	   "a time");
}

/* The coordinator knows what runs at each node, and each node knows when it does. */
static void
test_registered(void)
{
	fresh_world();
	start(0);
	start(1);
	run(SHARD_SECOND);
	ok(registered(0) && registered(1), "a node that hosts nothing is registered");
	join(1, 0);
	run(10 * SHARD_SECOND);
	ok(registered(0) && registered(1), "in a cluster, too");

	wish(0, "thing", 1, false, 1);
	ok(!registered(0) && registered(1), "a type is not known at once");
	run(SHARD_SECOND);
	ok(registered(0), "but soon");
	wish(1, "thing", 1, true, 1);
	ok(!registered(1), "nor is a proxy");
	run(SHARD_SECOND);
	ok(registered(1), "but soon, too");
	machines[0].cut = true;
	wish(1, "thing", 1, false, 1);
	run(SHARD_SECOND);
	ok(!registered(1), "while the coordinator does not answer, nothing becomes known");
	machines[0].cut = false;
	run(2 * SHARD_SECOND);
	ok(registered(1), "but when it does");
	wish(1, "thing", 1, false, 1);
	ok(registered(1), "nothing has changed");
	wish(1, "other", 2, false, 2);
	wish(0, "other", 2, false, 1);
	run(2 * SHARD_SECOND);
	ok(registered(0) && registered(1),
	   "a type with other settings than the cluster's counts for nothing");
	drop(1, "thing");
	ok(!registered(1), "a type that goes is to be heard of");
	run(SHARD_SECOND);
	ok(registered(1), "as it is");

	stop(0);
	start(0);
	ok(!registered(0), "nobody knows what a node has that has just started");
	run(10 * SHARD_SECOND);
	ok(registered(0) && registered(1), "nor a coordinator what there is, until it has heard it");
}

/* No strategy moves shards if that was turned off; who leaves is emptied all the same. */
static void
test_no_rebalance(void)
{
	fresh_world();
	rebalance_interval = 0;
	start(0);
	start(1);
	run(SHARD_SECOND);
	wish(0, "thing", 1, false, 1);
	run(SHARD_SECOND);
	for (int i = 0; i < 60; i++)
		want(0, 1, i);
	run(SHARD_SECOND);
	join(1, 0);
	wish(1, "thing", 1, false, 1);
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 1), 60, "no shard goes to a newcomer");
	order(0, &(ShardCommand){.kind = SHARD_COMMAND_LEAVE, .asker.token = 3});
	run(60 * SHARD_SECOND);
	is_int(count_homes(1, 1), 0, "but away from one that leaves");
	ok(machines[0].command == 3 && machines[0].command_good, "which goes when it is empty");
	rebalance_interval = SHARD_REBALANCE_INTERVAL;
}

/* ---- any of these in any order ------------------------------------------------------------------ */

#define NAMES 4

static const char *const names[NAMES] = {"a", "b", "c", "d"};

/* What the host has, and the ids that it saw. */
typedef struct HostTypes
{
	bool there[NAMES];
	int32 number[NAMES]; /* the host's own, rising */
	int32 last;
} HostTypes;

static void
host_tells_all(const HostTypes *host)
{
	for (int i = 0; i < NAMES; i++)
	{
		int32 known = id_of(0, names[i]);

		if (known != 0 && !(host->there[i] && host->number[i] == known))
			drop(0, names[i]);
		if (host->there[i])
			wish(0, names[i], host->number[i], false, host->number[i]);
	}
}

static void
random_step(HostTypes *host, pg_prng_state *random)
{
	int i = (int) pg_prng_uint64_range(random, 0, NAMES - 1);

	switch (pg_prng_uint64_range(random, 0, 7))
	{
		case 0:
			if (host->there[i])
				break;
			host->there[i] = true;
			host->number[i] = ++host->last;
			wish(0, names[i], host->number[i], false, host->number[i]);
			break;
		case 1:
			host->there[i] = false;
			drop(0, names[i]);
			break;
		case 2:
			settle(0);
			machines[0].slow = pg_prng_bool(random);
			break;
		case 3:
			settle(0);
			stop(0);
			start(0);
			host_tells_all(host);
			break;
		case 4:
			run(pg_prng_uint64_range(random, 1, 10) * STEP);
			break;
		default:
			for (int k = 0; k < 4; k++)
				want(0, (int32) pg_prng_uint64_range(random, 1, host->last + 1),
					 (int32) pg_prng_uint64_range(random, 0, 99));
			tick(0);
			break;
	}
}

/* The map has the types that the host has, under their numbers, and no home of any other. */
static bool
agree(const HostTypes *host)
{
	int homes = 0;

	for (int i = 0; i < NAMES; i++)
	{
		if (id_of(0, names[i]) != (host->there[i] ? host->number[i] : 0))
			return false;
		if (host->there[i])
			homes += homes_of_type(0, host->number[i]);
	}
	return homes == count_homes(0, 0);
}

static void
test_random(void)
{
	int64 homes = 0;

	for (uint64 seed = 1; seed <= 150; seed++)
	{
		HostTypes host = {.last = 0};
		pg_prng_state random;

		pg_prng_seed(&random, seed);
		fresh_world();
		start(0);
		for (int i = 0; i < 60; i++)
			random_step(&host, &random);
		settle(0);
		run(3 * SHARD_SECOND);
		homes += count_homes(0, 0);
		if (!agree(&host))
			ok(false, "seed %d: host and map agree", (int) seed);
		run(SHARD_START_TIMEOUT + SHARD_SECOND);
		if (!agree(&host))
			ok(false, "seed %d: they do later", (int) seed);
	}
	ok(homes > 1000, "host and map agree after any steps; %d homes", (int) homes);
}

/* However events and the disk interleave, no type waits for time to pass. */
static void
test_random_no_waiting(void)
{
	pg_prng_state random;

	fresh_world();
	start(0);
	run(SHARD_SECOND);
	pg_prng_seed(&random, 5);
	for (int i = 1; i <= 500; i++)
	{
		char name[16];
		int rounds = 0;

		snprintf(name, sizeof(name), "t%d", i);
		if (i % 5 != 0)
			wish(0, name, i, false, 1);
		for (int k = (int) pg_prng_uint64_range(&random, 0, 3); k > 0; k--)
		{
			if (pg_prng_bool(&random))
				settle(0);
			machines[0].slow = pg_prng_bool(&random);
			tick(0);
		}
		if (i % 20 != 0)
			continue;
		wish(0, name, i, false, 1);
		settle(0);
		while (id_of(0, name) != i && rounds++ < 100)
			tick(0);
		if (id_of(0, name) != i)
			ok(false, "type %d has its number without time passing", i);
		run(SHARD_SECOND);
	}
	ok(true, "types that come at any moment");
}

int
main(void)
{
	begin_world();
	test_no_waiting();
	test_wishes();
	test_structure();
	test_structure_of_nobody();
	test_differences();
	test_again();
	test_registered();
	test_no_rebalance();
	test_random();
	test_random_no_waiting();
	end_world();
	return unit_done();
}
