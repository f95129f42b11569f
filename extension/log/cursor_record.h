/*
 * log/cursor_record.h
 *		The durable position of a worker: payload of a cursor row (D4, N3).
 */
#pragma once

#include "lib/stringinfo.h"

#include "shard.h"

/* Lanes that share one position. */
typedef struct ShardRecordGroup
{
	ShardLanes lanes; /* mask */
	int64 q;		  /* every row of the lanes up to here was looked at */
	uint64 turn;	  /* of the lanes, rises with each turn */
} ShardRecordGroup;

/* A sender that was still in progress when its rows were passed. */
typedef struct ShardRecordSender
{
	uint64 xid;		  /* top-level xid8 */
	ShardLanes lanes; /* mask */
	int64 first;	  /* from here on none of its rows is handled */
} ShardRecordSender;

typedef struct ShardRecord
{
	int groups;
	ShardRecordGroup group[SHARD_LANES];
	int senders;
	ShardRecordSender *sender; /* palloc'd */
} ShardRecord;

/* Appends the binary form. */
extern void shard_cursor_record_write(StringInfo out, const ShardRecord *record);

/*
 * Reads the binary form into record; senders in the current memory context.
 * Error XX001 for a damaged record, 0A000 for a section that this version does
 * not know: passing it could lose messages.
 */
extern void shard_cursor_record_read(ShardRecord *record, const char *data, int len);
