/*
 * trust_test.c
 *		Whom a node believes what (T7): ballots, eras, ends of incarnations, decided facts; three nodes, and somebody who speaks
 *		in the name of one of them.
 */
#include "postgres_fe.h"

#include "core/map/action.h"
#include "core/map/control.h"
#include "core/node/node_private.h"
#include "core/map/type_number.h"
#include "node_world.h"
#include "unit.h"

#define FAR_BALLOT ((INT64CONST(1) << 62) - 2)
#define FORGED ((ShardUuid){0xbad, 0xbad})

/* A machine receives what node "from" is said to say; via: the node that was called. */
static void
receive_as(int at, int32 from, int32 via, ShardControl message)
{
	StringInfoData buffer;
	ShardMemberRecord member;
	ShardArena *arena = shard_arena_create();
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(machines[at].node),
												 (ShardMapKey){SHARD_MAP_MEMBER, from, 0});

	if (entry && shard_record_get_member(entry, &member, arena))
		message.from_inc = member.inc_no;
	message.cluster = shard_node_cluster(machines[at].node);
	message.protocol_version = SHARD_PROTOCOL_VERSION;
	message.from = from;
	if (message.era == 0)
		message.era = shard_node_era(machines[at].node);
	initStringInfo(&buffer);
	shard_control_encode(&buffer, &message);
	shard_node_receive(machines[at].node, now, via, buffer.data, buffer.len, out);
	pfree(buffer.data);
	shard_arena_destroy(arena);
}

/* The same, and does what follows from it. */
static void
give_as(int at, int32 from, int32 via, ShardControl message)
{
	receive_as(at, from, via, message);
	act(at, NO_LINK);
}

static int64
promised(int at)
{
	return shard_voter_promised(shard_node_voter(machines[at].node));
}

/* P09: nobody can take the last ballots, whatever message names them; one step can be taken, and is outbid. */
static void
test_ballots(void)
{
	static const ShardControlKind kinds[] = {SHARD_CONTROL_PREPARE,		 SHARD_CONTROL_SYNC,
											 SHARD_CONTROL_ACCEPT,		 SHARD_CONTROL_HEARTBEAT,
											 SHARD_CONTROL_NACK,		 SHARD_CONTROL_PROMISE,
											 SHARD_CONTROL_HEARTBEAT_ACK};
	int64 before;
	int coordinators = 0;

	three_nodes();
	before = promised(1);
	for (int i = 0; i < (int) lengthof(kinds); i++)
		for (int at = 0; at < 3; at++)
		{
			ShardControl message = {.kind = kinds[i], .b = FAR_BALLOT, .n = 1000};

			if (kinds[i] == SHARD_CONTROL_NACK || kinds[i] == SHARD_CONTROL_HEARTBEAT_ACK)
			{
				message.b = shard_proposer_ballot(shard_node_proposer(machines[0].node));
				message.ballot = FAR_BALLOT;
			}
			give_as(at, at == 1 ? 3 : 2, 0, message);
		}
	is_int(promised(1), before, "a ballot that is out of reach is not promised");
	run(10 * SHARD_SECOND);
	for (int i = 0; i < 3; i++)
		coordinators += is_coordinator(i);
	is_int(coordinators, 1, "there is a coordinator");

	for (int at = 0; at < 3; at++)
		give_as(at, at == 1 ? 3 : 2, 0,
				(ShardControl){.kind = SHARD_CONTROL_PREPARE,
							   .b = ((promised(at) >> 16) + (1 << 20) - 1) << 16 |
									(at == 1 ? 3 : 2)});
	ok(promised(1) > before, "one in reach is");
	run(20 * SHARD_SECOND);
	coordinators = 0;
	for (int i = 0; i < 3; i++)
		coordinators += is_coordinator(i);
	is_int(coordinators, 1, "and outbid: there is a coordinator again");
}

/* P41: nobody makes voters believe that they have forgotten what they voted, also not the coordinator. */
static void
test_reminders(void)
{
	const ShardControlKind kinds[] = {SHARD_CONTROL_PREPARE, SHARD_CONTROL_HEARTBEAT};
	int amnesiacs = 0;
	int coordinators = 0;

	three_nodes();
	for (int at = 0; at < 3; at++)
		for (int from = 1; from <= 3; from++)
			for (int i = 0; i < (int) lengthof(kinds); i++)
			{
				int64 ballot = promised(at) + (1 << 16);

				if (from == at + 1)
					continue;
				give_as(at, from, 0,
						(ShardControl){.kind = kinds[i],
									   .b = (uint16) promised(at) == from ? promised(at) : from,
									   .ballot = ballot});
				give_as(at, from, 0,
						(ShardControl){.kind = kinds[i],
									   .b = (uint16) promised(at) == from ? promised(at) : from,
									   .ballot = promised(at),
									   .point = {promised(at), 1000000}});
			}
	for (int at = 0; at < 3; at++)
		amnesiacs += shard_voter_state(shard_node_voter(machines[at].node)) == SHARD_VOTER_AMNESIAC;
	is_int(amnesiacs, 0, "nobody is told that he has forgotten");
	run(10 * SHARD_SECOND);
	for (int i = 0; i < 3; i++)
		coordinators += is_coordinator(i);
	is_int(coordinators, 1, "there is a coordinator");
}

/* Is a type of that name in the map of a machine? */
static bool
has_type(int at, const char *name)
{
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_TYPE, out->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (!types[i].deleted && shard_record_get_type(&types[i], &type, out->arena) &&
			strcmp(type.name, name) == 0)
			return !type.dropping;
	}
	return false;
}

