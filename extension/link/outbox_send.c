/*
 * link/outbox_send.c
 *		What leaves: the next rows of a stream, and what their receiver has of them (X2-X5).
 *
 * Rows leave when the gate has released their turn. Those whose shard has got a newer route leave as VOID if they never
 * left before (X2): the transaction that changed the route has appended them again.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "log/buffer.h"
#include "registry/catalog.h"
#include "shared/gate.h"
#include "link/outbox_private.h"

#include "base/compat.h"

/* Packets that are read back at a time. */
#define READ_PACKETS 32
#define READ_BYTES (2 * 1024 * 1024)

ShardStream *
shard_outbox_stream(int32 node, int lane)
{
	return &shard_outbox_get_stream(node, lane, true)->stream;
}

int
shard_outbox_nodes(void)
{
	return shard_outbox.n_peers;
}

int32
shard_outbox_node(int number)
{
	return shard_outbox.peers[number]->node;
}

bool
shard_outbox_waits(int32 node, TimestampTz *unconfirmed)
{
	OutPeer *peer = shard_outbox_get_peer(node, false);
	bool waits = false;

	*unconfirmed = 0;
	for (int lane = 0; peer != NULL && lane < SHARD_LANES; lane++)
	{
		OutStream *stream = peer->streams[lane];
		OutPacket *packet = stream == NULL ? NULL : shard_outbox_first(stream);

		if (packet == NULL)
			continue;
		waits |= stream->stream.acked < stream->last;
		if (out_last_seq(packet) <= stream->stream.acked &&
			(*unconfirmed == 0 || packet->at < *unconfirmed))
			*unconfirmed = packet->at;
	}
	return waits;
}

void
shard_outbox_status(int number, ShardOutboxStatus *status)
{
	OutPeer *peer = shard_outbox.peers[number];
	TimestampTz received_at = 0;

	*status = (ShardOutboxStatus){.node = peer->node};
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		OutStream *stream = peer->streams[lane];

		for (OutPacket *packet = stream == NULL ? NULL : shard_outbox_first(stream); packet != NULL;
			 packet = shard_outbox_after(packet))
		{
			bool received = out_last_seq(packet) <= stream->stream.acked;
			TimestampTz *oldest = received ? &received_at : &status->oldest;

			status->messages += packet->n_rows;
			status->bytes += packet->length;
			if (*oldest == 0 || packet->at < *oldest)
				*oldest = packet->at;
		}
	}
	if (status->oldest == 0)
		status->oldest = received_at;
}

/* The first packet that was not sent; they are at the end. */
static OutPacket *
find_next(OutStream *stream)
{
	OutPacket *found = NULL;
	dlist_head *lists[] = {&stream->logged, &stream->kept};

	for (int i = 0; i < (int) lengthof(lists); i++)
	{
		dlist_iter iter;

		dlist_reverse_foreach(iter, lists[i])
		{
			OutPacket *packet = dlist_container(OutPacket, link, iter.cur);

			if (out_last_seq(packet) <= stream->stream.sent)
				return found;
			found = packet;
		}
	}
	return found;
}

/* For out_each_parcels: into memory. */
static void
cache_parcels(OutPacket *packet, const char *parcels, int length, void *arg)
{
	if (packet->parcels != NULL)
		return;
	packet->parcels = MemoryContextAlloc(shard_outbox.context, Max(length, 1));
	memcpy(packet->parcels, parcels, length);
	packet->length = length;
	shard_outbox.cached += length;
}

/* Reads back packets whose bytes are not in memory, beginning with this one. False: not now. */
static bool
read_back(OutPacket *packet)
{
	OutPacket *some[READ_PACKETS];
	int n = 0;
	int64 bytes = 0;
	MemoryContext old = CurrentMemoryContext;
	bool locked;

	for (; packet != NULL && n < READ_PACKETS && bytes < READ_BYTES;
		 packet = shard_outbox_after(packet))
	{
		if (packet->parcels != NULL)
			break;
		bytes += packet->length;
		some[n++] = packet;
	}
	StartTransactionCommand();
	locked = shard_catalog_lock(true);
	if (locked)
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		shard_outbox_each_parcels(some, n, cache_parcels, NULL);
		PopActiveSnapshot();
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
	return locked;
}

