/*
 * routing.h
 *		core/route in a region worker: where each message goes, durably (sections 8 and 9).
 *
 * Between the cursor and the executor: a row that the cursor hands out goes through
 * shard_routing_row(), which runs it (shard_executor_row), appends it to an outbox, parks or refuses
 * it. Durable are tables shard.route, shard.own, shard.shard_input (base marks), shard.parked.
 */
#pragma once

#include "core/packet.h"
#include "core/route.h"
#include "log.h"
#include "plane.h"

/*
 * At start, in the load transaction, before shard_cursor_revisit(), which then gives back the marks
 * (H7): makes the routes of the lanes for this node, and loads what is durable. They live as long as
 * the process.
 */
extern ShardRoutes *shard_routing_load(ShardDatabase *db, uint32 lanes, int32 self);

/* The identity as of this turn; view->handle is true, its node is that of the load. Between turns. */
extern void shard_routing_follow(const ShardPlaneView *view);

/* In a turn. row: of the log, any kind but CURSOR, PACKET and POSITION. */
extern void shard_routing_begin(void);
extern void shard_routing_row(const ShardRow *row);

/* Parked messages that can go on; true: some are left that could, too. */
extern bool shard_routing_drain(void);

/* Whether a home that was learned in this turn left some that can go on in the next one. */
extern bool shard_routing_is_left(void);

/*
 * Whether parked messages were being handled when the turn failed: they are not counted one by one
 * against its limit. *before: what it had begun by then.
 */
extern bool shard_routing_was_draining(int *before);

/* Whether parked messages were handled here in this turn. */
extern bool shard_routing_has_drained(void);

/* After the turn's commit at lsn (invalid: it wrote nothing), or its abort. */
extern void shard_routing_committed(XLogRecPtr lsn);
extern void shard_routing_aborted(void);

/*
 * Between turns, now and then: tells the coordinator worker what its queue had no room for, and asks
 * once more for homes that messages wait for. When to come again, in ms; -1: when something happens.
 */
extern long shard_routing_ask(void);

/* Where an ask for a shard goes now. */
typedef enum ShardRoutingAnswer
{
	SHARD_ROUTING_HERE,	 /* active here, and nothing of the shard is parked */
	SHARD_ROUTING_THERE, /* *node, *epoch; and nothing of the shard is parked */
	SHARD_ROUTING_LATER	 /* not known yet (it was asked for), or messages go first */
} ShardRoutingAnswer;

/* In a turn. */
extern bool shard_routing_is_known(int32 type_id, int32 shard); /* has it a home? */
extern ShardRoutingAnswer
shard_routing_where(int32 type_id, int32 shard, int32 *node, int32 *epoch);

/* Whether the shard is active here in that epoch. In a turn. */
extern bool shard_routing_is_home(int32 type_id, int32 shard, int32 epoch);

/* Whether the shard is active here: else nothing of its stash may run. */
extern bool shard_routing_is_active(int32 type_id, int32 shard);

/* What shard_link_accept() did: items that are sent again, and those that became dead letters. */
typedef struct ShardRoutingAccepted
{
	bool any; /* a stream was quarantined */
	int64 again;
	int64 in_doubt;
} ShardRoutingAccepted;

/* In a turn: begins the quarantined streams to a node anew; what they stored is parked. */
extern void shard_routing_accept(int32 node, ShardRoutingAccepted *accepted);

/* Lowest seq of the log that the lane's unsaved marks need; PG_INT64_MAX: none. As committed. */
extern int64 shard_routing_needed(int lane);

/* Rotation: saves marks that rows up to seq stand for, in the turn's transaction. True: wrote. */
extern bool shard_routing_leave(int64 seq);
