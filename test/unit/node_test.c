/*
 * node_test.c
 *		Unit tests of whole nodes: what they must not do with messages that come at the wrong time.
 */
#include "postgres_fe.h"

#include "core/home/homes_private.h"
#include "core/node/node_private.h"
#include "node_world.h"

/* Encode a message as node "from" of a machine's cluster would send it, and hand it over: its own by its loop. */
static void
give(int at, ShardControl *message)
{
	StringInfoData buffer;
	ShardReader reader;
	const ShardMapEntry *row =
		shard_map_find(machines[at].rows[SHARD_STORE_NODE], (ShardMapKey){0, 0, 0});

	reader = (ShardReader){row->value, row->value + row->length, false};
	if (message->cluster.high == 0)
	{
		message->cluster.high = shard_wire_get_uint(&reader);
		message->cluster.low = shard_wire_get_uint(&reader);
	}
	message->protocol_version = SHARD_PROTOCOL_VERSION;
	initStringInfo(&buffer);
	shard_control_encode(&buffer, message);
	if (message->from == shard_node_id(machines[at].node))
	{
		shard_node_step_queue(&machines[at].node->loop, 0, message->from, buffer.data, buffer.len);
		shard_node_persisted(machines[at].node, now, 0, out);
	}
	else
		shard_node_receive(machines[at].node, now, message->from, buffer.data, buffer.len, out);
	pfree(buffer.data);
}

/* After a restart a node does not promise itself a ballot that it has used (R18). */
static void
test_ballot_once(void)
{
	ShardControl prepare = {.kind = SHARD_CONTROL_PREPARE, .from = 1};
	ShardNodeEvent itself = {.kind = SHARD_EVENT_WHO_ANSWERED, .node = 1};
	int64 used;
	int persists;

	start(0);
	run(2 * SHARD_SECOND);
	ok(is_coordinator(0), "a node alone is coordinator");
	used = shard_voter_promised(shard_node_voter(machines[0].node));
	stop(0);
	start(0);
	is_int(shard_voter_promised(shard_node_voter(machines[0].node)), used, "promises are kept");
	itself.uuid = machines[0].incarnation;
	happen(0, &itself);
	prepare.b = used;
	persists = machines[0].persists;
	give(0, &prepare);
	act(0, NO_LINK);
	is_int(machines[0].persists, persists, "the used ballot is not promised to itself again");
	prepare.b = used + (INT64CONST(1) << 16);
	give(0, &prepare);
	act(0, NO_LINK);
	is_int(machines[0].persists, persists + 1, "but the next one");
	run(5 * SHARD_SECOND);
	ok(is_coordinator(0), "and takes office again");
}

/* What a seed of another cluster hints to a joiner says nothing of the joiner's own era. */
static void
test_foreign_hint(void)
{
	ShardControl hint = {.kind = SHARD_CONTROL_COORDINATOR_HINT, .era = 3, .node = 7};
	ShardCommand event = {.kind = SHARD_COMMAND_JOIN, .text = "nowhere", .asker.token = 2};

	event.uuid = new_uuid();
	order(0, &event);
	hint.cluster = new_uuid();
	hint.text = "elsewhere";
	hint.uuid2 = event.uuid;
	give(0, &hint);
	is_int(shard_node_era(machines[0].node), 0, "the era of another cluster is not taken");
	ok(shard_map_count(shard_node_learned(machines[0].node)) > 1, "nor is the own map forgotten");
	act(0, NO_LINK);
}

/* A message of a newer era ends an office; what else it says finds no coordinator any more. */
static void
test_era_ends_office(void)
{
	ShardControl message = {.kind = SHARD_CONTROL_REGISTER, .from = 1, .from_inc = 1, .gate = 1};

	start(1);
	run(2 * SHARD_SECOND);
	ok(is_coordinator(1), "a coordinator");
	message.era = 1;
	give(1, &message);
	ok(!is_coordinator(1), "has no office in a newer era");
	is_int(shard_node_era(machines[1].node), 1, "which it enters");
	act(1, NO_LINK);
}

/*
 * Voters are named by the operator: each once, and members all; and only where no coordinator is heard, which would have a
 * majority.
 */