/* P50: somebody registers all nodes with no types, under the greatest numbers there are: they say again what they have. */
static void
test_registrations(void)
{
	static const int64 tokens[] = {PG_INT64_MAX, SHARD_REGISTRATION_FAR,
								   SHARD_REGISTRATION_FAR + SHARD_REGISTRATION_STEP};
	ShardTypeRecord type = {.name = "thing", .number_of_shards = 100, .role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};
	ShardNodeEvent told = {.kind = SHARD_EVENT_TYPES_TOLD};
	int at = 0;
	char name[32];

	three_nodes();
	for (int i = 0; i < 3; i++)
	{
		happen(i, &event);
		run(SHARD_SECOND);
	}
	run(5 * SHARD_SECOND);
	while (!is_coordinator(at))
		at++;
	ok(has_type(at, "thing"), "the cluster has a type");
	for (int k = 0; k < (int) lengthof(tokens); k++)
		for (int far = 0; far < 2; far++)
		{
			for (int32 from = 1; from <= 3; from++)
				give_as(at, from, 0,
						(ShardControl){
							.kind = SHARD_CONTROL_REGISTER,
							.n = shard_map_point(shard_node_learned(machines[at].node)).n,
							.commit_n =
								far ? INT64CONST(1) << 60
									: shard_map_point(shard_node_learned(machines[at].node)).n,
							.token = tokens[k]});
			/* Something new is to be told, which has a lower number than the lie. */
			snprintf(name, sizeof(name), "thing %d %d", k, far);
			type.name = name;
			for (int i = 0; i < 3; i++)
			{
				told.number = shard_map_point(shard_node_learned(machines[i].node)).n;
				happen(i, &told);
				happen(i, &event);
				run(SHARD_SECOND);
			}
			run(20 * SHARD_SECOND);
			ok(has_type(at, "thing"), "it has it still");
			for (int i = 0; i < 3; i++)
				ok(shard_node_registered(machines[i].node), "and its host is registered");
		}
}

/* P63: lists that are longer than any node's, which the coordinator would work on instead of being heard, mean nothing. */
static void
test_long_lists(void)
{
	static ShardShardRef refs[1001];
	static int32 ids[5000];
	ShardTypeRecord type = {.name = "thing", .number_of_shards = 100, .role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};
	ShardControl wanted = {.kind = SHARD_CONTROL_GET_SHARD_HOMES, .shards = refs};
	ShardControl has = {.kind = SHARD_CONTROL_REGISTER, .token = 1 << 20, .nodes = ids};

	three_nodes();
	for (int i = 0; i < 3; i++)
	{
		happen(i, &event);
		run(SHARD_SECOND);
	}
	run(5 * SHARD_SECOND);
	for (int i = 0; i < (int) lengthof(refs); i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = i % 100};
	for (int i = 0; i < (int) lengthof(ids); i++)
		ids[i] = 100 + i;
	has.commit_n = shard_map_point(shard_node_learned(machines[0].node)).n;
	has.n_nodes = lengthof(ids);
	give_as(0, 2, 0, has);
	ok(strstr(last_log, "node 2") && strstr(last_log, "registers more entity types"),
	   "P63 the log says who: %s", last_log);
	wanted.n_shards = lengthof(refs);
	give_as(0, 3, 0, wanted);
	ok(strstr(last_log, "node 3") && strstr(last_log, "homes of more shards"), "of both: %s",
	   last_log);
	run(SHARD_SECOND);
	is_int(count_homes(0, 1) + count_homes(0, 2) + count_homes(0, 3), 0,
		   "P63 homes of more shards than one asks for at a time are not given");
	wanted.n_shards--;
	give_as(0, 3, 0, wanted);
	run(SHARD_SECOND);
	is_int(count_homes(0, 1) + count_homes(0, 2) + count_homes(0, 3), 100, "of as many they are");
	ok(count_homes(0, 2) > 0, "P63 and who is said to have five thousand types has what it had");
}

/* C9: a registration that was overtaken by a newer one is not taken, also where the node has not said yet that it has told all its types. */
static void
test_overtaken_registration(void)
{
	static ShardShardRef refs[100];
	ShardControl wanted = {.kind = SHARD_CONTROL_GET_SHARD_HOMES, .shards = refs, .n_shards = 100};
	ShardControl late = {.kind = SHARD_CONTROL_REGISTER};

	three_nodes();
	for (int i = 0; i < 3; i++)
		add_type(i, "thing", 100);
	run(5 * SHARD_SECOND);
	for (int i = 0; i < (int) lengthof(refs); i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = i};
	late.token = machines[1].node->registration - 1;
	late.from_inc = machines[1].node->inc_no;
	give_as(0, 2, 0, late);
	give_as(0, 3, 0, wanted);
	run(SHARD_SECOND);
	ok(count_homes(0, 2) > 0, "a registration that comes late takes no type from its node");
}

