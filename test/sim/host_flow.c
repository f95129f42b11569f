/*
 * host_flow.c
 *		What an instance does for its data plane.
 */
#include "host.h"

#include "core/base/timing.h"

static void
flow_message(World *world, Instance *instance, int64 from, int64 b, const char *bytes,
			 size_t length)
{
	if (!instance->up)
		return;
	world->model->receive(instance->flow, (int32) b, bytes, length);
	host_after(world, instance);
}

/* The receiver is told the node that spoke, which the message itself says again. */
static void
deliver_flow(World *world, Instance *instance, int64 from, int64 b, const char *bytes,
			 size_t length)
{
	flow_message(world, instance, from, world->instances[from].node_id, bytes, length);
}

static void
flow_sends(void *context, int32 to, const void *bytes, size_t length)
{
	Instance *instance = context;
	Instance *target = host_at_node(instance->world, instance, to);

	if (target)
		world_send(instance->world, instance, target->index, deliver_flow, bytes, length);
}

static void
late_node_event(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
				size_t length)
{
	ShardNodeEvent event;

	/* The shards were copied behind the event. */
	memcpy(&event, bytes, sizeof(event));
	event.shards = (const ShardShardRef *) (bytes + sizeof(event));
	if (instance->up)
		host_event(world, instance, &event);
}

/* What the data plane reports reaches the control process a moment later, or not at all if it dies. */
static void
flow_reports(void *context, const ShardNodeEvent *event)
{
	Instance *instance = context;
	size_t list = sizeof(ShardShardRef) * event->n_shards;
	char *bytes = palloc(sizeof(ShardNodeEvent) + list);

	memcpy(bytes, event, sizeof(ShardNodeEvent));
	if (list > 0)
		memcpy(bytes + sizeof(ShardNodeEvent), event->shards, list);
	world_later(instance->world, 50, late_node_event, instance, true, 0, 0, bytes,
				sizeof(ShardNodeEvent) + list);
	pfree(bytes);
}

static int64
flow_now(void *context)
{
	return world_clock(context);
}

static uint32
flow_random(void *context, uint32 below)
{
	return world_random(((Instance *) context)->world, below);
}

static int32
flow_node(void *context)
{
	return ((Instance *) context)->node_id;
}

static int32
flow_incarnation(void *context)
{
	Instance *instance = context;

	return instance->node ? shard_node_incarnation(instance->node) : 0;
}

static bool
flow_leased(void *context, int32 type_id)
{
	Instance *instance = context;

	int32 known = instance->world->options.leased ? host_type_id(instance, WORLD_LEASED_TYPE) : 0;

	/* Workers know it without the control process, too. */
	if (known != 0)
		instance->leased_type = known;
	return instance->leased_type != 0 && type_id == instance->leased_type;
}

static int32
flow_era(void *context)
{
	Instance *instance = context;

	/* Workers know it without the control process, too. */
	if (instance->node)
		instance->era = shard_node_era(instance->node);
	return instance->era;
}

static void
flow_notes(void *context, const char *text)
{
	Instance *instance = context;

	world_trace(instance->world, "%s: %s", instance->dsn, text);
}

void
host_create_flow(World *world, Instance *instance, int workers)
{
	FlowHost host = {.context = instance,
					 .send = flow_sends,
					 .node_event = flow_reports,
					 .now = flow_now,
					 .random = flow_random,
					 .node = flow_node,
					 .incarnation = flow_incarnation,
					 .leased = flow_leased,
					 .note = world->options.trace ? flow_notes : NULL,
					 .era = flow_era};
	FlowSettings settings = {.workers = workers,
							 .types = world->options.leased ? 2 : 1,
							 .shards = world_told_shards(&world->options),
							 .entities = world->options.entities,
							 .ordered_timeout = world->options.gap_timeout,
							 .ordered_from = world->options.gap_from_one,
							 .no_tells_from_now = world->quiet};

	instance->flow =
		world->model->create(&host, instance->store, world->check, instance->index, &settings);
}

/* One step of one process of the data plane, whichever chance picks among those that have work. */
void
host_flow_steps(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
				size_t length)
{
	uint32 ready;

	if (!instance->up || a != instance->flow_turn)
		return;
	instance->flow_at = PG_INT64_MAX;
	instance->flow_soon = false;
	ready = world->model->ready(instance->flow) & ~instance->stuck;
	while (ready != 0)
	{
		int skip = (int) world_random(world, (uint32) __builtin_popcount(ready));
		uint32 rest = ready;
		int process;

		for (; skip > 0; skip--)
			rest &= rest - 1;
		process = __builtin_ctz(rest);
		if (world->model->step(instance->flow, process))
		{
			if ((instance->sticks & (1U << process)) &&
				world->model->midway(instance->flow, process) && world_random(world, 3) == 0)
			{
				instance->sticks &= ~(1U << process);
				instance->stuck |= 1U << process;
			}
			break;
		}
		ready &= ~(1U << process);
	}
	host_after(world, instance);
}