static void
test_forced_voters(void)
{
	static const int32 twice[] = {2, 2, 2};
	static const int32 strangers[] = {2, 8, 9};
	static const int32 first[] = {1};
	static const int32 second[] = {2};
	ShardCommand event = {.kind = SHARD_COMMAND_FORCE_VOTERS, .n_nodes = 1, .asker.token = 3};

	end_world();
	memset(machines, 0, sizeof(machines));
	begin_world();
	start(0);
	start(1);
	run(2 * SHARD_SECOND);
	join(1, 0);
	run(5 * SHARD_SECOND);
	event.nodes = first;
	order(0, &event);
	ok(machines[0].command == 3 && !machines[0].command_good, "not at the coordinator");
	event.nodes = second;
	order(1, &event);
	ok(machines[1].command == 3 && !machines[1].command_good, "nor where it is heard");
	ok(strstr(machines[1].command_text, "coordinator") != NULL, "which is said");
	run(2 * SHARD_SECOND);
	is_int(shard_node_era(machines[0].node), 0, "the era stays");
	ok(is_coordinator(0), "and the coordinator");

	stop(0);
	run(SHARD_ELECTION_TIMEOUT + STEP);
	event.n_nodes = 3;
	event.nodes = twice;
	event.asker.token = 4;
	order(1, &event);
	ok(machines[1].command == 4 && !machines[1].command_good, "nobody votes twice");
	event.nodes = strangers;
	event.asker.token = 5;
	order(1, &event);
	ok(machines[1].command == 5 && !machines[1].command_good, "nor do strangers");
	is_int(shard_node_era(machines[1].node), 0, "the era stays");
	event.nodes = second;
	event.n_nodes = 1;
	event.asker.token = 6;
	order(1, &event);
	ok(machines[1].command == 6 && machines[1].command_good,
	   "a member may, as soon as the coordinator is taken for silent");
	run(3 * SHARD_SECOND);
	ok(is_coordinator(1), "and is coordinator");
	is_int(shard_node_era(machines[1].node), 1, "in a new era");
}

/* A node that was sealed for a journal follows no coordinator, though it hears one: it may force voters. */
static void
test_sealed_forces(void)
{
	static const int32 second[] = {2};
	ShardCommand event = {.kind = SHARD_COMMAND_FORCE_VOTERS,
						  .n_nodes = 1,
						  .nodes = second,
						  .asker.token = 3};

	three_nodes();
	machines[1].node->journal.sealed = 1;
	order(1, &event);
	ok(machines[1].command == 3 && machines[1].command_good, "who is sealed may force voters");
}

/*
 * The only voter of two was given up, though it lived: it starts in its own era, where it admits itself,
 * and then meets the new one, which knows its former incarnation. It is admitted there, too (R13).
 */
static void
test_voter_given_up(void)
{
	static const int32 second[] = {2};
	ShardCommand event = {.kind = SHARD_COMMAND_FORCE_VOTERS,
						  .n_nodes = 1,
						  .nodes = second,
						  .asker.token = 31};
	ShardArena *arena = shard_arena_create();
	const ShardMapEntry *entry;
	ShardMemberRecord record;

	end_world();
	begin_world();
	start(0);
	start(1);
	run(2 * SHARD_SECOND);
	join(1, 0);
	run(5 * SHARD_SECOND);
	is_int(shard_node_id(machines[1].node), 2, "two are a cluster");
	stop(0);
	run(5 * SHARD_SECOND);
	order(1, &event);
	machines[0].cut = true;
	start(0);
	happen(0, &(ShardNodeEvent){.kind = SHARD_EVENT_WHO_ANSWERED,
								.node = 1,
								.uuid = machines[0].incarnation});
	run(5 * SHARD_SECOND);
	is_int(shard_node_incarnation(machines[0].node), 2, "the lost one admits itself");
	is_int(shard_node_era(machines[0].node), 0, "in its own era");
	machines[0].cut = false;
	run(20 * SHARD_SECOND);
	is_int(shard_node_era(machines[0].node), 1, "it enters the new era");
	ok(shard_node_admitted(machines[0].node) && !shard_node_fenced(machines[0].node),
	   "and is admitted there");
	entry = shard_map_value(shard_node_learned(machines[1].node),
							(ShardMapKey){SHARD_MAP_MEMBER, 1, 0});
	ok(entry && shard_record_get_member(entry, &record, arena) &&
		   shard_record_uuid_equal(record.inc_uuid, machines[0].incarnation) &&
		   record.inc_no == shard_node_incarnation(machines[0].node),
	   "as what it is");
	shard_arena_destroy(arena);
}

