/*
 * flow_main.c
 *		Histories of the data plane alone, under an oracle instead of a control plane.
 *
 * usage: flow [--seed N] [--seeds N] [--returns] [--trace] [--keep-going] [--expect-violation] [--no-shrink]
 *
 * Each seed is a history: two to four nodes, sessions that tell, shards that move, aborted moves,
 * crashes, freezes, a network that loses, repeats, delays and reorders, full disks, now and then a
 * node that is written off or put back from an old copy. Then everything heals, and all messages must
 * come to their end. The oracle knows all and decides homes at once; its commands and facts are late,
 * repeated, or do not come at all for a while. With --returns many shards come back to where they were before
 * that node's workers have looked at anything.
 */
#include "flow.h"

#define MS INT64CONST(1000)
#define MAX_NODES 4
#define TYPES 2
#define SHARDS 4
#define ENTITIES 3
#define MAX_EVENTS 4096
#define CHAOS (8000 * MS)
#define REST (90000 * MS)
#define MAX_INSTANCES 16

typedef enum EventKind
{
	EVENT_DATAGRAM,
	EVENT_FACT,
	EVENT_ACTION,
	EVENT_RESTART
} EventKind;

typedef struct Event
{
	EventKind kind;
	int64 at;
	int64 order;
	int node; /* to; index */
	int from;
	size_t length;
	char *bytes;
	int shard; /* index */
	int64 n;
	ShardHomeRecord home;
	ShardAction action;
} Event;

typedef enum MoveStep
{
	MOVE_NONE = 0,
	MOVE_STOPPING,
	MOVE_IMPORTING,
	MOVE_STAGED
} MoveStep;

typedef struct Home
{
	bool known;
	bool started;
	ShardHomeRecord home;
	int64 n;
	MoveStep step;
	int64 deadline;
	int64 command_at;
	int32 again; /* moves there once more as soon as it can; 0: nowhere */
} Home;

typedef struct World World;

typedef struct Node
{
	World *world;
	Flow *flow;
	Store *store;
	Store *backup;
	int64 backup_at; /* by the clock of the checkers */
	Store *standby;
	Flow *old; /* the former primary, which does not know that it is */
	int32 id;
	int32 inc;
	bool gone;
	bool cut; /* hears no facts */
	bool isolated;
	int64 frozen[FLOW_PROCESSES];
	int64 traps_until; /* until then its workers freeze in the middle of turns */
	int64 known_n[TYPES * SHARDS];
	ShardHomeRecord known[TYPES * SHARDS];
	int64 sync_at;
} Node;

struct World
{
	uint64 state;
	bool trace;
	bool chaos;
	int64 now;
	int64 order;
	int n_nodes;
	Node nodes[MAX_NODES];
	int n_flows;
	Flow *flows[MAX_INSTANCES];
	int n_instances;
	Check *check;
	Home homes[TYPES * SHARDS];
	int64 n;
	int64 moves;
	int loss; /* percent */
	bool with_restore;
	bool with_write_off;
	bool with_standby;
	bool with_returns;
	int64 gap_timeout;
	int gap_window;
	bool gap_from_one;
	bool drops_order; /* ordered_by is taken back */
	bool ghost;		  /* a former primary makes a step: nobody listens to it */
	bool special_done;
	int n_events;
	Event events[MAX_EVENTS];
};

#define type_of(i) (1 + (i) / SHARDS)
#define shard_of(i) ((i) % SHARDS)

