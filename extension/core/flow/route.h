/*
 * core/flow/route.h
 *		Where messages go: routes, parked messages, arrivals, refusal, re-send (section 8).
 *
 * One ShardRoutes belongs to one region worker, for the shards of its lanes. It decides; whatever is
 * durable is done by its host, through ShardRouteHost, within the worker's running transaction, and
 * the host ends each transaction with shard_route_commit or shard_route_abort. After an abort the
 * durable part of what was touched is read again when it is next needed. When another process changed
 * a shard's ownership row, the host says shard_route_reload under the turn lock (W3).
 *
 * At the start of a worker the host makes the entries of all shards of its lanes that have an
 * ownership row or parked messages (shard_route_get), and then shows it the rows of the inbox that
 * rebuild the marks (shard_route_rebuild, H7).
 *
 * No message is copied or allocated here; an entry is allocated once per shard.
 */
#pragma once

#include "core/flow/handoff.h"
#include "core/flow/mark.h"
#include "core/map/set.h"
#include "lib/ilist.h"

#define SHARD_NO_EPOCH (-1) /* home epoch tag of an item that was not routed yet */

/*
 * With each incarnation that is granted, the numbers of stamps begin far above all earlier ones: a
 * database put back from a copy must not give a number to another message than its peers know by it.
 */
#define SHARD_FIRST_RSEQ(inc_no) ((int64) (inc_no) << 40)

/* A message on its way. */
typedef struct ShardItem
{
	int32 type_id;
	int32 shard;
	int32 epoch; /* home epoch tag */
	bool sent;	 /* was possibly on a wire, under this tag or an older one (N2) */
	ShardStamp stamp;
	const void *body; /* owned by the host */
} ShardItem;

typedef struct ShardRoute
{
	int32 type_id;
	int32 shard;
	bool loaded; /* the durable part, from its table */

	/* durable */
	int32 node; /* home; 0: not known */
	int32 epoch;
	int32 lost;	 /* newest epoch that began without the state of the one before */
	int32 doubt; /* newest epoch whose home replaces one that was undone with its voters (R29) */
	int64 n;	 /* version of the fact */
	ShardOwn own;
	bool parked; /* are there parked messages? */

	/*
	 * The newest set, as of the running turn, if this node is in it as home or backup; NULL, or all zero: it is not, as
	 * of every shard of a type without replicas. Allocated by who reads or learns it first, in the routes' memory.
	 */
	ShardSet *set;

	/* volatile */
	bool touched;
	bool drains;	   /* in the list of those with parked messages */
	bool wrong;		   /* a fact contradicts what is here: stopped (M6) */
	int32 marks_epoch; /* own epoch that the committed marks belong to */
	int64 done;		   /* this node's items up to this rseq are taken in, as the home told */
	ShardMarks marks;
	dlist_node touched_node;
	dlist_node drains_node;

	/* the host's: up to where its parked messages are gone, unless a turn was aborted since then */
	uint32 front_in;
	int64 front_rseq;
	int64 front_arrival;
} ShardRoute;

typedef struct ShardRoutes ShardRoutes;

