/*
 * entity/replica_inputs.h
 *		Messages of this node that shards with replicas have taken in: they are kept until the turn is released (Q30).
 *
 * A row of the log is kept as long as its lane needs it (D9); a parked row has the turn in table shard.parked
 * (route/routing_inputs.c). Here is what is kept of each shard that is active here. As the rest of a ShardReplicaShard it
 * changes with what has happened for good.
 */
#pragma once

#include "core/base/division.h"
#include "entity/replica_home.h"

/* From this row of the log on a turn, and those behind it, have taken in rows. */
typedef struct ShardReplicaInput
{
	int64 turn;
	int64 seq;
} ShardReplicaInput;

/* After a commit, or at a start: the turn has taken in rows of the log from seq on; it has taken in parked rows. Turns rise. */
extern void shard_replica_inputs_add(ShardReplicaShard *shard, int64 turn, int64 seq);
extern void shard_replica_inputs_parked(ShardReplicaShard *shard, int64 turn);

/* Released has risen; and: the shard ends here, or begins without its state. */
extern void shard_replica_inputs_released(ShardReplicaShard *shard);
extern void shard_replica_inputs_drop(ShardReplicaShard *shard);

/* Whether parked rows are kept of any shard. */
extern bool shard_replica_inputs_are_parked(void);

/* Parked rows of all turns up to that one have gone. */
extern void shard_replica_inputs_gone(ShardReplicaShard *shard, int64 turn);

/*
 * For each lane the lowest row of the log that is kept; PG_INT64_MAX: none is. NULL: of no lane. And whether less is needed than
 * when that was asked the last time.
 */
extern const int64 *shard_replica_inputs_needed(void);
extern bool shard_replica_inputs_changed(void);
