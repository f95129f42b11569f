/*
 * link/receive_target.h
 *		What messages and marks of another node are for: types and shards that there are, or were (T9).
 */
#pragma once

#include "link/callee.h"
#include "core/flow/fact.h"

/* Of one call; all 0 at its begin. The type that was asked for last is remembered. */
typedef struct ShardReceiveTarget
{
	int32 type_id; /* 0: none yet */
	bool here;	   /* this node has it, or what it has left */
	bool asked;	   /* the map was asked for it, too */
	bool reported; /* the call has something for what there is not */
	ShardTargetLearned learned;
} ShardReceiveTarget;

/*
 * Is a message to be taken? False: there never was what it is for; it is passed over, and its sender is named. Errors with
 * NOT_YET if the sender may know more of it than this node does.
 */
extern bool shard_receive_target_takes(ShardReceiveTarget *target, const ShardCallee *callee,
									   int32 type_id, int32 shard);

/* Can a mark mean anything here? The node keeps messages of types only that it has, or that have left something here (X6). */
extern bool shard_receive_target_marks(ShardReceiveTarget *target, const ShardCallee *callee,
									   int32 type_id, int32 shard);
