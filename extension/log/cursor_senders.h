/*
 * log/cursor_senders.h
 *		P: senders that were in progress when their rows were passed.
 *
 * A few hundred at most (one per connection and prepared transaction), so a
 * list with a memo of the last hit does. A turn's changes are undone by
 * shard_cursor_senders_aborted(), made final by shard_cursor_senders_committed().
 */
#pragma once

#include "storage/block.h"

#include "shard.h"

/* Where rows are: a hint, see cursor.c. */
typedef struct ShardPlace
{
	int segment; /* -1: none */
	BlockNumber block;
} ShardPlace;

typedef struct ShardSender
{
	uint64 xid;			  /* top-level xid8 */
	ShardLanes lanes;	  /* mask; the first two as of the last commit, */
	int64 first;		  /* 0: the sender is new in this turn */
	ShardLanes new_lanes; /* the same as of now */
	int64 new_first;
	bool ended; /* not in progress in this turn's snapshot */
	int kept;	/* places as of the last commit */
	int places; /* pages with its rows, in order, superset */
	int capacity;
	ShardPlace *place;
} ShardSender;

typedef struct ShardSenders
{
	int count;
	int capacity;
	ShardSender *list;
	int memo; /* index of the last hit */
} ShardSenders;

/* Initialises an empty list in the current memory context, which it keeps. */
extern void shard_cursor_senders_init(ShardSenders *senders);
extern bool shard_cursor_senders_empty(const ShardSenders *senders);

/* Takes over a durable entry. */
extern void
shard_cursor_senders_add(ShardSenders *senders, uint64 xid, ShardLanes lanes, int64 first);

/* A row of a sender in progress is passed; place is remembered. */
extern void
shard_cursor_senders_note(ShardSenders *senders, uint64 xid, int lane, int64 seq, ShardPlace place);

/* Whether the row is an unhandled one of P; and of an ended sender of P. */
extern bool shard_cursor_senders_open(ShardSenders *senders, uint64 xid, int lane, int64 seq);
extern bool shard_cursor_senders_ended(ShardSenders *senders, uint64 xid, int lane, int64 seq);

extern void shard_cursor_senders_forget_places(ShardSenders *senders);

/* Pages of all ended senders, each once, oldest first; palloc'd. order: segment numbers by age. */
extern ShardPlace *shard_cursor_senders_ended_places(const ShardSenders *senders, const int *order,
													 int segments, int *count);

/* Rows of ended senders up to seq are handled (PG_INT64_MAX: all). */
extern void shard_cursor_senders_drained(ShardSenders *senders, int64 seq);

/* Lowest unhandled seq of a lane's entries; PG_INT64_MAX if none. */
extern int64 shard_cursor_senders_first(const ShardSenders *senders, int lane);

extern void shard_cursor_senders_committed(ShardSenders *senders);
extern void shard_cursor_senders_aborted(ShardSenders *senders);
