/*
 * faults.c
 *		What goes wrong in a history, and what operators do.
 *
 * A plan is a list made from the seed alone, so that single faults can be left out when a failure is
 * made small. All times are simulated.
 */
#include "world.h"

#include "core/base/timing.h"

/* So long after all is mended a word of an operator may still be heard. */
#define LAST_WORDS (SHARD_COMMAND_PATIENCE + 5 * SHARD_SECOND)

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
		   UINT64CONST(1) << FAULT_LIE;
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

/* ---- ends of faults --------------------------------------------------------------------------- */

static void
comes_up(World *world, Instance *instance, int64 kind, int64 b, const char *bytes, size_t length)
{
	if (!instance->up && !instance->retired)
		host_start(world, instance, (ShardStartKind) kind);
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

static void
loss_ends(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	world->extra_loss = 0;
}

static void
disk_recovers(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	instance->step_delay = 300;
	if (instance->store)
		store_set_full(instance->store, false);
	host_after(world, instance);
}

static void
control_returns(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
				size_t length)
{
	host_start_control(world, instance);
	host_after(world, instance);
}

/* ---- faults ----------------------------------------------------------------------------------- */

static void
crash(World *world, Instance *instance, int64 duration)
{
	if (!instance || !instance->up)
		return;
	host_stop(world, instance);
	world_later(world, duration, comes_up, instance, false, SHARD_START_RESTART, 0, NULL, 0);
}

/* Time until the thaw is not cut short by another freeze that began earlier. */
static void
freeze(World *world, Instance *instance, int64 duration)
{
	if (!instance || !instance->up)
		return;
	instance->thaw_at =
		instance->frozen ? Max(instance->thaw_at, world->now + duration) : world->now + duration;
	instance->frozen = true;
	world_trace(world, "%s freezes", instance->dsn);
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
static void
stick(World *world, Instance *instance, const Fault *fault)
{
	uint32 process = fault->number % 3 ? fault->number / 3 % 2 : fault->number / 3 % PLANE_KEEPER;

	instance->sticks |= 1U << process;
	world_later(world, fault->duration, worker_thaws, instance, false, process, 0, NULL, 0);
}

static void
thaw_due(World *world, Instance *none, int64 index, int64 b, const char *bytes, size_t length)
{
	thaws(world, &world->instances[index], 0, 0, NULL, 0);
}

static void
partition(World *world, uint32 mask, int64 duration)
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

/* Where an operator speaks: at the coordinator, or at any node. */
static Instance *
operators_node(World *world)
{
	Instance *instance = &world->instances[world_random(world, (uint32) world->n_instances)];

	if (world_random(world, 2) == 0 && instance->up && instance->node && instance->joined &&
		!instance->retired && !instance->shadow && !instance->frozen)
		return instance;
	return host_coordinator(world);
}

/* The operator's word. */
static void
operate(World *world, ShardCommandKind kind, int32 node, const ShardShardRef *shard)
{
	Instance *instance = operators_node(world);
	ShardCommand event = {.kind = kind, .node = node, .asker.token = WORLD_COMMAND};

	event.number = node; /* what a setting is to be */
	event.flag = true;
	event.type_id = shard ? shard->type_id : 0;
	event.shard = shard ? shard->shard : 0;
	if (instance && !instance->frozen)
		commands_give(world, instance, &event);
}

/* A shard that is known to the coordinator. False: there is no coordinator. */
static bool
choose_shard(World *world, uint32 number, ShardShardRef *shard)
{
	Instance *coordinator = host_coordinator(world);

	if (!coordinator)
		return false;
	memset(shard, 0, sizeof(*shard));
	shard->type_id = host_type_id(coordinator, WORLD_TYPE);
	shard->shard = (int32) (number % (uint32) world->options.shards);
	return true;
}

/* It goes to some other node. */
static void
move(World *world, uint32 number, int32 to)
{
	ShardShardRef shard;

	if (choose_shard(world, number, &shard))
		operate(world, SHARD_COMMAND_MOVE, to, &shard);
}

/* Or is to be there for a while. */
static void
pin(World *world, uint32 number, int32 node)
{
	ShardShardRef shard;

	if (choose_shard(world, number, &shard))
		operate(world, SHARD_COMMAND_PIN, node, &shard);
}

/*
 * Wishes of operators end with the troubles. An operator looks again and again: a word of before may have
 * been on its way to a coordinator that was frozen, or wait for one as long as a command may (C12), and be
 * heard only now. After that time none may turn up that was taken back.
 */
void
fault_end_wishes(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
				 size_t length)
{
	Instance *coordinator = host_coordinator(world);
	ShardArena *arena = shard_arena_create();
	bool any = coordinator == NULL;
	int n_pins = 0;
	int n_members = 0;
	ShardMapEntry *pins = NULL;
	ShardMapEntry *members = NULL;

	if (coordinator)
	{
		const ShardMap *map = shard_node_learned(coordinator->node);

		pins = shard_map_list(map, SHARD_MAP_PIN, arena, &n_pins);
		members = shard_map_list(map, SHARD_MAP_MEMBER, arena, &n_members);
	}
	for (int i = 0; i < n_pins; i++)
	{
		ShardShardRef shard = {.type_id = pins[i].key.a, .shard = pins[i].key.b};

		any = true;
		operate(world, SHARD_COMMAND_PIN, 0, &shard);
	}
	for (int i = 0; i < n_members; i++)
	{
		ShardCommand event = {.kind = SHARD_COMMAND_EVACUATE, .asker.token = WORLD_COMMAND};
		ShardMemberRecord member;

		event.node = members[i].key.a;
		if (!shard_record_get_member(&members[i], &member, arena) || !member.evacuated)
			continue;
		any = true;
		if (coordinator->frozen || !coordinator->node)
			continue;
		commands_give(world, coordinator, &event);
	}
	shard_arena_destroy(arena);
	if (any || world->now < world->mended_at + LAST_WORDS)
		world_later(world, 2 * SHARD_SECOND, fault_end_wishes, NULL, false, 0, 0, NULL, 0);
}

static void
moves_again(World *world, Instance *instance, int64 number, int64 to, const char *bytes,
			size_t length)
{
	move(world, (uint32) number, (int32) to);
}

static void
joins(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	ShardCommand event = {.kind = SHARD_COMMAND_JOIN,
						  .text = world->instances[a].dsn,
						  .asker.token = WORLD_JOIN};

	event.uuid.high = world_random64(world);
	event.uuid.low = world_random64(world);
	host_command(world, instance, &event);
}

static Instance *
new_instance(World *world)
{
	return world->n_instances < WORLD_MAX_INSTANCES ? &world->instances[world->n_instances++]
													: NULL;
}

static void
join(World *world, const Fault *fault)
{
	Instance *instance;
	char dsn[16];

	if (world->n_instances >= WORLD_MAX_NODES)
		return;
	instance = new_instance(world);
	snprintf(dsn, sizeof(dsn), "db%d", world->n_instances);
	host_create(world, instance, dsn);
	host_start(world, instance, SHARD_START_RESTART);
	world_later(world, 100000, joins, instance, false, fault->a, 0, NULL, 0);
}

static void
stays(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	ShardCommand event = {.kind = SHARD_COMMAND_STAY, .asker.token = WORLD_COMMAND};

	if (instance->up && !instance->frozen && instance->node)
		commands_give(world, instance, &event);
}

/* Now and then the operator changes their mind. */
static void
leave(World *world, Instance *instance, const Fault *fault)
{
	ShardCommand event = {.kind = SHARD_COMMAND_LEAVE, .asker.token = WORLD_COMMAND};

	/* Somebody has to stay. */
	if (instance->index == 0 || !instance->node)
		return;
	host_command(world, instance, &event);
	if (fault->number % 4 == 0)
		world_later(world, fault->number % 5000000, stays, instance, true, 0, 0, NULL, 0);
}

static void
goes_down(World *world, Instance *instance, int64 duration, int64 b, const char *bytes,
		  size_t length)
{
	if (instance->up && !instance->frozen)
		crash(world, instance, duration);
}

/* A server that is told to stop: it says so, and goes down a moment later. */
static void
stop_in_order(World *world, Instance *instance, const Fault *fault)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_STOPPING};

	if (!instance->up || instance->frozen || !instance->node)
		return;
	host_event(world, instance, &event);
	world_later(world, 20000 + fault->number % 2000000, goes_down, instance, true, fault->duration,
				0, NULL, 0);
}

