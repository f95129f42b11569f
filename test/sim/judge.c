/*
 * judge.c
 *		What the world holds the control plane against: one chain of decided maps (V4), and an end in
 *		which every node knows the same, everything has a home and nothing is left to do.
 */
#include "world.h"

#include "core/base/timing.h"
#include "shard.h"

/* One decided entry, by key and n; a second one of the same must say the same. */
typedef struct ChainKey
{
	int32 era;
	int32 kind;
	int32 a;
	int32 b;
	int64 n;
} ChainKey;

typedef struct ChainEntry
{
	ChainKey key;
	uint32 status;
	bool deleted;
	uint64 value;
} ChainEntry;

static inline uint32
hash_chain_key(ChainKey key)
{
	uint64 h = (uint64) key.n * UINT64CONST(0x9E3779B97F4A7C15) ^ (uint64) (uint32) key.kind << 40 ^
			   (uint64) (uint32) key.a << 20 ^ (uint32) key.b ^ (uint64) (uint32) key.era << 50;

	return (uint32) (h >> 32 ^ h);
}

#include "common/logging.h"
#define SH_PREFIX chain
#define SH_ELEMENT_TYPE ChainEntry
#define SH_KEY_TYPE ChainKey
#define SH_KEY key
#define SH_HASH_KEY(table, k) hash_chain_key(k)
#define SH_EQUAL(table, x, y) (memcmp(&(x), &(y), sizeof(ChainKey)) == 0)
#define SH_SCOPE static inline
#define SH_RAW_ALLOCATOR palloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

typedef struct Chain
{
	chain_hash *entries;
} Chain;

static uint64
digest(const char *bytes, uint32 length)
{
	uint64 h = UINT64CONST(14695981039346656037);

	for (uint32 i = 0; i < length; i++)
		h = (h ^ (unsigned char) bytes[i]) * UINT64CONST(1099511628211);
	return h;
}

void
judge_destroy(World *world)
{
	check_sets_destroy(world);
	if (!world->chain)
		return;
	chain_destroy(world->chain->entries);
	pfree(world->chain);
}

/*
 * A restored journal begins an era (R14): with everything that any member has learned in the one
 * before, which is what members may have acted upon.
 */
static void
judge_era(World *world, const Instance *teller, const ShardMapEntry *entry)
{
	int32 era = shard_node_era(teller->node);
	ShardVotersRecord voters;

	if (era <= world->judged_era || !shard_record_get_voters(entry, &voters) || voters.era != era ||
		voters.current[0] != WORLD_JOURNAL)
		return;
	world->judged_era = era;
	for (int i = 0; i < world->n_instances; i++)
	{
		const Instance *instance = &world->instances[i];

		if (instance->joined && !instance->retired && !instance->shadow && instance->node &&
			!shard_node_fenced(instance->node) && shard_node_era(instance->node) < era &&
			shard_map_point(shard_node_learned(instance->node)).n > entry->n - SHARD_ERA_LEAP)
			check_fail(world->check, "R14: era %d begins without what %s has learned", era,
					   instance->dsn);
	}
}

/* A node takes an entry for decided: it must be the one that all others take for decided (V4). */
void
judge_learned(World *world, const Instance *instance, const ShardMapEntry *entry)
{
	ChainKey key = {shard_node_era(instance->node), entry->key.kind, entry->key.a, entry->key.b,
					entry->n};
	ChainEntry *known;
	bool found;
	uint64 value = digest(entry->value, entry->length);

	if (entry->key.kind == 0 || entry->n == 0)
		return;
	/* Nodes found clusters of their own before they join: those maps are another matter. */
	if (!instance->joined)
		return;
	types_judge(world, instance, entry);
	if (entry->key.kind == SHARD_MAP_VOTERS && world->journal)
		judge_era(world, instance, entry);
	if (!world->chain)
	{
		world->chain = palloc0(sizeof(Chain));
		world->chain->entries = chain_create(256, NULL);
	}
	known = chain_insert(world->chain->entries, key, &found);
	if (!found)
	{
		known->deleted = entry->deleted;
		known->value = value;
		commands_learned(world, key.era, entry);
		if (entry->key.kind == SHARD_MAP_HOME)
		{
			world->n_moves++;
			check_set(world, key.era, entry);
		}
	}
	else if (known->deleted != entry->deleted || known->value != value)
		check_fail(world->check,
				   "V4: %s takes another value of key (%d, %d, %d) at n %lld for decided",
				   instance->dsn, entry->key.kind, entry->key.a, entry->key.b,
				   (long long) entry->n);
}

