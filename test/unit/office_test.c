/*
 * office_test.c
 *		Unit tests of who takes part, by whole nodes: who is shown as coordinator, who was downed.
 */
#include "postgres_fe.h"

#include "node_world.h"

/* Is node the one that a machine takes for the coordinator? */
static int32
shown(int at)
{
	return shard_node_coordinator(machines[at].node, now);
}

static void
cut(int at, bool cut_off)
{
	machines[at].cut = cut_off;
}

/* Four members, the first three of which vote. */
static void
begin_four(void)
{
	for (int i = 0; i < MACHINES; i++)
		start(i);
	run(2 * SHARD_SECOND);
	for (int i = 1; i < MACHINES; i++)
		join(i, 0);
	run(10 * SHARD_SECOND);
	for (int i = 0; i < MACHINES; i++)
		is_int(shown(i), 1, "all know the coordinator");
}

/* Q09: cut off from all others it is none, and says so; the others have another one. */
static void
test_cut_off(void)
{
	cut(0, true);
	run(2 * SHARD_ELECTION_TIMEOUT);
	ok(!is_coordinator(0), "without a majority it holds no office");
	is_int(shown(0), 0, "and does not show itself in it");
	run(SHARD_CONTROL_FORGOTTEN);
	is_int(shown(0), 0, "nor anybody else");
	is_int(shown(1), 2, "the others have another one");
	is_int(shown(3), 2, "and all know it");
	cut(0, false);
	run(3 * SHARD_SECOND);
	is_int(shown(0), 2, "which is heard of when the network is well again");
}

/* C25: two of four cannot decide; who hears only the former coordinator does not take it for one. */
static void
test_minority(void)
{
	cut(0, true);
	cut(2, true);
	run(2 * SHARD_ELECTION_TIMEOUT);
	is_int(shown(1), 0, "without a majority there is none");
	run(SHARD_CONTROL_FORGOTTEN);
	is_int(shown(3), 0, "and nobody shows one, though the one of before is heard");
	ok(shard_node_reachable(machines[3].node, 2, now), "which is reached");
	cut(0, false);
	cut(2, false);
	run(5 * SHARD_SECOND);
	for (int i = 0; i < MACHINES; i++)
		ok(shown(i) != 0 && shown(i) == shown(0), "then all know the same one");
}

static int32
status_of(int32 node, int at)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[at].node),
												 (ShardMapKey){SHARD_MAP_MEMBER, node, 0});
	ShardMemberRecord member;

	return entry && shard_record_get_member(entry, &member, out->arena) ? member.status
																		: SHARD_MEMBER_NONE;
}

/* G07, I9: who was downed is until its next start, though it lives and is heard; and does not vote. */
static void
test_down(void)
{
	ShardCommand event = {.kind = SHARD_COMMAND_DOWN, .node = 3, .asker.token = 5};
	ShardVotersRecord voters;
	int at = machine_of(shown(0), NULL);

	order(at, &event);
	deliver();
	run(SHARD_VOTER_REPLACE_AFTER / 2);
	is_int(status_of(3, 0), SHARD_MEMBER_DOWN, "a member that was downed");
	is_int(status_of(3, 2), SHARD_MEMBER_DOWN, "knows it");
	is_int(shown(2), 0, "and takes no part");
	order(2, &(ShardCommand){.kind = SHARD_COMMAND_REBALANCE, .asker.token = 6});
	ok(machines[2].command == 6 && !machines[2].command_good, "nor commands: %s",
	   machines[2].command_text);
	event = (ShardCommand){.kind = SHARD_COMMAND_ADMIT, .node = 3, .asker.token = 7};
	order(at, &event);
	ok(machines[at].command == 7 && !machines[at].command_good &&
		   strstr(machines[at].command_text, "was downed"),
	   "it cannot be admitted from elsewhere: %s", machines[at].command_text);
	ok(shard_record_get_voters(shard_map_value(shard_node_learned(machines[0].node),
											   (ShardMapKey){SHARD_MAP_VOTERS, 0, 0}),
							   &voters) &&
		   !shard_record_votes(&voters, 3),
	   "another one votes in its place");
	run(5 * SHARD_SECOND);
	is_int(status_of(3, 0), SHARD_MEMBER_DOWN, "it is down still");
	stop(2);
	start(2);
	run(10 * SHARD_SECOND);
	is_int(status_of(3, 0), SHARD_MEMBER_UP, "its next start is admitted");
	order(2, &(ShardCommand){.kind = SHARD_COMMAND_DOWN, .node = 3, .asker.token = 8});
	run(5 * SHARD_SECOND);
	ok(machines[2].command == 8 && machines[2].command_good,
	   "it downs itself, and knows that it has: %s", machines[2].command_text);
	stop(2);
	start(2);
	run(10 * SHARD_SECOND);
	ok(shown(2) != 0 && shown(2) == shown(0), "and takes part");
}

/* Who holds the office; there is somebody. */
static int
coordinator(void)
{
	for (int i = 0; i < MACHINES; i++)
	{
		if (machines[i].node && !machines[i].cut && is_coordinator(i))
			return i;
	}
	ok(false, "there is a coordinator");
	return 0;
}