/* P34: who speaks for one node does not decide under another one's ballot, nor end its office. */
static void
test_holders(void)
{
	static const ShardControlKind kinds[] = {SHARD_CONTROL_PREPARE, SHARD_CONTROL_SYNC,
											 SHARD_CONTROL_ACCEPT, SHARD_CONTROL_HEARTBEAT,
											 SHARD_CONTROL_RESIGN};
	ShardArena *arena = shard_arena_create();
	ShardHomeRecord home = {.epoch = 7, .n_nodes = 1, .nodes = {2}, .want = 1};
	const ShardMap *accepted;
	ShardMapPoint mine;
	ShardMapEntry entry;
	int64 ballot;

	three_nodes();
	ballot = shard_proposer_ballot(shard_node_proposer(machines[0].node));
	accepted = shard_voter_map(shard_node_voter(machines[2].node));
	mine = shard_map_point(accepted);
	entry = shard_record_put_home(1, 5, &home, mine.n, arena);
	entry.n = mine.n + 1;
	for (int i = 0; i < (int) lengthof(kinds); i++)
	{
		ShardControl message = {.kind = kinds[i], .b = ballot, .n_entries = 1, .entries = &entry};

		message.point = mine;
		if (kinds[i] == SHARD_CONTROL_ACCEPT)
			message.n = mine.n + 1;
		if (kinds[i] == SHARD_CONTROL_SYNC)
			message.point.n++;
		give_as(2, 2, 0, message);
	}
	ok(shard_map_compare(shard_map_point(accepted), mine) == 0 &&
		   shard_map_value(accepted, entry.key) == NULL,
	   "nothing is accepted from who is not the ballot's node");
	is_int(shard_node_coordinator(machines[2].node, now), 1, "nor is he followed");
	shard_arena_destroy(arena);
}

/* P36: where members vote nobody is sealed for the journal of an era to come. */
static void
test_collect(void)
{
	three_nodes();
	give_as(2, 2, 0, (ShardControl){.kind = SHARD_CONTROL_COLLECT, .new_era = 1, .uuid = FORGED});
	give_as(2, 2, 2, (ShardControl){.kind = SHARD_CONTROL_COLLECT, .new_era = 9, .uuid = FORGED});
	add_type(0, "thing", 8);
	run(5 * SHARD_SECOND);
	ok(shard_map_value(shard_node_learned(machines[0].node), (ShardMapKey){SHARD_MAP_TYPE, 1, 0}) !=
		   NULL,
	   "a type is decided");
	is_int(shard_map_point(shard_node_learned(machines[2].node)).n,
		   shard_map_point(shard_node_learned(machines[0].node)).n,
		   "who was told to learn no more learns it");
}

/* A node that has such a ballot on its disk: forced voters begin below it. */
static void
test_force_cures(void)
{
	ShardCommand force = {.kind = SHARD_COMMAND_FORCE_VOTERS, .n_nodes = 1, .asker.token = 5};
	ShardVotersRecord voters;
	int32 self;

	three_nodes();
	/* As an older version took it: nothing was learned when it was judged. */
	for (int at = 0; at < 3; at++)
	{
		shard_voter_receive(
			unconstify(ShardVoter *, shard_node_voter(machines[at].node)), now,
			&(ShardControl){.kind = SHARD_CONTROL_PREPARE, .from = 9, .b = FAR_BALLOT}, false, out);
		shard_action_reset(out);
	}
	is_int(promised(1), FAR_BALLOT, "a ballot near the end is stored");
	run(2 * SHARD_ELECTION_TIMEOUT);
	self = shard_node_id(machines[1].node);
	force.nodes = &self;
	order(1, &force);
	deliver();
	ok(promised(1) < INT64CONST(1) << 40, "voters that are forced begin with a ballot in reach");
	run(20 * SHARD_SECOND);
	ok(is_coordinator(1), "the one that was forced is coordinator");
	(void) shard_record_get_voters(shard_map_value(shard_node_learned(machines[2].node),
												   (ShardMapKey){SHARD_MAP_VOTERS, 0, 0}),
								   &voters);
	is_int(voters.era, shard_node_era(machines[1].node), "the others have learned it");
	is_int(shard_node_era(machines[0].node), shard_node_era(machines[1].node),
		   "all are in its era");
}

/* P10: an incarnation ends by the word of those who were asked, not of one who calls. */
static void
test_fenced(void)
{
	ShardControl fenced = {.kind = SHARD_CONTROL_FENCED, .inc_no = 1000, .uuid = FORGED};

	three_nodes();
	for (int i = 0; i < 20; i++)
	{
		give_as(1, 1, 0, fenced);
		give_as(1, 3, 0, fenced);
	}
	give_as(1, 0, 0, fenced);
	ok(!shard_node_fenced(machines[1].node), "who calls fences nobody");
	give_as(1, 3, 3, fenced);
	ok(!shard_node_fenced(machines[1].node), "nor does one other node that was asked");
	give_as(1, 3, 3, fenced);
	ok(!shard_node_fenced(machines[1].node), "also if it says it twice");
	stop(1);
	start(1);
	run(10 * SHARD_SECOND);
	ok(shard_node_admitted(machines[1].node), "and it goes on, after a restart, too");
	give_as(1, 3, 3, fenced);
	give_as(1, 1, 1, fenced);
	ok(shard_node_fenced(machines[1].node), "all others that were asked do");
}

/* The same after a pause of the own process, and in another era. */
static void
test_fenced_after_pause(void)
{
	ShardControl fenced = {.kind = SHARD_CONTROL_FENCED, .inc_no = 1000, .uuid = FORGED};
	int32 self = 2;
	ShardCommand force = {.kind = SHARD_COMMAND_FORCE_VOTERS,
						  .asker.token = 6,
						  .n_nodes = 1,
						  .nodes = &self};

	three_nodes();
	now += 60 * SHARD_SECOND;
	give_as(1, 3, 3, fenced);
	ok(!shard_node_fenced(machines[1].node), "who was silent while a node slept counts");
	run(10 * SHARD_SECOND);
	ok(!shard_node_fenced(machines[1].node), "also later");

	three_nodes();
	give_as(1, 3, 3, fenced);
	machines[1].cut = true;
	run(15 * SHARD_SECOND);
	order(1, &force);
	deliver();
	machines[1].cut = false;
	run(30 * SHARD_SECOND);
	ok(is_coordinator(1) && shard_node_admitted(machines[1].node), "another era has begun");
	give_as(1, 1, 1, fenced);
	ok(!shard_node_fenced(machines[1].node), "what somebody said in the one before counts no more");
}

