/*
 * link/transport.h
 *		A region worker's links to the other nodes: hello, pushing, answers, marks (section 7).
 *
 * Per peer one connection (peer.h) and one call at a time, which carries packets of all lanes of this
 * worker, the marks and refusals that the peer as origin has to hear, and the facts that it may lack.
 * The receiver's answer tells what it has received; that it is done it tells by a call of its own to
 * us, whose marks come as rows of the log (SHARD_KIND_DONE).
 */
#pragma once

#include "core/flow/packet.h"
#include "core/flow/route.h"
#include "shared/shmem.h"

/* At start of a region worker. */
extern void
shard_transport_start(ShardDatabase *db, int worker, ShardLanes lanes, ShardRoutes *routes);

/*
 * Between turns, no transaction open: connects, polls, takes answers, sends what the gate has
 * released. Cheap when there is nothing to do. True: come again at once. Errors are its own matter:
 * logged once for a run of the same failure, and shown in shard_peers.
 */
extern bool shard_transport_run(void);

/* When it has to run again, in ms; -1: when something happens. */
extern long shard_transport_due(void);

/*
 * To be told to a node as origin after the commit at lsn is released: its items for the shard are
 * taken in up to rseq; they were refused, and this is the newest fact here.
 */
extern void shard_transport_announce(int32 origin, const ShardDone *done, XLogRecPtr lsn);
extern void shard_transport_refuse(int32 origin, const ShardFact *fact, XLogRecPtr lsn);

/* Between turns: streams to a node changed from outside (shard_link_accept()), hello is to be said anew. */
extern void shard_transport_restart(int32 node);

/* Is the link to a node up? For the limit of what may wait (X7), and for people. */
extern bool shard_transport_is_open(int32 node);

/*
 * Appends the rows of shard_peers to out, for SHARD_REQUEST_PEERS, in network byte order as
 * shard_report_append() does; per node that this worker has a link or rows for: int32 node, int32
 * state (ShardTransportState), int64 connected_since (TimestampTz, 0: it is not), int64 messages and
 * int64 bytes in its outbox, int64 oldest (TimestampTz since when the oldest waits, 0: none or not
 * known), int32 length and bytes of the last error (0: none since the link came up).
 */
typedef enum ShardTransportState
{
	SHARD_TRANSPORT_CLOSED = 0,
	SHARD_TRANSPORT_CONNECTING,
	SHARD_TRANSPORT_OPEN,
	SHARD_TRANSPORT_QUARANTINED
} ShardTransportState;

extern void shard_transport_report(StringInfo out);
