/*
 * command_test.c
 *		Unit tests of operators' commands, by whole nodes: they are passed on, carried out once, and answered.
 */
#include "postgres_fe.h"

#include "core/node/node_private.h"
#include "moves_world.h"

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

/* Settings that are reloaded count from then on: the gate, which is told, and the interval of rebalancing, also from none. */
static void
test_settings_at_reload(void)
{
	ShardLiveSettings live;
	ShardMemberRecord member;

	three(0);
	for (int32 i = 0; i < SHARDS; i++)
		command(0, SHARD_COMMAND_PIN, i, 3, i);
	run(60 * SHARD_SECOND);
	for (int32 i = 0; i < SHARDS; i++)
		command(0, SHARD_COMMAND_PIN, i, 0, 100 + i);
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS, "without an interval nothing moves by the strategy");
	for (int i = 0; i < 3; i++)
	{
		live = *shard_node_live(machines[i].node);
		live.rebalance_interval = SHARD_SECOND;
		live.gate = SHARD_GATE_STANDBY;
		shard_node_reload(machines[i].node, now, &live, out);
		act(i, NO_LINK);
	}
	run(60 * SHARD_SECOND);
	is_int(count_homes(0, 3), SHARDS / 3, "with one it does");
	for (int32 node = 1; node <= 3; node++)
		ok(shard_node_get_member(machines[0].node, node, &member) &&
			   member.gate == SHARD_GATE_STANDBY,
		   "the cluster knows the gate of node %d", node);
}

int
main(void)
{
	begin_world();
	test_forwarded();
	test_once();
	test_after_office();
	test_settings_at_start();
	test_settings_at_reload();
	end_world();
	return unit_done();
}
