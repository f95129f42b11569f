/*
 * wishes_test.c
 *		Wishes and commands that members pass on to the coordinator, and others in their names (T7).
 */
#include "postgres_fe.h"

#include "trust_world.h"

/* What a member's operator wants, and what became of it: 1, done; 0, not; -1, nobody has said. */
static int
wishes(int at, ShardCommandKind kind, int32 node)
{
	static int64 token = 1000;
	ShardCommand event = {.kind = kind, .node = node, .asker.token = ++token, .flag = true};

	machines[at].awaited = event.asker.token;
	machines[at].awaited_good = -1;
	order(at, &event);
	deliver();
	for (int i = 0; i < 400 && machines[at].awaited_good < 0; i++)
		run(STEP);
	return machines[at].awaited_good;
}

static int32
status_of(int at, int32 id)
{
	ShardMemberRecord member = {0};

	(void) shard_node_get_member(machines[at].node, id, &member);
	return member.status;
}

/* Somebody gives commands of all kinds in a member's name, under the greatest number, and has it leave. */
static void
forge_wishes(int at, int32 from, ShardUuid code)
{
	const int64 most = PG_INT64_MAX / 2;
	int64 ballot = shard_proposer_ballot(shard_node_proposer(machines[at].node));

	for (int kind = 0; kind < 100; kind++)
	{
		if (kind != SHARD_COMMAND_LEASE_TTL && shard_node_command_forwards((ShardCommandKind) kind))
			give_as(at, from, 0,
					(ShardControl){.kind = SHARD_CONTROL_COMMAND,
								   .b = ballot,
								   .token = PG_INT64_MAX,
								   .uuid = code,
								   .command = (ShardCommandKind) kind,
								   .node = from,
								   .number = most,
								   .flag = true});
		deliver();
	}
	give_as(at, from, 0,
			(ShardControl){.kind = SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ,
						   .wish = most,
						   .token = most,
						   .uuid = code});
	deliver();
}

/* P53: what a member's operator wants counts with the code that the member alone has been told. */
static void
test_wishes(void)
{
	int at = 0;
	int other;
	int third;
	ShardUuid code;

	three_nodes();
	while (!is_coordinator(at))
		at++;
	other = (at + 1) % 3;
	third = (at + 2) % 3;
	for (int round = 0; round < 3; round++)
	{
		for (int32 from = 1; from <= 3; from++)
		{
			forge_wishes(at, from, (ShardUuid){0, 0});
			forge_wishes(at, from, FORGED);
			forge_wishes(at, from, machines[from % 3].node->code);
		}
		run(5 * SHARD_SECOND);
		for (int32 id = 1; id <= 3; id++)
			is_int(status_of(at, id), SHARD_MEMBER_UP, "nobody leaves, or is downed");
		is_int(machines[at].decisions[SHARD_DECISION_EVACUATION], round > 0,
			   "nothing else is carried out");
		is_int(wishes(other, SHARD_COMMAND_EVACUATE, third + 1), 1, "who is meant is answered");
		is_int(wishes(other, SHARD_COMMAND_STAY, 0), 1, "and stays if he wants to");
		is_int(wishes(third, SHARD_COMMAND_EVACUATE, third + 1), 1, "so is the other one");
		machines[at].node->code = (ShardUuid){0, 0};
	}
	code = machines[other].node->code;
	give_as(other, third + 1, 0,
			(ShardControl){.kind = SHARD_CONTROL_COMMAND_CODE,
						   .b = shard_proposer_ballot(shard_node_proposer(machines[at].node)),
						   .uuid = FORGED});
	ok(shard_record_uuid_equal(machines[other].node->code, code), "a member says no codes");
	give_as(other, at + 1, 0,
			(ShardControl){.kind = SHARD_CONTROL_COMMAND_CODE,
						   .b = shard_proposer_ballot(shard_node_proposer(machines[at].node)),
						   .uuid = FORGED});
	is_int(wishes(other, SHARD_COMMAND_STAY, 0), 1,
		   "a wrong one in the coordinator's name is mended");
	forge_wishes(at, other + 1, FORGED);
	is_int(wishes(other, SHARD_COMMAND_LEAVE, 0), 1, "and leaves if he wants to");
	ok(status_of(at, other + 1) >= SHARD_MEMBER_LEAVING, "which is decided");

	/* Another coordinator has other codes. */
	code = machines[third].node->code;
	stop(at);
	start(at);
	run(20 * SHARD_SECOND);
	is_int(wishes(third, SHARD_COMMAND_STAY, 0), 1, "in another office, too");
	ok(!shard_record_uuid_equal(machines[third].node->code, code), "with another code");
}

