/*
 * entity/state_reshard.h
 *		States of a type go to the shards that their entities are in by other settings (doc/protocol/resharding.md).
 */
#pragma once

#include "entity/entity.h"

/* How far the walk over the state table is; zeroes, and memory for the id: at its beginning. */
typedef struct ShardStateReshard
{
	int32 shard; /* that is looked at, */
	char *after; /* behind that entity; NULL: from the first one on */
	int after_len;
	MemoryContext memory; /* of the id */
	int64 moved;		  /* rows, by the last call */
	bool done;			  /* no row is left */
} ShardStateReshard;

/*
 * Looks at the next rows, in the transaction that is open, and writes those that are in another shard than target says.
 * target: the type with the settings to come; its extractor runs as a guest. Waits for transactions that write the table.
 */
extern void shard_state_reshard(ShardStateReshard *walk, const ShardType *type, ShardType *target);
