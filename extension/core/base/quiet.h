/*
 * core/base/quiet.h
 *		How often lines of one kind about one node are written (doc/protocol.md T11).
 */
#pragma once

/* After a line, no other line of its kind about its node is written for this long; microseconds. */
#define SHARD_QUIET (60 * INT64CONST(1000000))

/* The last line of a kind about a node; since = 0: the entry is free. */
typedef struct ShardQuiet
{
	uint64 kind;
	int32 node;
	int64 since;
	int64 left_out;
} ShardQuiet;

/*
 * May a line be written now? entries: count of them, and one more, which all lines share that find no entry of their own.
 * *left_out: how many lines were left out since the last one that was written.
 */
extern bool shard_quiet_may(ShardQuiet *entries, int count, int32 node, uint64 kind, int64 now,
							int64 *left_out);
