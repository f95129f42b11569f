/*
 * leave_test.c
 *		Unit tests of members that leave, by whole nodes: what is decided while they do.
 */
#include "postgres_fe.h"

#include "core/node/node_private.h"
#include "node_world.h"

#define SHARDS 30

static ShardShardRef refs[SHARDS];

/* Who votes beside the coordinator, and a machine that does not. */
static int voters[2];
static int other;

static void
find_voters(void)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[0].node),
												 (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});
	ShardVotersRecord record;
	int n = 0;

	if (!entry || !shard_record_get_voters(entry, &record) || record.n_current != 3)
		ok(false, "three of them vote");
	for (int i = 1; i < 4; i++)
	{
		if (shard_record_votes(&record, shard_node_id(machines[i].node)))
		{
			voters[n] = i;
			n = 1;
		}
		else
			other = i;
	}
}

/* Four members, three of which vote, that run a type; it has its first home. */
static void
four(bool confirmed)
{
	end_world();
	memset(machines, 0, sizeof(machines));
	begin_world();
	leave_confirmed = confirmed;
	for (int i = 0; i < 4; i++)
		start(i);
	run(2 * SHARD_SECOND);
	join(1, 0);
	join(2, 0);
	run(10 * SHARD_SECOND);
	join(3, 0);
	run(10 * SHARD_SECOND);
	for (int i = 0; i < 4; i++)
		add_type(i, "thing", SHARDS);
	run(3 * SHARD_SECOND);
	for (int i = 0; i < SHARDS; i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = i};
	happen(0, &(ShardNodeEvent){.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 1, .shards = refs});
	run(3 * SHARD_SECOND);
	find_voters();
	is_int(count_homes(0, 0), 1, "four nodes, one home,");
	is_int(count_homes(0, shard_node_id(machines[other].node)), 0,
		   "which is not at the one that does not vote");
}

/* What the slow disk of a machine was asked for so far is done, no more. */
static void
settle_once(int at)
{
	settle(at);
	machines[at].slow = true;
	deliver();
}

/* Its status, as the coordinator has learned it, */
static int32
status_there(void)
{
	int32 node = shard_node_id(machines[other].node);
	ShardMemberRecord member = {0};
	ShardArena *arena = shard_arena_create();
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[0].node),
												 (ShardMapKey){SHARD_MAP_MEMBER, node, 0});

	if (!entry || !shard_record_get_member(entry, &member, arena))
		ok(false, "node %d is known", node);
	shard_arena_destroy(arena);
	return member.status;
}

/* and the homes that it has. */
static int
homes_there(void)
{
	return count_homes(0, shard_node_id(machines[other].node));
}

/* A member leaves, and gets homes from before that was decided, which are decided after it. */
static void
leave_with_homes_pending(void)
{
	ShardCommand leave = {.kind = SHARD_COMMAND_LEAVE, .asker.token = 11};
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = SHARDS, .shards = refs};

	machines[voters[0]].slow = machines[voters[1]].slow = true;
	order(other, &leave);
	deliver();
	run(2 * STEP);
	is_int(status_there(), SHARD_MEMBER_UP, "that it leaves is not decided yet");
	happen(0, &wanted);
	run(2 * STEP);
	settle_once(voters[0]);
	is_int(status_there(), SHARD_MEMBER_LEAVING, "now it is");
	is_int(count_homes(0, 0), 1, "and homes are not, some of them there");
	run(4 * STEP);
	settle_once(voters[0]);
	ok(homes_there() > 0, "they are decided later");
	run(4 * STEP);
	settle_once(voters[0]);
	run(4 * STEP);
	settle_once(voters[0]);
	is_int(status_there(), SHARD_MEMBER_LEAVING, "it goes on leaving until they are elsewhere");
	settle(voters[0]);
	settle(voters[1]);
	deliver();
}

/* Nobody is removed who was given a home meanwhile. */
static void
test_pending(void)
{
	four(false);
	leave_with_homes_pending();
	for (int i = 0; i < 60 && machines[other].command != 11; i++)
		run(SHARD_SECOND);
	ok(machines[other].command == 11 && machines[other].command_good, "it has left");
	is_int(homes_there(), 0, "and nothing is at a node that is gone");
	is_int(count_homes(0, 0), SHARDS, "all have homes");
}