/* A node whose machine is lost; its operator says so a while later, until it is heard. */
static void
written_off(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	Instance *coordinator = host_coordinator(world);
	const ShardMapEntry *entry;
	ShardMemberRecord member;
	bool done = false;

	if (coordinator)
	{
		ShardArena *arena = shard_arena_create();

		entry = shard_map_value(shard_node_learned(coordinator->node),
								(ShardMapKey){SHARD_MAP_MEMBER, instance->node_id, 0});
		done = entry && shard_record_get_member(entry, &member, arena) &&
			   member.status == SHARD_MEMBER_WRITTEN_OFF;
		shard_arena_destroy(arena);
	}
	if (done)
	{
		/* What a journal and members that are put back have forgotten, he says again. */
		if (world->journal)
			world_later(world, 3 * SHARD_SECOND, written_off, instance, false, 0, 0, NULL, 0);
		return;
	}
	for (int i = 0; world->journal && !coordinator && i < world->n_instances; i++)
	{
		ShardCommand event = {.kind = SHARD_COMMAND_WRITE_OFF,
							  .node = instance->node_id,
							  .asker.token = WORLD_COMMAND};

		/* Those who restore the journal need not wait for it. */
		if (!world->instances[i].frozen && !world->instances[i].journal)
			host_command(world, &world->instances[i], &event);
	}
	operate(world, SHARD_COMMAND_WRITE_OFF, instance->node_id, NULL);
	world_later(world, SHARD_SECOND, written_off, instance, false, 0, 0, NULL, 0);
}

