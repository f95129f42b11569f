/*
 * route/routing.h
 *		core/route in a region worker: where each message goes, durably (sections 8 and 9).
 *
 * Between the cursor and the executor: a row that the cursor hands out goes through
 * shard_routing_row(), which runs it (shard_deliver_row), appends it to an outbox, parks or refuses
 * it. Durable are tables shard.route, shard.own, shard.shard_input (base marks), shard.parked.
 */
#pragma once

#include "entity/turn.h"
#include "core/flow/packet.h"
#include "core/flow/route.h"
#include "log/log.h"
#include "shared/board.h"
#include "entity/state_purge.h"

/*
 * At start, in the load transaction, before shard_cursor_revisit(), which then gives back the marks
 * (H7): makes the routes of the lanes for this node, and loads what is durable. They live as long as
 * the process.
 */
extern ShardRoutes *shard_routing_load(ShardDatabase *db, ShardLanes lanes, int32 self);

/*
 * Sets the node's identity for the next turns; view->handle is true, and its node is that of the load. Between turns.
 */
extern void shard_routing_follow(const ShardBoardView *view);

/* In a turn. row: of the log, any kind but CURSOR, PACKET, POSITION and TURN. */
extern void shard_routing_begin(void);
extern void shard_routing_row(const ShardRow *row);

/* Handles parked messages that can go on. True: some are left that could go on, too. */
extern bool shard_routing_drain(void);

/* Whether a home that was learned in this turn left parked messages that can go on in the next one. */
extern bool shard_routing_is_left(void);

/*
 * Whether parked messages were being handled when the turn failed: they are not counted one by one against the turn's
 * limit. *before: the messages that the turn had begun by then.
 */
extern bool shard_routing_was_draining(int *before);

/* Whether parked messages were handled here in this turn. */
extern bool shard_routing_has_drained(void);

/* After the turn's commit at lsn (invalid: it wrote nothing), or its abort. */
extern void shard_routing_committed(XLogRecPtr lsn);
extern void shard_routing_aborted(void);

/*
 * Between turns, now and then: tells the control worker what its queue had no room for, and asks once more for homes
 * that messages wait for. Returns when to come again, in ms; -1: when something happens.
 */
extern long shard_routing_ask(void);

/*
 * Replies to asks that the turn has met (routing_reply.c): after its commit, of which routing knows by then, they go to
 * the asks, before the turn's position is published; after its abort they are met again. At start, rows that a former
 * worker has passed are met once the first one was called, and the second one is called when the links are made.
 */
extern void shard_routing_replies_register(void);
extern void shard_routing_replies_committed(void);
extern void shard_routing_replies_aborted(void);

/* Where an ask for a shard goes now. */
typedef enum ShardRoutingAnswer
{
	SHARD_ROUTING_HERE,	 /* active here, and nothing of the shard is parked */
	SHARD_ROUTING_THERE, /* *node, *epoch; and nothing of the shard is parked */
	SHARD_ROUTING_LATER	 /* the home is not known yet (and was asked for), or messages go first */
} ShardRoutingAnswer;

/* In a turn. */
extern bool shard_routing_is_known(int32 type_id, int32 shard); /* whether it has a home */
extern ShardRoutingAnswer
shard_routing_where(int32 type_id, int32 shard, int32 *node, int32 *epoch);

/* Whether the shard is active here in that epoch. In a turn. */
extern bool shard_routing_is_home(int32 type_id, int32 shard, int32 epoch);

/*
 * The set of a shard that this node has a copy of, as home or backup, as of the running turn: a look-up in memory, valid
 * until the next fact of the shard. NULL: it has none, as of each shard of a type without replicas.
 * core/map/set.h says what this node is in it, and whom the home has to wait for.
 */
extern const ShardSet *shard_routing_set(int32 type_id, int32 shard);

/*
 * At the end of a turn, behind all user code: nothing is stored any more for homes older than those that it has met (Q9). Waits
 * for the locks of their lanes' records (registry/turn_lock.h); nothing that may wait for others comes behind it.
 */
extern void shard_routing_set_promise(void);

