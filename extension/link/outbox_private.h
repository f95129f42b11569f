/*
 * link/outbox_private.h
 *		What the outbox's files share: packets, streams, and the turn that fills them.
 */
#pragma once

#include "lib/ilist.h"
#include "utils/timestamp.h"

#include "link/outbox.h"

/* The items of one shard in a packet; under one tag only the last can be the last that is done. */
typedef struct OutShard
{
	int32 type_id;
	int32 shard;
	int32 epoch;
	int32 items;
	int64 max_rseq;
} OutShard;

typedef struct OutPacket
{
	dlist_node link; /* of stream->kept or ->logged, or the turn's list */
	struct OutStream *stream;
	int64 first_seq;
	int32 n_rows;
	int64 low; /* its row of the log lies within */
	int64 high;
	uint64 serial; /* rises with each packet of the worker */
	XLogRecPtr lsn;
	TimestampTz at;
	bool kept;	  /* in shard.outbox_kept, and no more needed in the log */
	bool moving;  /* the turn put the packet there */
	bool counted; /* in the types' counters of what cannot be handled */
	bool sent;	  /* the packet's content was possibly sent before, to a former home (N2) */
	int n_shards;
	OutShard *shards;
	char *parcels; /* NULL: to be read back */
	int length;
} OutPacket;

/* A packet that the turn fills. */
typedef struct OutBuild
{
	StringInfoData parcels;
	int64 first_seq;
	int32 n_rows;
	bool sent; /* as OutPacket */
	int n_shards;
	int space;
	OutShard *shards;
	uint16 place[64]; /* where a shard was last found, by hash: a hint */
} OutBuild;

typedef struct OutStream
{
	ShardStream stream; /* core/flow/stream.h */
	struct OutPeer *peer;
	int lane;
	dlist_head kept;		   /* packets of the table, by seq; older than */
	dlist_head logged;		   /* packets of the log, by seq */
	OutPacket *next;		   /* the first packet that was not sent; NULL: look for it */
	char *quarantine;		   /* NULL: none */
	ShardStreamPosition heard; /* what the receiver said then */

	/* as of the last commit */
	int64 last;		  /* stream.last */
	int64 saved_last; /* the same in shard.stream; -1: no row there */
	int64 newest_low; /* of the newest packet */

	/* the turn */
	bool touched;
	bool saving; /* shard.stream is written with last */
	int64 saving_last;
	bool accepting; /* the stream begins again; the old one was: */
	ShardStream before;
	char *quarantine_before;
	OutBuild build;
} OutStream;

typedef struct OutPeer
{
	int32 node;
	bool unreachable;
	bool gone; /* from the cluster */
	OutStream *streams[SHARD_LANES];
} OutPeer;

/* Flag of a packet: OutPacket.sent. */
#define OUT_SENT 1

/* Header of a packet in the log and in shard.outbox_kept. */
typedef struct OutHeader
{
	int32 node;
	int32 channel;
	int32 gen;
	int64 first_seq;
	int32 n_rows;
	int64 acked;
	int32 flags; /* OUT_SENT, or 0 */
} OutHeader;

typedef struct Outbox
{
	ShardDatabase *db;
	ShardLanes lanes;
	ShardRoutes *routes;
	MemoryContext context;
	XLogRecPtr loaded_lsn; /* what was loaded is older */
	bool begun;			   /* incarnation is known */
	ShardUuid incarnation;
	int n_peers;
	OutPeer **peers;
	uint64 serial;		 /* of the newest packet */
	int64 cached;		 /* bytes of parcels in memory */
	ShardLanes dirty;	 /* the lanes that may have packets to drop */
	dlist_head gone;	 /* kept packets whose rows are still to be deleted */
	dlist_head deleting; /* kept packets whose rows the turn deletes */
	dlist_head turn;	 /* packets of the turn that are in the log's batch */
} Outbox;

extern Outbox shard_outbox;

static inline int64
out_last_seq(const OutPacket *packet)
{
	return packet->first_seq + packet->n_rows - 1;
}

/* outbox.c */
extern OutPeer *shard_outbox_get_peer(int32 node, bool make);
extern OutStream *shard_outbox_get_stream(int32 node, int lane, bool make);

/* outbox_packet.c */
extern void shard_outbox_put_header(StringInfo out, const OutHeader *header);
extern bool shard_outbox_get_header(ShardReader *reader, OutHeader *header);
extern void shard_outbox_add_shard(OutBuild *build, const ShardParcel *parcel);
extern OutPacket *shard_outbox_make_packet(OutStream *stream, const OutBuild *build, bool cache);
extern bool shard_outbox_parse(OutBuild *build, ShardReader *reader);
extern void shard_outbox_free_packet(OutPacket *packet);
extern bool shard_outbox_forget_gone(OutPacket *packet);
extern void
shard_outbox_visit_parcels(const OutStream *stream, int64 seq, bool sent, const char *parcels,
						   int length, ShardOutboxVisit visit, void *arg);
extern void shard_outbox_forget_parcels(OutPacket *packet);
extern bool shard_outbox_is_kept(const OutPacket *packet);
extern OutPacket *shard_outbox_after(OutPacket *packet);
extern OutPacket *shard_outbox_first(OutStream *stream);
extern ShardRoute *shard_outbox_route(int32 type_id, int32 shard);
extern void shard_outbox_damaged(const OutStream *stream, int64 first_seq);

/* The parcels of packets of one stream, in order of seq. Needs a transaction and a snapshot. */
typedef void (*OutBytes)(OutPacket *packet, const char *parcels, int length, void *arg);
extern void shard_outbox_each_parcels(OutPacket **packets, int n, OutBytes visit, void *arg);

/* outbox_accept.c */
extern void shard_outbox_accepted(OutStream *stream);
extern void shard_outbox_not_accepted(OutStream *stream);

/* outbox_send.c: what counts for buffer_size */
extern void shard_outbox_count(OutPacket *packet);
extern void shard_outbox_uncount(OutPacket *packet);

/* outbox_table.c: SQL. Each needs a transaction and a snapshot. */
typedef void (*OutStreamVisit)(int32 node, int lane, const ShardStream *stream,
							   const char *quarantine);
typedef void (*OutKeptVisit)(int lane, const char *payload, int length, TimestampTz at);
extern void shard_outbox_table_streams(OutStreamVisit visit);
extern void shard_outbox_table_store_stream(const OutStream *stream);
extern void shard_outbox_table_kept(OutKeptVisit visit);
extern void shard_outbox_table_keep(const OutPacket *packet, const char *payload, int length);
extern void shard_outbox_table_forget(const OutPacket *packet);
extern void shard_outbox_table_forget_all(const OutStream *stream);
extern bool shard_outbox_table_read(const OutPacket *packet, OutBytes visit, void *arg);