static void
write_off(World *world, Instance *instance, const Fault *fault)
{
	if (instance->index == 0 || !instance->up || world->options.nodes < 3)
		return;
	host_stop(world, instance);
	check_written_off(world->check, instance->index);
	plane_strand(instance->plane);
	instance->retired = true;
	plane_retire(instance->plane);
	world_later(world, fault->duration, written_off, instance, false, 0, 0, NULL, 0);
}

/* The same files on another machine: both claim to be the node. */
static void
clone(World *world, Instance *original, bool replaces, ShardStartKind kind, Store *files)
{
	Instance *instance = new_instance(world);
	char dsn[16];

	if (!instance)
	{
		store_destroy(files);
		return;
	}
	instance->store = files;
	snprintf(dsn, sizeof(dsn), replaces ? "%s" : "%s-clone", original->dsn);
	if (original->journal)
	{
		instance->journal = true;
		world->journal = instance;
	}
	host_create(world, instance, dsn);
	instance->joined = original->joined;
	instance->copied = kind == SHARD_START_COPY;
	/* A clone is nobody: the checkers look at the original. */
	if (!replaces)
	{
		instance->shadow = true;
		plane_retire(instance->plane);
	}
	host_start(world, instance, kind);
}

/* Is a node among the voters that a map names? */
static bool
names_voter(const ShardMap *map, int32 node)
{
	ShardVotersRecord voters;
	const ShardMapEntry *entry = shard_map_value(map, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});

	return entry && shard_record_get_voters(entry, &voters) && shard_record_votes(&voters, node);
}

/* May a node have voted lately, by what it has learned or has accepted as a voter? */
static bool
may_vote(const Instance *instance)
{
	return !instance->node || names_voter(shard_node_learned(instance->node), instance->node_id) ||
		   names_voter(shard_voter_map(shard_node_voter(instance->node)), instance->node_id);
}

/* Is there another node that knows what was decided? A copy alone begins a cluster of its own. */
static bool
has_others(World *world, const Instance *instance)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		const Instance *other = &world->instances[i];

		if (other != instance && other->joined && !other->retired && !other->shadow &&
			!other->copied && other->node && !shard_node_fenced(other->node) &&
			shard_map_point(shard_node_learned(other->node)).n > 1)
			return true;
	}
	return false;
}

/* The old database is not the node's any more. */
static void
retire(World *world, Instance *instance)
{
	instance->retired = true;
	plane_retire(instance->plane);
}

/* What was handled at a node since the copy was made is gone with what the copy replaces. */
static void
lose_homes(World *world, int32 node)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		ShardArena *arena;
		ShardMapEntry *homes;
		int count;

		if (!world->instances[i].node)
			continue;
		arena = shard_arena_create();
		homes = shard_map_list(shard_node_learned(world->instances[i].node), SHARD_MAP_HOME, arena,
							   &count);
		for (int k = 0; k < count; k++)
		{
			ShardHomeRecord home;

			if (shard_record_get_home(&homes[k], &home) && shard_record_home_node(&home) == node)
				check_lost(world->check, homes[k].key.a, homes[k].key.b);
		}
		shard_arena_destroy(arena);
	}
	world->restored = true;
}