/* splitmix64: the same history from the same seed. */
static uint32
draw(World *world, uint32 below)
{
	uint64 z = (world->state += UINT64CONST(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94d049bb133111eb);
	z ^= z >> 31;
	return below > 0 ? (uint32) (z >> 32) % below : 0;
}

static bool
percent(World *world, int chance)
{
	return (int) draw(world, 100) < chance;
}

static void trace(World *world, const char *format, ...) pg_attribute_printf(2, 3);

static void
trace(World *world, const char *format, ...)
{
	va_list args;

	if (!world->trace)
		return;
	printf("%8.3f ", (double) world->now / 1000000);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

/* ---- what flows ask for ---------------------------------------------------------------------- */

static Event *
add_event(World *world, EventKind kind, int node, int64 delay)
{
	Event *event;

	if (world->n_events == MAX_EVENTS)
	{
		check_fail(world->check, "too many events");
		world->n_events--;
	}
	event = &world->events[world->n_events++];
	memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->at = world->now + delay;
	event->order = ++world->order;
	event->node = node;
	return event;
}

static void
host_send(void *context, int32 to, const void *bytes, size_t length)
{
	Node *node = context;
	World *world = node->world;
	int copies = 1;

	if (world->chaos && percent(world, world->loss))
		copies = 0;
	else if (world->chaos && percent(world, 4))
		copies = 2;
	for (int i = 0; i < world->n_nodes; i++)
	{
		if (world->nodes[i].id != to || (world->chaos && world->nodes[i].isolated) ||
			(world->chaos && node->isolated))
			continue;
		while (copies-- > 0)
		{
			int64 delay = (1 + draw(world, 4)) * MS;
			Event *event;

			if (world->chaos && percent(world, 5))
				delay = draw(world, 2500) * MS;
			event = add_event(world, EVENT_DATAGRAM, i, delay);
			event->from = node->id;
			event->length = length;
			event->bytes = pg_malloc(length);
			memcpy(event->bytes, bytes, length);
		}
	}
}

static int64
host_now(void *context)
{
	return ((Node *) context)->world->now;
}

static uint32
host_random(void *context, uint32 below)
{
	return draw(((Node *) context)->world, below);
}

static int32
host_node(void *context)
{
	return ((Node *) context)->id;
}

static int32
host_incarnation(void *context)
{
	return ((Node *) context)->inc;
}

static void
host_note(void *context, const char *text)
{
	trace(((Node *) context)->world, "%s", text);
}

/* ---- the oracle ------------------------------------------------------------------------------- */

/* Tell every node, some time; those that are cut off hear of it later. */
static void
spread(World *world, int i)
{
	Home *home = &world->homes[i];

	for (int j = 0; j < world->n_nodes; j++)
	{
		Event *event;

		if (world->nodes[j].gone || (world->chaos && world->nodes[j].cut))
			continue;
		if (world->chaos && percent(world, 15))
			continue;
		event =
			add_event(world, EVENT_FACT, j,
					  (world->chaos && percent(world, 20) ? draw(world, 1500) : draw(world, 20)) *
						  MS);
		event->shard = i;
		event->n = home->n;
		event->home = home->home;
	}
}

static void
decide(World *world, int i)
{
	Home *home = &world->homes[i];

	home->n = ++world->n;
	trace(world, "decided: shard %d/%d at node %d epoch %d phase %d lost %d (n " INT64_FORMAT ")",
		  type_of(i), shard_of(i), home->home.nodes[0], home->home.epoch, home->home.phase,
		  home->home.lost, home->n);
	spread(world, i);
}

static Node *
node_of(World *world, int32 id)
{
	for (int i = 0; i < world->n_nodes; i++)
	{
		if (world->nodes[i].id == id)
			return &world->nodes[i];
	}
	return NULL;
}

static int32
draw_target(World *world, int32 other_than)
{
	for (int tries = 0; tries < 50; tries++)
	{
		Node *node = &world->nodes[draw(world, world->n_nodes)];

		if (!node->gone && node->id != other_than)
			return node->id;
	}
	return 0;
}

static void
allocate(World *world, int i)
{
	Home *home = &world->homes[i];

	memset(&home->home, 0, sizeof(home->home));
	home->known = true;
	home->home.n_nodes = 1;
	home->home.nodes[0] = draw_target(world, 0);
	decide(world, i);
}

static void
begin_move(World *world, int i, int32 to)
{
	Home *home = &world->homes[i];

	if (!home->known || !home->started || home->step != MOVE_NONE || to == 0 ||
		to == home->home.nodes[0])
		return;
	home->again = 0;
	home->home.phase = SHARD_HOME_MOVING;
	home->home.to = to;
	home->home.move_id = ++world->moves;
	home->step = MOVE_STOPPING;
	home->deadline = world->now + (500 + draw(world, 3000)) * MS;
	home->command_at = 0;
	decide(world, i);
}

static void
end_move(World *world, int i, int32 node)
{
	Home *home = &world->homes[i];

	home->step = MOVE_NONE;
	home->started = false;
	home->home.phase = SHARD_HOME_STABLE;
	home->home.nodes[0] = node;
	home->home.to = 0;
	home->home.epoch++;
	decide(world, i);
}

/*
 * A move is given up although its target has all, and begins anew soon after that: the workers of the
 * target may have read nothing in between, or stand in the middle of it.
 */
static void
abort_staged(World *world, int i)
{
	Home *home = &world->homes[i];
	Node *target = node_of(world, home->home.to);

	home->again = home->home.to;
	end_move(world, i, home->home.nodes[0]);
	if (target == NULL || percent(world, 30))
		return;
	if (percent(world, 50))
		target->traps_until = world->now + 1000 * MS;
	for (int p = 0; p < FLOW_WORKERS && target->traps_until <= world->now; p++)
		target->frozen[p] = world->now + 2000 * MS;
}

/*
 * The shard comes back at once. The workers of its home hear of nothing before it is copied there again: then
 * they find facts that are older than the ownership row.
 */
static void
return_shard(World *world, int i, int32 from)
{
	Node *node = node_of(world, from);

	if (node == NULL || node->gone || !flow_running(node->flow))
		return;
	world->homes[i].again = from;
	for (int p = 0; p < FLOW_WORKERS; p++)
	{
		if (!flow_midway(node->flow, p))
			node->frozen[p] = world->now + 2000 * MS;
	}
}

static void
send_command(World *world, int i, ShardActionKind kind, int32 to, int32 epoch, int32 source)
{
	const Home *home = &world->homes[i];
	Node *node = node_of(world, to);
	int copies = world->chaos && percent(world, 20) ? 2 : 1;

	while (node != NULL && copies-- > 0)
	{
		Event *event =
			add_event(world, EVENT_ACTION, (int) (node - world->nodes),
					  (world->chaos && percent(world, 15) ? draw(world, 3000) : draw(world, 10)) *
						  MS);

		event->action.kind = kind;
		event->action.shard.type_id = type_of(i);
		event->action.shard.shard = shard_of(i);
		event->action.shard.epoch = epoch;
		event->action.shard.move_id = home->home.move_id;
		event->action.node = source;
	}
}

/* Drive the moves: repeat commands, decide, abort. */
static void
drive_moves(World *world)
{
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		Home *home = &world->homes[i];
		int32 owner = home->home.nodes[0];

		if (home->step == MOVE_NONE && home->again != 0)
			begin_move(world, i, home->again);
		if (home->step == MOVE_NONE)
			continue;
		if (home->step == MOVE_STAGED)
		{
			/* Now and then something comes between. */
			if (world->chaos && percent(world, 15))
				abort_staged(world, i);
			else
			{
				end_move(world, i, home->home.to);
				if (world->with_returns && world->chaos && percent(world, 50))
					return_shard(world, i, owner);
			}
			continue;
		}
		if (world->now > home->deadline)
		{
			end_move(world, i, owner);
			continue;
		}
		if (world->now < home->command_at)
			continue;
		home->command_at = world->now + 400 * MS;
		if (home->step == MOVE_STOPPING)
			send_command(world, i, SHARD_ACTION_STOP_SHARD, owner, home->home.epoch, 0);
		else
			send_command(world, i, SHARD_ACTION_IMPORT_SHARD, home->home.to, home->home.epoch + 1,
						 owner);
	}
}

static void
host_event(void *context, const ShardNodeEvent *event)
{
	Node *node = context;
	World *world = node->world;

	for (int j = 0; j < event->n_shards && !world->ghost; j++)
	{
		const ShardShardRef *ref = &event->shards[j];
		int i = (ref->type_id - 1) * SHARDS + ref->shard;
		Home *home = &world->homes[i];

		switch (event->kind)
		{
			case SHARD_EVENT_HOMES_WANTED:
				if (!home->known)
					allocate(world, i);
				break;
			case SHARD_EVENT_SHARDS_STARTED:
				if (home->known && home->home.nodes[0] == node->id &&
					home->home.epoch == ref->epoch)
					home->started = true;
				break;
			case SHARD_EVENT_SHARD_STOPPED:
				if (home->step == MOVE_STOPPING && home->home.move_id == ref->move_id)
				{
					home->step = MOVE_IMPORTING;
					home->command_at = 0;
				}
				break;
			case SHARD_EVENT_STAGED:
				if (home->step == MOVE_IMPORTING && home->home.move_id == ref->move_id)
					home->step = MOVE_STAGED;
				if (world->with_returns)
					memset(node->frozen, 0, sizeof(node->frozen));
				break;
			case SHARD_EVENT_IMPORT_FAILED:
				if (home->step == MOVE_IMPORTING && home->home.move_id == ref->move_id)
					end_move(world, i, home->home.nodes[0]);
				break;
			default:
				break;
		}
	}
}

/* ---- nodes ------------------------------------------------------------------------------------ */

static const FlowHost host_table = {.send = host_send,
									.node_event = host_event,
									.now = host_now,
									.random = host_random,
									.node = host_node,
									.incarnation = host_incarnation,
									.note = host_note};

static void
give_fact(Node *node, int i, const ShardHomeRecord *home, int64 n)
{
	if (n >= node->known_n[i])
	{
		node->known_n[i] = n;
		node->known[i] = *home;
	}
	flow_fact(node->flow, type_of(i), shard_of(i), home, n);
}

static void
start_node(World *world, Node *node, ShardStartKind kind)
{
	ShardUuid uuid;
	ShardAction action = {.kind = SHARD_ACTION_START_WORKERS, .flag = true};

	uuid.high = draw(world, PG_INT32_MAX);
	uuid.low = 1 + draw(world, PG_INT32_MAX);
	node->inc++;
	flow_start(node->flow, kind, uuid);

	/* What the control plane had on disk comes first. */
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		if (node->known_n[i] > 0)
			give_fact(node, i, &node->known[i], node->known_n[i]);
	}
	flow_action(node->flow, &action);
}