/* A node that joins brings its types by name; the ids that its own cluster gave them are gone. */
static void
test_types_of_joiner(void)
{
	ShardShardRef refs[4];
	ShardNodeEvent wanted = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 4, .shards = refs};

	end_world();
	begin_world();
	start(0);
	start(1);
	run(2 * SHARD_SECOND);
	add_type(0, "alpha", 4);
	run(SHARD_SECOND);
	add_type(0, "beta", 4);
	add_type(1, "beta", 4);
	run(SHARD_SECOND);
	join(1, 0);
	run(10 * SHARD_SECOND);
	is_int(shard_node_id(machines[1].node), 2, "a node joined");
	for (int i = 0; i < 4; i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = i};
	happen(0, &wanted);
	run(3 * SHARD_SECOND);
	is_int(count_homes(0, 1), 4, "a type that it does not host stays where it is");
	for (int i = 0; i < 4; i++)
		refs[i].type_id = 2;
	happen(0, &wanted);
	run(3 * SHARD_SECOND);
	is_int(count_homes(0, 2), 2, "it gets homes of its own type");
}

/*
 * States without homes: the node that is alone takes their homes before it lets anybody in (C21), whatever the minimum of
 * members; who joins waits while nobody can read them, and when the first one dies over it.
 */
static void
test_states_before_members(void)
{
	Machine *first = &machines[0];

	end_world();
	begin_world();
	min_members = 2;
	start(0);
	start(1);
	run(2 * SHARD_SECOND);
	add_type(0, "alpha", 8);
	run(SHARD_SECOND);
	first->states_type = 1;
	first->n_states = 4;
	first->states[0] = 1;
	first->states[1] = 3;
	first->states[2] = 4;
	first->states[3] = 8; /* none that the type has */
	first->states_locked = true;
	join(1, 0);
	run(10 * SHARD_SECOND);
	ok(shard_node_joining(machines[1].node), "while they cannot be read it joins still");
	ok(strcmp(shard_node_join_why(machines[1].node), "locked") == 0, "and knows why: %s",
	   shard_node_join_why(machines[1].node));
	is_int(count_members(0), 1, "nobody was let in");
	is_int(count_homes(0, 1), 0, "no homes were taken");
	first->states_locked = false;
	stop(0);
	start(0);
	run(10 * SHARD_SECOND);
	is_int(shard_node_id(machines[1].node), 2, "then it joins");
	is_int(count_homes(0, 1), 3, "each shard that has states has a home");
	is_int(count_homes(0, 2), 0, "where they are");
	min_members = 0;
}

/* States of no type: whoever joins is refused, until an operator has brought the type back (C21). */
static void
test_states_of_no_type(void)
{
	Machine *first = &machines[0];

	end_world();
	begin_world();
	memset(machines, 0, sizeof(machines));
	start(0);
	start(1);
	run(2 * SHARD_SECOND);
	add_type(0, "alpha", 8);
	run(SHARD_SECOND);
	first->states_type = 1;
	first->n_states = 1;
	first->states[0] = 3;
	first->states_locked = first->states_refuse = true;
	machines[1].command = 0;
	join(1, 0);
	run(5 * SHARD_SECOND);
	ok(!shard_node_joining(machines[1].node), "it does not join any more");
	ok(machines[1].command != 0 && !machines[1].command_good, "it was refused");
	ok(strcmp(machines[1].command_text, "locked") == 0, "and was told why: %s",
	   machines[1].command_text);
	is_int(count_members(0), 1, "nobody was let in");
	first->states_locked = first->states_refuse = false;
	join(1, 0);
	run(10 * SHARD_SECOND);
	is_int(shard_node_id(machines[1].node), 2, "it joins as soon as that is done");
	is_int(count_homes(0, 1), 1, "and states have their home where they are");
}

/* The first node with states of these shards; another one is to join. */
static Machine *
begin_states(int32 shard)
{
	Machine *first = &machines[0];

	end_world();
	memset(machines, 0, sizeof(machines));
	begin_world();
	start(0);
	start(1);
	run(2 * SHARD_SECOND);
	add_type(0, "alpha", 8);
	run(SHARD_SECOND);
	first->states_type = 1;
	first->n_states = 4;
	for (int i = 0; i < 4; i++)
		first->states[i] = shard + i;
	return first;
}

