/*
 * liveness.c
 *		Some nodes are lost for ever, and the others must go on nevertheless, within a bound.
 *
 * When everything else heals, a minority is chosen of those whose loss leaves a majority of every set
 * of voters that anybody knows, and is cut off, crashed, frozen, deaf or mute for the rest of the
 * history. Then every other node tells every shard a message, among them shards that nobody has told
 * anything before. The verdict names what made no progress.
 */
#include "world.h"

#include "core/base/timing.h"
#include "shard.h"

#define PROBE_AFTER (20 * SHARD_SECOND)
#define PROBE_PAUSE (5 * SHARD_MS)
#define MAX_PROBES (WORLD_MAX_INSTANCES * 64)

/* So long may a coordinator that hears no majority take itself for one. */
#define OFFICE_MOST (2 * SHARD_ELECTION_TIMEOUT + SHARD_SECOND)

typedef struct Probe
{
	int64 id; /* of the message; 0: not told yet */
	int instance;
	int generation;
	int32 type_id;
	int32 shard;
} Probe;

struct Liveness
{
	int64 cut_at;
	int n_probes;
	Probe probes[MAX_PROBES];
};

static const char *const names[] = {
	[WORLD_LOST_NOT] = "lives", [WORLD_LOST_CUT] = "cut off",  [WORLD_LOST_DEAF] = "deaf",
	[WORLD_LOST_MUTE] = "mute", [WORLD_LOST_CRASHED] = "dead", [WORLD_LOST_FROZEN] = "frozen",
};

/* Is the instance of a node that is there to stay? */
bool
liveness_of_cluster(const Instance *instance)
{
	return instance->exists && !instance->retired && !instance->shadow && instance->joined &&
		   instance->node_id != 0;
}

/* Is it one of those that must make progress? */
static bool
must_go_on(const Instance *instance)
{
	return liveness_of_cluster(instance) && instance->lost == WORLD_LOST_NOT && instance->up &&
		   !(instance->node && shard_node_fenced(instance->node));
}

/* ---- who is lost ------------------------------------------------------------------------------ */

/* Does a node vote on, if those of a mask of instances are lost? */
static bool
votes_on(World *world, int32 node, uint32 lost)
{
	const Instance *instance = host_of(world, node);

	return instance && !(lost & (1U << instance->index)) && instance->up && instance->node &&
		   !shard_node_fenced(instance->node) &&
		   shard_voter_state(shard_node_voter(instance->node)) == SHARD_VOTER_OK;
}

static bool
majority_stays(World *world, const int32 *nodes, int n_nodes, uint32 lost)
{
	int left = 0;

	for (int i = 0; i < n_nodes; i++)
		left += votes_on(world, nodes[i], lost);
	return n_nodes == 0 || 2 * left > n_nodes;
}

/* The same for the voters that a map names. */
static bool
voters_stay(World *world, const ShardMap *map, uint32 lost)
{
	ShardVotersRecord voters;
	const ShardMapEntry *entry = shard_map_value(map, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});

	return !entry || !shard_record_get_voters(entry, &voters) ||
		   (majority_stays(world, voters.current, voters.n_current, lost) &&
			majority_stays(world, voters.next, voters.n_next, lost));
}

/* May all instances of a mask be lost? Voters that are only proposed count as well. */
static bool
may_be_lost(World *world, uint32 lost)
{
	int n_cluster = 0;
	int n_lost = 0;

	for (int i = 0; i < world->n_instances; i++)
	{
		const Instance *instance = &world->instances[i];

		if (!liveness_of_cluster(instance) || !instance->node)
			continue;
		n_cluster++;
		n_lost += (lost >> i) & 1;
		if (!voters_stay(world, shard_node_learned(instance->node), lost) ||
			!voters_stay(world, shard_voter_map(shard_node_voter(instance->node)), lost))
			return false;
	}
	return 2 * n_lost < n_cluster;
}

void
liveness_block(World *world)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		WorldLost lost = world->instances[i].lost;

		for (int k = 0; k < world->n_instances; k++)
		{
			if (world->instances[k].lost != WORLD_LOST_NOT)
				continue;
			world->blocked[i][k] |= lost == WORLD_LOST_CUT || lost == WORLD_LOST_MUTE;
			world->blocked[k][i] |= lost == WORLD_LOST_CUT || lost == WORLD_LOST_DEAF;
		}
	}
}

static void
lose(World *world, Instance *instance, WorldLost how)
{
	world_trace(world, "-- %s (node %d) is %s for ever", instance->dsn, instance->node_id,
				names[how]);
	instance->lost = how;
	world->n_lost++;
	if (how == WORLD_LOST_CRASHED)
		host_stop(world, instance);
	if (how == WORLD_LOST_FROZEN)
	{
		instance->frozen = true;
		instance->thaw_at = PG_INT64_MAX / 2;
	}
}

