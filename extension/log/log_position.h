/*
 * log/log_position.h
 *		Which rows of the log are handled, as a snapshot sees it (D4).
 */
#pragma once

#include "utils/snapshot.h"

#include "log/cursor_record.h"
#include "log/log.h"

typedef struct ShardLogPosition
{
	int64 record_seq; /* of the newest cursor row that names the lane; 0: none */
	int64 q;
	int senders; /* of P: all of the record's, for any lane */
	ShardRecordSender *sender;
} ShardLogPosition;

typedef struct ShardLogPositions
{
	ShardLogPosition lane[SHARD_LANES];
	int64 lowest; /* every row below is handled */
} ShardLogPositions;

/* The positions that the snapshot sees; in the current memory context. */
extern void shard_log_position_read(Snapshot snapshot, ShardLogPositions *positions);

/* Whether a message is handled. */
extern bool
shard_log_position_handled(const ShardLogPositions *positions, const ShardRowFixed *row);