/* What a machine has learned that it is itself. */
static int
own_status(int at)
{
	ShardMemberRecord member;
	ShardArena *arena = shard_arena_create();
	const ShardMapEntry *entry =
		shard_map_value(shard_node_learned(machines[at].node),
						(ShardMapKey){SHARD_MAP_MEMBER, shard_node_id(machines[at].node), 0});
	int status = entry && shard_record_get_member(entry, &member, arena) ? member.status : 0;

	shard_arena_destroy(arena);
	return status;
}

/* Three nodes, of which the third is gone, and written off. */
static void
two_nodes_and_a_lost_one(void)
{
	ShardCommand event = {.kind = SHARD_COMMAND_WRITE_OFF, .node = 3, .asker.token = 6};

	three_nodes();
	machines[2].cut = true;
	run(15 * SHARD_SECOND);
	order(0, &event);
	deliver();
	run(25 * SHARD_SECOND);
	ok(!shard_node_fenced(machines[2].node), "a node that is cut off does not know its end");
	machines[2].cut = false;
	machines[2].moved = true;
}

/* A node that was written off, and sits at another address than the registered one, hears it in answers. */
static void
test_over_elsewhere(void)
{
	two_nodes_and_a_lost_one();
	run(5 * SHARD_SECOND);
	ok(shard_node_fenced(machines[2].node), "one that went on elsewhere hears that it is over");
	is_int(own_status(2), SHARD_MEMBER_WRITTEN_OFF, "and why");
	stop(2);
	start(2);
	run(SHARD_SECOND);
	ok(shard_node_fenced(machines[2].node), "its next start knows it");

	two_nodes_and_a_lost_one();
	stop(2);
	start(2);
	run(5 * SHARD_SECOND);
	ok(shard_node_fenced(machines[2].node), "so does one that starts there");
	is_int(own_status(2), SHARD_MEMBER_WRITTEN_OFF, "with the reason");

	two_nodes_and_a_lost_one();
	stop(2);
	stop(1);
	start(2);
	run(SHARD_SECOND);
	ok(!shard_node_fenced(machines[2].node), "one of two that may be there does not suffice");
	run(30 * SHARD_SECOND);
	ok(shard_node_fenced(machines[2].node), "until the other one has not been heard for long");
}

/* P10 of written off: who calls ends nobody, one who was asked neither, nor a record that says something else. */
static void
test_over_by_anybody(void)
{
	static const int32 numbers[] = {3, 2, 2};
	static const int statuses[] = {SHARD_MEMBER_WRITTEN_OFF, SHARD_MEMBER_UP,
								   SHARD_MEMBER_WRITTEN_OFF};
	ShardArena *arena = shard_arena_create();

	for (int restarted = 0; restarted < 2; restarted++)
	{
		three_nodes();
		machines[1].cut = true;
		if (restarted)
		{
			stop(1);
			start(1);
			run(2 * STEP);
		}
		for (int i = 0; i < (int) lengthof(numbers); i++)
		{
			ShardMemberRecord member = {.inc_no = 1, .status = statuses[i], .dsn = "m1"};
			ShardMapEntry entry = shard_record_put_member(numbers[i], &member, 0, arena);
			ShardControl message = {.kind = SHARD_CONTROL_FENCED, .n_entries = 1};

			entry.n = shard_map_point(shard_node_learned(machines[1].node)).n + 1;
			message.entries = &entry;
			for (int32 from = 0; from <= 3; from++)
				give_as(1, from, 0, message);
			ok(!shard_node_fenced(machines[1].node), "who calls ends nobody");
			give_as(1, 3, 3, message);
			ok(!shard_node_fenced(machines[1].node), "nor does one that was asked");
			if (i < 2)
				give_as(1, 1, 1, message);
			ok(!shard_node_fenced(machines[1].node),
			   "nor the record of somebody else, or of a member");
			if (i < 2)
				continue;
			give_as(1, 1, 1, message);
			ok(shard_node_fenced(machines[1].node), "all others that were asked do");
		}
		is_int(own_status(1), SHARD_MEMBER_WRITTEN_OFF, "its record says so");
	}
	shard_arena_destroy(arena);
}

/* An era is entered when the node that speaks of it was asked; not one that leaves no room. */
static void
test_eras(void)
{
	ShardControl heartbeat = {.kind = SHARD_CONTROL_MEMBER_HEARTBEAT};

	three_nodes();
	heartbeat.era = 1;
	give_as(1, 3, 0, heartbeat);
	give_as(1, 0, 0, heartbeat);
	is_int(shard_node_era(machines[1].node), 0, "who calls begins no era");
	heartbeat.era = PG_INT32_MAX;
	give_as(1, 3, 3, heartbeat);
	is_int(shard_node_era(machines[1].node), 0, "nobody begins the last one");
	heartbeat.era = 1;
	give_as(1, 3, 3, heartbeat);
	is_int(shard_node_era(machines[1].node), 1, "who was asked does");
}

