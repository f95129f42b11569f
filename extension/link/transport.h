/*
 * link/transport.h
 *		A region worker's links to the other nodes: hello, pushing, answers, marks (section 7).
 *
 * Per peer one connection (peer.h) and one call at a time, which carries packets of all lanes of this worker, the marks
 * and refusals that the peer as origin has to hear, and the facts that it may lack. The receiver's answer tells what it
 * has received; that messages are done the receiver tells by a call of its own to this node, whose marks come as rows
 * of the log (SHARD_KIND_DONE). Turn records go by connections of their own (record_send.h), when the transport may speak.
 */
#pragma once

#include "core/flow/packet.h"
#include "core/flow/route.h"
#include "log/log.h"
#include "shared/shmem.h"

/* At start of a region worker. */
extern void
shard_transport_start(ShardDatabase *db, int worker, ShardLanes lanes, ShardRoutes *routes);

/*
 * Between turns, no transaction open: connects, polls, takes answers, sends what the gate has released. Cheap when
 * there is nothing to do. True: come again at once. The transport deals with errors itself: it logs a run of the same
 * failure once, and shows it in shard_peers.
 */
extern bool shard_transport_run(void);

/* When the transport has to run again, in ms; -1: when something happens. */
extern long shard_transport_due(void);

/*
 * Tells a node as origin, after the commit at lsn is released: its items for the shard are taken in up to rseq; they
 * were refused, and this is the newest fact here.
 */
extern void shard_transport_announce(int32 origin, const ShardDone *done, XLogRecPtr lsn);
extern void shard_transport_refuse(int32 origin, const ShardFact *fact, XLogRecPtr lsn);

/*
 * Tells a node, after the commit at lsn is released, a reply to an ask that is open there: a row of the log of kind
 * REPLY, of which it takes a copy. False: too much waits for that node already.
 */
extern bool shard_transport_reply(int32 node, const ShardRow *row, XLogRecPtr lsn);

/*
 * Lowest seq of the log that replies of a lane need which are on their way; PG_INT64_MAX: none. Rotation: rows up to a
 * seq are not kept for them any longer. And whether rows were needed that are so no more, since the last call.
 */
extern int64 shard_transport_replies_needed(int lane);
extern void shard_transport_replies_leave(int64 seq);
extern bool shard_transport_replies_changed(void);

/* Between turns: shard_link_accept() changed the streams to a node from outside; the link says hello again. */
extern void shard_transport_restart(int32 node);

typedef enum ShardTransportState
{
	SHARD_TRANSPORT_CLOSED = 0,
	SHARD_TRANSPORT_CONNECTING,
	SHARD_TRANSPORT_OPEN,
	SHARD_TRANSPORT_QUARANTINED,
	SHARD_TRANSPORT_IDLE /* closed, and nothing is to be said */
} ShardTransportState;

/* What a region worker tells of its link to a node: a row of shard_peers. */
typedef struct ShardTransportReport
{
	int32 node;
	ShardTransportState state;
	TimestampTz open_since; /* 0: the link is not open */
	int64 messages;			/* in the node's outbox */
	int64 bytes;			/* of these rows */
	TimestampTz oldest;		/* since when the oldest one waits; 0: none waits, or it is not known */
	const char *error;		/* the last one since the link came up, not terminated */
	int error_len;			/* 0: there was no failure */
} ShardTransportReport;

/* Worker: appends the answer to SHARD_REQUEST_PEERS, a report per node that this worker has a link or rows for. */
extern void shard_transport_report(StringInfo out);

/* Backend: reads one of these reports; error points into the reader's buffer. */
extern void shard_transport_read_report(ShardReader *in, ShardTransportReport *report);
