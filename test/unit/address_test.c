/*
 * address_test.c
 *		Unit tests of whole nodes: where they are, by whose word, and who they are when they are alone (I11, I15, I16).
 */
#include "postgres_fe.h"

#include "core/node/node_private.h"
#include "node_world.h"

static int64 last_token = 100;

/* Machine 0 is told where a node is: by its operator, or as a caller has reached it. Is it taken, refused (-1), or not? */
static int
tell(int32 node, const char *dsn, ShardAddressGround ground, bool lapsed)
{
	ShardCommand event = {.kind = SHARD_COMMAND_ADDRESS,
						  .node = node,
						  .text = dsn,
						  .number = ground,
						  .flag = lapsed,
						  .asker.token = ++last_token};

	machines[0].command = 0;
	order(0, &event);
	run(SHARD_SECOND);
	ok(machines[0].command == last_token, "an answer about \"%s\"", dsn);
	return machines[0].command_good ? (int) machines[0].command_number : -1;
}

static void
is_address(int32 node, const char *dsn, ShardAddressGround ground, const char *why)
{
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord member = {.dsn = ""};
	bool found = shard_record_get_member(shard_map_value(shard_node_learned(machines[0].node),
														 (ShardMapKey){SHARD_MAP_MEMBER, node, 0}),
										 &member, arena);

	ok(found && strcmp(member.dsn, dsn) == 0 && member.ground == (int32) ground, "%s: \"%s\" %d",
	   why, member.dsn, member.ground);
	shard_arena_destroy(arena);
}

/* A founder without an address, in office. */
static void
found_one(void)
{
	end_world();
	memset(machines, 0, sizeof(machines));
	begin_world();
	no_address = true;
	start(0);
	no_address = false;
	run(SHARD_SECOND);
}

static void
test_guesses(void)
{
	found_one();
	is_int(tell(0, "a", SHARD_ADDRESS_RELAYED, false), 1, "a first guess");
	is_address(1, "a", SHARD_ADDRESS_RELAYED, "is taken");
	is_int(tell(0, "a", SHARD_ADDRESS_RELAYED, false), 0, "the same again is no news");
	is_int(tell(0, "b", SHARD_ADDRESS_LOCAL, false), 1,
		   "the next one counts while there is nobody else");
	is_int(tell(0, "c", SHARD_ADDRESS_DIRECT, false), 1, "one with nobody in between");
	is_int(tell(0, "a", SHARD_ADDRESS_RELAYED, false), 0, "is not lost to one with somebody");
	is_int(tell(0, "d", SHARD_ADDRESS_DIRECT, false), 1, "but to the next one like it");
	is_int(tell(0, "a", SHARD_ADDRESS_RELAYED, true), 1, "or if it leads there no more");
	is_address(1, "a", SHARD_ADDRESS_RELAYED, "the last one");

	/* Others are there, who have the address. */
	is_int(tell(0, "m0", SHARD_ADDRESS_RELAYED, false), 1, "where machine 1 finds it");
	start(1);
	run(2 * SHARD_SECOND);
	join(1, 0);
	run(5 * SHARD_SECOND);
	is_int(shard_node_id(machines[1].node), 2, "two are a cluster");
	is_address(2, "m1", SHARD_ADDRESS_SAID, "who joins says where he is");
	is_int(tell(0, "b", SHARD_ADDRESS_RELAYED, false), 0, "another guess changes nothing now");
	is_int(tell(0, "b", SHARD_ADDRESS_LOCAL, false), 0, "nor one that nobody elsewhere can use");
	is_int(tell(0, "c", SHARD_ADDRESS_DIRECT, false), 1, "but one with nobody in between does");
	is_int(tell(0, "d", SHARD_ADDRESS_DIRECT, false), 0, "not the next one");
	is_address(1, "c", SHARD_ADDRESS_DIRECT, "which stays");
	is_int(tell(0, "c", SHARD_ADDRESS_RELAYED, false), 1, "somebody came in between");
	is_int(tell(0, "m0", SHARD_ADDRESS_DIRECT, false), 1, "so that another one is better");
}

static void
test_words(void)
{
	found_one();
	is_int(tell(0, "a", SHARD_ADDRESS_RELAYED, false), 1, "a guess");
	is_int(tell(1, "m0", SHARD_ADDRESS_SAID, false), 1, "its operator says where it is");
	is_address(1, "m0", SHARD_ADDRESS_SAID, "that counts");
	is_int(tell(0, "b", SHARD_ADDRESS_DIRECT, true), 0, "no guess is better");
	is_int(tell(0, "m0", SHARD_ADDRESS_DIRECT, false), 0, "and none makes it one");
	is_address(1, "m0", SHARD_ADDRESS_SAID, "it stays");
	start(1);
	run(2 * SHARD_SECOND);
	join(1, 0);
	run(5 * SHARD_SECOND);
	is_int(tell(2, "elsewhere", SHARD_ADDRESS_SAID, false), 1, "another member's");
	is_address(2, "elsewhere", SHARD_ADDRESS_SAID, "too");
	is_int(tell(2, "m1", SHARD_ADDRESS_SAID, false), 1, "and again");
	is_int(tell(7, "m1", SHARD_ADDRESS_SAID, false), -1, "but nobody's who is not there");
}

