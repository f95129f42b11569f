/*
 * core/home/homes_place.c
 *		Which of the moves that are ready may begin: the places at a target (M24).
 *
 * How long a move is under way is up to its home, its target, and the owner of its type: by a worker that stands still,
 * locks, triggers, handoff_timeout. So the few moves at a time are not enough; a move that waits long for those few goes
 * beside them, one of an owner from a home.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/home/homes_private.h"
#include "core/home/import_turn.h"

/* Is it under way to its target, as far as that copies it, or is about to? */
static bool
is_copied(const HomesShard *shard)
{
	return shard->move != SHARD_MOVE_PREPARING && shard->move != SHARD_MOVE_STARTING;
}

/* The owner of the type; "": that is not known. */
static const char *
owner_of(ShardHomes *homes, const ShardMapEntry *entry)
{
	ShardTypeRecord type;

	return entry && shard_record_get_type(entry, &type, homes->arena) && type.owner ? type.owner
																					: "";
}

static const char *
owner_of_shard(ShardHomes *homes, const HomesShard *shard)
{
	return owner_of(homes, shard_map_value(homes->decided,
										   (ShardMapKey){SHARD_MAP_TYPE, shard->key.type_id, 0}));
}

static bool
is_of_owner(ShardHomes *homes, const HomesShard *shard, int32 type_id, const char *owner)
{
	return shard->key.type_id == type_id || strcmp(owner_of_shard(homes, shard), owner) == 0;
}

/* Are there types of several owners? Looked at once in a round. */
static bool
has_several_owners(ShardHomes *homes)
{
	int count;
	ShardMapEntry *types;
	const char *first;

	if (homes->several_owners >= 0)
		return homes->several_owners > 0;
	homes->several_owners = 0;
	types = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &count);
	first = count > 0 ? owner_of(homes, &types[0]) : "";
	for (int i = 1; i < count && homes->several_owners == 0; i++)
		homes->several_owners = strcmp(owner_of(homes, &types[i]), first) != 0;
	return homes->several_owners > 0;
}

/*
 * The last place at a target is closed to an owner that has all the other places: that owner's triggers decide how
 * long the owner's moves take, and the moves of all other owners would wait for them (M24).
 */
static bool
is_for_others(ShardHomes *homes, const HomesShard *shard)
{
	const char *owner;

#ifdef SHARD_MUTANT_MOVES_OF_ONE_OWNER
	return false;
#endif
	if (shard_homes_node(homes, shard->target)->n_copied < SHARD_IMPORT_COPIES - 1)
		return false;
	owner = owner_of_shard(homes, shard);
	for (int i = 0; i < homes->n_moves; i++)
	{
		const HomesShard *other = homes_shard_lookup(homes->shards, homes->moves[i]);

		if (other->target == shard->target && is_copied(other) &&
			!is_of_owner(homes, other, shard->key.type_id, owner))
			return false;
	}
	return has_several_owners(homes);
}

/* What the target of a shard is at. */
static ShardImportPlaces
count_places(ShardHomes *homes, const HomesShard *shard)
{
	ShardImportPlaces taken = {0};
	const char *owner = owner_of_shard(homes, shard);

	for (int i = 0; i < homes->n_moves; i++)
	{
		const HomesShard *other = homes_shard_lookup(homes->shards, homes->moves[i]);

		if (other->target != shard->target || !is_copied(other))
			continue;
		taken.all++;
		if (!is_of_owner(homes, other, shard->key.type_id, owner))
			continue;
		taken.of_owner++;
		taken.from_home += other->node == shard->node;
	}
	return taken;
}

bool
shard_homes_has_place(ShardHomes *homes, int64 now, HomesShard *shard)
{
	ShardImportPlaces taken;
	const HomesNode *target = shard_homes_node(homes, shard->target);
	int n_copied = target->n_copied;
	int n_fast = n_copied - target->n_slow;

	if (shard->ready == 0)
		shard->ready = now;
	if (n_copied < SHARD_IMPORT_COPIES && !is_for_others(homes, shard))
		return true;
	/* Those before it are mostly over in a moment, and its messages are handled meanwhile. */
	if (now - shard->ready < SHARD_PLACE_PATIENCE && n_fast >= SHARD_IMPORT_COPIES - 1)
		return false;
	if (n_copied >= SHARD_IMPORT_BY_OWNER)
		return false;
	taken = count_places(homes, shard);
	return shard_import_own_place(&taken);
}

void
shard_homes_count_copied(ShardHomes *homes, int64 now)
{
	for (int i = 0; i < homes->n_nodes; i++)
		homes->nodes[i].n_copied = homes->nodes[i].n_slow = 0;
	for (int i = 0; i < homes->n_moves; i++)
	{
		HomesShard *shard = homes_shard_lookup(homes->shards, homes->moves[i]);
		HomesNode *target;

		if (!is_copied(shard))
			continue;
		if (shard->begun == 0)
			shard->begun = now;
		target = shard_homes_node(homes, shard->target);
		target->n_copied++;
		target->n_slow += now - shard->begun >= SHARD_PLACE_PATIENCE;
	}
}