static void probe_due(World *world, Instance *instance, int64 number, int64 b, const char *bytes,
					  size_t length);

void
liveness_cut(World *world)
{
	Liveness *liveness = palloc0(sizeof(Liveness));
	uint32 lost = 0;
	int start = (int) world_random(world, (uint32) world->n_instances);

	world->liveness = liveness;
	liveness->cut_at = world->now;
	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[(start + i) % world->n_instances];

		if (!liveness_of_cluster(instance) || !instance->node ||
			!may_be_lost(world, lost | 1U << instance->index))
			continue;
		lost |= 1U << instance->index;
		/* Usually as many as may be. */
		if (world_random(world, 4) == 0)
			break;
	}
	for (int i = 0; i < world->n_instances; i++)
	{
		if (lost & (1U << i))
			lose(world, &world->instances[i],
				 (WorldLost) (1 + world_random(world, WORLD_LOST_FROZEN)));
	}
	liveness_block(world);
	for (int i = 0; i < world->n_instances; i++)
		world_later(world, PROBE_AFTER, probe_due, &world->instances[i], false, 0, 0, NULL, 0);
}

/* ---- messages that must be handled ------------------------------------------------------------ */

/* Tell the next shard something, and so on until all of them were told. */
static void
probe_due(World *world, Instance *instance, int64 number, int64 b, const char *bytes, size_t length)
{
	Liveness *liveness = world->liveness;
	int n_types = world->options.leased ? 2 : 1;
	int shard = (int) (number / n_types);
	int32 type_id = host_type_id(instance, number % n_types ? WORLD_LEASED_TYPE : WORLD_TYPE);
	Probe *probe = &liveness->probes[liveness->n_probes];
	int session = 0;

	if (shard == world->options.shards || !must_go_on(instance))
		return;
	while (session < FLOW_SESSIONS && !world->model->session_idle(instance->flow, session))
		session++;
	if (type_id == 0 || instance->leaving || session == FLOW_SESSIONS ||
		liveness->n_probes == MAX_PROBES)
	{
		world_later(world, 10 * PROBE_PAUSE, probe_due, instance, false, number, 0, NULL, 0);
		return;
	}
	/* entity 1 has no order, in which it would wait for others */
	probe->id = world->model->tell(instance->flow, session, type_id, shard, 1);
	probe->instance = instance->index;
	probe->generation = instance->generation;
	probe->type_id = type_id;
	probe->shard = shard;
	liveness->n_probes++;
	world->model->commit(instance->flow, session);
	host_after(world, instance);
	world_later(world, PROBE_PAUSE, probe_due, instance, false, number + 1, 0, NULL, 0);
}

/* ---- the verdict ------------------------------------------------------------------------------ */

/* Whoever holds the office among those that go on. */
static Instance *
coordinator_of(World *world)
{
	Instance *best = NULL;
	int64 ballot = 0;

	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];
		const ShardProposer *proposer;

		if (!must_go_on(instance) || !instance->node)
			continue;
		proposer = shard_node_proposer(instance->node);
		if (proposer && shard_proposer_office(proposer) == SHARD_OFFICE_HELD &&
			shard_proposer_ballot(proposer) > ballot)
		{
			best = instance;
			ballot = shard_proposer_ballot(proposer);
		}
	}
	return best;
}

/* Nobody who is cut off decides anything, or goes on thinking that he could. */
static void
watch_lost(World *world, int64 n)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		const Instance *instance = &world->instances[i];
		const ShardProposer *proposer;

		if (instance->lost == WORLD_LOST_NOT || !instance->up || !instance->node)
			continue;
		proposer = shard_node_proposer(instance->node);
		if (n > 0 && shard_map_point(shard_node_learned(instance->node)).n > n)
			check_fail(world->check, "minority: %s, %s, has learned n %lld, the others %lld",
					   instance->dsn, names[instance->lost],
					   (long long) shard_map_point(shard_node_learned(instance->node)).n,
					   (long long) n);
		if (!instance->frozen && world->now > world->liveness->cut_at + OFFICE_MOST && proposer &&
			shard_proposer_office(proposer) == SHARD_OFFICE_HELD)
			check_fail(world->check, "minority: %s, %s, is still in office", instance->dsn,
					   names[instance->lost]);
	}
}

