/*
 * outbox.h
 *		Messages for other nodes: packets in the log, one stream per lane and peer (X1, X4, X6).
 *
 * What one turn sends to one node on one lane is a packet: one row of the log, of kind PACKET, in the
 * turn's transaction. So nothing is written per message, the bytes that go on the wire are those that
 * are stored, and the log's rotation (lane's "needed") keeps a packet as long as any of its messages
 * is kept: not received, or not known to be done. After KEEP_MS, or when rotation asks, the packets of
 * a laggard move to table shard.outbox_kept. Streams' durable facts are in table shard.stream, written
 * when an incarnation begins, at rotation, and by shard_link_accept(); what changed since is found in
 * the packets.
 *
 * One region worker uses it, for its lanes. All of it happens in the worker; nothing waits.
 */
#pragma once

#include "core/packet.h"
#include "core/route.h"
#include "core/stream.h"
#include "log.h"

/* At start, in the load transaction, after the cursor was loaded: streams, packets, kept ones. */
extern void shard_outbox_load(ShardDatabase *db, uint32 lanes, ShardRoutes *routes);

/*
 * Before the first packet under an incarnation, in a transaction of its own: writes the lineage (X4).
 * Whatever was stored before counts as possibly sent (H10).
 */
extern void shard_outbox_begin_incarnation(int32 self, int32 inc_no, ShardUuid incarnation);

/* In a turn: an item for the stream to a node; item->body is a ShardRow. */
extern void shard_outbox_append(int32 node, const ShardItem *item);

/* Before the turn's cursor row: appends the packets to the log. */
extern void shard_outbox_flush(void);

/* After the turn's commit (its LSN), or its abort. */
extern void shard_outbox_committed(XLogRecPtr lsn);
extern void shard_outbox_aborted(void);

/*
 * In a turn: every stored item of a shard, in any order, for ShardRouteHost.collect. sent: possibly.
 * row's memory lasts until visit returns.
 */
typedef void (*ShardOutboxVisit)(const ShardItem *item, const ShardRow *row, void *arg);
extern void shard_outbox_collect(int32 type_id, int32 shard, ShardOutboxVisit visit, void *arg);

/* The home told marks, or a route changed: packets of which nothing is kept may go. */
extern void shard_outbox_look_again(int32 type_id, int32 shard);

/* Lowest seq of the log that a lane's packets need; PG_INT64_MAX: none. */
extern int64 shard_outbox_needed(int lane);

/*
 * Rotation wants everything up to seq left behind: in the turn's transaction moves packets that are in
 * the way to shard.outbox_kept, and writes shard.stream. True: something was written.
 */
extern bool shard_outbox_leave(int64 seq);

/* Seq of the newest row of the stream to a node on a lane, those of this turn included (X8). */
extern int64 shard_outbox_last(int lane, int32 node);

/*
 * Nothing that was appended up to now is kept any more? For shard_drain: mark() at the request, and
 * then passed(mark) until it is true.
 */
extern uint64 shard_outbox_mark(void);
extern bool shard_outbox_passed(uint64 mark);