/*
 * A node is put back from the copy that was made when the fault began. A voter's files that come back
 * unnoticed may have forgotten a promise, which nothing can find out while the others are away (R12);
 * so that is done to nodes that do not vote.
 */
static void
put_back(World *world, Instance *instance, int64 kind, int64 b, const char *bytes, size_t length)
{
	Store *backup = instance->backup;

	instance->backup = NULL;
	if (instance->retired || !has_others(world, instance) ||
		(kind == SHARD_START_RESTART && may_vote(instance)))
	{
		store_destroy(backup);
		return;
	}
	if (instance->up)
		host_stop(world, instance);
	check_excuse(world->check, instance->index);
	for (int i = 0; i < world->n_instances; i++)
	{
		const Instance *before = &world->instances[i];

		if (before->node_id == instance->node_id && before->retired && !before->shadow)
			check_put_back(world->check, i);
	}
	lose_homes(world, instance->node_id);
	plane_strand(instance->plane);
	retire(world, instance);
	clone(world, instance, true, (ShardStartKind) kind, backup);
}

static void
restore(World *world, Instance *instance, const Fault *fault)
{
	if (instance->retired || instance->backup || !instance->node ||
		!shard_node_admitted(instance->node) || world->options.nodes < 2)
		return;
	instance->backup = store_copy(instance->store);
	world_later(world, fault->duration, put_back, instance, false,
				fault->kind == FAULT_RESTORE ? SHARD_START_COPY : SHARD_START_RESTART, 0, NULL, 0);
}

/*
 * The journal is put back from the copy that was made when the fault began. Its host sees that by the
 * server's identity, or takes it for a promotion: without the gate of a standby both may have lost
 * decisions.
 */
static void
put_journal_back(World *world, Instance *instance, int64 kind, int64 b, const char *bytes,
				 size_t length)
{
	Store *backup = instance->backup;

	instance->backup = NULL;
	if (instance->retired || world->n_instances == WORLD_MAX_INSTANCES)
	{
		store_destroy(backup);
		return;
	}
	if (instance->up)
		host_stop(world, instance);
	retire(world, instance);
	clone(world, instance, true, (ShardStartKind) kind, backup);
}

static void
restore_journal(World *world, const Fault *fault)
{
	Instance *instance = world->journal;
	bool copy = instance->standby || fault->number % 2 == 0;

	if (instance->backup)
		return;
	instance->backup = store_copy(instance->store);
	world_later(world, fault->duration, put_journal_back, instance, false,
				copy ? SHARD_START_COPY : SHARD_START_PROMOTED, 0, NULL, 0);
}

/* The machine of the old primary is found and switched off at last. */
static void
old_primary_ends(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
				 size_t length)
{
	if (instance->up)
		host_stop(world, instance);
}

/* The primary of a pair freezes or dies, its standby takes over, and the old one may thaw. */
static void
promote(World *world, Instance *instance, const Fault *fault)
{
	Store *standby = instance->standby;

	if (!standby || instance->retired || world->n_instances == WORLD_MAX_INSTANCES)
		return;

	/*
	 * What had passed the gate is on both; the rest is the old primary's alone. A primary that died
	 * before has told the checkers what its disk holds, so its standby has got that.
	 */
	if (instance->up)
		plane_step(instance->plane, PLANE_FLUSHER);
	else
		store_replay(standby, store_flushed(instance->store));
	check_replaced(world->check, instance->index);
	instance->standby = NULL;
	store_promote(standby);
	retire(world, instance);
	if (instance->up && fault->number % 3 == 0)
		host_stop(world, instance);
	else if (instance->up)
	{
		freeze(world, instance, fault->duration);
		world_later(world, fault->duration, thaw_due, NULL, false, instance->index, 0, NULL, 0);
		world_later(world, fault->duration + 5 * SHARD_SECOND, old_primary_ends, instance, false, 0,
					0, NULL, 0);
	}
	clone(world, instance, true, SHARD_START_PROMOTED, standby);
}