static void
make_flow(World *world, Node *node)
{
	FlowHost host = host_table;
	FlowSettings settings = {
		.workers = 1 + (int) draw(world, 2),
		.turn_messages = 2 + (int) draw(world, 8),
		.step_messages = 1 + (int) draw(world, 3),
		.batch_rows = 2 + (int) draw(world, 8),
		.types = TYPES,
		.shards = SHARDS,
		.entities = ENTITIES,
		.ordered_timeout = world->gap_timeout,
		.ordered_window = world->gap_window,
		.ordered_from = world->gap_from_one,
	};

	host.context = node;
	if (!world->trace)
		host.note = NULL;
	node->flow = flow_create(&host, node->store, world->check, world->n_instances++, &settings);
	world->flows[world->n_flows++] = node->flow;
}

static int
instance_of(const World *world, const Flow *flow)
{
	for (int i = 0; i < world->n_flows; i++)
	{
		if (world->flows[i] == flow)
			return i;
	}
	return -1;
}

static void
crash_node(World *world, Node *node)
{
	Event *event;

	if (node->gone || !flow_running(node->flow))
		return;
	flow_crash(node->flow);
	memset(node->frozen, 0, sizeof(node->frozen));
	event =
		add_event(world, EVENT_RESTART, (int) (node - world->nodes), (50 + draw(world, 1500)) * MS);
	event->from = node->inc;
}

