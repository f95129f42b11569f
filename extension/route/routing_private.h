/*
 * route/routing_private.h
 *		What the files of routing share: one worker's routes, and what a turn has to carry over its end.
 */
#pragma once

#include "route/routing.h"
#include "route/routing_store.h"

/*
 * By what a type of that number is seen to be another one than before: it was dropped, with what was parked of it, and
 * started again. A proxy has no state table, so any change of its row counts.
 */
typedef struct ShardParkedOf
{
	Oid state_table;
	uint32 row_version; /* of a proxy; else 0 */
} ShardParkedOf;

/* Parked messages of one type, for its buffer_size. */
typedef struct ShardParkedCount
{
	int64 found;	/* by a recount, */
	uint64 changes; /* which holds if changes is still changes_then */
	uint64 changes_then;
	int32 type_id;
	struct ShardTypeCounter *counter;
	int64 committed;
	int64 change;	  /* of the running turn */
	ShardParkedOf of; /* as of the last commit, and as of the running turn */
	ShardParkedOf of_now;
} ShardParkedCount;

/* A refusal that an origin is told of after commit. */
typedef struct ShardRefusal
{
	int32 origin;
	ShardFact fact;
} ShardRefusal;

/* Shards of a type that ended here, by homes that were undone (R29), and live at one node. */
typedef struct ShardUndone
{
	int32 type_id;
	int32 node;
	const char *type_name;
	StringInfoData shards; /* as text, the first ones */
	int count;
} ShardUndone;

typedef struct ShardRouting
{
	ShardDatabase *db;
	ShardLanes lanes;
	int32 self;
	uint64 life; /* a number for the node and cluster that this database is */
	int32 inc_no;
	bool held;		 /* nothing goes to other nodes */
	bool sets_known; /* there are, or were, shards with sets in these lanes */
	ShardRoutes *routes;
	MemoryContext context; /* lives as long as the routes */
	MemoryContext turn;	   /* current when the turn began */
	MemoryContext scratch; /* of one statement */

	/* parked messages of one shard that were read ahead, in the turn's own memory */
	MemoryContext ahead;
	const ShardRoute *ahead_of; /* NULL: none */
	ShardParked *parked;
	int parked_count;
	int parked_next;
	bool parked_last; /* there are no others */

	uint32 aborts; /* of turns; a route's front holds if its front_in is one more */

	int32 known_type; /* type of the last message that arrived, which is here; 0: none yet */
	bool buried;	  /* the message was not parked: its type is not known */
	bool stray;	  /* a message with a stamp, of a type that is not here, was parked in this turn, */
	bool strays;  /* and in the one before */
	bool left;	  /* parked messages can go on in the next turn */
	bool drained; /* parked messages were handled in this turn */
	bool draining;				/* parked messages are being handled, */
	int before;					/* after this number of others of the turn */
	XLogRecPtr lsn;				/* of the newest commit */
	int64 unsaved[SHARD_LANES]; /* first row whose mark is not saved, */
	int64 passed[SHARD_LANES];	/* and the first one of this turn */
	bool saved;					/* marks were written in this turn */
	MemoryContext later;		/* of the next seven, which the turn's end empties */
	List *unheard;				/* ShardRoute *: refused for lack of their home, and logged */
	List *refusals;				/* ShardRefusal *, the rest is to be told after commit */
	List *hellos;				/* nodes that want all marks */
	List *started;				/* ShardShardRef * */
	List *ended;				/* ShardRoute *: their entities leave memory */
	List *undone;				/* ShardUndone *: to be logged after commit */
	List *sets;					/* ShardRoute *: their sets were written, */
	ShardLanes set_lanes;		/* in these lanes */

	/* what the turn did about moves */
	bool overtaken; /* another process changed an ownership row: the turn is to be run again */
	bool arrived;	/* a staged shard became active */
	bool resent;	/* a newer home was learned of a shard that had one */
	bool leftovers; /* a shard may have rows to delete */

	/* told to the control worker as soon as its queue has room */
	ShardBoardEvent *reports;
	int report_count;
	int report_space;
	TimestampTz asked_at;

	/* of each lane: numbers of stamps up to there were found to be given at the start; 0: the board knows, too */
	int64 given[SHARD_LANES];

	uint64 types_seen; /* generation of the registry for which dropped types were looked for, */
	uint64 types_now;  /* and its generation in this turn */
	ShardParkedCount *counts;
	int count_count;
} ShardRouting;

