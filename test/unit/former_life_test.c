/*
 * former_life_test.c
 *		A former life of a node comes up again as if it had only been restarted: an old primary, or files that were put back
 *		(I4). It handles nothing for longer than it takes to hear of the one that lives.
 */
#include "postgres_fe.h"

#include "trust_world.h"

#define AT 1 /* the machine that is put back: node 2 */

static ShardMap *backup[STORES];

/* The disk of a machine, as it is now, and back again. */
static void
copy_disk(ShardMap **from, ShardMap **to)
{
	for (int s = SHARD_STORE_NODE; s < STORES; s++)
	{
		int count;
		ShardMapEntry *entries = shard_map_since(from[s], -2, out->arena, &count);

		if (to[s])
			shard_map_destroy(to[s]);
		to[s] = shard_map_create();
		for (int i = 0; i < count; i++)
			shard_map_put(to[s], &entries[i]);
		shard_map_set_point(to[s], shard_map_point(from[s]));
	}
}

/*
 * It comes up, and finds itself: its address leads to it as well as to the one that lives. Others call the latter, so it hears
 * only what they answer.
 */
static void
come_up(void)
{
	machines[AT].moved = false;
	machines[AT].cut = true;
	start(AT);
	run(SHARD_SECOND);
	ok(machines[AT].node->handling, "a node that starts again handles its messages at once");
	machines[AT].cut = false;
	machines[AT].moved = true;
}

/* Node 2 has started once more since its disk was copied, and the copy is put in its place. */
static void
put_back(void)
{
	three_nodes();
	add_type(0, "thing", 8);
	stop(AT);
	copy_disk(machines[AT].rows, backup);
	start(AT);
	run(10 * SHARD_SECOND);
	ok(shard_node_admitted(machines[AT].node), "the node starts, and is admitted");
	stop(AT);
	copy_disk(backup, machines[AT].rows);
}

static void
test_put_back(void)
{
	ShardCommand admit = {.kind = SHARD_COMMAND_ADMIT, .node = 2, .asker.token = 7};
	ShardControl prepare = {.kind = SHARD_CONTROL_PREPARE};
	int64 vote;
	int32 before;

	put_back();
	before = shard_node_incarnation(machines[0].node);
	come_up();
	run(5 * SHARD_SECOND);
	ok(!shard_node_admitted(machines[AT].node), "a former life of it is not admitted");
	ok(!machines[AT].node->handling, "and stops");
	ok(shard_node_superseded_by(machines[AT].node) > before, "knowing which incarnation lives: %d",
	   shard_node_superseded_by(machines[AT].node));
	vote = promised(AT);
	prepare.b = ((vote >> 16) + 1) << 16 | 1;
	give_as(AT, 1, 0, prepare);
	is_int(promised(AT), vote,
		   "it votes no more, as it may have forgotten what the one that lives has promised,");
	ok(!shard_node_fenced(machines[AT].node), "but not for good:");
	stop(AT);
	come_up();
	run(5 * SHARD_SECOND);
	ok(!machines[AT].node->handling, "the next start of it stops, too");
	machines[AT].moved = false;
	order(0, &admit);
	deliver();
	run(5 * SHARD_SECOND);
	ok(shard_node_admitted(machines[AT].node) && machines[AT].node->handling,
	   "an operator has the last word");
	is_int(shard_node_superseded_by(machines[AT].node), 0, "it is no former life then");
}

/*
 * Nothing that it writes is durable, as behind the gate of an old primary, whose standby follows no more. It hears of its end
 * before it can claim anything.
 */
static void
test_behind_its_gate(void)
{
	int32 before;

	put_back();
	before = shard_node_incarnation(machines[0].node);
	machines[AT].slow = true;
	come_up();
	run(5 * SHARD_SECOND);
	ok(!machines[AT].node->handling, "a former life behind its gate stops, too");
	ok(shard_node_superseded_by(machines[AT].node) > before, "knowing which incarnation lives: %d",
	   shard_node_superseded_by(machines[AT].node));
	is_int(shard_node_is_claimed(machines[0].node, 2, now), SHARD_NODE_UNCLAIMED,
		   "though it has claimed nothing,");
	settle(AT);
	deliver();
	run(5 * SHARD_SECOND);
	ok(shard_node_is_claimed(machines[0].node, 2, now) != SHARD_NODE_UNCLAIMED,
	   "which it does once that is durable");
	ok(!shard_node_admitted(machines[AT].node) && !machines[AT].node->handling, "in vain");
}

/* It is the node's own next start: it hears of nobody else, and is admitted when its claim is durable. */
static void
test_restart_behind_its_gate(void)
{
	three_nodes();
	stop(AT);
	machines[AT].slow = true;
	start(AT);
	run(5 * SHARD_SECOND);
	ok(!shard_node_admitted(machines[AT].node), "a restart is not admitted behind its gate");
	is_int(shard_node_superseded_by(machines[AT].node), 0, "and hears of no other life");
	run(20 * SHARD_SECOND);
	ok(!shard_node_reachable(machines[0].node, 2, now),
	   "that it asks is no sign of life to others");
	settle(AT);
	deliver();
	run(5 * SHARD_SECOND);
	ok(shard_node_admitted(machines[AT].node), "it is when its claim is durable");
}

/* What this database has claimed itself is no other life: it died before it heard of the grant (I7). */
static void
test_own_claim(void)
{
	ShardControl fenced = {.kind = SHARD_CONTROL_FENCED, .inc_no = 1000, .uuid = FORGED};

	put_back();
	machines[AT].cut = true;
	start(AT);
	fenced.uuid = machines[AT].incarnation;
	stop(AT);
	start(AT);
	run(SHARD_SECOND);
	ok(machines[AT].node->handling, "a node that hears nobody handles its messages");
	give_as(AT, 1, 1, fenced);
	give_as(AT, 3, 3, fenced);
	ok(machines[AT].node->handling, "also when a start of its own was admitted");
	fenced.uuid = FORGED;
	give_as(AT, 3, 0, fenced);
	give_as(AT, 1, 0, fenced);
	ok(machines[AT].node->handling, "callers stop nothing");
	give_as(AT, 3, 3, fenced);
	ok(machines[AT].node->handling, "nor does one of two nodes that answer");
	give_as(AT, 1, 1, fenced);
	ok(!machines[AT].node->handling, "both do");
}

int
main(void)
{
	begin_world();
	test_put_back();
	test_behind_its_gate();
	test_restart_behind_its_gate();
	test_own_claim();
	end_world();
	for (int s = SHARD_STORE_NODE; s < STORES; s++)
		shard_map_destroy(backup[s]);
	return unit_done();
}
