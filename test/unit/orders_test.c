/*
 * orders_test.c
 *		Orders about the move of a shard (M25): from whom a node takes them (T7), and for which moves; three nodes, and
 *		somebody who speaks in the name of one of them.
 */
#include "postgres_fe.h"

#include "core/map/action.h"
#include "core/map/control.h"
#include "core/flow/handoff.h"
#include "node_world.h"
#include "unit.h"

#define TYPE 1
#define MOVE 7
#define EPOCH 4
#define FAR 1000000000

/* Nodes: who decides, who has the shards that are looked at, and who speaks without an office. */
#define COORDINATOR 1
#define OTHER 2
#define ME 3

static const ShardControlKind kinds[] = {SHARD_CONTROL_HAND_OFF, SHARD_CONTROL_IMPORT,
										 SHARD_CONTROL_PREPARE_IMPORT};

/* Where the shards of the orders live. */
typedef enum Place
{
	UNKNOWN,
	STABLE_HERE,
	LEAVES, /* from ME to OTHER */
	STABLE_THERE,
	COMES /* from OTHER to ME */
} Place;

static void
begin(void)
{
	three_nodes();
	is_int(shard_node_id(machines[2].node), ME, "the last one is looked at");
}

/* Gives it what a node says; nothing is done of what it wants then. */
static void
tell(int32 from, int32 via, ShardControl message)
{
	StringInfoData bytes;

	message.cluster = shard_node_cluster(machines[2].node);
	message.protocol_version = SHARD_PROTOCOL_VERSION;
	message.from = from;
	message.era = shard_node_era(machines[2].node);
	initStringInfo(&bytes);
	shard_control_encode(&bytes, &message);
	shard_node_receive(machines[2].node, now, via, bytes.data, bytes.len, out);
	pfree(bytes.data);
}

/* It learns where a shard is; its last move before was the one before MOVE. */
static void
learn(int32 shard, Place place)
{
	static int learned;
	bool here = place == STABLE_HERE || place == LEAVES;
	bool moves = place == LEAVES || place == COMES;
	ShardArena *arena = shard_arena_create();
	ShardHomeRecord home = {.epoch = EPOCH,
							.n_nodes = 1,
							.nodes = {here ? ME : OTHER},
							.want = 1,
							.phase = moves ? SHARD_HOME_MOVING : SHARD_HOME_STABLE,
							.move_id = moves ? MOVE : MOVE - 1,
							.to = !moves ? 0
								  : here ? OTHER
										 : ME};
	ShardMapEntry entry = shard_record_put_home(TYPE, shard, &home, 1, arena);

	entry.n = shard_map_point(shard_node_learned(machines[2].node)).n + ++learned;
	tell(COORDINATOR, COORDINATOR,
		 (ShardControl){.kind = SHARD_CONTROL_SHARD_HOMES, .n_entries = 1, .entries = &entry});
	act(2, NO_LINK);
	deliver();
	ok(shard_map_value(shard_node_learned(machines[2].node), entry.key) != NULL,
	   "the home of shard %d is learned", shard);
	shard_arena_destroy(arena);
}

/* Has what was told last an order for the workers as its consequence; was anybody asked for what is missing? */
static int
count_orders(bool *asked)
{
	int orders = 0;

	*asked = false;
	for (int i = 0; i < out->n_actions; i++)
	{
		const ShardAction *action = &out->actions[i];
		ShardControl message;

		orders += action->kind == SHARD_ACTION_STOP_SHARD ||
				  action->kind == SHARD_ACTION_IMPORT_SHARD ||
				  action->kind == SHARD_ACTION_PREPARE_IMPORT;
		*asked |= action->kind == SHARD_ACTION_SEND && action->node == COORDINATOR &&
				  shard_control_decode(action->bytes, action->length, out->arena, &message) &&
				  message.kind == SHARD_CONTROL_GET_DELTA;
	}
	return orders;
}

/* Is an order carried out? node: whom it names as the home. */
static bool
is_taken(int32 from, int i, ShardShardRef ref, int32 node, bool *asked)
{
	int orders;

	now += SHARD_SECOND;
	tell(from, from, (ShardControl){.kind = kinds[i], .n_shards = 1, .shards = &ref, .node = node});
	orders = count_orders(asked);
	shard_action_reset(out);
	return orders > 0;
}

