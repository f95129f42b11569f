/*
 * core/type_number.c
 *		Numbers of types: which group of lanes an owner's types are in (doc/protocol.md W1, C19).
 *
 * A number says the group for good, since lanes hang on it. So a type stays where it is when its owner changes,
 * and then shares with the others that are there.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/message.h"
#include "core/type_number.h"

ShardNumberedType *
shard_type_number_list(const ShardMap *map, ShardArena *arena, int *count)
{
	int entries;
	ShardMapEntry *known = shard_map_list(map, SHARD_MAP_TYPE, arena, &entries);
	ShardNumberedType *types =
		shard_arena_alloc(arena, Max(entries, 1) * sizeof(ShardNumberedType));
	ShardTypeRecord record;

	*count = 0;
	for (int i = 0; i < entries; i++)
		if (shard_record_get_type(&known[i], &record, arena))
			types[(*count)++] =
				(ShardNumberedType){known[i].key.a, record.owner ? record.owner : ""};
	return types;
}

static bool
is_in(const ShardNumberedType *type, int group)
{
	return shard_message_group(type->type_id) == group;
}

int
shard_type_number_owners(const ShardNumberedType *types, int count, int group)
{
	int owners = 0;

	for (int i = 0; i < count; i++)
	{
		bool known = !is_in(&types[i], group);

		for (int before = 0; before < i && !known; before++)
			known =
				is_in(&types[before], group) && strcmp(types[before].owner, types[i].owner) == 0;
		owners += known ? 0 : 1;
	}
	return owners;
}

/* Whether an owner has types in a group. */
static bool
has_type(const ShardNumberedType *types, int count, const char *owner, int group)
{
	for (int i = 0; i < count; i++)
		if (is_in(&types[i], group) && strcmp(types[i].owner, owner) == 0)
			return true;
	return false;
}

int
shard_type_number_group(const ShardNumberedType *types, int count, const char *owner, int32 last,
						bool may_share)
{
	int own = -1;
	int own_owners = PG_INT32_MAX;
	int other = -1;
	int other_owners = may_share ? PG_INT32_MAX : 1;

	for (int i = 1; i <= SHARD_GROUPS; i++)
	{
		int group = (shard_message_group(last) + i) % SHARD_GROUPS;
		int owners = shard_type_number_owners(types, count, group);

		if (has_type(types, count, owner, group))
		{
			own = owners < own_owners ? group : own;
			own_owners = Min(own_owners, owners);
		}
		else if (owners < other_owners)
		{
			other = group;
			other_owners = owners;
		}
	}
#ifdef SHARD_MUTANT_OWNERS_MIXED
	return shard_message_group(last + 1);
#endif
	return own >= 0 ? own : other;
}

int32
shard_type_number_next(int32 last, int group)
{
	int64 next = (int64) last + 1;

	if (group >= 0)
		next += (group - (int) (next % SHARD_GROUPS) + SHARD_GROUPS) % SHARD_GROUPS;
	return next <= PG_INT32_MAX ? (int32) next : 0;
}