/* Who locks his table now and then, or whose table takes long to be read, keeps nobody out: the pass goes on where it was (C21). */
static void
test_states_one_by_one(void)
{
	Machine *first = begin_states(1);

	first->states_busy = 2;
	join(1, 0);
	run(15 * SHARD_SECOND);
	is_int(shard_node_id(machines[1].node), 2, "a table is locked now and then: it joins");
	is_int(count_homes(0, 1), 4, "each shard that has states has a home");

	first = begin_states(1);
	first->states_take = 4 * SHARD_SECOND;
	join(1, 0);
	for (int i = 0; i < 8; i++)
	{
		run(2 * SHARD_SECOND);
		machines[1].cut = true;
		run(7 * SHARD_SECOND / 2);
		machines[1].cut = false;
	}
	is_int(count_homes(0, 1), 4, "answers count that come when nobody was heard for long");
}

/* What comes to shards that were looked at is found by the next pass, which begins when this one has become old. */
static void
test_states_behind_a_pass(void)
{
	Machine *first = begin_states(3);

	first->states_take = SHARD_SECOND;
	join(1, 0);
	run(5 * SHARD_SECOND / 2);
	ok(count_homes(0, 1) > 0 && count_homes(0, 1) < 4, "some have homes");
	first->states_locked = true;
	for (int i = 0; i < 4; i++)
		first->states[i] = 1 + i;
	run(35 * SHARD_SECOND);
	is_int(shard_node_id(machines[1].node), 1, "a table is locked: it waits");
	first->states_locked = false;
	first->n_states = 2;
	run(20 * SHARD_SECOND);
	is_int(shard_node_id(machines[1].node), 2, "then it joins");
	ok(shard_map_value(shard_node_learned(first->node), (ShardMapKey){SHARD_MAP_HOME, 1, 1}) !=
		   NULL,
	   "a shard that was behind the pass has a home");
}

/* A full copy of the map without the node: its membership is undone, by a new era. */
static void
test_not_in_copy(void)
{
	ShardControl learn = {.kind = SHARD_CONTROL_LEARN, .from = 1, .from_inc = 1};
	const ShardMap *learned = shard_node_learned(machines[0].node);
	int count;
	int n = 0;
	ShardMapEntry *entries = shard_map_since(learned, 0, out->arena, &count);
	ShardMapEntry *copy = palloc(sizeof(ShardMapEntry) * count);

	for (int i = 0; i < count; i++)
	{
		if (entries[i].key.kind != SHARD_MAP_MEMBER || entries[i].key.a != 2)
		{
			copy[n] = entries[i];
			copy[n++].value =
				memcpy(palloc(entries[i].length + 1), entries[i].value, entries[i].length);
		}
	}
	learn.entries = copy;
	learn.n_entries = n;
	learn.commit_n = shard_map_point(learned).n + 1;
	ok(!shard_node_fenced(machines[1].node), "a member");
	give(1, &learn);
	ok(shard_node_fenced(machines[1].node), "that the map does not know is fenced");
	act(1, NO_LINK);
	for (int i = 0; i < n; i++)
		pfree(unconstify(char *, copy[i].value));
	pfree(copy);
}

/* Ballots near the end of all numbers are not promised. */
static void
test_impossible_ballot(void)
{
	ShardControl prepare = {.kind = SHARD_CONTROL_PREPARE, .from = 2, .from_inc = 1};

	prepare.b = PG_INT64_MAX - 1;
	give(0, &prepare);
	act(0, NO_LINK);
	ok(shard_voter_promised(shard_node_voter(machines[0].node)) < prepare.b, "not promised");
}

/* One that is not up yet, since others cannot be reached, takes office when it is made the only voter. */
static void
test_forced_newcomer(void)
{
	const int32 self[] = {3};
	ShardCommand force = {.kind = SHARD_COMMAND_FORCE_VOTERS,
						  .n_nodes = 1,
						  .nodes = self,
						  .asker.token = 31};
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord member;

	end_world();
	memset(machines, 0, sizeof(machines));
	begin_world();
	for (int i = 0; i < 3; i++)
		start(i);
	run(2 * SHARD_SECOND);
	join(1, 0);
	run(10 * SHARD_SECOND);
	stop(1);
	run(10 * SHARD_SECOND);
	join(2, 0);
	run(5 * SHARD_SECOND);
	ok(shard_record_get_member(shard_map_value(shard_node_learned(machines[2].node),
											   (ShardMapKey){SHARD_MAP_MEMBER, 3, 0}),
							   &member, arena) &&
		   member.status == SHARD_MEMBER_JOINING,
	   "a third one is joining");
	stop(0);
	run(5 * SHARD_SECOND);
	order(2, &force);
	ok(machines[2].command == 31 && machines[2].command_good, "it is made the only voter");
	run(5 * SHARD_SECOND);
	ok(is_coordinator(2), "and is the coordinator");
	shard_arena_destroy(arena);
}

