/*
 * process/region_private.h
 *		What the files of the region worker share.
 */
#pragma once

#include "log/cursor.h"
#include "entity/turn.h"
#include "shared/board.h"
#include "shared/ring.h"
#include "route/routing.h"

#define SHARD_ASKS_PER_TURN 32

/* The most messages of a turn. */
#define SHARD_TURN_MESSAGES 50000

/* Messages of a careful turn: each costs a subtransaction, and 64 overflow. */
#define SHARD_CAREFUL_MESSAGES 32

/* An ask for another node, to be begun after the turn's commit. */
typedef struct ShardForward
{
	ShardRequest *request;
	int32 node;
	int32 epoch;
} ShardForward;

/* A request of shard_drain that is being waited for; number 0: none. */
typedef struct ShardRegionDrain
{
	uint64 number;
	int64 seq;	   /* rows up to here have to be passed first, */
	bool passed;   /* then this is true, */
	uint64 outbox; /* and what the outbox has up to here has to be done */
} ShardRegionDrain;

/* How far the log went at some time; seq 0: no mark is set. */
typedef struct ShardRegionReading
{
	int64 seq;
	TimestampTz at;
} ShardRegionReading;

typedef struct ShardRegion
{
	ShardDatabase *db;
	int number;
	ShardLanes lanes;
	Oid extension;
	ShardWorkerSlot *slot;
	ShardCursor *cursor;
	MemoryContext ask_context;	 /* of requests */
	MemoryContext spare_context; /* empty, for compaction */
	List *asks;					 /* ShardRequest *, oldest first; shard_link_accept() too */
	int forwards;				 /* of this turn */
	ShardForward forward[SHARD_ASKS_PER_TURN];
	ShardRequest *accept; /* shard_link_accept() in this turn, to be answered; NULL: none */
	ShardRoutingAccepted accepted; /* what shard_link_accept() did */
	ShardRegionDrain drain;
	ShardRegionReading reading;
	TimestampTz recounted_at; /* when a turn compared memory with tables, */
	TimestampTz recount_took; /* which took this long, */
	bool recounts;			  /* and did not come to the end; */
	bool recounts_parked;	  /* what is held was compared, what is parked was not */
	bool busy;				  /* the turn found a lock taken */
	bool committed;			  /* the turn has committed, but not all of the memory follows yet */

	/* shards that leave (region_move.c) */
	int move_count;
	int move_space;
	struct ShardRegionMove *moves;
	bool moves_wait;	  /* the next turn has something to do for them */
	bool flush_wanted;	  /* and their last commit is to be flushed */
	ShardShardRef purged; /* the shard whose rows are being deleted, or were last */
	ShardStatePurge purge;
	TimestampTz purge_at; /* not before */

	int64 lease;	 /* until when this turn may commit, on shard_clock_now() */
	bool lease_over; /* the turn failed since its lease was over */

	/* the node's identity, as of the last look */
	int32 self;
	ShardUuid cluster;
	uint32 generation;	   /* of the view */
	bool handles;		   /* turns may be run */
	ShardUuid incarnation; /* the incarnation whose lineage is written */

	/* how the next turn is to be run */
	bool careful;
	bool careful_next; /* the turn after it; this one goes exactly up to the message that failed */
	ShardSource only;  /* the source from which the turn takes messages; SHARD_SOURCES: all */
	bool single;	   /* it ends with the first message whose code runs */
	int searched;	   /* messages until the search for one that fails at commit ends; 0: none */
	int limit;
	int streak;			 /* failures since the last clean careful turn */
	int overtaken;		 /* turns in a row */
	int troubles;		 /* failures in a row that are no message's, */
	int64 troubled_at;	 /* the last of them, on shard_clock_now(), */
	bool news;			 /* and the worker was woken since */
	TimestampTz told_at; /* when the last of them was logged; 0: none */
} ShardRegion;

/* A turn is not begun, and not committed, with less than this left of its lease, in microseconds (L5). */
#define SHARD_LEASE_RESERVE (50 * INT64CONST(1000))

/*
 * Turns (region_turn.c).
 */

/* Runs a turn and handles its errors. Returns whether to come again at once. */
extern bool shard_region_turn(ShardRegion *region);

