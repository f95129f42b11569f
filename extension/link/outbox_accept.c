/*
 * link/outbox_accept.c
 *		The end of a quarantine: shard_link_accept() (X4).
 *
 * The stream begins again, with another generation, behind its last row; what it stored and this origin still keeps is
 * sent again through the shard's parked messages. If it was the origin that regressed, what may have left it is in
 * doubt: core/flow/stream.h says why.
 *
 * If the process dies right here: all of it is the turn's transaction. Packets of the old generation stay in the log
 * until it is rotated; a worker that reads them sees that their generation does not count.
 */
#include "postgres.h"

#include "link/outbox_private.h"

#include "base/compat.h"

/* The number of packets whose bytes are read at a time. */
#define SOME_PACKETS 64

typedef struct Accept
{
	OutStream *stream;
	ShardOutboxSave save;
	void *arg;
	bool in_doubt; /* what is in the packet */
} Accept;

static void
visit_item(const ShardItem *item, const ShardRow *row, void *arg)
{
	const Accept *accept = arg;
	const ShardRoute *route = shard_outbox_route(item->type_id, item->shard);

	if (route != NULL && shard_route_kept(route, item))
		accept->save(item, row, accept->in_doubt, accept->arg);
}

static void
visit_packet(OutPacket *packet, const char *parcels, int length, void *arg)
{
	Accept *accept = arg;
	const ShardStream *stream = &accept->stream->stream;

	/* what counts is that this node appended it to this stream (X4): the marks know what a former home has got */
	accept->in_doubt = stream->state == SHARD_STREAM_ORIGIN_REGRESSED &&
					   shard_stream_possibly_sent(stream, packet->first_seq);
	shard_outbox_visit_parcels(packet->stream, packet->first_seq, packet->sent, parcels, length,
							   visit_item, arg);
}

/* Shows what is stored of a stream. */
static void
save_stream(Accept *accept)
{
	OutPacket *some[SOME_PACKETS];
	int n = 0;

	for (OutPacket *packet = shard_outbox_first(accept->stream); packet != NULL;
		 packet = shard_outbox_after(packet))
	{
		some[n++] = packet;
		if (n < SOME_PACKETS)
			continue;
		shard_outbox_each_parcels(some, n, visit_packet, accept);
		n = 0;
	}
	if (n > 0)
		shard_outbox_each_parcels(some, n, visit_packet, accept);
}

/* Begins the stream again: what it appends in the rest of this turn is of the new generation. */
static void
start_again(OutStream *stream)
{
	stream->before = stream->stream;
	stream->quarantine_before = stream->quarantine;
	stream->accepting = true;
	stream->quarantine = NULL;
	shard_stream_accept(&stream->stream, &stream->heard);
	shard_outbox_table_store_stream(stream);
}

bool
shard_outbox_accept(int32 node, ShardOutboxSave save, void *arg)
{
	OutPeer *peer = shard_outbox_get_peer(node, false);
	bool any = false;

	for (int lane = 0; peer != NULL && lane < SHARD_LANES; lane++)
	{
		Accept accept = {peer->streams[lane], save, arg};

		if (accept.stream == NULL || accept.stream->accepting ||
			(accept.stream->stream.state != SHARD_STREAM_ORIGIN_REGRESSED &&
			 accept.stream->stream.state != SHARD_STREAM_RECEIVER_REGRESSED))
			continue;
		ShardAssert(!accept.stream->touched);
		save_stream(&accept);
		shard_outbox_table_forget_all(accept.stream);
		start_again(accept.stream);
		any = true;
	}
	return any;
}

static void
free_packets(OutStream *stream, dlist_head *list)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, list)
	{
		OutPacket *packet = dlist_container(OutPacket, link, iter.cur);

		if (packet->stream != stream)
			continue;
		dlist_delete(&packet->link);
		shard_outbox_free_packet(packet);
	}
}

/* After the commit, before the turn's own packets are taken over. */
void
shard_outbox_accepted(OutStream *stream)
{
	free_packets(stream, &stream->kept);
	free_packets(stream, &stream->logged);
	free_packets(stream, &shard_outbox.gone);
	if (stream->quarantine_before != NULL)
		pfree(stream->quarantine_before);
	stream->last = stream->stream.last;
	stream->saved_last = stream->stream.acked;
	stream->next = NULL;
	stream->accepting = false;
}

/* After an abort. */
void
shard_outbox_not_accepted(OutStream *stream)
{
	stream->stream = stream->before;
	stream->quarantine = stream->quarantine_before;
	stream->accepting = false;
}