/* All shards of a node begin anew: elsewhere if it is gone, else there (it is not fenced). */
static void
lose_shards(World *world, const Node *node)
{
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		Home *home = &world->homes[i];

		if (!home->known)
			continue;
		if (home->step != MOVE_NONE && home->home.to == node->id)
			end_move(world, i, home->home.nodes[0]);
		if (home->home.nodes[0] != node->id)
			continue;
		home->home.lost = home->home.epoch + 1;
		end_move(world, i, node->gone ? draw_target(world, node->id) : node->id);
	}
}

static void
write_off(World *world)
{
	Node *node = &world->nodes[draw(world, world->n_nodes)];

	if (world->n_nodes < 3)
		return;
	trace(world, "node %d is written off", node->id);
	if (flow_running(node->flow))
		flow_crash(node->flow);
	node->gone = true;
	check_written_off(world->check, instance_of(world, node->flow));
	flow_strand(node->flow);
	flow_retire(node->flow);
	lose_shards(world, node);
	world->special_done = true;
}

/* Put an old copy back in place of a node's database, and let it write before it meets anybody. */
static void
restore(World *world, Node *node)
{
	trace(world, "node %d is put back from a copy", node->id);
	if (flow_running(node->flow))
		flow_crash(node->flow);
	check_excuse(world->check, instance_of(world, node->flow));
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		if (world->homes[i].known && world->homes[i].home.nodes[0] == node->id)
			check_excuse_shard(world->check, type_of(i), shard_of(i), node->backup_at);
	}
	flow_strand(node->flow);
	flow_retire(node->flow);
	node->store = node->backup;
	node->backup = NULL;
	memset(node->frozen, 0, sizeof(node->frozen));
	make_flow(world, node);
	node->inc++;
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		if (world->homes[i].known)
		{
			node->known_n[i] = world->homes[i].n;
			node->known[i] = world->homes[i].home;
		}
	}
	start_node(world, node, SHARD_START_COPY);
	node->isolated = true;
	lose_shards(world, node);
	world->special_done = true;
}