/* An operator's word about a member, which its node has not sent yet. */
static void
command(int at, int32 node, bool flag, int64 token)
{
	order(at, &(ShardCommand){.kind = SHARD_COMMAND_EVACUATE,
							  .node = node,
							  .flag = flag,
							  .asker.token = token});
}

/* C12: a later command does not overtake one that was lost: with its link, or for its code. */
static void
test_lost_commands(void)
{
	int64 token = 9500;
	int at = 0;
	int other;
	int third;

	three_nodes();
	while (!is_coordinator(at))
		at++;
	other = (at + 1) % 3;
	third = (at + 2) % 3;
	is_int(wishes(other, SHARD_COMMAND_STAY, 0), 1, "a command, for the code");
	for (int lost = 0; lost < 2; lost++)
	{
		machines[other].awaited = ++token;
		machines[other].awaited_good = -1;
		machines[other].cut = lost == 0;
		if (lost == 1)
		{
			/* another one was tried just now: what comes with this one waits to be sent again */
			machines[other].node->code = FORGED;
			machines[other].node->next_try_of_code = now + SHARD_RESEND_INTERVAL;
		}
		command(other, third + 1, true, token);
		deliver();
		machines[other].cut = false;
		command(other, other + 1, false, ++token);
		deliver();
		run(20 * SHARD_SECOND);
		is_int(machines[other].awaited_good, 1, "the one that was lost is carried out, too (%d)",
			   lost);
		is_int(machines[other].command, token, "and the later one after it");
	}
}

/* C12, T7: commands go in their order; a code counts at one address, and each new one is not tried with all that waits. */
static void
test_commands_and_codes(void)
{
	int64 ballot;
	int at = 0;
	int other;
	int third;
	int before;
	ShardUuid code;

	three_nodes();
	while (!is_coordinator(at))
		at++;
	other = (at + 1) % 3;
	third = (at + 2) % 3;
	is_int(wishes(other, SHARD_COMMAND_STAY, 0), 1, "a command, for the code");
	machines[other].node->coordinator_heard = now - 60 * SHARD_SECOND;
	machines[other].awaited = 9001;
	machines[other].awaited_good = -1;
	command(other, third + 1, true, 9001);
	command(other, third + 1, false, 9002);
	deliver();
	run(20 * SHARD_SECOND);
	is_int(machines[other].awaited_good, 1, "of two that waited the first is carried out, too");

	code = machines[other].node->code;
	order(at, &(ShardCommand){.kind = SHARD_COMMAND_ADDRESS,
							  .node = other + 1,
							  .text = "elsewhere",
							  .number = SHARD_ADDRESS_SAID,
							  .asker.token = 9003});
	run(5 * SHARD_SECOND);
	forge_wishes(at, other + 1, code);
	run(5 * SHARD_SECOND);
	is_int(status_of(at, other + 1), SHARD_MEMBER_UP,
		   "who was told the code at another address commands nothing");
	is_int(wishes(other, SHARD_COMMAND_STAY, 0), 1, "who is there now does");

	ballot = shard_proposer_ballot(shard_node_proposer(machines[at].node));
	stop(at);
	for (int i = 0; i < 20; i++)
		command(other, third + 1, true, 9100 + i);
	deliver();
	before = letters;
	for (int i = 1; i <= 20; i++)
		give_as(other, at + 1, 0,
				(ShardControl){.kind = SHARD_CONTROL_COMMAND_CODE,
							   .b = ballot,
							   .uuid = (ShardUuid){0xbad, (uint64) i}});
	is_int(letters - before, 20, "of many codes one is tried at once with all that waits");
}

int
main(void)
{
	begin_world();
	test_wishes();
	test_commands_and_codes();
	test_lost_commands();
	end_world();
	return unit_done();
}
