/*
 * log/log_read.h
 *		Reading the log with a snapshot: for views, and for code that looks back.
 *
 * Needs nothing of the log's shared state. A segment is locked only while it is read, so that an open transaction of a
 * reader does not keep the segment from being emptied.
 */
#pragma once

#include "access/htup.h"
#include "access/tupdesc.h"
#include "lib/stringinfo.h"
#include "utils/snapshot.h"

#include "log/log.h"

/* Whether a row, seen by its fixed columns only, is wanted. */
typedef bool (*ShardLogWant)(const ShardRowFixed *row, void *arg);

/* A message: its row's memory lasts until the visit ends. */
typedef void (*ShardLogVisit)(const ShardRow *row, void *arg);

typedef struct ShardLogScan
{
	Snapshot snapshot;
	int64 from;	  /* rows below are not wanted: a hint that saves reading */
	int64 upto;	  /* rows above are not wanted, a hint as well; 0: no limit */
	bool payload; /* false: visits get none, and no chunk is put together */
	ShardLogWant want;
	ShardLogVisit visit;
	void *arg;

	/* if set: the newest segment goes first, and after each segment this may end the scan */
	bool (*enough)(void *arg);

	/* if set: after each page this may end the scan */
	bool (*done)(void *arg);
} ShardLogScan;

/* Visits the wanted messages that the snapshot sees, in each segment in order of seq. */
extern void shard_log_read(const ShardLogScan *scan);

/* A worker sets its node's id, which becomes the mid_node of messages that have none. */
extern void shard_log_read_set_self(int32 node);
extern int32 shard_log_read_self(void);

/* Points row at the columns of a tuple of the log; mid_node and mid_seq are filled in if the row has none. */
extern void shard_log_read_columns(TupleDesc desc, HeapTuple tuple, ShardRow *row);

/*
 * The payload of all chunks, unpacked; palloc'd. Error XX001 if it is damaged; of turn records nothing is left then, *len is 0, and
 * who reads them says so (log/turn_log.h).
 */
extern char *
shard_log_read_unpack(int64 seq, int kind, const char *packed, int packed_len, int *len);