static bool
is_superseded(const OutShard *shard)
{
	const ShardRoute *route = shard_outbox_route(shard->type_id, shard->shard);
	ShardItem item = {.type_id = shard->type_id, .shard = shard->shard, .epoch = shard->epoch};

	return route != NULL && shard_route_superseded(route, &item);
}

static bool
any_superseded(const OutPacket *packet)
{
	for (int i = 0; i < packet->n_shards; i++)
		if (is_superseded(&packet->shards[i]))
			return true;
	return false;
}

/* The packet with VOID in the places of rows that were appended again. */
static void
put_with_voids(const OutPacket *packet, StringInfo out)
{
	ShardReader reader = {packet->parcels, packet->parcels + packet->length, false};
	const char *begin = reader.at;
	ShardParcel parcel;

	while (shard_packet_get(&reader, &parcel))
	{
		OutShard shard = {parcel.type_id, parcel.shard, parcel.epoch, 0, 0};

		if (parcel.kind != SHARD_KIND_VOID && is_superseded(&shard))
		{
			ShardParcel nothing = {.kind = SHARD_KIND_VOID};

			shard_packet_put(out, &nothing);
		}
		else
			appendBinaryStringInfo(out, begin, (int) (reader.at - begin));
		begin = reader.at;
	}
	if (reader.failed)
		shard_outbox_damaged(packet->stream, packet->first_seq);
}

/* Appends a packet that is released, and in memory. */
static void
put_packet(const OutPacket *packet, StringInfo out, ShardOutboxShard visit, void *arg)
{
	for (int i = 0; i < packet->n_shards; i++)
	{
		const ShardRoute *route =
			shard_outbox_route(packet->shards[i].type_id, packet->shards[i].shard);

		if (route != NULL)
			visit(route, arg);
	}
	if (!shard_stream_possibly_sent(&packet->stream->stream, packet->first_seq) &&
		any_superseded(packet))
		put_with_voids(packet, out);
	else
		appendBinaryStringInfo(out, packet->parcels, packet->length);
}

/* May it go with those that are in the section already? */
static bool
fits(const OutPacket *packet, const ShardStreamSection *section, int length, int max_rows,
	 int max_bytes)
{
	const ShardStream *core = &packet->stream->stream;

	if (section->n_rows == 0)
		return true;
	return section->n_rows + packet->n_rows <= max_rows && length + packet->length <= max_bytes &&
		   packet->first_seq == section->first_seq + section->n_rows &&
		   shard_record_uuid_equal(shard_stream_writer(core, packet->first_seq), section->writer);
}

bool
shard_outbox_next(int32 node, int lane, StringInfo parcels, int max_rows, int max_bytes,
				  ShardStreamSection *section, ShardOutboxShard shard, void *arg,
				  XLogRecPtr *waiting)
{
	OutStream *stream = shard_outbox_get_stream(node, lane, false);
	OutPacket *packet;

	memset(section, 0, sizeof(*section));
	if (stream == NULL || stream->stream.state != SHARD_STREAM_OPEN ||
		stream->stream.sent >= stream->last)
		return false;
	if (stream->next == NULL)
		stream->next = find_next(stream);
	for (packet = stream->next; packet != NULL; packet = shard_outbox_after(packet))
	{
		if (!shard_gate_released(packet->lsn))
		{
			/* the newest of them: one flush is as good for all */
			*waiting = Max(*waiting, packet->lsn);
			if (!dlist_is_empty(&stream->logged))
				*waiting = Max(*waiting, dlist_tail_element(OutPacket, link, &stream->logged)->lsn);
			break;
		}
		if (!fits(packet, section, parcels->len, max_rows, max_bytes) ||
			(packet->parcels == NULL && !read_back(packet)))
			break;
		if (section->n_rows == 0)
		{
			section->lane = lane;
			section->gen = stream->stream.gen;
			section->first_seq = packet->first_seq;
			section->writer = shard_stream_writer(&stream->stream, packet->first_seq);
		}
		put_packet(packet, parcels, shard, arg);
		section->n_rows += packet->n_rows;
	}
	stream->next = packet;
	if (section->n_rows > 0)
		shard_stream_sent(&stream->stream, section->first_seq + section->n_rows - 1);
	return section->n_rows > 0;
}

