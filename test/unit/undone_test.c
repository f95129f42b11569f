/*
 * undone_test.c
 *		Homes decided by voters that were lost, at nodes that learn of the era of those that were forced (R29): each in the order
 *		of an operator's mistake, or of bad luck, and with all nodes' ownership at its end.
 */
#include "postgres_fe.h"

#include "core/flow/handoff.h"
#include "core/map/voter.h"
#include "unit.h"

#define LOST_N 40 /* a version that the forced node does not know */

/* A node's row and what it knows of the home, as route.c keeps it. */
typedef struct Node
{
	int32 self;
	ShardOwn own;
	int32 node;
	int32 epoch;
	int32 doubt;
	int64 n;
	ShardHomeEvent event;
} Node;

static ShardHomeRecord
home_at(int32 node, int32 epoch, int32 lost, int64 move_id)
{
	return (ShardHomeRecord){
		.epoch = epoch, .n_nodes = 1, .nodes = {node}, .want = 1, .move_id = move_id, .lost = lost};
}

static void
hear(Node *node, ShardHomeRecord home, int64 n)
{
	if (n <= node->n || (node->node != 0 && home.epoch <= node->epoch))
		return;
	if (shard_handoff_undone(node->node, node->epoch, &home))
		node->doubt = home.epoch;
	node->event = shard_handoff_read(&node->own, node->self, &home, node->doubt);
	if (node->event != SHARD_HOME_NOTHING && node->event != SHARD_HOME_WRONG)
		ok(shard_handoff_step(&node->own, node->event, home.epoch, home.move_id), "a legal step");
	node->node = shard_record_home_node(&home);
	node->epoch = home.epoch;
	node->n = n;
}

/* The home in a later era, which a node begins that knows this one. */
static ShardHomeRecord
force(ShardHomeRecord known, int32 era, int64 *n)
{
	ShardActions *out = shard_action_create();
	ShardVoter *voter = shard_voter_create(3);
	ShardVotersRecord voters = {.n_current = 3, .current = {1, 2, 3}, .era = era - 1};
	ShardCountersRecord counters = {.last_node_id = 3, .last_type_id = 1};
	ShardMapEntry entries[3];
	ShardMap *learned = shard_map_create();
	int32 self = 3;
	const ShardMapEntry *entry;
	ShardHomeRecord home = {0};

	entries[0] = shard_record_put_voters(&voters, *n, out->arena);
	entries[1] = shard_record_put_counters(&counters, *n, out->arena);
	entries[2] = shard_record_put_home(1, 1, &known, *n, out->arena);
	for (int i = 0; i < (int) lengthof(entries); i++)
		shard_map_put(learned, &entries[i]);
	shard_map_set_point(learned, (ShardMapPoint){1, *n});
	shard_voter_force(voter, 9 << 16 | 3, learned, &self, 1, era, out);
	entry = shard_map_value(shard_voter_map(voter), (ShardMapKey){SHARD_MAP_HOME, 1, 1});
	ok(entry != NULL && shard_record_get_home(entry, &home), "the new era has the home");
	*n = entry->n;
	shard_map_destroy(learned);
	shard_voter_destroy(voter);
	shard_action_destroy(out);
	return home;
}

static int
n_active(const Node *nodes, int count)
{
	int active = 0;

	for (int i = 0; i < count; i++)
		active += nodes[i].own.state == SHARD_HOME_ACTIVE;
	return active;
}

/* 3 is cut off and written off by the others; it forces itself, and comes back. */
static void
test_write_off(void)
{
	Node nodes[] = {{.self = 1}, {.self = 2}, {.self = 3}};
	ShardHomeRecord first = home_at(3, 0, 0, 0);
	ShardHomeRecord forced;
	int64 n = 10;

	for (int i = 0; i < 3; i++)
		hear(&nodes[i], first, n);
	hear(&nodes[0], home_at(2, 1, 1, 0), LOST_N);
	hear(&nodes[1], home_at(2, 1, 1, 0), LOST_N);
	is_int(n_active(nodes, 3), 2, "two are active, as nobody can know");
	forced = force(first, 1, &n);
	for (int i = 2; i >= 0; i--)
		hear(&nodes[i], forced, n);
	is_int(n_active(nodes, 3), 1, "one is");
	is_int(nodes[2].own.state, SHARD_HOME_ACTIVE, "whom the newer era names");
	is_int(nodes[2].event, SHARD_HOME_BACK, "with its states");
	is_int(nodes[1].own.state, SHARD_HOME_SEALED, "the other one ends");
	ok(nodes[1].doubt > nodes[1].own.epoch, "and its rows are kept");
	ok(nodes[0].doubt == forced.epoch, "what was sent to it is in doubt");
	is_int(nodes[2].doubt, 0, "nothing that was sent to the home that went on");
}