extern ShardRouting shard_routing;
extern const ShardRouteHost shard_routing_host;

/*
 * A message that arrived for a shard of which nothing is known here, of a type that is not here, becomes a dead letter;
 * no entry is made for it that would stay in memory. False: it goes the usual way.
 */
extern bool shard_routing_ends_here(const ShardRow *row);

/*
 * routing_set.c: the set of a shard from a result of the look at its durable part, whose columns for it begin there; the
 * worker's start; a set as the turn has changed it; and what follows the turn's commit.
 */
extern void shard_routing_set_read(ShardRoute *route, int column, MemoryContext memory);
extern void shard_routing_set_load(void);
extern void shard_routing_set_write(const ShardRoute *route);
extern void shard_routing_set_committed(void);

/* At the beginning of a turn, when types have changed: shards whose type is gone have no copy here any more. */
extern void shard_routing_set_drop(void);

/*
 * After the commit: an origin is to be told a mark of the shard. True: the shard has replicas, and it is told once the turn is
 * released (Q37). Usually the route has no set.
 */
extern bool shard_routing_set_holds_mark(const ShardRoute *route, int32 origin, int64 rseq);

/*
 * routing_inputs.c: what shards with replicas have taken in of this node's messages (Q30). In a turn: a row of the log; a parked
 * one, which the turn, or, again, one before it, has taken in; notes for the records; and rows that are kept no more. Then, after
 * the end of the turn.
 */
extern void shard_routing_inputs_take(const ShardRoute *route, const ShardItem *item);
extern void shard_routing_inputs_keep(const ShardRoute *route, const ShardParked *parked,
									  const ShardItem *item, bool again);
extern void shard_routing_inputs_record(void);
extern void shard_routing_inputs_committed(void);
extern void shard_routing_inputs_aborted(void);

/*
 * A newer home of the shard was learned, and the route's ownership has followed it: if the home was here and is elsewhere now,
 * messages that were taken in by turns that are not known to be released are parked again, with their stamps (Q21).
 */
extern void shard_routing_inputs_collect(const ShardRoute *route);

/* What the shard's life before has taken in of parked messages is gone with it. */
extern void shard_routing_inputs_discard(const ShardRoute *route);

/* routing_reply.c: the row of a reply to an ask. */
extern void shard_routing_reply(const ShardRow *row);

/* Reports an event to the control worker, now or as soon as there is room. */
extern void shard_routing_report(ShardNodeEventKind kind, const ShardShardRef *shard);

/* The turn parks (1) or takes away (-1) a message of a type. */
extern ShardParkedCount *shard_routing_count_of(int32 type_id);
extern void shard_routing_count(int32 type_id, int64 change);

/* Makes the turn's changes of the counters known, after its commit; a type may have been dropped meanwhile. */
extern void shard_routing_publish_counts(void);

/* A worker that ends takes its share off the counters; its successor counts from zero. For before_shmem_exit. */
extern void shard_routing_uncount(int code, Datum arg);

/*
 * A message may have been parked in the very moment in which its type was dropped. As one that was
 * still in the inbox it becomes a dead letter; if others may host the type, it goes on to them (D28). So does what
 * was kept for another node, and is parked when its type is gone. What was parked of a type that was started again
 * meanwhile is gone, too, but for what came since.
 */
extern void shard_routing_bury_dropped(void);

/* Raises that the ownership row is not what was read. The turn is run again. */
extern void shard_routing_overtaken(const ShardRoute *route);

/* The shard's rows may be left to be deleted: the chore that deletes looks (routing_move.c). */
extern void shard_routing_note_left(const ShardRoute *route);

/* The turn has changed the ownership row: does what follows for entities. */
extern void shard_routing_own_changed(const ShardRoute *route, const ShardOwn *before);

/*
 * For shard_outbox_accept(): parks an item that a stream that begins again had stored; in_doubt: makes it a dead letter
 * instead. arg: ShardRoutingAccepted, which counts them.
 */
extern void
shard_routing_save_item(const ShardItem *item, const ShardRow *row, bool in_doubt, void *arg);

/* After the commit: lines of the log about shards that ended here in the turn, since their home was undone (R29). */
extern void shard_routing_log_undone(void);

/* A turn was undone that a recount may have seen: the recount starts again. */
extern void shard_routing_forget_recount(void);

/* Forgets the messages that were read ahead: others may be first now. */
extern void shard_routing_forget_ahead(void);