static void
clone_ends(World *world, Instance *instance, int64 index, int64 b, const char *bytes, size_t length)
{
	Instance *copy = &world->instances[index];

	if (copy->up)
		host_stop(world, copy);
	copy->retired = true;
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

/* See world.h. */
void
fault_apply(World *world, const Fault *fault)
{
	Instance *instance = victim(world, fault);
	Instance *coordinator = host_coordinator(world);

	switch (fault->kind)
	{
		case FAULT_CRASH:
			crash(world, instance, fault->duration);
			break;
		case FAULT_CRASH_COORDINATOR:
			crash(world, coordinator, fault->duration);
			break;
		case FAULT_CONTROL_CRASH:
			host_stop_control(world, instance);
			world_later(world, 100000 + fault->number % 1000000, control_returns, instance, true, 0,
						0, NULL, 0);
			break;
		case FAULT_FREEZE:
			freeze(world, instance, fault->duration);
			world_later(world, fault->duration, thaw_due, NULL, false, instance->index, 0, NULL, 0);
			break;
		case FAULT_FREEZE_COORDINATOR:
			if (!coordinator)
				break;
			freeze(world, coordinator, fault->duration);
			world_later(world, fault->duration, thaw_due, NULL, false, coordinator->index, 0, NULL,
						0);
			break;
		case FAULT_FREEZE_WORKER:
			stick(world, instance, fault);
			break;
		case FAULT_PARTITION:
			partition(world, sides(world, fault->number), fault->duration);
			break;
		case FAULT_ISOLATE_REGION:
			partition(world, 1U << instance->index, 3 * fault->duration);
			break;
		case FAULT_ONE_WAY:
			world->blocked[fault->a][fault->b] = true;
			world_later(world, fault->duration, links_heal, NULL, false, fault->a, fault->b, NULL,
						0);
			break;
		case FAULT_LOSS:
			world->extra_loss = 5 + fault->number % 40;
			world_later(world, fault->duration, loss_ends, NULL, false, 0, 0, NULL, 0);
			break;
		case FAULT_SLOW_DISK:
			instance->step_delay = 20000 + fault->number % 500000;
			world_later(world, fault->duration, disk_recovers, instance, false, 0, 0, NULL, 0);
			break;
		case FAULT_DISK_FULL:
			store_set_full(instance->store, true);
			world_later(world, fault->duration, disk_recovers, instance, false, 0, 0, NULL, 0);
			break;
		case FAULT_WORKERS:
			plane_settings(instance->plane)->workers = 1 + (int) (fault->number % PLANE_WORKERS);
			break;
		case FAULT_MOVE:
			move(world, fault->number, fault->b + 1);
			break;
		case FAULT_MOVE_BACK_AND_FORTH:
			for (int i = 0; i < 4; i++)
				world_later(world, 1 + i * (300000 + fault->number % 1000000), moves_again, NULL,
							false, fault->number, (i % 2 ? fault->a : fault->b) + 1, NULL, 0);
			break;
		case FAULT_REBALANCE:
			operate(world, SHARD_COMMAND_REBALANCE, 0, NULL);
			break;
		case FAULT_PIN:
			pin(world, fault->number, fault->b + 1);
			break;
		case FAULT_EVACUATE:
			operate(world, SHARD_COMMAND_EVACUATE, fault->b + 1, NULL);
			break;
		case FAULT_STOP:
			stop_in_order(world, instance, fault);
			break;
		case FAULT_STOP_COORDINATOR:
			if (coordinator)
				stop_in_order(world, coordinator, fault);
			break;
		case FAULT_UNHOST:
			host_types(world, instance, false, 0, NULL, 0);
			world_later(world, 2 * fault->duration + 6 * SHARD_SECOND, host_types, instance, false,
						true, 0, NULL, 0);
			break;
		case FAULT_TYPES:
			types_change(world, instance, fault->number);
			break;
		case FAULT_LIE:
			lies_tell(world, instance, fault->number % 7 == 0 ? 0 : fault->b + 1,
					  fault->number / 7);
			break;
		case FAULT_LEASE_TTL:
			operate(world, SHARD_COMMAND_LEASE_TTL, 1500 + (int32) (fault->number % 6500), NULL);
			break;
		case FAULT_JOIN:
			join(world, fault);
			break;
		case FAULT_LEAVE:
			leave(world, instance, fault);
			break;
		case FAULT_DOWN:
			operate(world, SHARD_COMMAND_DOWN, fault->a + 1, NULL);
			break;
		case FAULT_WRITE_OFF:
			write_off(world, instance, fault);
			break;
		case FAULT_CLONE:
			if (instance->up && !instance->retired && instance->node_id != 0)
			{
				clone(world, instance, false, SHARD_START_RESTART, store_copy(instance->store));
				world_later(world, 2 * fault->duration, clone_ends, NULL, false,
							world->n_instances - 1, 0, NULL, 0);
			}
			break;
		case FAULT_PROMOTE:
			promote(world, instance, fault);
			break;
		case FAULT_RESTORE:
		case FAULT_RESTORE_UNNOTICED:
			restore(world, instance, fault);
			break;
		case FAULT_JOURNAL_RESTORE:
			if (world->journal->standby && fault->number % 3 == 0)
				promote(world, world->journal, fault);
			else
				restore_journal(world, fault);
			break;
		case FAULT_KINDS:
			break;
	}
}

/* The voters are lost for good: the node that knows most becomes the only one (R13). */
static void
force_voters(World *world)
{
	Instance *best = NULL;
	ShardCommand event = {.kind = SHARD_COMMAND_FORCE_VOTERS,
						  .n_nodes = 1,
						  .asker.token = WORLD_COMMAND};

	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];

		if (instance->up && instance->joined && !instance->retired && !instance->shadow &&
			!instance->copied && instance->node && !shard_node_fenced(instance->node) &&
			(!best || shard_map_point(shard_node_learned(instance->node)).n >
						  shard_map_point(shard_node_learned(best->node)).n))
			best = instance;
	}
	/* A journal that forgot is restored by the members themselves. */
	if (!best || names_voter(shard_node_learned(best->node), WORLD_JOURNAL))
		return;
	world->forced = true;
	world->mended_at = world->now;
	check_forced(world->check);
	event.nodes = &best->node_id;
	world_trace(world, "-- the operator makes node %d the only voter", best->node_id);
	host_command(world, best, &event);
}