/* It moved, and its new home is not known to who forces: the old one has nothing left, and stands still until it is given up. */
static void
test_move(bool deleted)
{
	Node nodes[] = {{.self = 1}, {.self = 2}};
	ShardHomeRecord first = home_at(1, 0, 0, 0);
	ShardHomeRecord forced;
	ShardHomeRecord given_up;
	int64 n = 10;

	hear(&nodes[0], first, n);
	hear(&nodes[1], first, n);
	shard_handoff_step(&nodes[0].own, SHARD_HOME_STOP, 0, 7);
	shard_handoff_step(&nodes[0].own, SHARD_HOME_SEAL, 0, 7);
	shard_handoff_step(&nodes[1].own, SHARD_HOME_IMPORT, 1, 7);
	hear(&nodes[0], home_at(2, 1, 0, 7), LOST_N);
	hear(&nodes[1], home_at(2, 1, 0, 7), LOST_N);
	is_int(nodes[1].own.state, SHARD_HOME_ACTIVE, "it moved");
	if (deleted)
		shard_handoff_step(&nodes[0].own, SHARD_HOME_DELETED, 0, 0);
	forced = force(first, 1, &n);
	hear(&nodes[0], forced, n);
	hear(&nodes[1], forced, n);
	is_int(nodes[1].own.state, SHARD_HOME_SEALED, "it ends where it is");
	ok(nodes[1].doubt > nodes[1].own.epoch, "and its rows, the newest there are, are kept");
	is_int(nodes[0].event, SHARD_HOME_WRONG, "where it was nothing begins");
	forced.epoch++;
	hear(&nodes[0], forced, n + 1);
	is_int(nodes[0].event, SHARD_HOME_WRONG, "nor by an aborted move");
	given_up = home_at(1, forced.epoch + 1024, forced.epoch + 1024, 7);
	hear(&nodes[0], given_up, n + 2);
	hear(&nodes[1], given_up, n + 2);
	is_int(nodes[0].event, SHARD_HOME_LOST, "but by an operator's word");
	is_int(n_active(nodes, 2), deleted ? 1 : 0, "and nowhere else");
}

/* What the new era knows goes on, wherever it was when that began. */
static void
test_carried(void)
{
	int64 n = 10;
	ShardHomeRecord moved = home_at(2, 1, 0, 7);
	ShardHomeRecord lost = home_at(2, 1, 1, 0);
	ShardHomeRecord home = force(home_at(2, 0, 0, 0), 1, &n);
	Node fresh = {.self = 2};
	Node staged = {.self = 2, .own = {.state = SHARD_HOME_STAGED, .epoch = 1, .move_id = 7}};
	Node sealed = {.self = 1, .own = {.state = SHARD_HOME_SEALED, .move_id = 7}, .node = 1, .n = 9};
	Node anew = {.self = 2};
	Node goes_on = {
		.self = 2, .own = {.state = SHARD_HOME_ACTIVE, .epoch = 1}, .node = 2, .epoch = 1, .n = 9};

	hear(&fresh, home, n);
	is_int(fresh.event, SHARD_HOME_FIRST, "a home that nobody had heard of");
	n = 10;
	home = force(moved, 1, &n);
	hear(&staged, home, n);
	is_int(staged.event, SHARD_HOME_DECIDED, "a copy of the move that was the last one");
	is_int(staged.own.epoch, home.epoch, "under the new epoch");
	hear(&sealed, home, n);
	is_int(sealed.event, SHARD_HOME_ELSEWHERE, "where it was");
	is_int(sealed.doubt, 0, "nothing is in doubt, nor kept");
	n = 10;
	home = force(lost, 1, &n);
	hear(&anew, home, n);
	is_int(anew.event, SHARD_HOME_LOST, "one that begins anew");
	hear(&goes_on, home, n);
	is_int(goes_on.event, SHARD_HOME_BACK, "and one that has begun goes on");
	n = 10;
	home = force(home_at(1, 0, 0, 0), 1, &n);
	sealed =
		(Node){.self = 1, .own = {.state = SHARD_HOME_SEALED, .move_id = 7}, .node = 1, .n = 9};
	hear(&sealed, home, n);
	is_int(sealed.event, SHARD_HOME_BACK, "a seal whose move nobody has decided");
	home = force(home, 2, &n);
	hear(&sealed, home, n);
	is_int(sealed.own.epoch, 2 << 16, "one era after the other");
	is_int(sealed.own.state, SHARD_HOME_ACTIVE, "active");
}

int
main(void)
{
	test_write_off();
	test_move(false);
	test_move(true);
	test_carried();
	return unit_done();
}
