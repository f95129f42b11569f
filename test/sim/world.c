/*
 * world.c
 *		Time, chance and network of the simulated world.
 */
#include "world.h"

#include <stdarg.h>

#include "core/base/timing.h"

/* ---- events ----------------------------------------------------------------------------------- */

typedef struct Event
{
	int64 at;
	int64 order; /* events of the same time happen in the order in which they were planned */
	WorldHandler handler;
	int instance; /* -1: none */
	int generation;
	int64 a;
	int64 b;
	size_t length;
	char *bytes;
} Event;

typedef struct Heap
{
	int count;
	int space;
	Event *events;
} Heap;

static bool
before(const Event *a, const Event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void
heap_push(Heap *heap, Event event)
{
	int i;

	if (heap->count == heap->space)
	{
		heap->space = Max(256, 2 * heap->space);
		heap->events = heap->events ? repalloc(heap->events, heap->space * sizeof(Event))
									: palloc(heap->space * sizeof(Event));
	}
	i = heap->count++;
	while (i > 0 && before(&event, &heap->events[(i - 1) / 2]))
	{
		heap->events[i] = heap->events[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap->events[i] = event;
}

static Event
heap_pop(Heap *heap)
{
	Event first = heap->events[0];
	Event last = heap->events[--heap->count];
	int i = 0;

	for (;;)
	{
		int child = 2 * i + 1;

		if (child >= heap->count)
			break;
		if (child + 1 < heap->count && before(&heap->events[child + 1], &heap->events[child]))
			child++;
		if (!before(&heap->events[child], &last))
			break;
		heap->events[i] = heap->events[child];
		i = child;
	}
	heap->events[i] = last;
	return first;
}

void
world_later(World *world, int64 delay, WorldHandler handler, Instance *instance, bool bound,
			int64 a, int64 b, const char *bytes, size_t length)
{
	Event event = {.at = world->now + delay,
				   .order = ++world->order,
				   .handler = handler,
				   .instance = instance ? instance->index : -1,
				   .generation = instance && bound ? instance->generation : -1,
				   .a = a,
				   .b = b,
				   .length = length};

	if (length > 0)
		event.bytes = memcpy(palloc(length), bytes, length);
	heap_push(world->heap, event);
}

/* ---- chance and time -------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood): small, and good enough to choose among troubles. */
static uint64
next_random(uint64 *state)
{
	uint64 z = (*state += UINT64CONST(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

uint64
world_random64(World *world)
{
	return next_random(&world->random);
}

/* A number from 0 to below - 1. */
uint32
world_random(World *world, uint32 below)
{
	return below == 0 ? 0 : (uint32) (next_random(&world->random) % below);
}

/* The time that an instance's own monotonic clock shows. It runs on while processes are frozen. */
int64
world_clock(const Instance *instance)
{
	int64 now = instance->world->now;

	/* Parts per million, near enough, without a division: it is asked for at every turn. */
	return instance->clock_base + now + ((now * instance->clock_ppm) >> 20);
}

/* A line of the trace, with the time in milliseconds. */
void
world_trace(World *world, const char *format, ...)
{
	va_list args;

	if (!world->options.trace)
		return;
	fprintf(world->options.trace, "%10.3f  ", world->now / 1000.0);
	va_start(args, format);
	vfprintf(world->options.trace, format, args);
	va_end(args);
	fputc('\n', world->options.trace);
}

/* ---- network ---------------------------------------------------------------------------------- */

/* Carry bytes to an instance, or lose, delay and repeat them. */
void
world_send(World *world, Instance *from, int to, WorldHandler handler, const char *bytes,
		   size_t length)
{
	Instance *target = &world->instances[to];
	int copies = 1;

	world->n_messages++;
	if (to == from->index)
	{
		world_later(world, 20, handler, target, false, from->index, 0, bytes, length);
		return;
	}
	if (world->blocked[from->index][to] || !target->exists)
		return;
	if (world_random(world, 1000) < (uint32) (world->options.loss_percent + world->extra_loss) * 10)
		return;
	if (world_random(world, 100) < 2)
		copies = 2;
	for (int i = 0; i < copies; i++)
	{
		int64 delay = world->options.delay / 2 + world_random(world, (uint32) world->options.delay);

		/* Some messages take a detour, long enough to meet another term or epoch. */
		if (world_random(world, 200) == 0)
			delay += world_random(world, 5000) * INT64CONST(1000);
		world_later(world, delay, handler, target, false, from->index, 0, bytes, length);
	}
}

/* ---- clients ---------------------------------------------------------------------------------- */

static void
client_acts(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	Flow *flow = instance->flow;
	uint64 chance = next_random(&world->random_tells);
	int session = (int) (chance % FLOW_SESSIONS);
	int64 pause = 20000 + (int64) (next_random(&world->random_tells) % 500000);

	if (world->quiet)
	{
		/* Open transactions end before the history does. */
		for (int i = 0; i < FLOW_SESSIONS; i++)
		{
			if (instance->up && world->model->session_open(flow, i))
				world->model->commit(flow, i);
		}
		host_after(world, instance);
		return;
	}
	world_later(world, pause, client_acts, instance, false, 0, 0, NULL, 0);
	if (!instance->up || instance->frozen || instance->retired || !instance->joined)
		return;
	chance >>= 8;
	if (world->model->session_open(flow, session) && chance % 4 != 0)
	{
		if (chance % 16 == 1)
			world->model->rollback(flow, session);
		else
			world->model->commit(flow, session);
	}
	else if (world->model->session_open(flow, session) || world->model->session_idle(flow, session))
	{
		const char *name =
			world->options.leased && (chance & 0x100) ? WORLD_LEASED_TYPE : WORLD_TYPE;
		int32 type_id = host_type_id(instance, name);
		int shard = (int) ((chance >> 12) % (uint64) world_told_shards(&world->options));
		int entity = (int) ((chance >> 32) % (uint64) world->options.entities);

		if (type_id == 0 || instance->leaving || shard_node_fenced(instance->node))
			; /* refused */
		else if (((chance >> 40) & 31) == 0)
			world->model->redrive(flow, session);
		else
			(void) world->model->tell(flow, session, type_id, shard, entity);
	}
	host_after(world, instance);
}

/* ---- a history -------------------------------------------------------------------------------- */

static void
fault_due(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	const Fault *fault = &world->options.faults[a];

	if (fault->off)
		return;
	world->n_applied++;
	world->applied[fault->kind]++;
	if (world->options.trace)
	{
		fprintf(world->options.trace, "%10.3f  -- ", world->now / 1000.0);
		fault_print(fault, world->options.trace);
	}
	fault_apply(world, fault);
}

static void
heal_due(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	world->healed = true;
	world->healed_at = world->now;
	world_trace(world, "-- all faults heal");
	fault_heal(world);
	if (world->options.liveness)
		liveness_cut(world);
}

static void
quiet_due(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	world->quiet = true;
	world_trace(world, "-- clients are quiet");
	for (int i = 0; i < world->n_instances; i++)
	{
		if (world->instances[i].flow)
			world->model->settings(world->instances[i].flow)->no_tells_from_now = true;
	}
}

World *
world_create(const WorldOptions *options)
{
	World *world = palloc0(sizeof(World));

	world->options = *options;
	world->model = options->model;
	world->heap = palloc0(sizeof(Heap));
	world->check = check_create();
	world->history = shard_arena_create();
	world->random = options->seed * 2 + 1;
	world->random_tells = options->seed ^ UINT64CONST(0x5DEECE66D);
	for (int i = 0; i < options->nodes; i++)
	{
		char dsn[16];

		snprintf(dsn, sizeof(dsn), "db%d", i + 1);
		host_create(world, &world->instances[world->n_instances++], dsn);
	}
	if (options->journal)
	{
		world->journal = &world->instances[world->n_instances++];
		world->journal->journal = true;
		host_create(world, world->journal, "journal");
	}
	return world;
}

void
world_destroy(World *world)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];

		if (instance->node)
			shard_node_destroy(instance->node);
		if (instance->flow)
			world->model->destroy(instance->flow);
		if (instance->standby)
			store_destroy(instance->standby);
		if (instance->backup)
			store_destroy(instance->backup);
		if (instance->store)
			store_destroy(instance->store);
		if (instance->out)
			shard_action_destroy(instance->out);
	}
	for (int i = 0; i < world->heap->count; i++)
	{
		if (world->heap->events[i].bytes)
			pfree(world->heap->events[i].bytes);
	}
	if (world->heap->events)
		pfree(world->heap->events);
	pfree(world->heap);
	judge_destroy(world);
	commands_destroy(world);
	plans_destroy(world);
	if (world->liveness)
		pfree(world->liveness);
	check_destroy(world->check);
	shard_arena_destroy(world->history);
	pfree(world);
}

/* One event. Those of a frozen instance wait in its buffers until it thaws. */
static void
happen(World *world, Event *event)
{
	Instance *instance = event->instance >= 0 ? &world->instances[event->instance] : NULL;

	world->now = Max(world->now, event->at);
	if (instance && event->generation >= 0 && event->generation != instance->generation)
		return;
	if (instance && instance->frozen && event->handler != client_acts)
	{
		Event later = *event;

		later.at = instance->thaw_at + 1;
		if (!world->healed)
			later.at = Min(later.at, world->options.duration + 1);
		later.order = ++world->order;
		heap_push(world->heap, later);
		event->bytes = NULL;
		return;
	}
	world->n_events++;
	event->handler(world, instance, event->a, event->b, event->bytes, event->length);
}

static void
join_due(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	ShardCommand join = {.kind = SHARD_COMMAND_JOIN,
						 .text = world->instances[0].dsn,
						 .asker.token = WORLD_JOIN};

	join.uuid.high = world_random64(world);
	join.uuid.low = world_random64(world);
	host_command(world, instance, &join);
}

/* Is all as well as it can be? */
static bool
settled(World *world, char *why, size_t size)
{
	return world->liveness ? liveness_settled(world, why, size) : judge_settled(world, why, size);
}

const char *
world_run(World *world)
{
	int64 end = world->options.duration + world->options.settle;
	char why[512] = "";

	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];

		instance->joined = i == 0;
		host_start(world, instance, SHARD_START_RESTART);
		if (instance->journal)
			continue;
		if (i > 0)
			world_later(world, 100000 + world_random(world, 2000000), join_due, instance, true, 0,
						0, NULL, 0);
		world_later(world, 1000000 + world_random(world, 500000), client_acts, instance, false, 0,
					0, NULL, 0);
	}
	plans_begin(world);
	for (int i = 0; i < world->options.n_faults; i++)
		world_later(world, world->options.faults[i].at, fault_due, NULL, false, i, 0, NULL, 0);
	world_later(world, world->options.duration, heal_due, NULL, false, 0, 0, NULL, 0);
	world_later(world, world->options.duration, fault_end_wishes, NULL, false, 0, 0, NULL, 0);
	world_later(world, world->options.duration + 5 * SHARD_SECOND, quiet_due, NULL, false, 0, 0,
				NULL, 0);

	while (world->heap->count > 0 && !check_violation(world->check))
	{
		Event event = heap_pop(world->heap);
		bool over = event.at > end;

		if (!over)
			happen(world, &event);
		if (event.bytes)
			pfree(event.bytes);
		if (over)
			break;
		if (world->options.plans_refused && world->healed)
			return check_violation(world->check);
		/* Once all is quiet there is no need to watch it. */
		if (world->quiet && world->n_events % 256 == 0 && settled(world, why, sizeof(why)))
			break;
	}
	if (!check_violation(world->check))
	{
		if (!settled(world, why, sizeof(why)))
			check_fail(world->check, "not settled %d s after the last fault healed: %s",
					   (int) (world->options.settle / SHARD_SECOND), why);
		else if (!world->liveness)
			judge_end(world);
	}
	return check_violation(world->check);
}