/* The standby takes over while the primary lives on; what had passed the gate is on both. */
static void
promote(World *world, Node *node)
{
	trace(world, "the standby of node %d takes over", node->id);
	flow_retire(node->flow);
	store_promote(node->standby);
	node->old = node->flow;
	node->store = node->standby;
	node->standby = NULL;
	memset(node->frozen, 0, sizeof(node->frozen));
	make_flow(world, node);
	start_node(world, node, SHARD_START_PROMOTED);
	world->special_done = true;
}

/* The standby follows, with lag; a former primary goes on with what it has. */
static void
standby_step(World *world, Node *node)
{
	if (node->standby != NULL && percent(world, 20))
		store_replay(node->standby, store_flushed(node->store));
	if (node->old != NULL && flow_running(node->old))
	{
		uint32 ready = flow_ready(node->old);
		int process = (int) draw(world, FLOW_PROCESSES);

		world->ghost = true;
		if (ready & (1u << process))
			flow_step(node->old, process);
		world->ghost = false;
	}
}

/* ---- one step of the world -------------------------------------------------------------------- */

static void
deliver(World *world, Event *event)
{
	Node *node = &world->nodes[event->node];

	switch (event->kind)
	{
		case EVENT_DATAGRAM:
			if (!node->gone && flow_running(node->flow))
				flow_receive(node->flow, event->from, event->bytes, event->length);
			free(event->bytes);
			break;
		case EVENT_FACT:
			if (!node->gone && flow_running(node->flow))
				give_fact(node, event->shard, &event->home, event->n);
			break;
		case EVENT_ACTION:
			if (!node->gone && flow_running(node->flow))
				flow_action(node->flow, &event->action);
			break;
		case EVENT_RESTART:
			if (!node->gone && !flow_running(node->flow))
				start_node(world, node, SHARD_START_RESTART);
			break;
	}
}

/* Everything that is due, oldest first. Returns when the next event is. */
static int64
deliver_due(World *world)
{
	for (;;)
	{
		int first = -1;
		Event event;

		for (int i = 0; i < world->n_events; i++)
		{
			if (first < 0 || world->events[i].at < world->events[first].at ||
				(world->events[i].at == world->events[first].at &&
				 world->events[i].order < world->events[first].order))
				first = i;
		}
		if (first < 0)
			return PG_INT64_MAX;
		if (world->events[first].at > world->now)
			return world->events[first].at;
		event = world->events[first];
		world->events[first] = world->events[--world->n_events];
		deliver(world, &event);
	}
}

/* What clients do. */
static void
client_step(World *world)
{
	Node *node = &world->nodes[draw(world, world->n_nodes)];
	int session = (int) draw(world, FLOW_SESSIONS);

	if (node->gone || !flow_running(node->flow))
		return;
	if (flow_session_open(node->flow, session))
	{
		int what = (int) draw(world, 100);

		if (what < 45)
			flow_commit(node->flow, session);
		else if (what < 52)
			flow_rollback(node->flow, session);
		else if (what < 75)
			flow_tell(node->flow, session, 1 + (int) draw(world, TYPES), (int) draw(world, SHARDS),
					  (int) draw(world, ENTITIES));
	}
	else if (flow_session_idle(node->flow, session))
	{
		if (percent(world, 4))
			flow_redrive(node->flow, session);
		else
			flow_tell(node->flow, session, 1 + (int) draw(world, TYPES), (int) draw(world, SHARDS),
					  (int) draw(world, ENTITIES));
		if (percent(world, 50))
			flow_commit(node->flow, session);
	}
}