static bool
all_know(World *world, int64 n, char *why, size_t size)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		const Instance *instance = &world->instances[i];

		if (!must_go_on(instance))
			continue;
		if (!instance->node || !shard_node_admitted(instance->node))
			snprintf(why, size, "%s (node %d) is not admitted", instance->dsn, instance->node_id);
		else if (shard_map_point(shard_node_learned(instance->node)).n != n)
			snprintf(why, size, "%s has learned up to %lld of %lld", instance->dsn,
					 (long long) shard_map_point(shard_node_learned(instance->node)).n,
					 (long long) n);
		else
			continue;
		return false;
	}
	return true;
}

/* Homes among those that go on are at rest and active; what needs a lease is nowhere else. */
static bool
homes_go_on(World *world, const Instance *coordinator, char *why, size_t size)
{
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *homes =
		shard_map_list(shard_node_learned(coordinator->node), SHARD_MAP_HOME, arena, &count);
	int32 leased = host_type_id(unconstify(Instance *, coordinator), WORLD_LEASED_TYPE);
	bool good = true;

	for (int i = 0; i < count && good; i++)
	{
		ShardHomeRecord home;
		const Instance *at;

		if (!shard_record_get_home(&homes[i], &home))
			continue;
		at = host_of(world, shard_record_home_node(&home));
		good = false;
		if (!at || !must_go_on(at))
		{
			good = homes[i].key.a != leased;
			if (!good)
				snprintf(why, size, "leased shard %d stays at node %d, which is %s", homes[i].key.b,
						 shard_record_home_node(&home), at ? names[at->lost] : "gone");
		}
		else if (home.phase != SHARD_HOME_STABLE)
			snprintf(why, size, "shard %d/%d does not end its move from node %d to %d",
					 homes[i].key.a, homes[i].key.b, shard_record_home_node(&home), home.to);
		else if (world->model->active_epoch(at->flow, homes[i].key.a, homes[i].key.b) != home.epoch)
			snprintf(why, size, "shard %d/%d epoch %d is not active at node %d", homes[i].key.a,
					 homes[i].key.b, home.epoch, shard_record_home_node(&home));
		else
			good = true;
	}
	shard_arena_destroy(arena);
	return good;
}

/* A message to a shard whose home is among those that go on, and to one that never had a home. */
static bool
probe_is_handled(World *world, const Instance *coordinator, const Probe *probe, char *why,
				 size_t size)
{
	const Instance *instance = &world->instances[probe->instance];
	const ShardMapEntry *entry =
		shard_map_value(shard_node_learned(coordinator->node),
						(ShardMapKey){SHARD_MAP_HOME, probe->type_id, probe->shard});
	ShardHomeRecord home;
	const Instance *at;

	if (instance->generation != probe->generation || !must_go_on(instance))
		return true;
	if (!entry || !shard_record_get_home(entry, &home))
	{
		snprintf(why, size, "shard %d/%d gets no home", probe->type_id, probe->shard);
		return false;
	}
	at = host_of(world, shard_record_home_node(&home));
	if (!at || !must_go_on(at))
	{
		if (probe->shard < world->options.shards - WORLD_RESERVED_SHARDS)
			return true;
		snprintf(why, size, "new shard %d/%d has its home at node %d, which is %s", probe->type_id,
				 probe->shard, shard_record_home_node(&home), at ? names[at->lost] : "gone");
		return false;
	}
	if (check_told(world->check) == 0 || check_fate(world->check, probe->id) == CHECK_HANDLED ||
		check_fate(world->check, probe->id) == CHECK_GIVEN_UP)
		return true;
	snprintf(why, size, "message %lld from %s to shard %d/%d at node %d is not handled (fate %d)",
			 (long long) probe->id, instance->dsn, probe->type_id, probe->shard,
			 shard_record_home_node(&home), check_fate(world->check, probe->id));
	return false;
}

/* Does everybody who goes on have what progress needs? */
bool
liveness_settled(World *world, char *why, size_t size)
{
	const Liveness *liveness = world->liveness;
	const Instance *coordinator = coordinator_of(world);
	int64 n;

	watch_lost(world, 0);
	if (!coordinator)
	{
		snprintf(why, size, "the majority has no coordinator");
		return false;
	}
	n = shard_map_point(shard_node_learned(coordinator->node)).n;
	if (world->now < liveness->cut_at + PROBE_AFTER + SHARD_SECOND)
	{
		snprintf(why, size, "it is too early");
		return false;
	}
	if (!all_know(world, n, why, size) || !homes_go_on(world, coordinator, why, size))
		return false;
	for (int i = 0; i < liveness->n_probes; i++)
	{
		if (!probe_is_handled(world, coordinator, &liveness->probes[i], why, size))
			return false;
	}
	watch_lost(world, n);
	return true;
}
