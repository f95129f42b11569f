/*
 * core/homes_number.c
 *		The number that the cluster gives to a new type (doc/protocol.md C19).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/homes_private.h"
#include "core/membership.h"
#include "core/message.h"
#include "core/type_number.h"

/* Wishes beyond this are nonsense; one of them would use up the ids. */
#define MAX_TYPE_WISH (PG_INT32_MAX / 2)

/* Has the cluster one member? Then its administrator alone says who shares with whom. */
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

/* May an owner have types in a group: is nobody else there, or he himself? */
static bool
is_fit(const ShardNumberedType *types, int count, const char *owner, int group)
{
	bool others = false;

	for (int i = 0; i < count; i++)
	{
		if (shard_message_group(types[i].type_id) != group)
			continue;
		if (strcmp(types[i].owner, owner) == 0)
			return true;
		others = true;
	}
	return !others;
}

int32
shard_homes_type_number(const ShardHomes *homes, const ShardTypeRecord *type, int32 last,
						int32 wish, const char **why)
{
	const char *owner = type->owner ? type->owner : "";
	int count;
	ShardNumberedType *types = shard_type_number_list(homes->decided, homes->arena, &count);
	int group;

#ifdef SHARD_MUTANT_TYPE_ID_REUSED
	if (wish > 0)
		return wish;
#endif
	*why = "there are no numbers left";

	/* It is granted if nobody can have had it. */
	if (wish > last && wish <= MAX_TYPE_WISH &&
		(owner[0] == '\0' || is_alone(homes) ||
		 is_fit(types, count, owner, shard_message_group(wish))))
		return wish;
	if (owner[0] == '\0')
		return shard_type_number_next(last, -1);
	group = shard_type_number_group(types, count, owner, last, homes->settings.owners_may_share);
	if (group >= 0)
		return shard_type_number_next(last, group);
	*why = "there are types of as many owners as can have workers of their own";
	return 0;
}