/* The same where hosts say that nothing is left (M20): too early a word removes nobody with homes. */
static void
test_confirmed(void)
{
	ShardNodeEvent emptied = {.kind = SHARD_EVENT_EMPTIED};

	four(true);
	leave_with_homes_pending();
	for (int i = 0; i < 60 && status_there() != SHARD_MEMBER_EXITING; i++)
		run(SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_EXITING, "it exits");
	is_int(homes_there(), 0, "without homes");
	run(10 * SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_EXITING, "until it says that nothing is left");
	happen(other, &emptied);
	run(5 * SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_REMOVED, "then it is removed");
}

/* A machine runs the type, or sends to it only. */
static void
host_type(int at, bool hosts)
{
	ShardTypeRecord type = {.name = "thing", .number_of_shards = SHARDS, .role = ""};

	happen(at,
		   &(ShardNodeEvent){.kind = SHARD_EVENT_TYPE, .type = &type, .number = 1, .flag = !hosts});
	deliver();
}

/* A member exits with homes of a type that it has dropped, and that nobody else runs. */
static void
exit_with_homes(void)
{
	hosts_tell = true;
	four(true);
	happen(0,
		   &(ShardNodeEvent){.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = SHARDS, .shards = refs});
	run(5 * SHARD_SECOND);
	for (int i = 0; i < 4; i++)
	{
		if (i != other)
			host_type(i, false);
	}
	happen(other, &(ShardNodeEvent){.kind = SHARD_EVENT_DROP_TYPE, .text = "thing"});
	run(5 * SHARD_SECOND);
	order(other, &(ShardCommand){.kind = SHARD_COMMAND_LEAVE, .asker.token = 11});
	for (int i = 0; i < 60 && status_there() != SHARD_MEMBER_EXITING; i++)
		run(SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_EXITING, "it exits");
	ok(homes_there() > 0, "with homes that nobody can have");
}

/*
 * Homes that stayed with a member that exits move after it has said that nothing is left (M20): it has to say so
 * anew, since what waits there goes after them. In the same office, or in a new one.
 */
static void
test_homes_move_after_all(bool new_office)
{
	ShardNodeEvent emptied = {.kind = SHARD_EVENT_EMPTIED};
	int64 homes;

	exit_with_homes();
	for (int i = 0; i < 4; i++)
		machines[i].unfit = true;
	if (new_office)
	{
		happen(other, &emptied);
		stop(0);
	}
	host_type(voters[0], true);
	run(10 * SHARD_SECOND);
	if (new_office)
	{
		start(0);
		run(5 * SHARD_SECOND);
		ok(!is_coordinator(0), "another one has the office");
	}
	else
		happen(other, &emptied);
	run(5 * SHARD_SECOND);
	ok(homes_there() > 0, "somebody could have them now");
	is_int(status_there(), SHARD_MEMBER_EXITING, "they are waited for");
	homes = shard_node_own_homes(machines[other].node);

	for (int i = 0; i < 4; i++)
		machines[i].unfit = false;
	for (int i = 0; i < 300 && homes_there() > 0; i++)
		run(SHARD_SECOND);
	run(10 * SHARD_SECOND);
	is_int(homes_there(), 0, "they have moved");
	ok(shard_node_own_homes(machines[other].node) > homes, "which it has heard of");
	is_int(status_there(), SHARD_MEMBER_EXITING, "what it had said is over");
	happen(other, &emptied);
	run(5 * SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_REMOVED, "said again it counts");
	hosts_tell = false;
}

/* A wish to leave, or to stay, that comes late: it was sent before all that came since. */
static void
late_wish(ShardControlKind kind)
{
	ShardControl message = {.kind = kind,
							.cluster = shard_node_cluster(machines[0].node),
							.protocol_version = SHARD_PROTOCOL_VERSION,
							.from = shard_node_id(machines[other].node),
							.from_inc = shard_node_incarnation(machines[other].node),
							.to = shard_node_id(machines[0].node),
							.token = kind == SHARD_CONTROL_COMMAND ? now : 11,
							.word2 = kind == SHARD_CONTROL_COMMAND ? SHARD_COMMAND_STAY : 0,
							.b = shard_proposer_ballot(shard_node_proposer(machines[0].node)),
							.uuid = machines[other].node->code,
							.any_n = 1};
	StringInfoData buffer;

	initStringInfo(&buffer);
	shard_control_encode(&buffer, &message);
	shard_node_receive(machines[0].node, now, message.from, buffer.data, buffer.len, out);
	act(0, NO_LINK);
	pfree(buffer.data);
	deliver();
}

