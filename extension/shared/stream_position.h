/*
 * shared/stream_position.h
 *		Streams from peers: up to where each was received, in shared memory (X3).
 *
 * The durable form of a position is a row of the log (SHARD_KIND_POSITION) of the transaction that stored what was
 * received, or a row of table shard.position (stream_position_table.h). Here is the newest committed one of each
 * stream. A process that changes a position holds the stream's lock (receive.c) until the entry is changed, too; and a
 * lane is ready once its worker has read log and table after the start of the server.
 */
#pragma once

#include "access/xlogdefs.h"

#include "core/flow/packet.h"
#include "core/flow/stream.h"
#include "shared/shmem.h"

/* Which stream: of a database here. Compared as bytes. */
typedef struct ShardStreamPositionKey
{
	Oid dboid;
	int32 origin;
	int32 lane;
	int32 channel;
} ShardStreamPositionKey;

typedef struct ShardPeerPosition
{
	ShardStreamPositionKey key;
	ShardStreamPosition stream;

	/*
	 * The newest row in the log that has this position, at this seq or above, but above the rows of earlier positions;
	 * 0: table shard.position has it, or nothing came yet.
	 */
	int64 row_seq;
	bool in_table;	  /* and table shard.position, too, as of a rotation */
	XLogRecPtr lsn;	  /* of the commit: the gate is asked for it before the position is told */
	int32 quarantine; /* ShardStreamState as the origin said at its last hello, or 0 */
} ShardPeerPosition;

/* The positions' part of shared memory. */
extern const ShardShmemPart shard_stream_position_part;

/*
 * The slot of a database is given back, or its cluster is forgotten: so are its streams. No lane is ready until a
 * worker has read log and table again.
 */
extern void shard_stream_position_free(ShardDatabase *db, Oid dboid);

/* Whether the lane's positions have been read, those of this extension (node: OID of table shard.node). */
extern bool shard_stream_position_is_ready(ShardDatabase *db, Oid node, int lane);

/* The position of one stream. False: nothing is known of the stream, and *position is all 0. */
extern bool
shard_stream_position_get(const ShardStreamPositionKey *key, ShardPeerPosition *position);

/* Makes room for a stream, so that set cannot fail; error 53400 if there is none left. */
extern void shard_stream_position_reserve(const ShardStreamPositionKey *key);

/* After commit, under the stream's lock; the entry was reserved. Wakes the processes that wait. Never fails. */
extern void shard_stream_position_set(ShardDatabase *db, const ShardPeerPosition *position);

/* Stores the quarantine that the origin told about the link; the entry was reserved. Never fails. */
extern void
shard_stream_position_set_quarantine(const ShardStreamPositionKey *key, int32 quarantine);

/* All streams of a database, palloc'd, in no order. */
extern ShardPeerPosition *shard_stream_position_list(Oid dboid, int *count);

/*
 * After the commit of a rotation that wrote these positions to table shard.position: marks those that are still the
 * same as being in the table.
 */
extern void shard_stream_position_set_in_table(const ShardPeerPosition *list, int count);

/*
 * Waits until the stream was received up to a seq, for this time at most; false: it was not. Serves interrupts; the
 * caller holds no lock or snapshot.
 */
extern bool shard_stream_position_wait(ShardDatabase *db, const ShardStreamPositionKey *key,
									   int64 seq, int64 microseconds);

/*
 * Worker at its start: begin, then found() for each row of table and log in any order, then ready. A newer position
 * that is known already stays.
 */
extern void shard_stream_position_begin(ShardDatabase *db, Oid node);
extern void shard_stream_position_found(const ShardPeerPosition *position);
extern void shard_stream_position_ready(ShardDatabase *db, Oid node, ShardLanes lanes);

/* Payload of a row of kind POSITION, for one stream. */
extern void shard_stream_position_put(StringInfo out, const ShardStreamPositionKey *key,
									  const ShardStreamPosition *stream);
extern bool shard_stream_position_parse(const char *bytes, int length, ShardPeerPosition *position);
