/*
 * fault_machine.c
 *		Machines, processes, disks and links fail, and work again.
 */
#include "faults.h"

#include "core/base/timing.h"

static void
comes_up(World *world, Instance *instance, int64 kind, int64 b, const char *bytes, size_t length)
{
	if (!instance->up && !instance->retired)
		host_start(world, instance, (ShardStartKind) kind);
}

void
fault_crash(World *world, Instance *instance, int64 duration)
{
	if (!instance || !instance->up)
		return;
	host_stop(world, instance);
	world_later(world, duration, comes_up, instance, false, SHARD_START_RESTART, 0, NULL, 0);
}

static void
control_returns(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
				size_t length)
{
	host_start_control(world, instance);
	host_after(world, instance);
}

/* The control process alone. */
void
fault_crash_control(World *world, Instance *instance, const Fault *fault)
{
	host_stop_control(world, instance);
	world_later(world, 100000 + fault->number % 1000000, control_returns, instance, true, 0, 0,
				NULL, 0);
}

static void
thaws(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	if (!instance->frozen || world->now < instance->thaw_at)
		return;
	instance->frozen = false;
	world->mended_at = world->now;
	world_trace(world, "%s thaws", instance->dsn);
	host_after(world, instance);
}

static void
thaw_due(World *world, Instance *none, int64 index, int64 b, const char *bytes, size_t length)
{
	thaws(world, &world->instances[index], 0, 0, NULL, 0);
}

/* Time until the thaw is not cut short by another freeze that began earlier. */
static void
freeze(World *world, Instance *instance, int64 duration)
{
	if (!instance->up)
		return;
	instance->thaw_at =
		instance->frozen ? Max(instance->thaw_at, world->now + duration) : world->now + duration;
	instance->frozen = true;
	world_trace(world, "%s freezes", instance->dsn);
}

void
fault_freeze(World *world, Instance *instance, int64 duration)
{
	if (!instance)
		return;
	freeze(world, instance, duration);
	world_later(world, duration, thaw_due, NULL, false, instance->index, 0, NULL, 0);
}

/* One worker or backend of the data plane goes on. */
static void
worker_thaws(World *world, Instance *instance, int64 process, int64 b, const char *bytes,
			 size_t length)
{
	instance->stuck &= ~(1U << process);
	instance->sticks &= ~(1U << process);
	host_after(world, instance);
}

/* Any of them, but mostly a worker: of the first two, since there may be no more. */
void
fault_freeze_worker(World *world, Instance *instance, const Fault *fault)
{
	uint32 process = fault->number % 3 ? fault->number / 3 % 2 : fault->number / 3 % FLOW_KEEPER;

	instance->sticks |= 1U << process;
	world_later(world, fault->duration, worker_thaws, instance, false, process, 0, NULL, 0);
}

static void
goes_down(World *world, Instance *instance, int64 duration, int64 b, const char *bytes,
		  size_t length)
{
	if (instance->up && !instance->frozen)
		fault_crash(world, instance, duration);
}

/* A server that is told to stop: it says so, and goes down a moment later. */
void
fault_stop(World *world, Instance *instance, const Fault *fault)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_STOPPING};

	if (!instance || !instance->up || instance->frozen || !instance->node)
		return;
	host_event(world, instance, &event);
	world_later(world, 20000 + fault->number % 2000000, goes_down, instance, true, fault->duration,
				0, NULL, 0);
}

static void
links_heal(World *world, Instance *instance, int64 mask, int64 to, const char *bytes, size_t length)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		for (int k = 0; k < world->n_instances; k++)
		{
			if (to >= 0 ? (i == mask && k == to) : ((mask >> i) & 1) != ((mask >> k) & 1))
				world->blocked[i][k] = false;
		}
	}
	liveness_block(world);
}

void
fault_partition(World *world, uint32 mask, int64 duration)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		for (int k = 0; k < world->n_instances; k++)
		{
			if (((mask >> i) & 1) != ((mask >> k) & 1))
				world->blocked[i][k] = true;
		}
	}
	world_later(world, duration, links_heal, NULL, false, mask, -1, NULL, 0);
}

void
fault_one_way(World *world, const Fault *fault)
{
	world->blocked[fault->a][fault->b] = true;
	world_later(world, fault->duration, links_heal, NULL, false, fault->a, fault->b, NULL, 0);
}

static void
loss_ends(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	world->extra_loss = 0;
}

void
fault_loss(World *world, const Fault *fault)
{
	world->extra_loss = 5 + fault->number % 40;
	world_later(world, fault->duration, loss_ends, NULL, false, 0, 0, NULL, 0);
}

static void
disk_recovers(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	instance->step_delay = 300;
	if (instance->store)
		store_set_full(instance->store, false);
	host_after(world, instance);
}

void
fault_slow_disk(World *world, Instance *instance, const Fault *fault)
{
	instance->step_delay = 20000 + fault->number % 500000;
	world_later(world, fault->duration, disk_recovers, instance, false, 0, 0, NULL, 0);
}

void
fault_full_disk(World *world, Instance *instance, const Fault *fault)
{
	store_set_full(instance->store, true);
	world_later(world, fault->duration, disk_recovers, instance, false, 0, 0, NULL, 0);
}

/* A node becomes a proxy of its types, or a host again (C17). */
static void
host_types(World *world, Instance *instance, int64 again, int64 b, const char *bytes, size_t length)
{
	if (!instance->exists || instance->journal || instance->unhosted == !again)
		return;
	instance->unhosted = !again;
	world_trace(world, "-- %s %s", instance->dsn, again ? "hosts again" : "is a proxy");
	if (instance->node)
		host_tell_types(world, instance);
}

void
fault_unhost(World *world, Instance *instance, const Fault *fault)
{
	host_types(world, instance, false, 0, NULL, 0);
	world_later(world, 2 * fault->duration + 6 * SHARD_SECOND, host_types, instance, false, true, 0,
				NULL, 0);
}

/* Everything is repaired, as a good operator would: machines run, links work, disks have room. */
void
fault_heal(World *world)
{
	memset(world->blocked, 0, sizeof(world->blocked));
	world->extra_loss = 0;
	world->mended_at = world->now;
	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];

		if (!instance->exists)
			continue;
		instance->stuck = instance->sticks = 0;
		host_types(world, instance, true, 0, NULL, 0);
		if (instance->frozen)
		{
			instance->thaw_at = world->now;
			thaws(world, instance, 0, 0, NULL, 0);
		}
		disk_recovers(world, instance, 0, 0, NULL, 0);
		if (instance->retired)
			continue;
		if (!instance->up)
			host_start(world, instance, SHARD_START_RESTART);
		else if (!instance->node)
			host_start_control(world, instance);
	}
	world_later(world, 10 * SHARD_SECOND, fault_operator_looks, NULL, false, 0, 0, NULL, 0);
}
