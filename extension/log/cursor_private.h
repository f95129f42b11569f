/*
 * log/cursor_private.h
 *		What the cursor's files share: its structure, the scan of pages, and senders that were in progress.
 */
#pragma once

#include "storage/block.h"
#include "lib/stringinfo.h"

#include "shard.h"
#include "log/cursor.h"

/*
 * ---- cursor_senders.c: The set P: senders that were in progress when their rows were passed.
 * * A few hundred at most (one per connection and prepared transaction), so a
 * list with a memo of the last hit does. A turn's changes are undone by
 * shard_cursor_senders_aborted(), made final by shard_cursor_senders_committed().
 */

/* Where rows are: a hint, see cursor.c. */
typedef struct ShardPlace
{
	int segment; /* -1: none */
	BlockNumber block;
} ShardPlace;

typedef struct ShardSender
{
	uint64 xid;			  /* top-level xid8 */
	ShardLanes lanes;	  /* mask; lanes and first are as of the last commit, */
	int64 first;		  /* 0: the sender is new in this turn */
	ShardLanes new_lanes; /* the same as of this turn */
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

/* Adds an entry that was read from a cursor row. */
extern void
shard_cursor_senders_add(ShardSenders *senders, uint64 xid, ShardLanes lanes, int64 first);

/* A row of a sender in progress is passed; remembers its place. */
extern void
shard_cursor_senders_note(ShardSenders *senders, uint64 xid, int lane, int64 seq, ShardPlace place);

/* Whether the row is an unhandled row of a sender in P; and whether it is one of a sender in P that has ended. */
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

/* ---- cursor_private.c: What the cursor's files share: its structure and the scan of pages ---- */

/* What the pages are read for. */
typedef enum ShardCursorPhase
{
	PHASE_LOAD,	   /* cursor rows; at start */
	PHASE_REVISIT, /* rows from which other rooms rebuild what they know; at start */
	PHASE_REFILL,  /* pages of the senders in P, after places became void; -> DRAIN */
	PHASE_DRAIN,   /* rows of ended senders; -> FORWARD */
	PHASE_FORWARD  /* rows above q */
} ShardCursorPhase;

typedef enum ItemState
{
	ITEM_READ,		  /* to hand out */
	ITEM_IN_PROGRESS, /* to note in P */
	ITEM_PASS,		  /* of an aborted sender, of another worker's lane, or the log's own */
	ITEM_STOP		  /* written by this very turn: the scan ends before it */
} ItemState;

typedef struct ScanItem
{
	int64 seq;
	int16 chunk;
	OffsetNumber offset;
	uint8 state;
} ScanItem;

typedef struct OpenSegment
{
	int no;
	Oid relid;
	BlockNumber blocks;
} OpenSegment;

struct ShardCursor
{
	int worker;
	ShardLanes lanes;
	ShardDatabase *db;
	MemoryContext context; /* of the cursor itself */

	/* position: in memory as of the last commit */
	int64 q[SHARD_LANES];
	uint64 turn[SHARD_LANES];
	int64 record_seq[SHARD_LANES]; /* of the newest cursor row; 0: none */
	int64 needed[SHARD_LANES];	   /* by the cursor, as of that row */
	int64 keep[SHARD_LANES];	   /* by other rooms */
	ShardSenders senders;
	bool void_places;  /* scan from the oldest segment, find the pages of P again */
	ShardPlace resume; /* page of the last row passed */

	/* hints about the files behind the places */
	uint64 generation;
	Oid file[SHARD_SEGMENTS];
	BlockNumber blocks[SHARD_SEGMENTS];

	/* this turn */
	bool begun;		/* the first peek has looked at P */
	bool kept;		/* the segments are locked until the end of the transaction */
	bool overtaken; /* a file is another one than the turn has noted */
	ShardCursorPhase phase;
	uint64 switches; /* of the current segment, when the list was made */
	int segments;
	OpenSegment segment[SHARD_SEGMENTS];
	int next_segment; /* index into segment */
	int end_segment;  /* where the phase ends */
	BlockNumber next_block;
	ShardPlace *drain; /* pages of ended senders, in order */
	int drain_count;
	int drain_next;
	int64 drained; /* every row of ended senders up to here is passed */
	int64 upto;	   /* forward: last seq looked at */
	int64 floor;   /* lowest q of the worker's lanes */
	ShardPlace new_resume;
	ShardPlace head; /* page of the first chunk of the message at hand */
	Relation rel;
	int rel_no;
	uint64 own_xid;
	uint64 next_xid;
	uint64 memo_xid; /* last answer of in_progress() */
	bool memo_answer;

	/* the page at hand, a private copy */
	PGAlignedBlock page;
	ShardPlace place;
	ScanItem item[MaxHeapTuplesPerPage];
	int items;
	int next_item;

	/* the message at hand */
	bool peeked;
	ShardRow row;
	int chunks_read;
	StringInfoData assembly;
	char *unpacked;
};

static inline bool
owns(const ShardCursor *c, int lane)
{
	return (c->lanes & shard_lane_bit(lane)) != 0;
}

/* Starts reading pages at the oldest segment (cursor_scan.c). */
extern void shard_cursor_rewind(ShardCursor *c, ShardCursorPhase phase);

/* Goes to the next row that is to be read, which is c->row then; false at the end. */
extern bool shard_cursor_advance(ShardCursor *c, Snapshot snapshot);

/* Forgets the turn; the drain list goes with the turn's memory (cursor.c). */
extern void shard_cursor_forget_turn(ShardCursor *c);
