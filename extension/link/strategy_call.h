/*
 * link/strategy_call.h
 *		A question to a type's own allocation functions, from the control worker to a backend.
 */
#pragma once

#include "core/allocation/allocation.h"
#include "core/base/wire.h"

typedef struct ShardStrategyQuestion
{
	uint64 secret; /* of shared memory: only processes of this node know it */
	int32 type_id;
	bool rebalance;
	int n_regions; /* in order of registration */
	ShardAllocationRegion *regions;
	const char *members; /* JSON, as shard_plan_allocation() takes it */
	int n_shards;
	int32 *shards;
	int32 *requesters; /* of allocate; 0: no requester */
} ShardStrategyQuestion;

/* The answer: allocate: the nodes, as many as shards; rebalance: shards. Or why there is none. */
typedef struct ShardStrategyAnswer
{
	const char *error; /* NULL: none */
	int sqlstate;	   /* of that */
	int n;
	int32 *numbers;
} ShardStrategyAnswer;

extern void shard_strategy_put_question(StringInfo out, const ShardStrategyQuestion *question);
extern void shard_strategy_put_answer(StringInfo out, const ShardStrategyAnswer *answer);

/* Texts and arrays that were read are palloc'd. False: the bytes are damaged. */
extern bool shard_strategy_get_question(ShardReader *reader, ShardStrategyQuestion *question);
extern bool shard_strategy_get_answer(ShardReader *reader, ShardStrategyAnswer *answer);
