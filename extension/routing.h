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

/* At start: makes the routes of the lanes; loads what is durable, in a transaction. */
extern ShardRoutes *shard_routing_load(ShardDatabase *db, int worker, uint32 lanes);

/* Start: a row of the log that the cursor has passed, with a tag of its own (H7). */
extern void shard_routing_rebuild(const ShardRow *row);

/* The identity as of this turn; view->handle is true. Between two transactions. */
extern void shard_routing_follow(const ShardPlaneView *view);

/* In a turn. row: of the log, any kind but CURSOR, PACKET and POSITION. */
extern void shard_routing_begin(void);
extern void shard_routing_row(const ShardRow *row);

/* Parked messages that can go on; true: some are left that could, too. */
extern bool shard_routing_drain(void);

/* After the turn's commit at lsn, or its abort. */
extern void shard_routing_committed(XLogRecPtr lsn);
extern void shard_routing_aborted(void);

/* Now and then, between turns: ask once more for homes that messages wait for. */
extern void shard_routing_ask(void);

/* Where an ask for a shard goes now. */
typedef enum ShardRoutingAnswer
{
	SHARD_ROUTING_HERE,	 /* active here, and nothing of the shard is parked */
	SHARD_ROUTING_THERE, /* *node, *epoch; and nothing of the shard is parked */
	SHARD_ROUTING_LATER	 /* not known yet (it was asked for), or messages go first */
} ShardRoutingAnswer;

extern ShardRoutingAnswer
shard_routing_where(int32 type_id, int32 shard, int32 *node, int32 *epoch);

/* Lowest seq of the log that the lane's unsaved marks need; PG_INT64_MAX: none. */
extern int64 shard_routing_needed(int lane);

/* Rotation: saves marks that rows up to seq stand for, in the turn's transaction. True: wrote. */
extern bool shard_routing_leave(int64 seq);

/* Is anything parked of these lanes? For shard_drain. */
extern bool shard_routing_parked(void);