/* The operator of the leaving machine does not want it to leave any more. */
static void
stay(bool good, const char *what)
{
	static int64 token = 100;
	ShardCommand event = {.kind = SHARD_COMMAND_STAY, .asker.token = ++token, .text = "op@4"};

	machines[other].awaited = token;
	machines[other].awaited_good = -1;
	order(other, &event);
	deliver();
	run(2 * SHARD_SECOND);
	is_int(machines[other].awaited_good, good, what);
}

/* A coordinator that leaves hands its office over though one of the voters is away (R32). */
static void
test_coordinator_leaves(void)
{
	ShardCommand leave = {.kind = SHARD_COMMAND_LEAVE, .asker.token = 11};

	four(false);
	stop(voters[1]);
	run(5 * SHARD_SECOND);
	ok(is_coordinator(0), "the coordinator leaves while a voter is away");
	order(0, &leave);
	for (int i = 0; i < 40 && machines[0].command != 11; i++)
		run(SHARD_SECOND);
	ok(machines[0].command == 11 && machines[0].command_good, "it goes: %s",
	   machines[0].command_text);
	ok(is_coordinator(voters[0]) || is_coordinator(other), "another one has the office");
	start(voters[1]);
	run(10 * SHARD_SECOND);
	is_int(count_members(voters[1]), count_members(voters[0]), "and who was away hears of it");
}

/* While it leaves it can be told to stay (N6): it is up again, with the homes that it has. */
static void
test_stay(void)
{
	ShardCommand leave = {.kind = SHARD_COMMAND_LEAVE, .asker.token = 11};
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = SHARDS, .shards = refs};
	ShardNodeEvent emptied = {.kind = SHARD_EVENT_EMPTIED};
	int homes;

	four(true);
	happen(0, &wanted);
	run(5 * SHARD_SECOND);
	homes = homes_there();
	ok(homes > 0, "it has homes");
	for (int i = 0; i < 4; i++)
		machines[i].unfit = true;

	machines[other].cut = true;
	run(10 * SHARD_SECOND);
	order(other, &leave);
	run(5 * SHARD_SECOND);
	stay(true, "without a coordinator that ends at once");
	machines[other].cut = false;
	run(20 * SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_UP, "nobody was asked");

	order(other, &leave);
	run(10 * SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_LEAVING, "it leaves");
	is_int(homes_there(), homes, "and nothing of it can move");
	stay(true, "it can be told to stay");
	is_int(machines[other].refused, 11, "who waits for the leave hears that it is cancelled: %s",
		   machines[other].refused_text);
	is_int(status_there(), SHARD_MEMBER_UP, "then it is up");
	late_wish(SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ);
	run(2 * SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_UP, "what was wished before counts no more");
	run(30 * SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_UP, "nor is it wished again");
	is_int(homes_there(), homes, "it has its homes");
	stay(true, "told again it does");

	order(other, &leave);
	run(2 * SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_LEAVING, "another wish counts");
	late_wish(SHARD_CONTROL_COMMAND);
	is_int(status_there(), SHARD_MEMBER_LEAVING, "nor does it stay by what was said before that");
	for (int i = 0; i < 4; i++)
		machines[i].unfit = false;
	/* each move that was refused makes the next one wait for longer */
	for (int i = 0; i < 600 && status_there() != SHARD_MEMBER_EXITING; i++)
		run(SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_EXITING, "it exits");
	stay(false, "then it is too late");
	ok(strstr(machines[other].command_text, "being removed") != NULL, "and that is said: %s",
	   machines[other].command_text);
	is_int(status_there(), SHARD_MEMBER_EXITING, "it goes on");
	happen(other, &emptied);
	run(5 * SHARD_SECOND);
	ok(machines[other].command == 11 && machines[other].command_good,
	   "who waits for it hears that it has left: %s", machines[other].command_text);
}