typedef struct ShardRouteHost
{
	/*
	 * Read the durable part of an entry, its set included; of what is not there the fields stay 0. Then, if an
	 * ownership row in state active, stopping or sealed was read for the first time, or staged rows
	 * become active: the base marks, each by shard_mark_raise.
	 */
	void (*load)(void *context, ShardRoute *route);
	void (*load_base)(void *context, ShardRoute *route);

	/* Store the route; the ownership row (state none: remove it); the marks as the base (H7). */
	void (*write_route)(void *context, const ShardRoute *route);
	void (*write_own)(void *context, const ShardRoute *route, const ShardOwn *before);
	void (*write_base)(void *context, const ShardRoute *route);

	/*
	 * What the shard had taken in and not handled ends, and so do its base marks: the
	 * shard begins empty, in state clearing if it had a state here.
	 */
	void (*discard)(void *context, const ShardRoute *route);

	/* The next number for a stamp of that lane; the newest number that may have been given; and the lane of a shard. */
	int64 (*next_rseq)(void *context, int32 lane);
	int64 (*last_rseq)(void *context, int32 lane);
	int32 (*lane)(void *context, int32 type_id, int32 shard);

	/* Append to the stream to a node; the item has its tag and stamp. */
	void (*append)(void *context, int32 node, const ShardItem *item);

	/*
	 * Parked messages of a shard: add one; the first, stamped ones before others, by the number of
	 * the stamp and then by arrival (false: none); remove that first one.
	 */
	void (*park)(void *context, const ShardItem *item);
	bool (*first_parked)(void *context, const ShardRoute *route, ShardItem *item);
	void (*unpark)(void *context, const ShardRoute *route);

	/*
	 * Show every stored outbox row and kept row of the shard to shard_route_kept, in any order, and
	 * park those for which it says true, with their stamps. sent: as far as the host knows.
	 */
	void (*collect)(void *context, const ShardRoute *route);

	/*
	 * Handle it now, or put it into the stash, as it must if the shard is clearing; either way it is taken
	 * in.
	 */
	void (*take)(void *context, const ShardRoute *route, const ShardItem *item);

	/* Whether the item had its effect cannot be known: it becomes a dead letter (N2). */
	void (*in_doubt)(void *context, const ShardRoute *route, const ShardItem *item);

	/* To be told to origins after the gate: an item is refused, with the newest fact; items are taken in up to mark. */
	void (*refused)(void *context, const ShardRoute *route, const ShardItem *item);
	void (*announce)(void *context, const ShardRoute *route, ShardStamp mark);

	/* To the control plane: ask for the home; the shard is active now (after commit); a fact cannot be true. */
	void (*want_home)(void *context, const ShardRoute *route);
	void (*started)(void *context, const ShardRoute *route);
	void (*wrong)(void *context, const ShardRoute *route, const ShardHomeRecord *home);

	/*
	 * Active here, by a home that was undone; its rows are kept, and no home handles them. NULL: not
	 * told.
	 */
	void (*undone)(void *context, const ShardRoute *route, const ShardHomeRecord *home);

	/* Is the transaction long enough? Asked when parked items have left. NULL: never. */
	bool (*is_over)(void *context);

	/* Store the route's set; all zero: remove it. NULL: the host has no types with replicas. */
	void (*write_set)(void *context, const ShardRoute *route);

	/*
	 * Of shards with replicas whose home is here (Q30); never called without sets. input: a message of this node has been
	 * taken in, with the stamp that the item has got; its row is kept until the turn is released. keep: the first parked
	 * message, in unpark's place: it stays, with the item's stamp, and is parked no more, until the turn is released that
	 * has taken it in: again: a former one, which has committed, else this one.
	 */
	void (*input)(void *context, const ShardRoute *route, const ShardItem *item);
	void (*keep)(void *context, const ShardRoute *route, const ShardItem *item, bool again);
} ShardRouteHost;

/* chunk: parked messages that one call moves at most (H4). */
extern ShardRoutes *
shard_route_create(int32 self, const ShardRouteHost *host, void *context, int chunk);
extern void shard_route_destroy(ShardRoutes *routes);

/* The entry of a shard, read if it was not. It stays where it is until destroy. */
extern ShardRoute *shard_route_get(ShardRoutes *routes, int32 type_id, int32 shard);

/* The same, NULL instead of reading. */
extern ShardRoute *shard_route_known(ShardRoutes *routes, int32 type_id, int32 shard);

/*
 * What this node is of the shard, as of the running turn: a cheap look. NONE: also if the shard's type has no
 * replicas.
 */
static inline ShardSetRole
shard_route_role(const ShardRoute *route, int32 self)
{
	return route->set == NULL ? SHARD_SET_NONE : shard_set_role(route->set, self);
}