/* P65: what is decided is learned from the coordinator alone: not from who calls, nor from who was asked. */
static void
test_facts(void)
{
	ShardArena *arena = shard_arena_create();
	ShardHomeRecord home = {.epoch = 7, .n_nodes = 1, .nodes = {3}, .want = 1};
	ShardControl far = {.kind = SHARD_CONTROL_LEARN};
	const ShardMap *learned;
	ShardMapEntry entry;
	ShardControl learn;
	ShardControl homes;
	int64 n;

	three_nodes();
	learned = shard_node_learned(machines[1].node);
	n = shard_map_point(learned).n;
	home.phase = SHARD_HOME_STABLE;
	entry = shard_record_put_home(1, 5, &home, n, arena);
	entry.n = n + 1;
	learn = (ShardControl){
		.kind = SHARD_CONTROL_LEARN, .n = n, .commit_n = n + 1, .n_entries = 1, .entries = &entry};
	homes = (ShardControl){.kind = SHARD_CONTROL_SHARD_HOMES, .n_entries = 1, .entries = &entry};
	for (int via = 0; via <= 3; via += 3)
	{
		for (int32 from = via; from <= 3; from += 3)
			give_as(1, from, via, learn);
		is_int(shard_map_point(learned).n, n, "a map that somebody tells, via %d, is not learned",
			   via);
		give_as(1, 3, via, homes);
		ok(shard_map_value(learned, entry.key) == NULL, "nor is a home");
	}
	far.commit_n = INT64CONST(1) << 61;
	give_as(1, 3, 3, far);
	is_int(shard_map_point(learned).n, n, "nor a version that is far away");
	give_as(1, 1, 1, homes);
	ok(shard_map_value(learned, entry.key) != NULL, "a home that the coordinator tells is");
	give_as(1, 1, 1, learn);
	is_int(shard_map_point(learned).n, n + 1, "and so is its map");

	/* The database that keeps the map is believed what it answers, and nobody who calls in its name. */
	shard_arena_reset(arena);
	entry = shard_record_put_home(1, 6, &home, n, arena);
	learn.n = n + 1;
	entry.n = learn.commit_n = n + 2;
	machines[1].node->config.journal_node = 3;
	give_as(1, 3, 0, learn);
	is_int(shard_map_point(learned).n, n + 1, "who calls as the journal is not believed");
	give_as(1, 3, 3, learn);
	is_int(shard_map_point(learned).n, n + 2, "the journal's answer is");
	machines[1].node->config.journal_node = 0;
	shard_arena_destroy(arena);
}

/* Is one of the three coordinator, and has everybody learned the same? */
static void
goes_on(const char *what)
{
	int coordinators = 0;
	int64 n = shard_map_point(shard_node_learned(machines[0].node)).n;

	run(20 * SHARD_SECOND);
	for (int i = 0; i < 3; i++)
		coordinators += is_coordinator(i);
	is_int(coordinators, 1, "%s: there is a coordinator", what);
	n = shard_map_point(shard_node_learned(machines[0].node)).n;
	for (int i = 1; i < 3; i++)
		is_int(shard_map_point(shard_node_learned(machines[i].node)).n, n, "%s: node %d learns",
			   what, i + 1);
}

/* P40: nobody is sealed for a journal that there is not, or for an era that nobody could enter. */
static void
test_seals(void)
{
	ShardControl collect = {.kind = SHARD_CONTROL_COLLECT, .uuid = FORGED, .new_era = PG_INT32_MAX};
	ShardCommand force = {.kind = SHARD_COMMAND_FORCE_VOTERS, .n_nodes = 1, .asker.token = 5};
	int32 self;

	three_nodes();
	for (int at = 0; at < 3; at++)
	{
		int32 from = at == 1 ? 3 : 2;

		collect.new_era = 1;
		give_as(at, from, from, collect);
		collect.new_era = PG_INT32_MAX;
		give_as(at, from, from, collect);
		is_int(machines[at].node->journal.sealed, 0, "no journal: nobody is sealed for it");
		stop(at);
	}
	journal_node = 1000;
	for (int at = 0; at < 3; at++)
		start(at);
	run(SHARD_SECOND);
	collect.new_era = PG_INT32_MAX;
	give_as(1, 3, 3, collect);
	collect.new_era = 1024;
	give_as(1, 3, 3, collect);
	is_int(machines[1].node->journal.sealed, 0, "a journal: not for an era out of reach");
	collect.new_era = 1;
	give_as(1, 0, 0, collect);
	is_int(machines[1].node->journal.sealed, 0, "nor for somebody who is no node");
	give_as(1, 3, 3, collect);
	is_int(machines[1].node->journal.sealed, 1, "but for the next one");
	collect.uuid.low++;
	collect.new_era = PG_INT32_MAX;
	give_as(1, 3, 3, collect);
	is_int(machines[1].node->journal.sealed, 1, "nor is another start believed any era");
	for (int at = 0; at < 3; at++)
		stop(at);
	journal_node = 0;
	for (int at = 0; at < 3; at++)
		start(at);

	/* as an older version has stored it */
	for (int at = 0; at < 3; at++)
		machines[at].node->journal.sealed = PG_INT32_MAX;
	self = shard_node_id(machines[1].node);
	force.nodes = &self;
	order(1, &force);
	deliver();
	is_int(shard_node_era(machines[1].node), 1, "forced voters begin an era in reach");
	goes_on("sealed for the last era, and forced");
}

/* T8, I17: no member joins anybody, neither by calling nor when it is called; who calls as nobody is looked for. */
static void
test_joins(void)
{
	ShardMemberRecord record = {.dsn = "away", .app_version = ""};
	ShardControl join = {.kind = SHARD_CONTROL_JOIN, .uuid = {1, 2}, .uuid2 = {3, 4}};
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entry = shard_record_put_member(0, &record, 0, arena);
	int at = 0;

	three_nodes();
	while (!is_coordinator(at))
		at++;
	join.entries = &entry;
	join.n_entries = 1;
	joiners_asked = 0;
	give_as(at, (at + 1) % 3 + 1, 0, join);
	is_int(joiners_asked, 0, "a member that calls joins nobody");
	give_as(at, 0, (at + 1) % 3 + 1, join);
	is_int(joiners_asked, 0, "nor by its answer");
	give_as(at, 0, 0, join);
	is_int(joiners_asked, 1, "who calls as nobody is looked for");
	run(5 * SHARD_SECOND);
	is_int(count_members(at), 3, "and gets no number");
	shard_arena_destroy(arena);
}

