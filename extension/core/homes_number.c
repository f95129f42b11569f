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
#include "core/type_number.h"

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
	return shard_type_number_choose(types, count, type->owner ? type->owner : "", last, wish,
									is_alone(homes), homes->settings.owners_may_share, full);
}
