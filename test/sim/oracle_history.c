/*
 * oracle_history.c
 *		Mode flow: histories of the data plane alone. With --returns many shards come back to where they
 *		were before that node's workers have looked at anything.
 */
#include "mode.h"
#include "oracle.h"

/* Counts of all histories. */
static int told;
static int violations;

static void
deliver(OracleWorld *world, Event *event)
{
	OracleNode *node = &world->nodes[event->node];

	switch (event->kind)
	{
		case EVENT_DATAGRAM:
			if (!node->gone && flow_running(node->flow))
				flow_receive(node->flow, event->from, event->bytes, event->length);
			free(event->bytes);
			break;
		case EVENT_FACT:
			if (!node->gone && flow_running(node->flow))
				oracle_give_fact(node, event->shard, &event->home, event->n);
			break;
		case EVENT_ACTION:
			if (!node->gone && flow_running(node->flow))
				flow_action(node->flow, &event->action);
			break;
		case EVENT_RESTART:
			if (!node->gone && !flow_running(node->flow))
				oracle_start(world, node, SHARD_START_RESTART);
			break;
	}
}

/* Everything that is due, oldest first. Returns when the next event is. */
static int64
deliver_due(OracleWorld *world)
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

/* Nodes hear of what they missed, now and then; all of it when things have healed. */
static void
sync_facts(OracleWorld *world)
{
	for (int j = 0; j < world->n_nodes; j++)
	{
		OracleNode *node = &world->nodes[j];

		if (node->gone || !flow_running(node->flow) || world->now < node->sync_at ||
			(world->chaos && node->cut))
			continue;
		node->sync_at = world->now + (500 + oracle_random(world, 2000)) * MS;
		for (int i = 0; i < TYPES * SHARDS; i++)
		{
			if (world->homes[i].known)
				oracle_give_fact(node, i, &world->homes[i].home, world->homes[i].n);
		}
	}
}

/* One process somewhere makes a step. Returns false if none could. */
static bool
process_step(OracleWorld *world)
{
	int offset = (int) oracle_random(world, world->n_nodes);

	for (int j = 0; j < world->n_nodes; j++)
	{
		OracleNode *node = &world->nodes[(j + offset) % world->n_nodes];
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
		p = candidates[oracle_random(world, n)];
		flow_step(node->flow, p);
		if (world->now < node->traps_until && p < FLOW_WORKERS && flow_midway(node->flow, p) &&
			oracle_percent(world, 30))
			node->frozen[p] = world->now + 2000 * MS;
		return true;
	}
	return false;
}

static int64
next_wake(OracleWorld *world)
{
	int64 wake = world->now + 200 * MS;

	for (int j = 0; j < world->n_nodes; j++)
	{
		OracleNode *node = &world->nodes[j];

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

/* All at rest, every shard where it belongs? */
static bool
at_rest(OracleWorld *world, char *text, size_t size)
{
	for (int i = 0; i < TYPES * SHARDS; i++)
	{
		Home *home = &world->homes[i];
		OracleNode *node;

		if (!home->known)
			continue;
		node = oracle_node(world, home->home.nodes[0]);
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
		OracleNode *node = &world->nodes[j];

		if (!node->gone && flow_pending(node->flow, text, size) > 0)
			return false;
	}
	return true;
}

/* Without a restore there is nothing to quarantine; with one, the operator accepts the gap. */
static void
look_at_links(OracleWorld *world)
{
	for (int j = 0; j < world->n_nodes; j++)
	{
		OracleNode *node = &world->nodes[j];

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
look_at_places(OracleWorld *world)
{
	for (int j = 0; j < world->n_nodes; j++)
	{
		if (!world->nodes[j].gone && flow_running(world->nodes[j].flow))
			flow_check_places(world->nodes[j].flow);
	}
}

static void
make_world(OracleWorld *world, uint64 seed, bool returns, bool tracing)
{
	memset(world, 0, sizeof(*world));
	world->state = seed * UINT64CONST(0x2545f4914f6cdd1d) + 1;
	world->trace = tracing;
	world->chaos = true;
	world->check = check_create();
	world->n_nodes = 2 + (int) oracle_random(world, MAX_NODES - 1);
	world->loss = (int) oracle_random(world, 12);
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
		OracleNode *node = &world->nodes[j];

		node->world = world;
		node->id = j + 1;
		node->store = store_create();
		oracle_create_flow(world, node);
		if (world->with_standby && j == 0)
		{
			store_set_gate(node->store, STORE_GATE_STANDBY);
			node->standby = store_standby(node->store);
		}
		oracle_start(world, node, SHARD_START_RESTART);
	}
}

static void
free_world(OracleWorld *world)
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
advance(OracleWorld *world)
{
	int64 next = deliver_due(world);

	oracle_drive_moves(world);
	sync_facts(world);
	oracle_standby_step(world, &world->nodes[0]);
	if (process_step(world))
		world->now += 20 + oracle_random(world, world->chaos ? 1200 : 100);
	else
		world->now = Min(next_wake(world), Max(next, world->now + 1));
}

static bool
run(const Arguments *arguments, uint64 seed, char *violation, size_t size)
{
	OracleWorld *world = pg_malloc(sizeof(OracleWorld));
	Flow *alive[MAX_NODES];
	char text[400] = "";
	bool well;
	int n_alive = 0;
	int64 client_at = 0;
	int64 fault_at = 0;

	make_world(world, seed, arguments->returns, arguments->trace);
	while (world->now < CHAOS && check_violation(world->check) == NULL)
	{
		if (world->now >= client_at)
		{
			oracle_client_step(world);
			client_at = world->now + oracle_random(world, 30) * MS;
		}
		if (world->now >= fault_at)
		{
			oracle_fault_step(world);
			fault_at = world->now + oracle_random(world, 120) * MS;
			look_at_places(world);
		}
		advance(world);
		look_at_links(world);
	}
	oracle_heal(world);
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
	told += check_told(world->check);
	oracle_trace(world, "told %d, handled %d", check_told(world->check),
				 check_handled_count(world->check));
	well = check_violation(world->check) == NULL;
	if (!well)
		strlcpy(violation, check_violation(world->check), size);
	violations += !well;
	free_world(world);
	free(world);
	return well;
}

/* Nothing of a history can be left out. */
static void
report(const Arguments *arguments, uint64 seed, const char *text)
{
	printf("seed %llu: %s\n", (unsigned long long) seed, text);
}

static void
sum(int64 histories, double seconds)
{
	printf("# %lld histories, %d messages, %d violations\n", (long long) histories, told,
		   violations);
}

const Mode mode_flow = {.name = "flow",
						.options = option_bit(OPTION_RETURNS),
						.run = run,
						.report = report,
						.sum = sum};
