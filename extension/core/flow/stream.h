/*
 * core/flow/stream.h
 *		Streams: dense sequences from one lane of a node to another node (X1-X5).
 *
 * The origin numbers what it appends; the receiver stores the rows and its position in one
 * transaction, so it alone knows where to go on. Positions are compared by lineage: which incarnation
 * appended a row, and not only its number. A database that was put back from an old copy may have
 * written on since, and its number 150 is then another row than the one the peer knows.
 *
 * Both structs are plain data. What is marked durable the host stores and reads again after an aborted
 * transaction and at start; nothing here allocates but the lineage, once per incarnation.
 */
#pragma once

#include "core/map/record.h"

/* The incarnation that appended the rows from this seq on. */
typedef struct ShardStreamBegin
{
	ShardUuid incarnation;
	int64 first;
} ShardStreamBegin;

/* Origin's link to a receiver, one per (lane, channel, destination). Volatile. */
typedef enum ShardStreamState
{
	SHARD_STREAM_CLOSED = 0,	   /* next: OPEN, or one of the last two, by the answer to hello */
	SHARD_STREAM_OPEN = 1,		   /* next: CLOSED, by any error or time-out (X5) */
	SHARD_STREAM_ORIGIN_REGRESSED, /* quarantined: the receiver knows rows that this node never wrote */
	SHARD_STREAM_RECEIVER_REGRESSED /* quarantined: it lacks rows that it had acknowledged */
} ShardStreamState;

typedef struct ShardStream
{
	/* durable */
	int32 gen;		 /* never negative; another one with each shard_link_accept() */
	int64 last;		 /* seq of the newest row */
	int64 acked;	 /* greatest position that the receiver ever told */
	int64 truncated; /* rows up to here are gone */
	int n_begins;
	int begin_space;
	ShardStreamBegin *begins; /* lineage, oldest first */

	/* volatile */
	ShardStreamState state;
	int64 sent;		 /* rows up to here were written to the present connection */
	int64 ever_sent; /* rows up to here may have been on a wire */
} ShardStream;

/* Receiver's durable record, one per (origin, lane, channel). All 0: nothing came yet. */
typedef struct ShardStreamPosition
{
	int32 inc; /* greatest inc_no of the origin that said hello */
	int32 gen;
	int64 seq;		  /* newest row received */
	ShardUuid writer; /* incarnation that appended that row */
} ShardStreamPosition;

typedef enum ShardStreamVerdict
{
	SHARD_STREAM_TAKE = 0,	  /* append what is left after the skipped rows, may be none */
	SHARD_STREAM_GAP,		  /* rows are missing before these: error, the sender says hello */
	SHARD_STREAM_HELLO_FIRST, /* the sender must say hello */
	SHARD_STREAM_FENCED		  /* a newer incarnation of the sender lives */
} ShardStreamVerdict;

/*
 * A hello begins a newer generation only up to this far ahead of the generation that the receiver knows (X4).
 * Generations start from 0 again behind 2^31 - 1, so each generation has newer ones. A power of two.
 */
#define SHARD_STREAM_REACH 1024

/* Origin. An all-zero struct is an empty stream. */
extern void shard_stream_free(ShardStream *stream);

/*
 * A new incarnation begins: from now on it appends. The host stores the lineage, durably, before the
 * first row. Whatever was stored before may have been sent.
 */
extern void shard_stream_begin(ShardStream *stream, ShardUuid incarnation);

/* Seq for a row that is appended in the present transaction. After an abort: last is set back. */
extern int64 shard_stream_next(ShardStream *stream);

/* The incarnation that appended a row. */
extern ShardUuid shard_stream_writer(const ShardStream *stream, int64 seq);

/* The answer to hello: go on behind it, or the link is quarantined. Returns the new state. */
extern ShardStreamState
shard_stream_greeted(ShardStream *stream, const ShardStreamPosition *position);

/* The connection is gone. A quarantine stays. */
extern void shard_stream_close(ShardStream *stream);

/* Rows up to seq were handed to the connection. */
extern void shard_stream_sent(ShardStream *stream, int64 seq);

/*
 * The receiver has, durably, everything up to seq: maybe more than this connection was handed, if a
 * call of a former one was carried out late. Goes on behind it. Does that change the durable part?
 */
extern bool shard_stream_acked(ShardStream *stream, int64 seq);

/* May this row have left the database, now or in an earlier incarnation? */
extern bool shard_stream_possibly_sent(const ShardStream *stream, int64 seq);

/*
 * shard_link_accept(): end a quarantine. A new generation begins, empty, behind the last row; the receiver takes
 * it, whatever generation the receiver has. In the same transaction the host removes what the stream stores; what
 * of it, and of the rows kept elsewhere, is still this origin's to keep, is appended again in the order of the
 * stamps, through the shard's parked messages (H4). But if it was the origin that regressed, what
 * shard_stream_possibly_sent says may have left it is in doubt: a database that has lost its newest past may have
 * heard that the item was done, and told a floor, so that no mark keeps the item from being handled twice. Such an
 * item becomes a dead letter.
 */
extern void shard_stream_accept(ShardStream *stream, const ShardStreamPosition *position);

/*
 * Receiver, under the stream's lock. greet: hello of an incarnation; base: where that generation
 * begins. Changes the position for the host to store, unless FENCED. A generation that is out of reach changes nothing of
 * it: the answer says which one is known here.
 */
extern ShardStreamVerdict
shard_stream_greet(ShardStreamPosition *position, int32 from_inc, int32 gen, int64 base);

/* A section of n_rows rows from first_seq on; *skip gets how many of them are known already. */
extern ShardStreamVerdict shard_stream_receive(const ShardStreamPosition *position, int32 from_inc,
											   int32 gen, int64 first_seq, int n_rows, int *skip);

/* The rows were appended; last one and its writer. */
extern void shard_stream_took(ShardStreamPosition *position, int64 last_seq, ShardUuid writer);