/* A node says what was not decided: of a version that may come, or of one that never will. */
static void
lie(World *world, Node *node)
{
	int i = (int) draw(world, TYPES * SHARDS);
	int64 ahead = percent(world, 50) ? 1 + (int64) draw(world, 5) : INT64CONST(1) << 52;
	int32 to = draw_target(world, node->id);

	if (to != 0)
		flow_lie(node->flow, to, type_of(i), shard_of(i), draw_target(world, 0), world->n + ahead);
}

static void
fault_step(World *world)
{
	Node *node = &world->nodes[draw(world, world->n_nodes)];
	int what = (int) draw(world, 1000);

	if (node->gone)
		return;
	if (what < 60)
		crash_node(world, node);
	else if (what < 200)
		node->frozen[draw(world, percent(world, 50) ? FLOW_WORKERS : FLOW_PROCESSES)] =
			world->now + draw(world, 1500) * MS;
	else if (what < 240)
		node->cut = !node->cut;
	else if (what < 270)
		store_set_full(node->store, !store_full(node->store));
	else if (what < 330 && flow_running(node->flow))
		flow_settings(node->flow)->workers = 1 + (int) draw(world, FLOW_WORKERS);
	else if (what < 360)
		node->isolated = !node->isolated;
	else if (what < 800)
	{
		int i = (int) draw(world, TYPES * SHARDS);

		begin_move(world, i, draw_target(world, world->homes[i].home.nodes[0]));
	}
	else if (what < 830 && world->with_restore && !world->special_done)
	{
		if (node->backup == NULL && world->now < CHAOS / 2)
		{
			node->backup = store_copy(node->store);
			node->backup_at = check_clock(world->check);
		}
		else if (node->backup != NULL && world->now > CHAOS / 2)
			restore(world, node);
	}
	else if (what < 835 && world->drops_order && world->now > CHAOS / 2)
		flow_settings(node->flow)->ordered_no_more = true;
	else if (what < 840 && node->standby != NULL && world->now > CHAOS / 3)
		promote(world, node);
	else if (what < 845 && world->with_write_off && !world->special_done && world->now > CHAOS / 3)
		write_off(world);
	else if (what >= 845 && what < 870 && flow_running(node->flow))
		lie(world, node);
}

/* Nodes hear of what they missed, now and then; all of it when things have healed. */
static void
sync_facts(World *world)
{
	for (int j = 0; j < world->n_nodes; j++)
	{
		Node *node = &world->nodes[j];

		if (node->gone || !flow_running(node->flow) || world->now < node->sync_at ||
			(world->chaos && node->cut))
			continue;
		node->sync_at = world->now + (500 + draw(world, 2000)) * MS;
		for (int i = 0; i < TYPES * SHARDS; i++)
		{
			if (world->homes[i].known)
				give_fact(node, i, &world->homes[i].home, world->homes[i].n);
		}
	}
}

/* One process somewhere makes a step. Returns false if none could. */
static bool
process_step(World *world)
{
	int offset = (int) draw(world, world->n_nodes);

	for (int j = 0; j < world->n_nodes; j++)
	{
		Node *node = &world->nodes[(j + offset) % world->n_nodes];
		uint32 ready;
		int candidates[FLOW_PROCESSES];
		int n = 0;
		int p;

		if (node->gone || !flow_running(node->flow))
			continue;
		ready = flow_ready(node->flow);
		for (p = 0; p < FLOW_PROCESSES; p++)
		{
			if ((ready & (1u << p)) && node->frozen[p] <= world->now)
				candidates[n++] = p;
		}
		if (n == 0)
			continue;
		p = candidates[draw(world, n)];
		flow_step(node->flow, p);
		if (world->now < node->traps_until && p < FLOW_WORKERS && flow_midway(node->flow, p) &&
			percent(world, 30))
			node->frozen[p] = world->now + 2000 * MS;
		return true;
	}
	return false;
}