/* Is the node one that should be well by now? */
static bool
counts(const Instance *instance)
{
	return instance->exists && !instance->retired && !instance->shadow && instance->up &&
		   instance->joined && !(instance->node && shard_node_fenced(instance->node));
}

/* Has the instance's node left the cluster, as those who go on know? */
static bool
has_left(World *world, const Instance *instance)
{
	const Instance *coordinator = host_coordinator(world);
	ShardMemberRecord member;
	ShardArena *arena;
	const ShardMapEntry *entry;
	bool left;

	if (!coordinator || !instance->joined)
		return false;
	arena = shard_arena_create();
	entry = shard_map_value(shard_node_learned(coordinator->node),
							(ShardMapKey){SHARD_MAP_MEMBER, instance->node_id, 0});
	left = entry && shard_record_get_member(entry, &member, arena) &&
		   member.status == SHARD_MEMBER_REMOVED;
	shard_arena_destroy(arena);
	return left;
}

/* Is every home's shard active where the map says, and nowhere waiting? */
static bool
homes_are_active(World *world, Instance *coordinator, char *why, size_t size)
{
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *homes =
		shard_map_list(shard_node_learned(coordinator->node), SHARD_MAP_HOME, arena, &count);
	bool good = true;

	for (int i = 0; i < count && good; i++)
	{
		ShardHomeRecord home;
		Instance *at;

		if (!shard_record_get_home(&homes[i], &home))
			continue;
		at = host_of(world, shard_record_home_node(&home));
		if (at && has_left(world, at))
			check_fail(world->check, "M20: shard %d/%d has its home at node %d, which has left",
					   homes[i].key.a, homes[i].key.b, shard_record_home_node(&home));
		if (home.phase != SHARD_HOME_STABLE)
		{
			snprintf(why, size, "shard %d still moves", homes[i].key.b);
			good = false;
		}
		else if (!at || !at->up ||
				 world->model->active_epoch(at->flow, homes[i].key.a, homes[i].key.b) != home.epoch)
		{
			snprintf(why, size, "shard %d/%d epoch %d is not active at node %d", homes[i].key.a,
					 homes[i].key.b, home.epoch, shard_record_home_node(&home));
			good = false;
		}
	}
	shard_arena_destroy(arena);
	return good;
}

/* Is every member where it is to stay? Joining, leaving and downed ones are not. */
static bool
members_rest(World *world, Instance *coordinator, char *why, size_t size)
{
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *members =
		shard_map_list(shard_node_learned(coordinator->node), SHARD_MAP_MEMBER, arena, &count);
	bool good = true;

	for (int i = 0; i < count && good; i++)
	{
		ShardMemberRecord member;
		Instance *at = host_of(world, members[i].key.a);

		good = !shard_record_get_member(&members[i], &member, arena) ||
			   member.status == SHARD_MEMBER_UP || member.status == SHARD_MEMBER_REMOVED ||
			   member.status == SHARD_MEMBER_WRITTEN_OFF || !at || !counts(at);
		if (!good)
			snprintf(why, size, "node %d is still of status %d", members[i].key.a, member.status);
	}
	shard_arena_destroy(arena);
	return good;
}

/* Homes of the durable type that a node has. */
static int
homes_at(const ShardMapEntry *homes, int count, int32 type_id, int32 node)
{
	int n = 0;

	for (int i = 0; i < count; i++)
	{
		ShardHomeRecord home;

		n += homes[i].key.a == type_id && shard_record_get_home(&homes[i], &home) &&
			 shard_record_home_node(&home) == node;
	}
	return n;
}