/* A copy of a voter that lives promises nothing: another database is at its address (I3). */
static void
test_clone_does_not_vote(void)
{
	ShardControl prepare = {.kind = SHARD_CONTROL_PREPARE, .from = 1};
	int persists;

	end_world();
	begin_world();
	memset(machines, 0, sizeof(machines));
	for (int i = 0; i < 3; i++)
	{
		start(i);
		run(2 * SHARD_SECOND);
		if (i > 0)
			join(i, 0);
	}
	run(20 * SHARD_SECOND);
	is_int(shard_node_id(machines[2].node), 3, "three are a cluster");
	for (int s = SHARD_STORE_NODE; s < STORES; s++)
	{
		int count;
		ShardMapEntry *entries = shard_map_since(machines[2].rows[s], -2, out->arena, &count);

		machines[3].rows[s] = shard_map_create();
		for (int i = 0; i < count; i++)
			shard_map_put(machines[3].rows[s], &entries[i]);
	}
	prepare.b = shard_voter_promised(shard_node_voter(machines[2].node)) + (INT64CONST(1) << 16);
	start(3);
	run(5 * SHARD_SECOND);
	ok(shard_voter_promised(shard_node_voter(machines[3].node)) < prepare.b,
	   "a copy of the third one");
	for (int i = 0; i < 3; i++)
		ok(shard_node_is_claimed(machines[i].node, 3, now) &&
			   !shard_node_is_claimed(machines[i].node, 2, now),
		   "which machine %d knows to want that one's place", i);
	persists = machines[3].persists;
	give(3, &prepare);
	act(3, NO_LINK);
	is_int(machines[3].persists, persists, "promises nothing");
	give(2, &prepare);
	act(2, NO_LINK);
	ok(shard_voter_promised(shard_node_voter(machines[2].node)) >= prepare.b,
	   "which the third one does");
	stop(3);
	run(20 * SHARD_SECOND);
	for (int i = 0; i < 3; i++)
		ok(shard_node_coordinator(machines[i].node, now) != 0 &&
			   !shard_node_is_claimed(machines[i].node, 3, now),
		   "machine %d knows that it has gone", i);
}

/* P61: a node that goes down says so by registering as such, at once; what older versions said, as anybody can, means nothing. */
static void
test_stopping_registers(void)
{
	ShardNodeEvent stopping = {.kind = SHARD_EVENT_STOPPING, .number = now + 10 * SHARD_SECOND};
	ShardControl stopped = {.kind = SHARD_CONTROL_STAGED, .from = 2};
	StringInfoData buffer;

	three_nodes();
	run(SHARD_SECOND);
	stopped.cluster = shard_node_cluster(machines[0].node);
	stopped.from_inc = shard_node_incarnation(machines[1].node);
	stopped.protocol_version = SHARD_PROTOCOL_VERSION;
	initStringInfo(&buffer);
	shard_control_encode(&buffer, &stopped);
	buffer.data[0] = 78;
	shard_node_receive(machines[0].node, now, 0, buffer.data, buffer.len, out);
	act(0, NO_LINK);
	pfree(buffer.data);
	ok(!shard_homes_region(machines[0].node->homes, 2)->stopped, "it can be given shards");
	happen(1, &stopping);
	deliver();
	ok(shard_homes_region(machines[0].node->homes, 2)->stopped, "it is given none any more");
}

int
main(void)
{
	begin_world();
	test_ballot_once();
	test_foreign_hint();
	test_era_ends_office();
	test_forced_voters();
	test_sealed_forces();
	test_voter_given_up();
	test_states_before_members();
	test_states_of_no_type();
	test_states_one_by_one();
	test_states_behind_a_pass();
	test_types_of_joiner();
	test_impossible_ballot();
	test_not_in_copy();
	test_forced_newcomer();
	test_clone_does_not_vote();
	test_stopping_registers();
	end_world();
	return unit_done();
}