/* Nobody hears the machine; its operator wants it to leave, and no more. Returns the token of the second word. */
static int64
leave_and_stay(void)
{
	static int64 token = 1000;
	ShardCommand leave = {.kind = SHARD_COMMAND_LEAVE, .asker.token = ++token};
	ShardCommand word = {.kind = SHARD_COMMAND_STAY, .asker.token = ++token, .text = "op@4"};

	run(10 * SHARD_SECOND);
	order(other, &leave);
	run(2 * SHARD_SECOND);
	order(other, &word);
	run(2 * SHARD_SECOND);
	return token;
}

/* Where a wish to leave may have been sent by an earlier process, no word to stay counts without a coordinator. */
static void
test_stay_after_restart(void)
{
	ShardCommand leave = {.kind = SHARD_COMMAND_LEAVE, .asker.token = 11};
	int64 token;

	four(true);
	for (int i = 0; i < 2; i++)
	{
		server_runs_on = i == 0;
		machines[other].cut = true;
		stop(other);
		start(other);
		token = leave_and_stay();
		ok(machines[other].command != token, "%s waits for a coordinator",
		   i == 0 ? "a process that follows another one" : "an incarnation that is not admitted");
		machines[other].cut = false;
		run(5 * SHARD_SECOND);
		ok(machines[other].command == token && machines[other].command_good,
		   "and is heard by it: %s", machines[other].command_text);
		add_type(other, "thing", SHARDS);
		run(30 * SHARD_SECOND);
		is_int(status_there(), SHARD_MEMBER_UP, "it is up");
	}
	machines[other].cut = true;
	token = leave_and_stay();
	ok(machines[other].command == token && machines[other].command_good,
	   "an incarnation that is need not wait: %s", machines[other].command_text);

	/* whoever waits for it is told that it does not leave */
	machines[other].n_commands = 0;
	order(other, &leave);
	leave.asker.token++;
	order(other, &leave);
	is_int(machines[other].n_commands, 0, "two wait for it to leave");
	token = leave_and_stay();
	is_int(machines[other].n_commands, 4, "and hear that it stays, as a third one does");
	machines[other].n_commands = 0;
	for (int i = 0; i < 9; i++)
	{
		leave.asker.token++;
		order(other, &leave);
	}
	is_int(machines[other].n_commands, 1, "of too many the first one waits no more: %s",
		   machines[other].command_text);
	token = leave_and_stay();

	/* the last word counts, also when none was heard */
	server_runs_on = true;
	stop(other);
	start(other);
	token = leave_and_stay();
	order(other, &leave);
	ok(machines[other].command == token && !machines[other].command_good &&
		   strstr(machines[other].command_text, "later shard_leave()") != NULL,
	   "a word to stay ends with a later one to leave: %s", machines[other].command_text);
	machines[other].cut = false;
	run(5 * SHARD_SECOND);
	ok(status_there() >= SHARD_MEMBER_LEAVING, "which counts");
	server_runs_on = false;
}

/* Moves of it that were prepared when it was told to stay do not begin any more (M16). */
static void
test_stays_prepared(void)
{
	ShardCommand leave = {.kind = SHARD_COMMAND_LEAVE, .asker.token = 11};
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = SHARDS, .shards = refs};
	int homes;

	four(true);
	happen(0, &wanted);
	run(5 * SHARD_SECOND);
	homes = homes_there();
	for (int i = 0; i < 4; i++)
		machines[i].deaf = true;
	order(other, &leave);
	run(5 * SHARD_SECOND);
	is_int(status_there(), SHARD_MEMBER_LEAVING, "it leaves, and others are asked");
	stay(true, "then it is to stay");
	for (int i = 0; i < 4; i++)
		machines[i].deaf = false;
	machines[0].decisions[SHARD_DECISION_MOVE_BEGUN] = 0;
	run(3 * SHARD_SECOND);
	is_int(machines[0].decisions[SHARD_DECISION_MOVE_BEGUN], 0, "no move begins");
	is_int(homes_there(), homes, "whoever says late that they are ready gets nothing");
}

int
main(void)
{
	begin_world();
	test_stay_after_restart();
	test_coordinator_leaves();
	test_stays_prepared();
	test_stay();
	test_pending();
	test_confirmed();
	test_homes_move_after_all(false);
	test_homes_move_after_all(true);
	end_world();
	return unit_done();
}