/* T10: names and addresses that are no texts are passed over, and sentences made some. */
static void
test_texts(void)
{
	ShardMemberRecord record = {.dsn = "away \xff", .app_version = ""};
	ShardTypeRecord type = {.name = "type\xff", .number_of_shards = 4};
	ShardControl join = {.kind = SHARD_CONTROL_JOIN, .uuid = {1, 2}, .uuid2 = {3, 4}};
	ShardControl start = {.kind = SHARD_CONTROL_START_TYPE, .token = 1};
	ShardControl command = {.kind = SHARD_CONTROL_COMMAND, .token = 77, .text = "by \xff."};
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entries[2];
	int at = 0;
	int other;
	int count;

	three_nodes();
	while (!is_coordinator(at))
		at++;
	other = (at + 1) % 3;
	entries[0] = shard_record_put_member(0, &record, 0, arena);
	entries[1] = shard_record_put_type(0, &type, 0, arena);
	join.entries = &entries[0];
	start.entries = &entries[1];
	join.n_entries = start.n_entries = 1;
	joiners_asked = 0;
	give_as(at, 0, 0, join);
	is_int(joiners_asked, 0, "a joiner whose address is no text is not looked for");
	give_as(at, other + 1, 0, start);
	run(5 * SHARD_SECOND);
	(void) shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_TYPE, arena, &count);
	is_int(count, 0, "a type whose name is none is not taken");
	command.command = SHARD_COMMAND_EVACUATE;
	command.flag = true;
	command.node = other + 1;
	command.b = shard_proposer_ballot(shard_node_proposer(machines[at].node));
	give_as(at, other + 1, 0, command);
	deliver();
	command.uuid = machines[other].node->code;
	give_as(at, other + 1, 0, command);
	run(5 * SHARD_SECOND);
	ok(strstr(machines[at].decision_text, "by ?.") != NULL, "a sentence is made one: %s",
	   machines[at].decision_text);
	shard_arena_destroy(arena);
}

/* What the types of a map come to in shards. */
static int64
shards_of(int at)
{
	ShardArena *arena = shard_arena_create();
	int64 shards = 0;
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_TYPE, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (shard_record_get_type(&types[i], &type, arena))
			shards += type.number_of_shards;
	}
	shard_arena_destroy(arena);
	return shards;
}

/* A member, or who speaks for it, brings a type. */
static void
bring(int at, int32 from, const char *name, int32 shards, const char *state)
{
	ShardTypeRecord type = {.name = name, .number_of_shards = shards, .state = state};
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entry = shard_record_put_type(0, &type, 0, arena);

	give_as(at, from, 0,
			(ShardControl){.kind = SHARD_CONTROL_START_TYPE, .entries = &entry, .n_entries = 1});
	deliver();
	run(200 * SHARD_MS);
	shard_arena_destroy(arena);
}

/* C20, P55: types have a million shards at most, and those that one member has alone as many together. */
static void
test_room(void)
{
	ShardTypeRecord honest = {.name = "honest", .number_of_shards = SHARD_MAX_SHARDS};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &honest};
	char *state = palloc0(SHARD_ROOM_BYTES / 2);
	char name[20];
	int64 most = 0;
	int large = 0;
	int at = 0;
	int other;

	three_nodes();
	while (!is_coordinator(at))
		at++;
	other = (at + 1) % 3;
	bring(at, other + 1, "wide", 2000000000, "");
	ok(!has_type(at, "wide"), "a type of two thousand million shards is not taken");
	bring(at, other + 1, "wider", SHARD_MAX_SHARDS + 1, "");
	ok(!has_type(at, "wider"), "nor one of a million and one");
	memset(state, 'x', SHARD_ROOM_BYTES / 3);
	for (int i = 0; i < 4; i++)
	{
		snprintf(name, sizeof(name), "large%d", i);
		bring(at, other + 1, name, 1, state);
		large += has_type(at, name);
	}
	is_int(large, 1, "types that describe themselves in megabytes fill no map");
	for (int i = 0; i < 8; i++)
	{
		snprintf(name, sizeof(name), "many%d", i);
		bring(at, other + 1, name, 300000, "");
		most = Max(most, shards_of(at));
	}
	is_int((int) most, 900001, "a member gets a million shards alone");
	happen((at + 2) % 3, &event);
	run(SHARD_SECOND);
	ok(has_type(at, "honest"), "and leaves room to others");
	pfree(state);
}

/* How often a machine says what was decided, by what it was just told; nothing is done of it. */
static int
count_learns(void)
{
	ShardControl message;
	int count = 0;

	for (int i = 0; i < out->n_actions; i++)
	{
		const ShardAction *action = &out->actions[i];

		count += action->kind == SHARD_ACTION_SEND &&
				 shard_control_decode(action->bytes, action->length, out->arena, &message) &&
				 message.kind == SHARD_CONTROL_LEARN;
	}
	shard_action_reset(out);
	return count;
}

