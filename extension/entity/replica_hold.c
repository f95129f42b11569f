/*
 * entity/replica_hold.c
 *		How much of shards with replicas waits in this worker's memory for the release of turns, and which of them rest (Q45).
 *
 * Comes from: who has something that waits, or waits no more: replica_home.c, outputs.c. Asked by pause.c.
 *
 * If the process dies right here, what has waited has gone with it, and so have its numbers.
 */
#include "postgres.h"

#include "entity/internal.h"

#include "base/compat.h"

/* What waits of a shard, and of all of them here, before they rest (Q45). */
#define MOST_OF_SHARD ((Size) 16 * 1024 * 1024)
#define MOST_OF_ALL ((Size) 64 * 1024 * 1024)

static Size held = 0; /* of all of them */

void
shard_replica_shard_hold(ShardReplicaShard *shard, Size bytes)
{
	shard->held += bytes;
	held += bytes;
}

void
shard_replica_shard_let_go(ShardReplicaShard *shard, Size bytes)
{
	ShardAssert(shard->held >= bytes && held >= bytes);
	shard->held -= bytes;
	held -= bytes;
}

bool
shard_replica_shard_holds_much(const ShardReplicaShard *shard)
{
#ifdef SHARD_MUTANT_WAITS_WITHOUT_BOUND
	return false;
#endif
	return shard->held > MOST_OF_SHARD || (shard->held > 0 && held > MOST_OF_ALL);
}