/* Each of them. */
typedef void (*ShardRouteVisit)(void *context, ShardRoute *route);
extern void shard_route_each(ShardRoutes *routes, ShardRouteVisit visit, void *context);

/* Those that the running transaction has changed, marks included. */
extern void shard_route_each_touched(ShardRoutes *routes, ShardRouteVisit visit, void *context);

/*
 * Between two transactions: this incarnation is not admitted yet (I4). Items that get a number, those for other nodes and for
 * shards with replicas (Q30), are parked as they are, since a number drawn now might be one that another life of this database
 * draws, too: its home would drop the second item as a duplicate of the first. They go on with the first drain after
 * that.
 */
extern void shard_route_hold(ShardRoutes *routes, bool held);

/* Start: a row of the inbox that the cursor has passed, or a saved mark, as an item with its tag. */
extern void shard_route_rebuild(ShardRoutes *routes, const ShardItem *item);

/* A message of this node that was not routed yet, in the order of the inbox (H1, Q30). */
extern void shard_route_local(ShardRoutes *routes, const ShardItem *item);

/* A message that came on a stream, in the order of the inbox (H2). */
extern void shard_route_arrived(ShardRoutes *routes, const ShardItem *item);

/* A floor that came on a stream: its stamp's prefix has nothing below (X6). */
extern void shard_route_floor(ShardRoutes *routes, ShardStamp floor);

/*
 * A decided home (T2, H3, H4, M5-M7). Messages that wait for it may be taken in at once, so of several
 * facts of a shard that wait for a turn the host gives the newest alone (L12).
 */
extern void shard_route_fact(ShardRoutes *routes, int32 type_id, int32 shard,
							 const ShardHomeRecord *home, int64 n);

/* Send on the parked messages that can go on, of all shards; true: some are left that could, too. */
extern bool shard_route_drain(ShardRoutes *routes);

/* Ask once more for all homes that messages wait for. */
extern void shard_route_ask(ShardRoutes *routes);

/* Is a stored item of the route's shard still this origin's to keep (X6)? */
extern bool shard_route_kept(const ShardRoute *route, const ShardItem *item);

/* Was it appended again under a newer tag? If it was not sent yet, it goes as void (X2). */
extern bool shard_route_superseded(const ShardRoute *route, const ShardItem *item);

/*
 * A node tells that this node's items up to rseq are taken in. That stays true whatever becomes of this turn, as the node tells
 * it after its commit. It counts if it comes from the shard's home as known here (T6); while no home is known, it counts from
 * no node: the next home says it again when it meets the messages (X13). It counts only for items that were sent. False: passed
 * over.
 */
extern bool
shard_route_done(ShardRoutes *routes, int32 type_id, int32 shard, int32 from, int64 rseq);

/*
 * HandOff (M2), in a transaction that holds the turn lock exclusively. DO: the row says stopping now,
 * and the marks are written down.
 */
extern ShardHandoffAnswer shard_route_stop(ShardRoutes *routes, const ShardShardRef *ref);

/*
 * A step that no fact brings, in a transaction that holds the turn lock exclusively: SEAL (M3) or DELETED
 * (M7; of a shard that was clearing: it is active now). The host has looked whether it may be. False: the
 * row's state has no such step.
 */
extern bool shard_route_step(ShardRoutes *routes, ShardRoute *route, ShardHomeEvent event);

/* The log says, in a turn, that another process changed the ownership row (kind OWN): it is read again. */
extern void shard_route_own_changed(ShardRoutes *routes, int32 type_id, int32 shard);

/* What is durable of the shard is read again, if it is known. */
extern void shard_route_reload(ShardRoutes *routes, int32 type_id, int32 shard);

/* End of a transaction. */
extern void shard_route_commit(ShardRoutes *routes);
extern void shard_route_abort(ShardRoutes *routes);