void
shard_outbox_received(int32 node, int lane, int64 seq)
{
	OutStream *stream = shard_outbox_get_stream(node, lane, false);
	int64 before;

	if (stream == NULL)
		return;
	before = stream->stream.acked;
	if (!shard_stream_acked(&stream->stream, seq))
		return;
	shard_outbox.dirty |= shard_lane_bit(lane);
	while (stream->next != NULL && out_last_seq(stream->next) <= stream->stream.sent)
		stream->next = shard_outbox_after(stream->next);
	for (OutPacket *packet = shard_outbox_first(stream);
		 packet != NULL && out_last_seq(packet) <= stream->stream.acked;
		 packet = shard_outbox_after(packet))
	{
		if (out_last_seq(packet) <= before)
			continue;
		shard_outbox_uncount(packet);
		shard_outbox_forget_parcels(packet);
	}
}

void
shard_outbox_close(int32 node)
{
	OutPeer *peer = shard_outbox_get_peer(node, false);

	for (int lane = 0; peer != NULL && lane < SHARD_LANES; lane++)
		if (peer->streams[lane] != NULL)
		{
			shard_stream_close(&peer->streams[lane]->stream);
			peer->streams[lane]->next = NULL;
		}
}

const char *
shard_outbox_quarantined(int32 node, int lane)
{
	OutStream *stream = shard_outbox_get_stream(node, lane, false);

	return stream == NULL ? NULL : stream->quarantine;
}

void
shard_outbox_quarantine(int32 node, int lane, const char *why, const ShardStreamPosition *position)
{
	OutStream *stream = shard_outbox_get_stream(node, lane, true);
	OutStream stored;
	MemoryContext old = CurrentMemoryContext;

	stream->heard = *position;
	if ((why == NULL && stream->quarantine == NULL) ||
		(why != NULL && stream->quarantine != NULL && strcmp(why, stream->quarantine) == 0))
		return;

	/* in memory after the commit: what failed is written with the next hello */
	stored = *stream;
	stored.quarantine = unconstify(char *, why);
	StartTransactionCommand();
	(void) shard_catalog_lock(false);
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_outbox_table_store_stream(&stored);
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
	if (stream->quarantine != NULL)
		pfree(stream->quarantine);
	stream->quarantine = why == NULL ? NULL : MemoryContextStrdup(shard_outbox.context, why);
	stream->saved_last = stream->last;
}

/* ---- buffer_size ------------------------------------------------------------------------------ */

/* Onto the types' counters, or off them. */
static void
add_to_counters(const OutPacket *packet, int sign)
{
	for (int i = 0; i < packet->n_shards; i++)
	{
		const OutShard *shard = &packet->shards[i];
		ShardTypeCounter *counter = NULL;

		shard_shmem_count_held(&counter, MyDatabaseId, shard->type_id, (int64) sign * shard->items);
	}
}

void
shard_outbox_count(OutPacket *packet)
{
	if (packet->counted || out_last_seq(packet) <= packet->stream->stream.acked)
		return;
	packet->counted = true;
	add_to_counters(packet, 1);
}

void
shard_outbox_uncount(OutPacket *packet)
{
	if (!packet->counted)
		return;
	packet->counted = false;
	add_to_counters(packet, -1);
}

/* All that waits for a node. */
static void
count_peer(OutPeer *peer, bool count)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		OutStream *stream = peer->streams[lane];

		for (OutPacket *packet = stream == NULL ? NULL : shard_outbox_first(stream); packet != NULL;
			 packet = shard_outbox_after(packet))
		{
			if (count)
				shard_outbox_count(packet);
			else
				shard_outbox_uncount(packet);
		}
	}
}

/* A worker that ends takes its share off the counters; its successor counts from the start. */
static void
at_exit(int code, Datum arg)
{
	for (int i = 0; i < shard_outbox.n_peers; i++)
	{
		OutPeer *peer = shard_outbox.peers[i];

		count_peer(peer, false);
		if (peer->unreachable)
			shard_buffer_away(peer->node, false);
		peer->unreachable = false;
	}
}

void
shard_outbox_reachable(int32 node, bool reachable)
{
	static bool registered = false;
	OutPeer *peer = shard_outbox_get_peer(node, false);

	if (peer == NULL || peer->unreachable == !reachable)
		return;
	if (!registered)
		before_shmem_exit(at_exit, 0);
	registered = true;
	peer->unreachable = !reachable;
	shard_buffer_away(node, !reachable);
	count_peer(peer, !reachable);
}