/* Are the members' shares of a type equal, within the bound of the strategy: one shard? */
static bool
is_balanced(Instance *coordinator, const char *type, char *why, size_t size)
{
	ShardArena *arena = shard_arena_create();
	const ShardMap *map = shard_node_learned(coordinator->node);
	int n_homes;
	int n_members;
	ShardMapEntry *homes = shard_map_list(map, SHARD_MAP_HOME, arena, &n_homes);
	ShardMapEntry *members = shard_map_list(map, SHARD_MAP_MEMBER, arena, &n_members);
	int32 type_id = host_type_id(coordinator, type);
	int least = PG_INT32_MAX;
	int most = 0;

	for (int i = 0; i < n_members; i++)
	{
		ShardMemberRecord member;
		int n;

		if (!shard_record_get_member(&members[i], &member, arena) ||
			member.status != SHARD_MEMBER_UP)
			continue;
		n = homes_at(homes, n_homes, type_id, members[i].key.a);
		least = Min(least, n);
		most = Max(most, n);
	}
	shard_arena_destroy(arena);
	if (most - least > 1 && least != PG_INT32_MAX)
		snprintf(why, size, "one member has %d shards of \"%s\", another %d", most, type, least);
	return most - least <= 1 || least == PG_INT32_MAX;
}

/* Does the whole cluster rest, now? */
static bool
is_settled(World *world, char *why, size_t size)
{
	Instance *coordinator = host_coordinator(world);
	int64 n;

	if (!coordinator)
	{
		snprintf(why, size, "there is no coordinator");
		return false;
	}
	n = shard_map_point(shard_node_learned(coordinator->node)).n;
	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];
		char text[400];

		if (!counts(instance))
			continue;
		if (!instance->node || !shard_node_admitted(instance->node))
		{
			snprintf(why, size, "%s (node %d) is not admitted", instance->dsn, instance->node_id);
			return false;
		}
		if (shard_map_point(shard_node_learned(instance->node)).n != n)
		{
			snprintf(why, size, "%s has learned up to %lld of %lld", instance->dsn,
					 (long long) shard_map_point(shard_node_learned(instance->node)).n,
					 (long long) n);
			return false;
		}
		if (world->model->pending(instance->flow, text, sizeof(text)) > 0)
		{
			snprintf(why, size, "%s: %s", instance->dsn, text);
			return false;
		}
	}
	return members_rest(world, coordinator, why, size) &&
		   types_settled(world, coordinator, why, size) &&
		   homes_are_active(world, coordinator, why, size) &&
		   (world->options.functions || is_balanced(coordinator, WORLD_TYPE, why, size)) &&
		   (world->options.replicas > 0 || is_balanced(coordinator, WORLD_LEASED_TYPE, why, size));
}

/*
 * Does the whole cluster rest, as it should in the end? In some histories it is watched for two more
 * rounds of rebalancing: nothing may move any more, or shards would wander for ever. A type's own functions
 * are not watched: they need not have come to a balance when all else rests, and may err to the end.
 */
bool
judge_settled(World *world, char *why, size_t size)
{
	const int64 watch = 2 * SHARD_REBALANCE_INTERVAL + 5 * SHARD_SECOND;
	const int64 end = world->options.duration + world->options.settle;

	if (!is_settled(world, why, size))
	{
		world->settled_at = 0; /* a late trouble */
		return false;
	}
	if (world->options.seed % 8 != 0 || world->options.functions || world->now + watch > end)
		return true;
	if (world->settled_at == 0)
	{
		world->settled_at = world->now;
		world->settled_homes = world->n_moves;
	}
	if (world->n_moves != world->settled_homes)
		check_fail(world->check, "a shard moves although all is settled");
	snprintf(why, size, "watched for shards that wander");
	return world->now >= world->settled_at + watch;
}

/*
 * The end of a history that went well. What is at a node that has left is nowhere: it left nothing
 * undone (M20).
 */
void
judge_end(World *world)
{
	Flow *flows[WORLD_MAX_INSTANCES];
	int n_flows = 0;

	for (int i = 0; i < world->n_instances; i++)
	{
		if (world->instances[i].flow && !world->instances[i].retired &&
			!world->instances[i].shadow && !has_left(world, &world->instances[i]))
			flows[n_flows++] = world->instances[i].flow;
		else if (world->instances[i].flow && has_left(world, &world->instances[i]))
			check_left(world->check, i);
	}
	world->model->check_end(flows, n_flows, world->check);
}