/* P66: a member that says again and again that it lacks something, each time something else, has the map sent a few times. */
static void
test_deltas(void)
{
	int64 decided;
	int learns = 0;
	int at = 0;
	int other;

	three_nodes();
	while (!is_coordinator(at))
		at++;
	other = (at + 1) % 3;
	run(SHARD_SECOND);
	decided = shard_map_point(shard_node_learned(machines[at].node)).n;
	ok(decided > 5, "there is something to say");
	for (int64 n = 1; n < decided; n++)
	{
		receive_as(at, other + 1, 0, (ShardControl){.kind = SHARD_CONTROL_GET_DELTA, .n = n});
		learns += count_learns();
	}
	is_int(learns, 4, "it is told a few times");
	run(SHARD_RESEND_INTERVAL);
	receive_as(at, other + 1, 0, (ShardControl){.kind = SHARD_CONTROL_GET_DELTA, .n = 1});
	is_int(count_learns(), 1, "and again when that may have been lost");
}

/* What waits at a machine, for another node or for its disk alone, of whichever kind. */
static int
count_held(int at, int32 to, size_t *bytes)
{
	int count = 0;

	*bytes = 0;
	for (const NodeHeld *held = machines[at].node->held.first; held; held = held->next)
	{
		if (held->is_done || held->to != to)
			continue;
		count++;
		*bytes += held->length;
	}
	return count;
}

/*
 * P68: what a member causes to be said while the disk takes its time is kept as far as a link would keep it: the newest, no
 * command is lost for it, nor what is for others or for the node itself.
 */
static void
test_held(void)
{
	ShardControl prepare = {.kind = SHARD_CONTROL_PREPARE};
	ShardControl command = {.kind = SHARD_CONTROL_COMMAND_ANSWER};
	ShardControl decoded;
	ShardArena *arena;
	size_t bytes;
	int answers = 0;
	int own;
	int64 b;

	three_nodes();
	b = ((promised(0) >> 16) + 2) << 16 | 2;
	prepare.b = ((promised(0) >> 16) + 1) << 16 | 3;
	receive_as(0, 3, 0, prepare);
	is_int(count_held(0, 3, &bytes), 1, "a promise waits for the disk");
	own = machines[0].node->held.count - 1;
	for (int i = 0; i < 3; i++)
	{
		shard_action_reset(out);
		machines[0].node->out = out;
		machines[0].node->first_action = 0;
		command.token = i;
		*shard_action_send(out, 2, command.kind) = command;
		shard_node_step_finish(machines[0].node);
	}
	prepare.b = b;
	for (int i = 0; i < 5 * SHARD_CONTROL_MAX_MESSAGES; i++)
		receive_as(0, 2, 0, prepare);
	is_int(count_held(0, 2, &bytes), SHARD_CONTROL_MAX_MESSAGES, "no more than a link would take");
	is_int(count_held(0, 3, &bytes), 1, "others' are there");
	is_int(machines[0].node->held.count, own + 1 + SHARD_CONTROL_MAX_MESSAGES, "and the own ones");
	arena = shard_arena_create();
	for (const NodeHeld *held = machines[0].node->held.first; held; held = held->next)
		answers += !held->is_done && held->to == 2 &&
				   shard_control_decode(held->bytes, held->length, arena, &decoded) &&
				   decoded.kind == SHARD_CONTROL_COMMAND_ANSWER && decoded.token == answers;
	shard_arena_destroy(arena);
	is_int(answers, 3, "answers to commands make no room");
	shard_node_persisted(machines[0].node, now, machines[0].node->last_ticket, out);
	act(0, NO_LINK);
	is_int(machines[0].node->held.count, 0, "all goes when it is durable");
}

/* P68: so it is with what is long. */
static void
test_held_bytes(void)
{
	StringInfoData text;
	size_t bytes;
	int count;

	three_nodes();
	initStringInfo(&text);
	while (text.len < 10 * 1024 * 1024)
		appendStringInfoString(&text, "why it is so ");
	receive_as(0, 3, 0,
			   (ShardControl){.kind = SHARD_CONTROL_PREPARE,
							  .b = ((promised(0) >> 16) + 1) << 16 | 3});
	for (int i = 0; i < 20; i++)
	{
		shard_action_reset(out);
		machines[0].node->out = out;
		machines[0].node->first_action = 0;
		shard_action_send(out, 2, SHARD_CONTROL_NACK)->text = text.data;
		shard_node_step_finish(machines[0].node);
	}
	count = count_held(0, 2, &bytes);
	ok(count == 3 && bytes <= 32 * 1024 * 1024, "long messages make room for one another");
	is_int(count_held(0, 3, &bytes), 1, "not others' for them");
	shard_node_persisted(machines[0].node, now, machines[0].node->last_ticket, out);
	act(0, NO_LINK);
	pfree(text.data);
}

/* A node has a type, as it is there now. */
static void
has(int at, const char *name, int32 shards, const char *state)
{
	ShardTypeRecord type = {.name = name,
							.number_of_shards = shards,
							.settings_hash = 1,
							.state = state};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};

	happen(at, &event);
	deliver();
	run(2 * SHARD_SECOND);
}

