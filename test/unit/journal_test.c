/*
 * journal_test.c
 *		Unit tests of a journal that forgot (R14), by whole nodes: while the vote goes over to it, and while two collect.
 */
#include "postgres_fe.h"

#include "core/node/node_private.h"
#include "core/member/roster_private.h"

#include "node_world.h"

#define JOURNAL 3 /* the machine */
#define JOURNAL_NODE 1000

/* Who votes, by a map. */
static ShardVotersRecord
voters_in(const ShardMap *map)
{
	ShardVotersRecord voters = {0};
	const ShardMapEntry *entry = shard_map_value(map, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});

	if (entry)
		(void) shard_record_get_voters(entry, &voters);
	return voters;
}

/* Is the journal to vote, beside the first node, by a map? */
static bool
comes(const ShardMap *map)
{
	return voters_in(map).n_next == 1 && voters_in(map).next[0] == JOURNAL_NODE;
}

static bool
votes(int at)
{
	ShardVotersRecord voters = voters_in(shard_node_learned(machines[at].node));

	return voters.n_current == 1 && voters.n_next == 0 && voters.current[0] == JOURNAL_NODE;
}

/* Clusters of one node, and a journal that nobody has used. */
static void
begin_nodes(int n_nodes)
{
	end_world();
	memset(machines, 0, sizeof(machines));
	begin_world();
	journal_node = JOURNAL_NODE;
	journal_at = JOURNAL;
	for (int i = 0; i < n_nodes; i++)
		start(i);
	start(JOURNAL);
	run(2 * SHARD_SECOND);
}

/* Two are a cluster, whose first node has accepted that the journal is to vote; that hears of it, and does not get to answer. */
static void
begin_change(void)
{
	const ShardMap *accepted;

	begin_nodes(2);
	join(1, 0);
	accepted = shard_voter_map(shard_node_voter(machines[0].node));
	for (int i = 0; i < 1000 && !comes(accepted); i++)
	{
		machines[JOURNAL].slow = machines[0].node->roster->journal_heard;
		run(STEP);
	}
	machines[JOURNAL].slow = false;
	ok(comes(accepted) && !comes(shard_node_learned(machines[0].node)),
	   "the vote is about to go over to the journal");
}

/* The journal comes up from a copy: it may have forgotten anything. */
static void
put_back(void)
{
	stop(JOURNAL);
	start_as(JOURNAL, SHARD_START_COPY);
}

/* All is well again: somebody decides, by the journal, and everybody hears of it. */
static void
is_well(const char *when)
{
	int coordinators = 0;
	NodeType *type;

	for (int i = 0; i < JOURNAL; i++)
		coordinators += machines[i].node && is_coordinator(i);
	is_int(coordinators, 1, "%s: there is a coordinator", when);
	add_type(0, when, 4);
	run(2 * SHARD_SECOND);
	type = shard_node_find_type(machines[0].node, when);
	ok(type && type->type_id > 0, "%s: it decides", when);
	ok(votes(0) && votes(1), "%s: the journal is the voter", when);
}

/* It forgets when the first half of the change of voters is decided. */
static void
test_forgets_half_way(void)
{
	begin_nodes(2);
	join(1, 0);
	for (int i = 0; i < 1000 && !comes(shard_node_learned(machines[0].node)); i++)
		run(STEP);
	ok(comes(shard_node_learned(machines[0].node)), "the vote is going over to the journal");
	put_back();
	run(20 * SHARD_SECOND);
	is_well("half-way");
}

/*
 * The same, and the only one that has heard of the era to which that led dies. The other one, which is sealed and does not vote, asks
 * the journal, and so hears that the era began, and then what is known there.
 */
static void
test_left_behind(void)
{
	begin_nodes(2);
	machines[JOURNAL].cut = true;
	join(1, 0);
	run(10 * SHARD_SECOND);
	ok(shard_node_admitted(machines[1].node), "two are up while the journal is away");
	machines[JOURNAL].cut = false;
	for (int i = 0; i < 1000 && !comes(shard_node_learned(machines[0].node)); i++)
		run(STEP);
	put_back();
	for (int i = 0; i < 1000 && machines[1].node->journal.sealed == 0; i++)
		run(STEP);
	machines[1].cut = true;
	run(5 * SHARD_SECOND);
	is_int(shard_node_era(machines[JOURNAL].node), 1, "the journal begins an era");
	is_int(shard_node_era(machines[1].node), 0, "of which one member has not heard");
	stop(0);
	machines[1].cut = false;
	run(20 * SHARD_SECOND);
	ok(is_coordinator(1) && votes(1), "it asks the journal");
}

/* It forgets when that is accepted, and not decided: the coordinator keeps its office, and could decide nothing any more. */
static void
test_forgets_on_the_way(void)
{
	begin_change();
	put_back();
	run(20 * SHARD_SECOND);
	is_well("on the way");
}

/* The same, and the node that votes dies when it is sealed. */
static void
test_sealed_on_the_way(void)
{
	begin_change();
	machines[1].cut = true;
	put_back();
	for (int i = 0; i < 1000 && machines[0].node->journal.sealed == 0; i++)
		run(STEP);
	ok(machines[0].node->journal.sealed > 0, "the first node is sealed");
	stop(0);
	start(0);
	machines[1].cut = false;
	run(20 * SHARD_SECOND);
	is_well("sealed");
}

/* Three members, of which the third is away; and the journal has forgotten, in an era that may be another one already. */
static void
begin_collecting(int32 era)
{
	begin_nodes(3);
	join(1, 0);
	join(2, 0);
	run(20 * SHARD_SECOND);
	ok(votes(0) && votes(1) && votes(2), "the journal is the voter of three nodes");
	machines[2].cut = true;
	put_back();
	machines[JOURNAL].node->era = era;
	run(10 * SHARD_SECOND);
	ok(machines[0].node->journal.map && machines[1].node->journal.map, "two nodes collect");
}

/*
 * A member was sealed for a later era, maybe for a start of the journal that is over: nobody outbids that before the journal has said
 * which one counts, else those who collect for two starts would outbid each other until no era is in reach.
 */
static void
test_outbid(void)
{
	int32 era;

	begin_collecting(0);
	era = machines[0].node->journal.era;
	machines[JOURNAL].cut = true;
	machines[2].node->journal.sealed = 50;
	machines[2].node->journal.sealed_for = new_uuid();
	machines[2].cut = false;
	run(10 * SHARD_SECOND);
	is_int(machines[0].node->journal.era, era, "the era to come waits for the journal");
	machines[JOURNAL].cut = false;
	run(20 * SHARD_SECOND);
	is_well("outbid");
	ok(shard_node_era(machines[0].node) > 50, "the era is above all that a member was sealed for");
}

/* Those who collect know nothing of the present era, so they do not campaign; the journal forgets once more, and a member is given up. */
static void
test_another_start(void)
{
	ShardCommand event = {.kind = SHARD_COMMAND_WRITE_OFF, .node = 3, .asker.token = 9};

	begin_collecting(1);
	is_int(shard_map_point(shard_node_learned(machines[0].node)).n, 0,
		   "nothing is known of the era");
	put_back();
	run(2 * SHARD_SECOND);
	order(0, &event);
	order(1, &event);
	run(20 * SHARD_SECOND);
	is_well("another start");
}

int
main(void)
{
	begin_world();
	test_forgets_half_way();
	test_left_behind();
	test_forgets_on_the_way();
	test_sealed_on_the_way();
	test_outbid();
	test_another_start();
	end_world();
	return unit_done();
}
