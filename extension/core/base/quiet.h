/*
 * core/base/quiet.h
 *		How often lines of one kind about one node are written (doc/protocol.md T11).
 */
#pragma once

/* So long nothing more of a kind is written. */
#define SHARD_QUIET (60 * INT64CONST(1000000))

/* What was written last of a kind about a node; since = 0: the entry is free. */
typedef struct ShardQuiet
{
	uint64 kind;
	int32 node;
	int64 since;
	int64 left_out;
} ShardQuiet;

/*
 * May one be written now? entries: count of them, and one more, which all that find none have together. *left_out: how many
 * were not since the one before.
 */
extern bool shard_quiet_may(ShardQuiet *entries, int count, int32 node, uint64 kind, int64 now,
							int64 *left_out);
