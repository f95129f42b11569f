/*
 * core/map/set.c
 *		The set of a shard of a type with replicas: the nodes that keep copies of it (Q1 to Q4).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/set.h"

bool
shard_set_get(const ShardHomeRecord *home, int64 n, ShardSet *set)
{
	memset(set, 0, sizeof(*set));
	if (!shard_set_is_of(home))
		return false;
	set->n = n;
	set->epoch = home->epoch;
	set->lost = home->lost;
	set->want = home->want;
	set->n_nodes = home->n_nodes;
	memcpy(set->nodes, home->nodes, sizeof(int32) * home->n_nodes);
	return true;
}

bool
shard_set_learn(ShardSet *set, const ShardHomeRecord *home, int64 n, int32 node)
{
	bool had = set->n_nodes > 0;

	(void) shard_set_get(home, n, set);
#ifndef SHARD_MUTANT_SETS_OF_OTHERS
	if (shard_set_role(set, node) == SHARD_SET_NONE)
		memset(set, 0, sizeof(*set));
#endif
	return had || set->n_nodes > 0;
}

ShardSetRole
shard_set_role(const ShardSet *set, int32 node)
{
	for (int i = 0; i < set->n_nodes; i++)
	{
		if (set->nodes[i] == node)
			return i == 0 ? SHARD_SET_HOME : SHARD_SET_BACKUP;
	}
	return SHARD_SET_NONE;
}

int
shard_set_others(const ShardSet *set, int32 node, int32 *nodes)
{
	int count = 0;

	for (int i = 0; i < set->n_nodes; i++)
	{
		if (set->nodes[i] != node)
			nodes[count++] = set->nodes[i];
	}
	return count;
}

bool
shard_set_has(const ShardHomeRecord *home, int32 node)
{
	for (int i = 0; i < home->n_nodes; i++)
	{
		if (home->nodes[i] == node)
			return true;
	}
	return false;
}