static ShardMemberRecord
member_of(int32 node, int at)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[at].node),
												 (ShardMapKey){SHARD_MAP_MEMBER, node, 0});
	ShardMemberRecord member = {0};

	(void) shard_record_get_member(entry, &member, out->arena);
	return member;
}

static int32
ttl_ms(int at)
{
	ShardSettingsRecord settings = {0};

	(void) shard_record_get_settings(shard_map_value(shard_node_learned(machines[at].node),
													 (ShardMapKey){SHARD_MAP_SETTINGS, 0, 0}),
									 &settings);
	return settings.lease_ttl_ms;
}

/* Is what a command wanted known to a machine? */
static bool
is_known(const ShardCommand *event, int at)
{
	switch (event->kind)
	{
		case SHARD_COMMAND_EVACUATE:
			return member_of(event->node, at).evacuated == event->flag;
		case SHARD_COMMAND_LEASE_TTL:
			return ttl_ms(at) == event->number;
		case SHARD_COMMAND_ADMIT:
			return member_of(event->node, at).inc_no == event->number;
		default:
			return status_of(event->node, at) == SHARD_MEMBER_DOWN;
	}
}

/* A command is given to the coordinator, which is cut off from now on. */
static void
check_lost(ShardCommand event)
{
	int at = coordinator();

	cut(at, true);
	order(at, &event);
	deliver();
	ok(machines[at].command != event.asker.token, "command %d is not done when it is proposed",
	   (int) event.kind);
	run(3 * SHARD_ELECTION_TIMEOUT);
	ok(machines[at].command == event.asker.token && !machines[at].command_good &&
		   machines[at].command_unknown,
	   "nobody knows when the office is lost: %s", machines[at].command_text);
	cut(at, false);
	run(5 * SHARD_SECOND);
	for (int i = 0; i < MACHINES; i++)
		ok(!is_known(&event, i), "and it came to nothing at %d", i);
}

/* The same again, when nothing is in its way: at the coordinator, or by way of another node. */
static void
check_done(ShardCommand event, bool forwarded)
{
	int at = coordinator();
	int asker = at;

	for (int i = 0; forwarded && i < MACHINES && asker == at; i++)
	{
		if (i != at && shard_node_admitted(machines[i].node))
			asker = i;
	}
	event.asker.token += 100;
	order(asker, &event);
	for (int i = 0; i < 100 && machines[asker].command != event.asker.token; i++)
	{
		deliver();
		run(STEP);
	}
	ok(machines[asker].command == event.asker.token && machines[asker].command_good,
	   "repeated, it is done: %s", machines[asker].command_text);
	ok(is_known(&event, at), "and decided then");
}

/* G6: who is told that his command is done can rely on it, whoever has the office afterwards. */
static void
test_done_is_decided(void)
{
	ShardCommand events[] = {
		{.kind = SHARD_COMMAND_EVACUATE, .node = 4, .flag = true, .asker.token = 20},
		{.kind = SHARD_COMMAND_LEASE_TTL, .number = 3000, .asker.token = 21},
		{.kind = SHARD_COMMAND_DOWN, .node = 4, .asker.token = 22},
	};

	for (int i = 0; i < (int) lengthof(events); i++)
	{
		check_lost(events[i]);
		check_done(events[i], i % 2 != 0);
	}
	stop(3);
	start(3);
	run(15 * SHARD_SECOND);
	is_int(status_of(4, 0), SHARD_MEMBER_UP, "all are up");
}

/* G6, C12: the word that admits an incarnation is known to one office alone. */
static void
test_admission_is_decided(void)
{
	ShardCommand event = {.kind = SHARD_COMMAND_ADMIT, .node = 4, .asker.token = 30};

	event.number = member_of(4, 0).inc_no + 1;
	stop(3);
	start_as(3, SHARD_START_COPY);
	run(10 * SHARD_SECOND);
	ok(!shard_node_admitted(machines[3].node), "a copy needs an operator's word");
	check_lost(event);
	check_done(event, false);
	run(5 * SHARD_SECOND);
	ok(shard_node_admitted(machines[3].node), "which lets it in");
}

/* G6: who finds the map as he wants it, but has lost his office without knowing it yet, says nothing. */
static void
test_stale_coordinator(void)
{
	int at = coordinator();
	ShardNode *node = machines[at].node;
	ShardCommand event = {.kind = SHARD_COMMAND_EVACUATE,
						  .node = 4,
						  .flag = true,
						  .asker.token = 40};

	machines[at].node = NULL;
	run(10 * SHARD_SECOND);
	order(coordinator(), &event);
	run(2 * SHARD_SECOND);
	ok(is_known(&event, coordinator()), "another coordinator has decided");
	machines[at].node = node;
	event.flag = false;
	event.asker.token = 41;
	order(at, &event);
	deliver();
	ok(machines[at].command != 41 || !machines[at].command_good,
	   "the one of before, which slept, does not say that it is not so");
	run(5 * SHARD_SECOND);
	ok(machines[at].command == 41 && !machines[at].command_good, "but that nobody knows: %s",
	   machines[at].command_text);
	ok(member_of(4, at).evacuated, "it is so");
	check_done(event, false);
}

int
main(void)
{
	begin_world();
	begin_four();
	test_cut_off();
	test_minority();
	test_down();
	test_done_is_decided();
	test_admission_is_decided();
	test_stale_coordinator();
	end_world();
	return unit_done();
}
