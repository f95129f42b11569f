/*
 * entity/outputs_private.h
 *		Outputs that wait, for the files that keep them and have them leave.
 */
#pragma once

#include "lib/ilist.h"

#include "entity/outputs.h"
#include "entity/replica_home.h"

/* Bytes of outputs that leave in one turn; one output at least. */
#define SHARD_OUTPUTS_BYTES (16 * 1024 * 1024)

/* The outputs of one turn that are not appended yet. */
typedef struct Outputs
{
	dlist_node node;
	int64 turn;
	int64 first; /* oseq of the first one */
	int count;
	Size held; /* what counts as waiting */
	int len;
	char *
		items; /* ShardTurnOutput, one after the other; NULL: they are to be read from the record */
} Outputs;

/* Shards of which some are released: ShardReplicaShard.due_node. */
extern dlist_head shard_outputs_due;

/* Takes the shard out of them. */
extern void shard_outputs_not_due(ShardReplicaShard *shard);

/* Whether the next outputs of the shard are released. */
extern bool shard_outputs_may_leave(const ShardReplicaShard *shard);

/* How long none of them leaves, in microseconds; 0: not any more. */
extern int64 shard_outputs_pause_left(const ShardReplicaShard *shard);

/* Reads the items of the first outputs, and of some behind them, from the records of their turns, as far as it can. */
extern void shard_outputs_fill(ShardReplicaShard *shard, int64 turn);
