/*
 * fault_leave.c
 *		The coordinator's server dies in the midst of a leave, at each of its steps, and the others must go on (R11).
 *
 * A node among three voters or more, all of which are well, is told to leave. Its coordinator dies when so many batches
 * were accepted there, or learned, since then. If each store names three members that are up, or leave and are still a
 * home, one of the others has to take office, within a bound, unless something else goes wrong meanwhile.
 */
#include "faults.h"

#include "core/base/timing.h"

#define LOOK_PAUSE (SHARD_MS / 5)		 /* between two looks at how far a leave has come */
#define LEAVE_MOST (10 * SHARD_SECOND)	 /* for its steps to come */
#define ELECTION_MOST (8 * SHARD_SECOND) /* from the death to the next office */
#define WATCH_PAUSE (250 * SHARD_MS)

/* Does an instance count? One that has left does not. */
static bool
is_there(const Instance *instance)
{
	return liveness_of_cluster(instance) && !(instance->node && shard_node_fenced(instance->node));
}

/* Is an instance of the cluster up and in good order? */
static bool
is_well(World *world, const Instance *instance)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		if (is_there(&world->instances[i]) &&
			(world->blocked[i][instance->index] || world->blocked[instance->index][i]))
			return false;
	}
	return instance->up && instance->node && !instance->frozen && !instance->stuck &&
		   instance->lost == WORLD_LOST_NOT && shard_node_admitted(instance->node) &&
		   shard_voter_state(shard_node_voter(instance->node)) == SHARD_VOTER_OK;
}

/* Is every instance of the cluster well, but for one of a mask, and the network as it should be? */
static bool
all_are_well(World *world, uint32 but)
{
	if (world->healed || world->extra_loss != 0)
		return false;
	for (int i = 0; i < world->n_instances; i++)
	{
		if (is_there(&world->instances[i]) && !(but >> i & 1) &&
			!is_well(world, &world->instances[i]))
			return false;
	}
	return true;
}

static bool
has_home(const ShardMap *map, int32 node)
{
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *homes = shard_map_list(map, SHARD_MAP_HOME, arena, &count);
	bool found = false;

	for (int i = 0; i < count && !found; i++)
	{
		ShardHomeRecord home;

		found = shard_record_get_home(&homes[i], &home) && shard_record_home_node(&home) == node;
	}
	shard_arena_destroy(arena);
	return found;
}

/* Members that count (R11): who is up, and who leaves with a home. */
static int
count_members(const ShardMap *map)
{
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *entries = shard_map_list(map, SHARD_MAP_MEMBER, arena, &count);
	int members = 0;

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		if (shard_record_get_member(&entries[i], &member, arena) &&
			(member.status == SHARD_MEMBER_UP ||
			 (member.status == SHARD_MEMBER_LEAVING && has_home(map, entries[i].key.a))))
			members++;
	}
	shard_arena_destroy(arena);
	return members;
}

/* Are three members there that count, by the last that anybody has learned or accepted? */
static bool
three_count(World *world)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		const Instance *instance = &world->instances[i];

		if (is_there(instance) && instance->node &&
			(count_members(shard_node_learned(instance->node)) < 3 ||
			 count_members(shard_voter_map(shard_node_voter(instance->node))) < 3))
			return false;
	}
	return true;
}

/* Are there three voters at least, a node among them, and none to come? */
static bool
is_one_of_three(const ShardMap *map, int32 node)
{
	const ShardMapEntry *entry = shard_map_value(map, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});
	ShardVotersRecord voters;

	return entry && shard_record_get_voters(entry, &voters) && voters.n_current >= 3 &&
		   voters.n_next == 0 && fault_names_voter(map, node);
}

static void
next_is_due(World *world, Instance *dead, int64 since, int64 leaver, const char *bytes,
			size_t length)
{
	const Instance *coordinator = host_coordinator(world);

	if ((coordinator && coordinator != dead) || !all_are_well(world, 1U << dead->index))
		return;
	if (world->now >= since + ELECTION_MOST)
		check_fail(world->check,
				   "R11: node %lld leaves, the coordinator is dead for %lld s, nobody takes office",
				   (long long) leaver, (long long) ((world->now - since) / SHARD_SECOND));
	else
		world_later(world, WATCH_PAUSE, next_is_due, dead, false, since, leaver, NULL, 0);
}

/* What a deed is about. */
typedef struct Headless
{
	int leaver;		/* index */
	int64 dies_at;	/* n of the coordinator's */
	int64 until;	/* no longer than that */
	int64 duration; /* of the death, beyond what is watched */
} Headless;

static void
look_due(World *world, Instance *coordinator, int64 a, int64 b, const char *bytes, size_t length)
{
	const Headless *deed = (const Headless *) bytes;
	Instance *leaver = &world->instances[deed->leaver];
	ShardMapPoint accepted;
	bool counts;

	if (!coordinator->node || host_coordinator(world) != coordinator || world->now > deed->until ||
		!all_are_well(world, 0))
		return;
	accepted = shard_map_point(shard_voter_map(shard_node_voter(coordinator->node)));
	if (Max(accepted.n, shard_map_point(shard_node_learned(coordinator->node)).n) < deed->dies_at)
	{
		world_later(world, LOOK_PAUSE, look_due, coordinator, false, 0, 0, bytes, length);
		return;
	}
	counts = three_count(world);
	world_trace(world, "-- the coordinator %s dies as node %d leaves%s", coordinator->dsn,
				leaver->node_id, counts ? "" : ", one of the last two");
	fault_crash(world, coordinator, ELECTION_MOST + SHARD_SECOND + deed->duration);
	if (counts)
		next_is_due(world, coordinator, world->now, leaver->node_id, NULL, 0);
}

void
fault_headless(World *world, Instance *leaver, const Fault *fault)
{
	Instance *coordinator = host_coordinator(world);
	ShardCommand event = {.kind = SHARD_COMMAND_LEAVE, .asker.token = WORLD_COMMAND};
	Headless deed = {.leaver = leaver->index,
					 .until = world->now + LEAVE_MOST,
					 .duration = fault->duration};

	/* Somebody has to stay. */
	if (leaver->index == 0 || !coordinator || !is_there(leaver) || !leaver->node ||
		!all_are_well(world, 0) ||
		!is_one_of_three(shard_node_learned(coordinator->node), leaver->node_id))
		return;
	deed.dies_at = shard_map_point(shard_node_learned(coordinator->node)).n + fault->number % 12;
	host_command(world, leaver, &event);
	world_later(world, LOOK_PAUSE, look_due, coordinator, false, 0, 0, (const char *) &deed,
				sizeof(deed));
}
