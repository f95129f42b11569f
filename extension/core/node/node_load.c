/*
 * core/node/node_load.c
 *		Durable records, as a process that has just begun reads them.
 *
 * A map of many homes comes at once: one by one, in the order of its keys or of their age, each would shift half of the others
 * in the one or the other.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"

/* The learned map's point travels as an entry of kind 0: a = 0, n, value: the ballot. */
static void
load_learned(ShardMap *map, const ShardMapEntry *entries, int count)
{
	ShardMapEntry *keyed = palloc(sizeof(ShardMapEntry) * Max(count, 1));
	int n = 0;

	for (int i = 0; i < count; i++)
	{
		if (entries[i].key.kind == 0)
			shard_map_set_point(map, (ShardMapPoint){.n = entries[i].n});
		else
			keyed[n++] = entries[i];
	}
	shard_map_expect(map, keyed, n);
	for (int i = 0; i < n; i++)
		shard_map_put(map, &keyed[i]);
	pfree(keyed);
}

int
shard_node_load(ShardNode *node, ShardStore store, const ShardMapEntry *entries, int count)
{
	/* a past that there is not makes no map */
	if (count == 0)
		return 0;
	switch (store)
	{
		case SHARD_STORE_NODE:
			for (int i = 0; i < count; i++)
				if (!shard_node_load_identity(node, &entries[i]))
					return i;
			return count;
		case SHARD_STORE_VOTER:
		case SHARD_STORE_ACCEPTED:
			return shard_voter_load(node->voter, store, entries, count);
		case SHARD_STORE_LEARNED:
			load_learned(node->learned, entries, count);
			return count;
		case SHARD_STORE_PAST:
			if (!node->past)
				node->past = shard_map_create();
			load_learned(node->past, entries, count);
			return count;
	}
	return 0;
}