/* In a turn, when all messages are taken in: the marks that it has raised go into the records of shards with replicas (Q5). */
extern void shard_routing_record_marks(void);

/*
 * At start, when the homes of shards with replicas are known (shard_routing_set_loaded): what their turns have taken in is found
 * again in their records, as marks, rows that are kept, and numbers that are given (Q30).
 */
extern void shard_routing_inputs_load(void);

/* In a turn: parked messages go that were taken in by turns that are released. */
extern void shard_routing_inputs_leave(void);

/* At start, when all of the log was read (log/turn_chain.h): what the copies of the lanes have is known from then on (Q36). */
extern void shard_routing_set_loaded(void);

/* What handling messages asks of shards (presence.h). */
extern const ShardPresence shard_routing_presence;

/*
 * In a turn: compares a piece of what memory believes to be parked with the table, which is right, and adds how many
 * messages there were. False: it was the last piece, and the next call begins again at the first.
 */
extern bool shard_routing_recount(int64 *messages);

/*
 * Moves (routing_move.c). Each of the first three within a transaction that holds the lanes' turn locks,
 * before it handles anything.
 */

/* HandOff (M2): DO: the shard is stopping now; DONE: it is sealed; any other: no answer is due. */
extern ShardHandoffAnswer shard_routing_stop(const ShardShardRef *ref);

/* The last turn of a stopping shard is over (M3). False: the shard is no longer stopping for that move. */
extern bool shard_routing_seal(const ShardShardRef *ref);

/*
 * M7: deletes at most limit rows that a shard has left here: of a shard that was sealed and lives elsewhere, or was
 * copied for a move that was aborted, all of them, the ownership row last; of a shard that begins again, its states
 * from before. purge: all zero but for its memory at first. False: nothing of that shard is left to be deleted, or its
 * rows are to stay.
 */
extern bool shard_routing_purge(const ShardShardRef *ref, ShardStatePurge *purge, int64 limit);
extern void shard_routing_purge_committed(XLogRecPtr lsn);
extern void shard_routing_purge_aborted(void);

/* Visits each shard that is stopping. */
typedef void (*ShardRoutingEach)(const ShardShardRef *ref, void *arg);
extern void shard_routing_each_stopping(ShardRoutingEach visit, void *arg);

/*
 * Whether the shard's home is here, and it begins again once its rows from before are gone. When they are gone, in a
 * turn, the second function makes it begin again.
 */
extern bool shard_routing_is_clearing(const ShardShardRef *ref);
extern void shard_routing_start_again(const ShardShardRef *ref);

/*
 * A shard whose rows may be deleted, as far as is known without looking: another one than *ref, if
 * there is one. False: none.
 */
extern bool shard_routing_next_purge(ShardShardRef *ref);

/* The LSN of the newest commit that routing knows of. */
extern XLogRecPtr shard_routing_lsn(void);

/*
 * Whether the turn found that another process had changed an ownership row, which is no fault of the message or its
 * handler.
 */
extern bool shard_routing_was_overtaken(void);

/* Before and after the turn's commit at lsn: places where tests may make the turn fail. */
extern void shard_routing_before_commit(void);
extern void shard_routing_after_commit(XLogRecPtr lsn);

/* After the executor has heard of the commit: entities of shards that are not here any more are forgotten. */
extern void shard_routing_forget_ended(void);

/* What shard_link_accept() did: items that are sent again, and those that became dead letters. */
typedef struct ShardRoutingAccepted
{
	bool any; /* a stream was quarantined */
	int64 again;
	int64 in_doubt;
} ShardRoutingAccepted;

/* In a turn: begins the quarantined streams to a node again; what they stored is parked. */
extern void shard_routing_accept(int32 node, ShardRoutingAccepted *accepted);

/* Lowest seq of the log that the lane's unsaved marks need; PG_INT64_MAX: none. As committed. */
extern int64 shard_routing_needed(int lane);

/* Rotation: saves marks that rows up to seq stand for, in the turn's transaction. True: something was written. */
extern bool shard_routing_leave(int64 seq);