/* Shards whose state went with what a copy replaced: nobody waits for them any longer. */
static void
give_up_shards(World *world)
{
	Instance *coordinator = host_coordinator(world);
	ShardArena *arena;
	ShardMapEntry *homes;
	int count;

	if (!coordinator)
		return;
	arena = shard_arena_create();
	homes = shard_map_list(shard_node_learned(coordinator->node), SHARD_MAP_HOME, arena, &count);
	for (int i = 0; i < count; i++)
	{
		ShardShardRef ref = {homes[i].key.a, homes[i].key.b, 0, 0};
		ShardHomeRecord home;
		Instance *at;

		if (!shard_record_get_home(&homes[i], &home) || home.phase != SHARD_HOME_STABLE)
			continue;
		at = host_of(world, shard_record_home_node(&home));
		if (at && at->up && at->node && shard_node_admitted(at->node) &&
			plane_active_epoch(at->plane, ref.type_id, ref.shard) != home.epoch)
		{
			check_lost(world->check, ref.type_id, ref.shard);
			world_trace(world, "-- the operator gives up shard %d/%d, epoch %d of node %d",
						ref.type_id, ref.shard, home.epoch, shard_record_home_node(&home));
			operate(world, SHARD_COMMAND_GIVE_UP, 0, &ref);
			/* The list may have changed under our feet. */
			break;
		}
	}
	shard_arena_destroy(arena);
}

/*
 * An operator looks at what needs a word of his: restored nodes that wait for admission, links that
 * are quarantined.
 */
static void
operator_looks(World *world, Instance *none, int64 a, int64 b, const char *bytes, size_t length)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];

		if (!instance->up || !instance->node || instance->retired || instance->shadow)
			continue;
		/* It left, which went with the lost voters: the new ones have to be told. */
		if (world->forced && shard_node_fenced(instance->node))
			operate(world, SHARD_COMMAND_WRITE_OFF, instance->node_id, NULL);
		if (!shard_node_admitted(instance->node) && !shard_node_fenced(instance->node))
			operate(world, SHARD_COMMAND_ADMIT, instance->node_id, NULL);
		if (!plane_quarantined(instance->plane))
			continue;
		for (int k = 0; k < world->n_instances; k++)
		{
			if (world->instances[k].node_id != instance->node_id)
				plane_link_accept(instance->plane, world->instances[k].node_id);
		}
		host_after(world, instance);
	}
	if (world->restored)
		give_up_shards(world);
	/* Where some are lost for ever, the others have a majority: it must do without him. */
	if (world->n_lost == 0 && !host_coordinator(world) && ++world->without_coordinator >= 4)
	{
		world->without_coordinator = 0;
		force_voters(world);
	}
	world_later(world, 3 * SHARD_SECOND, operator_looks, NULL, false, 0, 0, NULL, 0);
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
	world_later(world, 10 * SHARD_SECOND, operator_looks, NULL, false, 0, 0, NULL, 0);
}
