/*
 * log/log_waiting.h
 *		How many messages of a type are in the log that nobody has read yet.
 */
#pragma once

#include "utils/snapshot.h"

#include "shard.h"

typedef struct ShardLogWaiting
{
	uint64 committed;
	uint64 own;	 /* of this transaction, also what it has not written yet */
	uint64 open; /* of others that have not ended, prepared ones too: what they have written */
} ShardLogWaiting;

/*
 * Reads what the positions that the snapshot sees leave to be handled, and nothing below. What was committed since counts,
 * too. Nobody is waited for.
 */
extern ShardLogWaiting shard_log_waiting(int32 type_id, Snapshot snapshot);
