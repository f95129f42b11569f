/*
 * core/home/homes_number.c
 *		The number that the cluster gives to a new type, and the room (doc/protocol.md C19, C20).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/home/homes_private.h"
#include "core/member/membership.h"
#include "core/map/type_number.h"

/* Has the cluster one member? Then its administrator alone says which owners share a group. */
static bool
is_alone(const ShardHomes *homes)
{
	int members = 0;

	for (int i = 0; i < homes->n_nodes; i++)
		if (shard_membership_is_member(homes->nodes[i].status) ||
			homes->nodes[i].status == SHARD_MEMBER_DOWN)
			members++;
	return members <= 1;
}

/*
 * Has no other member than the one that brought a type said that it has it? Members that have not registered yet count as not
 * having it.
 */
static bool
is_alone_with(ShardHomes *homes, int32 member, int32 type_id, const ShardTypeRecord *type)
{
	if (type->by != member)
		return false;
	for (int i = 0; i < homes->n_regions; i++)
	{
		const HomesRegion *region = &homes->regions[i];
		int32 status;

		if (region->node == member || !shard_homes_has(region, type_id))
			continue;
		status = shard_homes_node(homes, region->node)->status;
		if (shard_membership_is_member((ShardMemberStatus) status) || status == SHARD_MEMBER_DOWN)
			return false;
	}
	return true;
}

bool
shard_homes_has_room(ShardHomes *homes, int32 member, int32 type_id, const ShardMapEntry *entry,
					 const ShardTypeRecord *type)
{
	ShardTypeRoom all = {0, 0, 0};
	ShardTypeRoom alone = {0, 0, 0};
	int count;
	ShardMapEntry *known = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &count);
	ShardTypeRecord record;

	if (is_alone(homes))
		return true;
	shard_type_room_add(&all, entry, type);
	if (type_id == 0)
		shard_type_room_add(&alone, entry, type);
	for (int i = 0; i < count; i++)
	{
		bool is_it = known[i].key.a == type_id;

		if (!shard_record_get_type(&known[i], &record, homes->arena))
			continue;
		if (!is_it)
			shard_type_room_add(&all, &known[i], &record);
#ifdef SHARD_MUTANT_SHARED_COUNTS_AS_ALONE
		if (is_it || is_alone_with(homes, member, known[i].key.a, &record))
#else
		if (is_alone_with(homes, member, known[i].key.a, &record))
#endif
			shard_type_room_add(&alone, is_it ? entry : &known[i], is_it ? type : &record);
	}
	return shard_type_room_fits(&all, &alone);
}

int32
shard_homes_type_number(const ShardHomes *homes, const ShardTypeRecord *type, int32 last,
						int32 wish, bool *full)
{
	int count;
	ShardNumberedType *types = shard_type_number_list(homes->decided, homes->arena, &count);

#ifdef SHARD_MUTANT_TYPE_ID_REUSED
	*full = false;
	if (wish > 0)
		return wish;
#endif
	return shard_type_number_choose(types, count, shard_type_number_party(type), last, wish,
									is_alone(homes), homes->live->owners_may_share, full);
}
