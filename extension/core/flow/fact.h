/*
 * core/flow/fact.h
 *		What another node says of homes, beside the map that this node has learned (T6).
 */
#pragma once

#include "core/flow/packet.h"

typedef enum ShardFactVerdict
{
	SHARD_FACT_LEARNED, /* the map says the same */
	SHARD_FACT_PAST,	/* the map has something newer, or has forgotten the shard */
	SHARD_FACT_AHEAD,	/* the map does not reach so far: it may be true */
	SHARD_FACT_FALSE	/* the map says otherwise */
} ShardFactVerdict;

/* What was learned of a shard, and how far. */
typedef struct ShardFactLearned
{
	int64 upto_n; /* everything that was decided up to here is known */
	int32 era;	  /* of the cluster, which the teller is in, too */
	int64 n;	  /* version of the shard's entry, which may be ahead of that; -1: there is none */
	bool deleted; /* it has no home (any more) */
	ShardHomeRecord home; /* unless n is -1, or deleted */
} ShardFactLearned;

/* What a message or a mark is for, beside what is known of it (T9). */
typedef enum ShardTargetVerdict
{
	SHARD_TARGET_THERE, /* the type has that shard */
	SHARD_TARGET_GONE,	/* there was such a type */
	SHARD_TARGET_AHEAD, /* the map does not reach so far: there may be one */
	SHARD_TARGET_FALSE	/* there was none, or it has not got that shard */
} ShardTargetVerdict;

typedef struct ShardTargetLearned
{
	int32
		number_of_shards; /* of the type, by this node or by the map; 0: there is none (any more), and then: */
	int32 last_type_id; /* the greatest number that the map has given to a type, */
	int64 upto_n;		/* up to this version; */
	int32 era;			/* of the cluster, which the teller is in, too */
} ShardTargetLearned;

/* known_n: how far the map is that the teller has learned. */
extern ShardTargetVerdict shard_fact_judge_target(int32 type_id, int32 shard, int64 known_n,
												  const ShardTargetLearned *learned);

/* No side effects, no errors. */
extern ShardFactVerdict shard_fact_judge(const ShardFact *fact, const ShardFactLearned *learned);