/* Notes for rotation which rows of the log are needed by more than the cursor. */
extern void shard_region_keep_log(ShardRegion *region);

/*
 * After a turn's commit, and when the outbox changed: looks whether the request of shard_drain is fulfilled. First all
 * rows that were there before it must be passed, then what these put into the outbox must be done.
 */
extern void shard_region_follow_drain(ShardRegion *region, bool clean);

/* What a turn has to carry over its commit. */
typedef struct ShardTurnResult
{
	int limit;	 /* of messages */
	int ran;	 /* messages whose code ran */
	bool moves;	 /* it stopped or sealed shards, and handled nothing */
	bool more;	 /* there is more to do at once */
	bool clean;	 /* everything that could be seen is passed */
	bool parked; /* parked messages are left that could go on */
	int64 record_seq;
	int64 pass_wanted; /* seq that rotation wants passed, */
	bool in_the_way;   /* which the turn did not reach */
	int asks;		   /* this many, from the first on, are answered, */
	bool asks_left;	   /* and others wait for the next turn alone */
	uint64 errors;
	TimestampTz start;
} ShardTurnResult;

/* How a turn has failed. */
typedef struct ShardTurnFailure
{
	int count;		/* messages begun */
	bool blamed;	/* the last of them is to blame */
	bool overtaken; /* no message is to blame */
	int ran; /* it failed at its commit, after code of this many messages had run; 0: it failed before */
	ShardSource only; /* ran = 1: the source of that message */
} ShardTurnFailure;

/*
 * How the turn after a good one, and after a failed one, is to be run (region_plan.c). failed: messages failed in the
 * good turn.
 */
extern void
shard_region_plan_after_success(ShardRegion *region, const ShardTurnResult *result, bool failed);
extern void shard_region_plan_after_failure(ShardRegion *region, ErrorData *error,
											const ShardTurnFailure *failure);

/*
 * Moves (region_move.c).
 */

/* At start, when the routes are known: shards that were stopping go on to be sealed. */
extern void shard_region_load_moves(ShardRegion *region);

/* The first thing of a turn: stops shards that are to leave, and seals those that were stopped. */
extern void shard_region_move(ShardRegion *region);

/* Before and after the turn's commit, and after its abort. */
extern void shard_region_moves_before_commit(const ShardRegion *region);
extern void shard_region_moves_committed(ShardRegion *region, XLogRecPtr lsn);
extern void shard_region_moves_aborted(ShardRegion *region);

/* Tells which shards are sealed, past the gate. A chore: returns false. */
extern bool shard_region_report_sealed(ShardRegion *region);

/* Deletes some rows of shards that live elsewhere. A chore: true if there is more. */
extern bool shard_region_purge(ShardRegion *region);

/* When to come again for these two chores, in ms; -1: when something happens. */
extern long shard_region_moves_due(const ShardRegion *region);

/*
 * Asks (region_asks.c).
 */

/* Takes new requests; reports are answered at once. */
extern void shard_region_take_requests(ShardRegion *region);

/*
 * The same while there are no turns, or they fail, in a transaction of its own. Drops asks whose askers are gone. A
 * chore: returns false.
 */
extern bool shard_region_answer_reports(ShardRegion *region);

/* The first thing of a turn: shard_link_accept(), if it was called; one at a time. */
extern void shard_region_accept_link(ShardRegion *region);

/*
 * Runs the asks that are due, and notes those for other nodes. Returns how many at the front of the list are done. all:
 * every row that could be read was passed. *left: there may be others to be run.
 */
extern int shard_region_run_asks(ShardRegion *region, bool all, bool *left);

/* After the turn's commit: drops the first done asks of the list, and sends the noted ones to their nodes. */
extern void shard_region_forward_asks(ShardRegion *region, int done, XLogRecPtr lsn);

/* The node is no member any more, or is down: what is open here gets no reply (E46). */
extern void shard_region_fail_open_asks(const ShardRegion *region, const ShardBoardView *view);

/* Takes what has come from the links of asks. A chore: true if an ask has to be looked at again. */
extern bool shard_region_poll_asks(ShardRegion *region);

/* Main function; argument by shard_worker_argument(). */
extern PGDLLEXPORT void ShardRegionMain(Datum argument);
