/*
 * trust_test.c
 *		Whom a node believes what (T7): ballots, eras, ends of incarnations, decided facts.
 */
#include "postgres_fe.h"

#include "trust_world.h"

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
			ShardControl message = {.kind = kinds[i], .b = FAR_BALLOT, .any_n = 1000};

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
									   .remembered = {promised(at), 1000000}});
			}
	for (int at = 0; at < 3; at++)
		amnesiacs += shard_voter_state(shard_node_voter(machines[at].node)) == SHARD_VOTER_AMNESIAC;
	is_int(amnesiacs, 0, "nobody is told that he has forgotten");
	run(10 * SHARD_SECOND);
	for (int i = 0; i < 3; i++)
		coordinators += is_coordinator(i);
	is_int(coordinators, 1, "there is a coordinator");
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
	learn = (ShardControl){.kind = SHARD_CONTROL_LEARN,
						   .above = n,
						   .commit_n = n + 1,
						   .n_entries = 1,
						   .entries = &entry};
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
	learn.above = n + 1;
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
			learn.above = n;
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
	test_ballots();
	test_reminders();
	test_joins();
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
	end_world();
	return unit_done();
}
