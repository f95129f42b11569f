/*
 * faults.c
 *		What goes wrong in a history, and what operators do: the plan, and what becomes of it.
 *
 * A plan is a list made from the seed alone, so that single faults can be left out when a failure is
 * made small. All times are simulated.
 */
#include "faults.h"

#include "core/base/timing.h"

static const char *const names[] = {
	[FAULT_CRASH] = "crash",
	[FAULT_CRASH_COORDINATOR] = "crash_coordinator",
	[FAULT_CONTROL_CRASH] = "control_crash",
	[FAULT_FREEZE] = "freeze",
	[FAULT_FREEZE_COORDINATOR] = "freeze_coordinator",
	[FAULT_FREEZE_WORKER] = "freeze_worker",
	[FAULT_PARTITION] = "partition",
	[FAULT_ONE_WAY] = "one_way",
	[FAULT_ISOLATE_REGION] = "isolate",
	[FAULT_LOSS] = "loss",
	[FAULT_SLOW_DISK] = "slow_disk",
	[FAULT_DISK_FULL] = "disk_full",
	[FAULT_WORKERS] = "workers",
	[FAULT_MOVE] = "move",
	[FAULT_MOVE_BACK_AND_FORTH] = "move_back_and_forth",
	[FAULT_REBALANCE] = "rebalance",
	[FAULT_JOIN] = "join",
	[FAULT_LEAVE] = "leave",
	[FAULT_DOWN] = "down",
	[FAULT_WRITE_OFF] = "write_off",
	[FAULT_PROMOTE] = "promote",
	[FAULT_CLONE] = "clone",
	[FAULT_RESTORE] = "restore",
	[FAULT_RESTORE_UNNOTICED] = "restore_unnoticed",
	[FAULT_JOURNAL_RESTORE] = "journal_restore",
	[FAULT_LEASE_TTL] = "lease_ttl",
	[FAULT_PIN] = "pin",
	[FAULT_EVACUATE] = "evacuate",
	[FAULT_STOP] = "stop",
	[FAULT_STOP_COORDINATOR] = "stop_coordinator",
	[FAULT_UNHOST] = "unhost",
	[FAULT_TYPES] = "types",
	[FAULT_LIE] = "lie",
	[FAULT_HEADLESS] = "headless",
};

/* How often each kind is chosen, relative to the others; rare ones end a node for good. */
static const int weights[] = {
	[FAULT_CRASH] = 12,
	[FAULT_CRASH_COORDINATOR] = 6,
	[FAULT_CONTROL_CRASH] = 6,
	[FAULT_FREEZE] = 10,
	[FAULT_FREEZE_COORDINATOR] = 5,
	[FAULT_FREEZE_WORKER] = 6,
	[FAULT_PARTITION] = 8,
	[FAULT_ONE_WAY] = 6,
	[FAULT_ISOLATE_REGION] = 4,
	[FAULT_LOSS] = 4,
	[FAULT_SLOW_DISK] = 5,
	[FAULT_DISK_FULL] = 4,
	[FAULT_WORKERS] = 4,
	[FAULT_MOVE] = 20,
	[FAULT_MOVE_BACK_AND_FORTH] = 8,
	[FAULT_REBALANCE] = 4,
	[FAULT_JOIN] = 2,
	[FAULT_LEAVE] = 2,
	[FAULT_DOWN] = 2,
	[FAULT_WRITE_OFF] = 1,
	[FAULT_PROMOTE] = 3,
	[FAULT_CLONE] = 1,
	[FAULT_RESTORE] = 1,
	[FAULT_RESTORE_UNNOTICED] = 1,
	[FAULT_JOURNAL_RESTORE] = 8,
	[FAULT_LEASE_TTL] = 3,
	[FAULT_PIN] = 6,
	[FAULT_EVACUATE] = 3,
	[FAULT_STOP] = 5,
	[FAULT_STOP_COORDINATOR] = 4,
	[FAULT_UNHOST] = 12,
	[FAULT_TYPES] = 60,
	[FAULT_LIE] = 60,
	[FAULT_HEADLESS] = 60,
};

const char *
fault_name(FaultKind kind)
{
	return names[kind];
}

