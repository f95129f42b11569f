/*
 * oracle_nodes.c
 *		The nodes of mode flow: what their data planes ask for, and how they start and end.
 */
#include "oracle.h"

static void
host_send(void *context, int32 to, const void *bytes, size_t length)
{
	OracleNode *node = context;
	OracleWorld *world = node->world;
	int copies = 1;

	if (world->chaos && oracle_percent(world, world->loss))
		copies = 0;
	else if (world->chaos && oracle_percent(world, 4))
		copies = 2;
	for (int i = 0; i < world->n_nodes; i++)
	{
		if (world->nodes[i].id != to || (world->chaos && world->nodes[i].isolated) ||
			(world->chaos && node->isolated))
			continue;
		while (copies-- > 0)
		{
			int64 delay = (1 + oracle_random(world, 4)) * MS;
			Event *event;

			if (world->chaos && oracle_percent(world, 5))
				delay = oracle_random(world, 2500) * MS;
			event = oracle_event(world, EVENT_DATAGRAM, i, delay);
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
	return ((OracleNode *) context)->world->now;
}

static uint32
host_random(void *context, uint32 below)
{
	return oracle_random(((OracleNode *) context)->world, below);
}

static int32
host_node(void *context)
{
	return ((OracleNode *) context)->id;
}

static int32
host_incarnation(void *context)
{
	return ((OracleNode *) context)->inc;
}

static void
host_note(void *context, const char *text)
{
	oracle_trace(((OracleNode *) context)->world, "%s", text);
}

static const FlowHost host_table = {.send = host_send,
									.node_event = oracle_hear,
									.now = host_now,
									.random = host_random,
									.node = host_node,
									.incarnation = host_incarnation,
									.note = host_note};

void
oracle_give_fact(OracleNode *node, int i, const ShardHomeRecord *home, int64 n)
{
	if (n >= node->known_n[i])
	{
		node->known_n[i] = n;
		node->known[i] = *home;
	}
	flow_fact(node->flow, type_of(i), shard_of(i), home, n);
}

void
oracle_start(OracleWorld *world, OracleNode *node, ShardStartKind kind)
{
	ShardUuid uuid;
	ShardAction action = {.kind = SHARD_ACTION_START_WORKERS, .flag = true};

	uuid.high = oracle_random(world, PG_INT32_MAX);
	uuid.low = 1 + oracle_random(world, PG_INT32_MAX);
	node->inc++;
	flow_start(node->flow, kind, uuid);

	/* What the control plane had on disk comes first. */
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		if (node->known_n[i] > 0)
			oracle_give_fact(node, i, &node->known[i], node->known_n[i]);
	}
	flow_action(node->flow, &action);
}

void
oracle_create_flow(OracleWorld *world, OracleNode *node)
{
	FlowHost host = host_table;
	FlowSettings settings = {
		.workers = 1 + (int) oracle_random(world, 2),
		.turn_messages = 2 + (int) oracle_random(world, 8),
		.step_messages = 1 + (int) oracle_random(world, 3),
		.batch_rows = 2 + (int) oracle_random(world, 8),
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
instance_of(const OracleWorld *world, const Flow *flow)
{
	for (int i = 0; i < world->n_flows; i++)
	{
		if (world->flows[i] == flow)
			return i;
	}
	return -1;
}

void
oracle_crash(OracleWorld *world, OracleNode *node)
{
	Event *event;

	if (node->gone || !flow_running(node->flow))
		return;
	flow_crash(node->flow);
	memset(node->frozen, 0, sizeof(node->frozen));
	event = oracle_event(world, EVENT_RESTART, (int) (node - world->nodes),
						 (50 + oracle_random(world, 1500)) * MS);
	event->from = node->inc;
}

void
oracle_write_off(OracleWorld *world)
{
	OracleNode *node = &world->nodes[oracle_random(world, world->n_nodes)];

	if (world->n_nodes < 3)
		return;
	oracle_trace(world, "node %d is written off", node->id);
	if (flow_running(node->flow))
		flow_crash(node->flow);
	node->gone = true;
	check_written_off(world->check, instance_of(world, node->flow));
	flow_strand(node->flow);
	flow_retire(node->flow);
	oracle_lose_shards(world, node);
	world->special_done = true;
}

/* Put an old copy back in place of a node's database, and let it write before it meets anybody. */
void
oracle_restore(OracleWorld *world, OracleNode *node)
{
	oracle_trace(world, "node %d is put back from a copy", node->id);
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
	oracle_create_flow(world, node);
	node->inc++;
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		if (world->homes[i].known)
		{
			node->known_n[i] = world->homes[i].n;
			node->known[i] = world->homes[i].home;
		}
	}
	oracle_start(world, node, SHARD_START_COPY);
	node->isolated = true;
	oracle_lose_shards(world, node);
	world->special_done = true;
}

/* The standby takes over while the primary lives on; what had passed the gate is on both. */
void
oracle_promote(OracleWorld *world, OracleNode *node)
{
	oracle_trace(world, "the standby of node %d takes over", node->id);
	flow_retire(node->flow);
	store_promote(node->standby);
	node->old = node->flow;
	node->store = node->standby;
	node->standby = NULL;
	memset(node->frozen, 0, sizeof(node->frozen));
	oracle_create_flow(world, node);
	oracle_start(world, node, SHARD_START_PROMOTED);
	world->special_done = true;
}

/* The standby follows, with lag; a former primary goes on with what it has. */
void
oracle_standby_step(OracleWorld *world, OracleNode *node)
{
	if (node->standby != NULL && oracle_percent(world, 20))
		store_replay(node->standby, store_flushed(node->store));
	if (node->old != NULL && flow_running(node->old))
	{
		uint32 ready = flow_ready(node->old);
		int process = (int) oracle_random(world, FLOW_PROCESSES);

		world->ghost = true;
		if (ready & (1u << process))
			flow_step(node->old, process);
		world->ghost = false;
	}
}