/* C20: types that grow beyond the room, and what others have, too. */
static void
test_room_for_grown(void)
{
	char *large = palloc0(SHARD_ROOM_BYTES / 3 + 1);
	char *state = palloc0(SHARD_ROOM_BYTES / 4 + 1);
	ShardTypeRecord more = {.name = "more", .number_of_shards = 200000, .settings_hash = 1};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &more};
	bool refused = false;
	int at = 0;
	int one;
	int other;

	memset(large, 'x', SHARD_ROOM_BYTES / 3);
	memset(state, 'y', SHARD_ROOM_BYTES / 4);
	three_nodes();
	while (!is_coordinator(at))
		at++;
	one = (at + 1) % 3;
	other = (at + 2) % 3;
	has(one, "large", 1, large);
	has(one, "shared", 900000, "");
	has(other, "shared", 900000, "");
	has(one, "grown", 1, "");
	has(one, "grown", 1, state);
	ok(shard_node_asks_for_type(machines[one].node, "grown") &&
		   shard_node_type_lacks(machines[one].node, "grown") == SHARD_TYPE_LACKS_ROOM,
	   "a type that grows beyond the room hears so, and asks again");
	has(one, "next", 1, "");
	ok(has_type(at, "next"), "and keeps none behind it waiting");
	has(other, "grown", 1, "");
	run(10 * SHARD_SECOND);
	ok(!shard_node_type_lacks(machines[one].node, "grown") &&
		   !shard_node_asks_for_type(machines[one].node, "grown"),
	   "what others have, too, is not counted as one's alone when it grows");

	stop(at);
	happen(one, &event);
	for (int64 i = 0; i < 40 * SHARD_SECOND && !has_type(one, "more"); i += STEP)
	{
		run(STEP);
		refused |= shard_node_type_lacks(machines[one].node, "more") != SHARD_TYPE_NOT_TAKEN;
	}
	ok(has_type(one, "more"), "a new coordinator takes types");
	ok(!refused, "and takes nothing for one's alone before all have spoken up");
	pfree(state);
	pfree(large);
}

/* C20: who is heard and never registers keeps nobody waiting. */
static void
test_room_without_registration(void)
{
	char *large = palloc0(SHARD_ROOM_BYTES / 3 + 1);
	int at = 0;
	int one;
	int other;

	memset(large, 'x', SHARD_ROOM_BYTES / 3);
	three_nodes();
	while (!is_coordinator(at))
		at++;
	one = (at + 1) % 3;
	other = (at + 2) % 3;
	stop(other);
	machines[other].unheard = true;
	start(other);
	run(10 * SHARD_SECOND);
	has(one, "large", 1, large);
	has(one, "larger", 1, large);
	run(20 * SHARD_SECOND);
	ok(has_type(at, "large") && !has_type(at, "larger"), "there is room for one type");
	is_int(shard_node_type_lacks(machines[one].node, "larger"), SHARD_TYPE_LACKS_ROOM,
		   "who wants another one hears so, also if a member does not register");
	pfree(large);
}

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
								   .n = most,
								   .flag = true});
		deliver();
	}
	give_as(at, from, 0,
			(ShardControl){.kind = SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ,
						   .n = most,
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

/* P60: who was called answers for himself, not for the coordinator nor for who asks; nor does a seed answer for anybody. */
static void
test_answers_for_others(void)
{
	static const int32 vias[] = {3, 2, SHARD_VIA_SEED, 0};
	static const int32 names[] = {1, 2};
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord member = {.inc_no = 1, .status = SHARD_MEMBER_WRITTEN_OFF, .dsn = "m1"};

	for (int v = 0; v < (int) lengthof(vias); v++)
		for (int name = 0; name < (int) lengthof(names); name++)
		{
			ShardMapEntry entry = shard_record_put_member(2, &member, 0, arena);
			ShardShardRef shard = {1, 5, 0, 77};
			ShardControl learn = {.kind = SHARD_CONTROL_LEARN, .n_entries = 1, .entries = &entry};
			int64 n;

			/* who calls as the coordinator is believed, unless his role says who he is (T8) */
			if (vias[v] == 0 && names[name] == 1)
				continue;
			three_nodes();
			n = shard_map_point(shard_node_learned(machines[1].node)).n;
			learn.n = n;
			learn.commit_n = entry.n = n + 1;
			give_as(1, names[name], vias[v], learn);
			ok(!shard_node_fenced(machines[1].node), "the end of node 2, via %d as node %d",
			   vias[v], names[name]);
			is_int(shard_map_point(shard_node_learned(machines[1].node)).n, n, "is not learned");
			learn.kind = SHARD_CONTROL_SHARD_HOMES;
			give_as(1, names[name], vias[v], learn);
			ok(!shard_node_fenced(machines[1].node), "nor as a home");
			is_int(own_status(1), SHARD_MEMBER_UP, "it is a member as before");
			give_as(1, names[name], vias[v],
					(ShardControl){.kind = SHARD_CONTROL_HAND_OFF,
								   .n_shards = 1,
								   .shards = &shard});
			for (int i = 0; i < out->n_actions; i++)
				ok(out->actions[i].kind == SHARD_ACTION_LOG, "nor is an order carried out");
			goes_on("answers for others");
		}
	three_nodes();
	give_as(1, 1, 1, (ShardControl){.kind = SHARD_CONTROL_FENCED, .inc_no = 1000, .uuid = FORGED});
	ok(shard_node_fenced(machines[1].node), "the coordinator, called at its address, ends it");
	shard_arena_destroy(arena);
}

int
main(void)
{
	begin_world();
	test_room();
	test_room_for_grown();
	test_room_without_registration();
	test_ballots();
	test_reminders();
	test_registrations();
	test_long_lists();
	test_overtaken_registration();
	test_deltas();
	test_held();
	test_held_bytes();
	test_joins();
	test_texts();
	test_holders();
	test_collect();
	test_force_cures();
	test_fenced();
	test_fenced_after_pause();
	test_over_elsewhere();
	test_over_by_anybody();
	test_eras();
	test_facts();
	test_answers_for_others();
	test_seals();
	test_wishes();
	test_commands_and_codes();
	test_lost_commands();
	end_world();
	return unit_done();
}