/* Each order, of each place: which are carried out. */
static void
test_places(void)
{
	static const bool taken[COMES + 1][lengthof(kinds)] = {
		[LEAVES] = {true, false, false},
		[STABLE_THERE] = {false, false, true},
		[COMES] = {false, true, false},
	};

	for (int place = UNKNOWN; place <= COMES; place++)
	{
		if (place != UNKNOWN)
			learn(place, place);
		for (int i = 0; i < (int) lengthof(kinds); i++)
		{
			bool comes = i >= 1;
			ShardShardRef ref = {TYPE, place, comes ? EPOCH + 1 : EPOCH, MOVE};
			ShardShardRef wrong;
			bool asked;

			is_int(is_taken(COORDINATOR, i, ref, OTHER, &asked), taken[place][i],
				   "%s of place %d, by the coordinator", shard_control_name(kinds[i]), place);
			ok(!asked || !taken[place][i], "what is carried out asks for nothing");
			ok(!is_taken(OTHER, i, ref, OTHER, &asked), "by another member: never");
			wrong = ref;
			wrong.move_id++;
			ok(!is_taken(COORDINATOR, i, wrong, OTHER, &asked) && asked,
			   "for a move to come it is not, and what is missing is asked for");
			wrong = ref;
			wrong.epoch = FAR;
			ok(!is_taken(COORDINATOR, i, wrong, OTHER, &asked) && asked,
			   "nor in an epoch far ahead");
			wrong = ref;
			wrong.move_id -= 2;
			ok(!is_taken(COORDINATOR, i, wrong, OTHER, &asked), "nor for a move of before");
			wrong = ref;
			wrong.epoch--;
			ok(!is_taken(COORDINATOR, i, wrong, OTHER, &asked), "nor in an epoch of before");
			if (comes)
				ok(!is_taken(COORDINATOR, i, ref, COORDINATOR, &asked),
				   "nor from a node that is not its home");
		}
	}
}

/* An order has one shard: many of them would hold up the node, and one is named by each. */
static void
test_many(void)
{
	enum
	{
		COUNT = 10000
	};
	ShardShardRef *refs = palloc(COUNT * sizeof(ShardShardRef));
	bool asked;

	for (int i = 0; i < COUNT; i++)
		refs[i] = (ShardShardRef){TYPE, LEAVES, EPOCH, MOVE};
	tell(COORDINATOR, COORDINATOR,
		 (ShardControl){.kind = SHARD_CONTROL_HAND_OFF, .n_shards = COUNT, .shards = refs});
	is_int(count_orders(&asked), 0, "an order of many shards is none");
	tell(COORDINATOR, COORDINATOR, (ShardControl){.kind = SHARD_CONTROL_HAND_OFF});
	is_int(count_orders(&asked), 0, "nor is one of no shard");
	shard_action_reset(out);
	pfree(refs);
}

/* An order that comes ahead of its decision is carried out when it comes again. */
static void
test_ahead(void)
{
	ShardShardRef ref = {TYPE, 20, EPOCH, MOVE};
	bool asked;

	learn(20, STABLE_HERE);
	ok(!is_taken(COORDINATOR, 0, ref, 0, &asked) && asked,
	   "an order ahead of its decision asks for that");
	learn(20, LEAVES);
	ok(is_taken(COORDINATOR, 0, ref, 0, &asked) && !asked, "and is carried out afterwards");
}

/* What was copied for another move is not taken for the shard. */
static void
test_staged(void)
{
	ShardOwn own = {.state = SHARD_HOME_STAGED, .epoch = EPOCH, .move_id = 4711};
	ShardHomeRecord home = {.epoch = EPOCH, .n_nodes = 1, .nodes = {ME}, .move_id = MOVE};

	is_int(shard_handoff_read(&own, ME, &home, 0), SHARD_HOME_WRONG,
		   "rows that were copied for another move do not become the shard's");
	home.lost = EPOCH;
	is_int(shard_handoff_read(&own, ME, &home, 0), SHARD_HOME_LOST, "one that is lost begins anew");
	own.move_id = MOVE;
	is_int(shard_handoff_read(&own, ME, &home, 0), SHARD_HOME_DECIDED, "those of its own move do");
}

int
main(void)
{
	begin_world();
	begin();
	test_places();
	test_many();
	test_ahead();
	test_staged();
	end_world();
	return unit_done();
}