/* One line, as the options that would plan it. */
void
fault_print(const Fault *fault, FILE *out)
{
	fprintf(out, "%s at %.1f s for %.1f s, a %d b %d number %u\n", names[fault->kind],
			fault->at / (double) SHARD_SECOND, fault->duration / (double) SHARD_SECOND, fault->a,
			fault->b, fault->number);
}

/* What makes offices change hands while there is much to decide. */
uint64
fault_storm(void)
{
	static const FaultKind kinds[] = {FAULT_CRASH,
									  FAULT_CRASH_COORDINATOR,
									  FAULT_CONTROL_CRASH,
									  FAULT_FREEZE,
									  FAULT_FREEZE_COORDINATOR,
									  FAULT_PARTITION,
									  FAULT_ONE_WAY,
									  FAULT_LOSS,
									  FAULT_SLOW_DISK,
									  FAULT_DISK_FULL,
									  FAULT_MOVE,
									  FAULT_DOWN,
									  FAULT_JOURNAL_RESTORE};
	uint64 mask = 0;

	for (int i = 0; i < (int) lengthof(kinds); i++)
		mask |= UINT64CONST(1) << kinds[i];
	return mask;
}

/* What is not done unless it is asked for. */
uint64
fault_wanted(void)
{
	return UINT64CONST(1) << FAULT_UNHOST | UINT64CONST(1) << FAULT_TYPES |
		   UINT64CONST(1) << FAULT_LIE | UINT64CONST(1) << FAULT_HEADLESS;
}

/* What ends by an operator's decision alone: copies that come up. */
uint64
fault_operator(void)
{
	return UINT64CONST(1) << FAULT_CLONE | UINT64CONST(1) << FAULT_RESTORE |
		   UINT64CONST(1) << FAULT_RESTORE_UNNOTICED;
}

static uint64
chance(uint64 *state)
{
	*state = *state * UINT64CONST(6364136223846793005) + UINT64CONST(1442695040888963407);
	return *state >> 33;
}

/* Fill in the plan: see world.h. */
void
fault_plan(WorldOptions *options)
{
	uint64 state = options->seed * UINT64CONST(0x9E3779B97F4A7C15) + 12345;
	int total = 0;
	int wanted = options->n_faults;

	for (int kind = 0; kind < FAULT_KINDS; kind++)
	{
		if (options->kinds & (UINT64CONST(1) << kind))
			total += weights[kind];
	}
	options->n_faults = 0;
	while (options->n_faults < wanted && total > 0)
	{
		Fault *fault = &options->faults[options->n_faults++];
		int pick = (int) (chance(&state) % (uint64) total);
		int kind = 0;

		for (;; kind++)
		{
			if (!(options->kinds & (UINT64CONST(1) << kind)))
				continue;
			if (pick < weights[kind])
				break;
			pick -= weights[kind];
		}
		memset(fault, 0, sizeof(Fault));
		fault->kind = (FaultKind) kind;
		fault->at = 6 * SHARD_SECOND +
					(int64) (chance(&state) % (uint64) (options->duration - 8 * SHARD_SECOND));
		fault->duration = 200 * SHARD_MS + (int64) (chance(&state) % 8000) * SHARD_MS;
		if (chance(&state) % 5 == 0)
			fault->duration *= 3;
		if (options->storm)
			fault->duration = fault->duration / 5 + 50 * SHARD_MS;
		fault->a = (int) (chance(&state) % (uint64) options->nodes);
		fault->b = (int) (chance(&state) % (uint64) options->nodes);
		fault->number = (uint32) chance(&state);
	}
}

/* The machines on one side of a partition. */
static uint32
sides(World *world, uint32 number)
{
	uint32 mask = number & ((1U << world->options.nodes) - 1);

	if (world->journal && (number >> 16 & 1))
		mask |= 1U << world->journal->index;
	return mask;
}

/* Whom a fault befalls: sometimes the journal, by what can befall it. */
static Instance *
victim(World *world, const Fault *fault)
{
	const uint64 kinds = UINT64CONST(1) << FAULT_CRASH | UINT64CONST(1) << FAULT_CONTROL_CRASH |
						 UINT64CONST(1) << FAULT_FREEZE | UINT64CONST(1) << FAULT_SLOW_DISK |
						 UINT64CONST(1) << FAULT_DISK_FULL | UINT64CONST(1) << FAULT_ISOLATE_REGION;

	if (world->journal && fault->number % 4 == 0 && (kinds & UINT64CONST(1) << fault->kind))
		return world->journal;
	return &world->instances[fault->a];
}