static int64
next_wake(World *world)
{
	int64 wake = world->now + 200 * MS;

	for (int j = 0; j < world->n_nodes; j++)
	{
		Node *node = &world->nodes[j];

		if (node->gone || !flow_running(node->flow))
			continue;
		wake = Min(wake, flow_wake(node->flow));
		for (int p = 0; p < FLOW_PROCESSES; p++)
		{
			if (node->frozen[p] > world->now)
				wake = Min(wake, node->frozen[p]);
		}
	}
	return Max(wake, world->now + 1 * MS);
}

/* Faults end, clients go, who is down comes back. */
static void
heal(World *world)
{
	world->chaos = false;
	trace(world, "everything heals");
	for (int j = 0; j < world->n_nodes; j++)
	{
		Node *node = &world->nodes[j];

		node->cut = node->isolated = false;
		if (node->gone)
			continue;
		store_set_full(node->store, false);
		memset(node->frozen, 0, sizeof(node->frozen));
		node->traps_until = 0;
		flow_settings(node->flow)->no_tells_from_now = true;
		for (int i = 0; i < FLOW_SESSIONS; i++)
			flow_commit(node->flow, i);
	}
}

/* All at rest, every shard where it belongs? */
static bool
at_rest(World *world, char *text, size_t size)
{
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		Home *home = &world->homes[i];
		Node *node;

		if (!home->known)
			continue;
		node = node_of(world, home->home.nodes[0]);
		if (home->step != MOVE_NONE || !home->started ||
			flow_active_epoch(node->flow, type_of(i), shard_of(i)) != home->home.epoch)
		{
			snprintf(text, size, "shard %d/%d is not active at node %d in epoch %d", type_of(i),
					 shard_of(i), home->home.nodes[0], home->home.epoch);
			return false;
		}
	}
	for (int j = 0; j < world->n_nodes; j++)
	{
		Node *node = &world->nodes[j];

		if (!node->gone && flow_pending(node->flow, text, size) > 0)
			return false;
	}
	return true;
}

/* Without a restore there is nothing to quarantine; with one, the operator accepts the gap. */
static void
look_at_links(World *world)
{
	for (int j = 0; j < world->n_nodes; j++)
	{
		Node *node = &world->nodes[j];

		if (node->gone || !flow_running(node->flow) || !flow_quarantined(node->flow))
			continue;
		if (!world->with_restore)
			check_fail(world->check, "X4: node %d has a link in quarantine", node->id);
		else if (!world->chaos)
		{
			for (int k = 0; k < world->n_nodes; k++)
				flow_link_accept(node->flow, world->nodes[k].id);
		}
	}
}

/* V7, everywhere. */
static void
look_at_places(World *world)
{
	for (int j = 0; j < world->n_nodes; j++)
	{
		if (!world->nodes[j].gone && flow_running(world->nodes[j].flow))
			flow_check_places(world->nodes[j].flow);
	}
}

static void
make_world(World *world, uint64 seed, bool returns, bool tracing)
{
	memset(world, 0, sizeof(*world));
	world->state = seed * UINT64CONST(0x2545f4914f6cdd1d) + 1;
	world->trace = tracing;
	world->chaos = true;
	world->check = check_create();
	world->n_nodes = 2 + (int) draw(world, MAX_NODES - 1);
	world->loss = (int) draw(world, 12);
	world->with_restore = seed % 6 == 5;
	world->with_write_off = seed % 6 == 2;
	world->with_standby = seed % 6 == 1;
	world->with_returns = returns;
	world->gap_timeout = seed % 4 == 3 ? FLOW_NO_TIMEOUT : (200 + (int64) (seed * 37 % 2000)) * MS;
	world->gap_window = 3 + (int) (seed % 5);
	world->gap_from_one = seed % 3 == 1;
	world->drops_order = seed % 7 == 4;
	for (int j = 0; j < world->n_nodes; j++)
	{
		Node *node = &world->nodes[j];

		node->world = world;
		node->id = j + 1;
		node->store = store_create();
		make_flow(world, node);
		if (world->with_standby && j == 0)
		{
			store_set_gate(node->store, STORE_GATE_STANDBY);
			node->standby = store_standby(node->store);
		}
		start_node(world, node, SHARD_START_RESTART);
	}
}