/* Node 2 asks the coordinator to change an address, as whoever speaks for it can. */
static void
test_no_command_of_others(void)
{
	ShardCommand event = {.kind = SHARD_COMMAND_ADDRESS,
						  .node = 1,
						  .text = "mine",
						  .number = SHARD_ADDRESS_SAID,
						  .asker.token = 900};

	order(1, &event);
	run(SHARD_SECOND);
	ok(machines[1].command == 900 && !machines[1].command_good, "not at another node: %s",
	   machines[1].command_text);
	event.node = 2;
	event.asker.token = 901;
	order(1, &event);
	run(SHARD_SECOND);
	ok(machines[1].command == 901 && !machines[1].command_good, "not about itself either");
	is_address(1, "m0", SHARD_ADDRESS_SAID, "nothing has changed");
}

/* Nobody is at its address any more: one that is alone goes on. */
static void
test_alone_without_place(void)
{
	found_one();
	is_int(tell(0, "a", SHARD_ADDRESS_RELAYED, false), 1, "a guess");
	stop(0);
	nobody_there = true;
	start(0);
	run(3 * SHARD_SECOND);
	ok(is_coordinator(0) && shard_node_admitted(machines[0].node),
	   "alone, it goes on whatever callers said of its address");
	run(5 * SHARD_SECOND);
	is_int(shard_node_place(machines[0].node, now), SHARD_NODE_PLACE_NOBODY, "and says so");
	nobody_there = false;
	run(6 * SHARD_SECOND);
	is_int(shard_node_place(machines[0].node, now), SHARD_NODE_PLACE_FOUND,
		   "until it finds itself");
	happen(0, &(ShardNodeEvent){.kind = SHARD_EVENT_WHO_ANSWERED, .node = 1, .uuid = {7, 7}});
	is_int(shard_node_place(machines[0].node, now), SHARD_NODE_PLACE_OTHER, "or somebody else");
	ok(is_coordinator(0), "who is no reason to stop");

	/* What its operator has said tells a clone from it. */
	is_int(tell(1, "m0", SHARD_ADDRESS_SAID, false), 1, "its operator says where it is");
	stop(0);
	nobody_there = true;
	start(0);
	run(10 * SHARD_SECOND);
	ok(!is_coordinator(0), "it waits until it finds itself there");
	nobody_there = false;
	run(3 * SHARD_SECOND);
	ok(is_coordinator(0), "and goes on");
}

/* The only voter of two is not at its address any more: it waits, until its operator says where it is. */
static void
test_lost_voter_is_told(void)
{
	found_one();
	is_int(tell(0, "m0", SHARD_ADDRESS_RELAYED, false), 1, "a guess");
	start(1);
	run(2 * SHARD_SECOND);
	join(1, 0);
	run(5 * SHARD_SECOND);
	stop(0);
	nobody_there = true;
	start(0);
	run(10 * SHARD_SECOND);
	ok(!is_coordinator(0), "one with others does not go on by itself (I11)");
	is_int(shard_node_place(machines[0].node, now), SHARD_NODE_PLACE_NOBODY, "it says why");
	order(0, &(ShardCommand){.kind = SHARD_COMMAND_ADDRESS,
							 .node = 1,
							 .text = "new",
							 .number = SHARD_ADDRESS_SAID,
							 .asker.token = 77});
	nobody_there = false;
	run(5 * SHARD_SECOND);
	ok(machines[0].command == 77 && machines[0].command_good, "one command");
	is_address(1, "new", SHARD_ADDRESS_SAID, "decides the address");
	ok(is_coordinator(0) && shard_node_admitted(machines[0].node), "and it goes on");
}

/* As from the node itself, by its loop: what callers say in its name is passed over before (T7). */
static void
receive(ShardControl *message)
{
	StringInfoData buffer;

	message->cluster = shard_node_cluster(machines[0].node);
	message->protocol_version = SHARD_PROTOCOL_VERSION;
	initStringInfo(&buffer);
	shard_control_encode(&buffer, message);
	shard_node_step_queue(&machines[0].node->loop, 0, 1, buffer.data, buffer.len);
	shard_node_persisted(machines[0].node, now, 0, out);
	act(0, NO_LINK);
	pfree(buffer.data);
}

/* Somebody claims to be the node that is alone, under another incarnation, and says that it was called back (I16). */
static void
test_nobody_else_is_alone(void)
{
	ShardControl admit = {.kind = SHARD_CONTROL_ADMIT, .from = 1, .node = 1, .uuid = {6, 6}};
	ShardControl i_am = {.kind = SHARD_CONTROL_I_AM, .node = 1, .uuid2 = {6, 6}};

	for (int with_address = 0; with_address < 2; with_address++)
	{
		found_one();
		if (with_address)
			is_int(tell(0, "m0", SHARD_ADDRESS_SAID, false), 1, "with an address");
		admit.inc_no = shard_node_incarnation(machines[0].node);
		receive(&admit);
		receive(&i_am);
		run(10 * SHARD_SECOND);
		ok(!shard_node_fenced(machines[0].node) && is_coordinator(0),
		   "another start of a node that is alone is not believed");
		is_int(shard_node_incarnation(machines[0].node), (int) admit.inc_no, "nor admitted");
	}
}

int
main(void)
{
	begin_world();
	test_guesses();
	test_words();
	test_no_command_of_others();
	test_alone_without_place();
	test_lost_voter_is_told();
	test_nobody_else_is_alone();
	end_world();
	return unit_done();
}
