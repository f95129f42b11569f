/*
 * link/outbox.h
 *		Messages for other nodes: packets in the log, one stream per lane and peer (X1, X4, X6).
 *
 * What one turn sends to one node on one lane is a packet: one row of the log, of kind PACKET, in the
 * turn's transaction. So nothing is written per message, the bytes that go on the wire are those that
 * are stored, and the log's rotation (lane's "needed") keeps a packet as long as any of its messages
 * is kept: not received, or not known to be done. When rotation wants their segment, the packets of
 * a laggard move to table shard.outbox_kept. Streams' durable facts are in table shard.stream, written
 * when a stream or an incarnation begins, at rotation, and by shard_link_accept(); what changed since
 * is found in the packets.
 *
 * A region worker uses the outbox, for its lanes. All of it happens in the worker; nothing waits.
 */
#pragma once

#include "core/flow/packet.h"
#include "core/flow/route.h"
#include "core/flow/stream.h"
#include "log/log.h"

/*
 * At start, in the load transaction, with the routes of the lanes, before shard_cursor_revisit(), which
 * shows it the packets of the log. The lanes' "needed" is published after that only.
 */
extern void shard_outbox_load(ShardDatabase *db, ShardLanes lanes, ShardRoutes *routes);

/* In the same transaction, behind that: whatever is stored counts as possibly sent (H10), from the first turn on. */
extern void shard_outbox_loaded(void);

/*
 * Before the first packet under an incarnation: writes the lineage (X4), in a transaction of its own if there is anything to
 * write.
 */
extern void shard_outbox_begin_incarnation(ShardUuid incarnation);

/* In a turn: an item for the stream to a node; item->body is a ShardRow. */
extern void shard_outbox_append(int32 node, const ShardItem *item);

/*
 * At the end of each turn, before the cursor row: appends the packets to the log. User code has ended.
 */
extern void shard_outbox_flush(void);

/* After the turn's commit (its LSN), or its abort; each is harmless if there was nothing. */
extern void shard_outbox_committed(XLogRecPtr lsn);
extern void shard_outbox_aborted(void);

/*
 * In a turn: every stored item of a shard, in any order, for ShardRouteHost.collect. sent: possibly.
 * row's memory lasts until visit returns. visit must not append.
 */
typedef void (*ShardOutboxVisit)(const ShardItem *item, const ShardRow *row, void *arg);
extern void shard_outbox_collect(int32 type_id, int32 shard, ShardOutboxVisit visit, void *arg);

/* The home told marks, or a route changed: packets of which nothing is kept may go. */
extern void shard_outbox_look_again(int32 type_id, int32 shard);

/* In a turn, when types have changed: messages of types that are gone are kept no longer. */
extern void shard_outbox_types_changed(void);

/*
 * Lowest seq of the log that a lane's packets need; PG_INT64_MAX: none. It also rises without a turn that writes: the
 * worker publishes it again whenever shard_outbox_changed() says so.
 */
extern int64 shard_outbox_needed(int lane);

/* Between turns: lets packets go that are received and not kept. True: a lane's "needed" rose. */
extern bool shard_outbox_changed(void);

/*
 * In each turn, before shard_outbox_flush(). Rotation wants everything up to seq left behind (0:
 * nothing): moves packets that are in the way to shard.outbox_kept, writes shard.stream, and removes
 * kept ones that may go. True: something was written, so the turn has to be committed.
 */
extern bool shard_outbox_leave(int64 seq);

/* Seq of the newest row of the stream to a node on a lane, those of this turn included (X8). */
extern int64 shard_outbox_last(int lane, int32 node);

/*
 * Nothing that was appended up to now is kept any more? For shard_drain: mark() at the request, and
 * then passed(mark) until it is true. stored_there: it is enough that the receiver has stored it.
 */
extern uint64 shard_outbox_mark(void);
extern bool shard_outbox_passed(uint64 mark, bool stored_there);

/*
 * In a turn: ends the quarantine of the streams to a node, by shard_link_accept() (X4). The streams begin again, empty;
 * save is called for each item that they store and this origin still keeps: to be parked, or in_doubt, and then a dead
 * letter. True: there was such a stream.
 */
typedef void (*ShardOutboxSave)(const ShardItem *item, const ShardRow *row, bool in_doubt,
								void *arg);
extern bool shard_outbox_accept(int32 node, ShardOutboxSave save, void *arg);

/*
 * For transport.c, between turns.
 */

/*
 * Cheap: are there rows for a node that it has not received? And since when are there rows that it has received, but
 * that are not known to be done (0: none)?
 */
extern bool shard_outbox_waits(int32 node, TimestampTz *unconfirmed);

/* What is stored for a node, over all lanes of this worker. Counts; for people. */
typedef struct ShardOutboxStatus
{
	int32 node;
	int64 messages; /* not received yet, or not known to be done */
	int64 bytes;
	TimestampTz oldest; /* of rows not received, or else of the others; 0: none */
} ShardOutboxStatus;

/* The number of nodes that anything is stored for, or was; and each of them. */
extern int shard_outbox_nodes(void);
extern int32 shard_outbox_node(int number);
extern void shard_outbox_status(int number, ShardOutboxStatus *status);

/* Was the lineage of that incarnation written? */
extern bool shard_outbox_is_ready(ShardUuid incarnation);

/* The stream to a node on a lane of this worker, made if need be. */
extern ShardStream *shard_outbox_stream(int32 node, int lane);

/*
 * Appends to parcels the next rows of an open stream that the gate has released, of one incarnation, up to about the
 * given numbers of rows and bytes; says in section what they are, and calls shard for each shard in them. They count as
 * handed to the connection. False: there are none. *waiting rises to the LSN of the rows that wait for the gate.
 */
typedef void (*ShardOutboxShard)(const ShardRoute *route, void *arg);
extern bool shard_outbox_next(int32 node, int lane, StringInfo parcels, int max_rows, int max_bytes,
							  ShardStreamSection *section, ShardOutboxShard shard, void *arg,
							  XLogRecPtr *waiting);

/* The receiver has everything up to seq (answer to a call, or to hello). */
extern void shard_outbox_received(int32 node, int lane, int64 seq);

/*
 * A link of a lane is quarantined: why, durably, and what the receiver has; NULL: it is not any more.
 * Runs a transaction.
 */
extern void
shard_outbox_quarantine(int32 node, int lane, const char *why, const ShardStreamPosition *position);
extern const char *shard_outbox_quarantined(int32 node, int lane);

/* All streams to a node begin again with hello. */
extern void shard_outbox_close(int32 node);

/*
 * A node is no member any more and will never receive what waits for it. Packets whose messages this origin keeps no
 * more are dropped; messages that it still keeps are sent elsewhere when the homes of their shards are known.
 */
extern void shard_outbox_gone(int32 node);

/* While a node cannot be reached, what waits for it counts for buffer_size of its type (X7). */
extern void shard_outbox_reachable(int32 node, bool reachable);