static void
free_world(World *world)
{
	for (int i = 0; i < world->n_events; i++)
		free(world->events[i].bytes);
	for (int i = 0; i < world->n_flows; i++)
	{
		Store *store = flow_store(world->flows[i]);

		flow_destroy(world->flows[i]);
		store_destroy(store);
	}
	for (int j = 0; j < world->n_nodes; j++)
	{
		if (world->nodes[j].backup != NULL)
			store_destroy(world->nodes[j].backup);
		if (world->nodes[j].standby != NULL)
			store_destroy(world->nodes[j].standby);
	}
	check_destroy(world->check);
}

static void
advance(World *world)
{
	int64 next = deliver_due(world);

	drive_moves(world);
	sync_facts(world);
	standby_step(world, &world->nodes[0]);
	if (process_step(world))
		world->now += 20 + draw(world, world->chaos ? 1200 : 100);
	else
		world->now = Min(next_wake(world), Max(next, world->now + 1));
}

/* One history. Returns the violation, to be freed, or NULL. */
static char *
run_history(uint64 seed, bool returns, bool tracing, int *told)
{
	World *world = pg_malloc(sizeof(World));
	Flow *alive[MAX_NODES];
	char text[400] = "";
	char *violation = NULL;
	int n_alive = 0;
	int64 client_at = 0;
	int64 fault_at = 0;

	make_world(world, seed, returns, tracing);
	while (world->now < CHAOS && check_violation(world->check) == NULL)
	{
		if (world->now >= client_at)
		{
			client_step(world);
			client_at = world->now + draw(world, 30) * MS;
		}
		if (world->now >= fault_at)
		{
			fault_step(world);
			fault_at = world->now + draw(world, 120) * MS;
			look_at_places(world);
		}
		advance(world);
		look_at_links(world);
	}
	heal(world);
	for (int64 rest_at = 0; world->now < CHAOS + REST && check_violation(world->check) == NULL;)
	{
		advance(world);
		look_at_links(world);
		if (world->now >= rest_at)
		{
			if (at_rest(world, text, sizeof(text)))
				break;
			rest_at = world->now + 100 * MS;
		}
	}
	if (check_violation(world->check) == NULL && !at_rest(world, text, sizeof(text)))
		check_fail(world->check, "P6: not at rest: %.300s", text);
	for (int j = 0; j < world->n_nodes; j++)
	{
		if (!world->nodes[j].gone)
			alive[n_alive++] = world->nodes[j].flow;
	}
	if (check_violation(world->check) == NULL)
		flow_check_end(alive, n_alive, world->check);
	*told += check_told(world->check);
	trace(world, "told %d, handled %d", check_told(world->check),
		  check_handled_count(world->check));
	if (check_violation(world->check) != NULL)
		violation = pg_strdup(check_violation(world->check));
	free_world(world);
	free(world);
	return violation;
}

int
main(int argc, char **argv)
{
	uint64 first = 1;
	uint64 seeds = 1;
	bool returns = false;
	bool tracing = false;
	bool keep_going = false;
	bool expected = false;
	int failures = 0;
	int told = 0;

	for (int i = 1; i < argc; i++)
	{
		if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
			first = strtoull(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc)
			seeds = strtoull(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--returns") == 0)
			returns = true;
		else if (strcmp(argv[i], "--trace") == 0)
			tracing = true;
		else if (strcmp(argv[i], "--keep-going") == 0)
			keep_going = true;
		else if (strcmp(argv[i], "--expect-violation") == 0)
			expected = true;
		else if (strcmp(argv[i], "--no-shrink") != 0) /* sim's; there is nothing to shrink here */
		{
			fprintf(stderr, "usage: flow [--seed N] [--seeds N] [--returns] [--trace] "
							"[--keep-going] [--expect-violation]\n");
			return 2;
		}
	}
	for (uint64 seed = first; seed < first + seeds; seed++)
	{
		char *violation = run_history(seed, returns, tracing, &told);

		if (violation == NULL)
			continue;
		printf("# seed " UINT64_FORMAT ": %s\n", seed, violation);
		free(violation);
		failures++;
		if (!keep_going)
			break;
	}
	printf("# %d histories, %d messages, %d violations\n", (int) seeds, told, failures);
	return (failures > 0) == expected ? 0 : 1;
}