void
fault_apply(World *world, const Fault *fault)
{
	Instance *instance = victim(world, fault);
	Instance *coordinator = host_coordinator(world);

	switch (fault->kind)
	{
		case FAULT_CRASH:
			fault_crash(world, instance, fault->duration);
			break;
		case FAULT_CRASH_COORDINATOR:
			fault_crash(world, coordinator, fault->duration);
			break;
		case FAULT_CONTROL_CRASH:
			fault_crash_control(world, instance, fault);
			break;
		case FAULT_FREEZE:
			fault_freeze(world, instance, fault->duration);
			break;
		case FAULT_FREEZE_COORDINATOR:
			fault_freeze(world, coordinator, fault->duration);
			break;
		case FAULT_FREEZE_WORKER:
			fault_freeze_worker(world, instance, fault);
			break;
		case FAULT_PARTITION:
			fault_partition(world, sides(world, fault->number), fault->duration);
			break;
		case FAULT_ISOLATE_REGION:
			fault_partition(world, 1U << instance->index, 3 * fault->duration);
			break;
		case FAULT_ONE_WAY:
			fault_one_way(world, fault);
			break;
		case FAULT_LOSS:
			fault_loss(world, fault);
			break;
		case FAULT_SLOW_DISK:
			fault_slow_disk(world, instance, fault);
			break;
		case FAULT_DISK_FULL:
			fault_full_disk(world, instance, fault);
			break;
		case FAULT_WORKERS:
			world->model->settings(instance->flow)->workers =
				1 + (int) (fault->number % FLOW_WORKERS);
			break;
		case FAULT_MOVE:
			fault_move(world, fault->number, fault->b + 1);
			break;
		case FAULT_MOVE_BACK_AND_FORTH:
			fault_move_back_and_forth(world, fault);
			break;
		case FAULT_REBALANCE:
			fault_operate(world, SHARD_COMMAND_REBALANCE, 0, NULL);
			break;
		case FAULT_PIN:
			fault_pin(world, fault->number, fault->b + 1);
			break;
		case FAULT_EVACUATE:
			fault_operate(world, SHARD_COMMAND_EVACUATE, fault->b + 1, NULL);
			break;
		case FAULT_STOP:
			fault_stop(world, instance, fault);
			break;
		case FAULT_STOP_COORDINATOR:
			fault_stop(world, coordinator, fault);
			break;
		case FAULT_UNHOST:
			fault_unhost(world, instance, fault);
			break;
		case FAULT_TYPES:
			types_change(world, instance, fault->number);
			break;
		case FAULT_LIE:
			lies_tell(world, instance, fault->number % 7 == 0 ? 0 : fault->b + 1,
					  fault->number / 7);
			break;
		case FAULT_LEASE_TTL:
			fault_operate(world, SHARD_COMMAND_LEASE_TTL, 1500 + (int32) (fault->number % 6500),
						  NULL);
			break;
		case FAULT_JOIN:
			fault_join(world, fault);
			break;
		case FAULT_LEAVE:
			fault_leave(world, instance, fault);
			break;
		case FAULT_HEADLESS:
			fault_headless(world, instance, fault);
			break;
		case FAULT_DOWN:
			fault_operate(world, SHARD_COMMAND_DOWN, fault->a + 1, NULL);
			break;
		case FAULT_WRITE_OFF:
			fault_write_off(world, instance, fault);
			break;
		case FAULT_CLONE:
			fault_clone(world, instance, fault);
			break;
		case FAULT_PROMOTE:
			fault_promote(world, instance, fault);
			break;
		case FAULT_RESTORE:
		case FAULT_RESTORE_UNNOTICED:
			fault_restore(world, instance, fault);
			break;
		case FAULT_JOURNAL_RESTORE:
			fault_restore_journal(world, fault);
			break;
		case FAULT_KINDS:
			break;
	}
}
