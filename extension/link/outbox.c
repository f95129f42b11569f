/*
 * link/outbox.c
 *		Messages for other nodes: streams, and the packets of a turn (X1, X4, X6).
 *
 * Each stream has a buffer that the turn fills; at the end of the turn, or when it is long enough, it becomes a row of
 * the log. So the seqs of a stream are dense, and their order is that of the commits, since the lane's worker alone
 * draws them.
 *
 * If the process dies right here: packets and the turn that sent them are one commit. What is in memory is read again
 * from the log, from shard.outbox_kept and from shard.stream (outbox_load.c); seqs of a turn that a crash forgets are
 * drawn again, by another incarnation, and no other node has seen them, as packets leave only when the gate has
 * released them.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "core/base/message.h"
#include "link/outbox_private.h"

#include "base/compat.h"

/* A packet is closed when it has this many bytes. */
#define PACKET_BYTES (128 * 1024)

/* Bytes of packets that a worker keeps in memory, beside those of the turn. */
#define CACHE_BYTES (32 * 1024 * 1024)

Outbox shard_outbox;

OutPeer *
shard_outbox_get_peer(int32 node, bool make)
{
	MemoryContext old;
	OutPeer *peer;

	for (int i = 0; i < shard_outbox.n_peers; i++)
		if (shard_outbox.peers[i]->node == node)
			return shard_outbox.peers[i];
	if (!make)
		return NULL;
	old = MemoryContextSwitchTo(shard_outbox.context);
	peer = palloc0(sizeof(OutPeer));
	peer->node = node;
	shard_outbox.peers =
		shard_outbox.peers == NULL
			? palloc(sizeof(OutPeer *))
			: repalloc(shard_outbox.peers, (shard_outbox.n_peers + 1) * sizeof(OutPeer *));
	shard_outbox.peers[shard_outbox.n_peers++] = peer;
	MemoryContextSwitchTo(old);
	return peer;
}

OutStream *
shard_outbox_get_stream(int32 node, int lane, bool make)
{
	OutPeer *peer = shard_outbox_get_peer(node, make);
	OutStream *stream;
	MemoryContext old;

	if (peer == NULL || peer->streams[lane] != NULL || !make)
		return peer == NULL ? NULL : peer->streams[lane];
	ShardAssert(shard_outbox.lanes & shard_lane_bit(lane));
	old = MemoryContextSwitchTo(shard_outbox.context);
	stream = palloc0(sizeof(OutStream));
	stream->peer = peer;
	stream->lane = lane;
	stream->saved_last = -1;
	dlist_init(&stream->kept);
	dlist_init(&stream->logged);
	initStringInfo(&stream->build.parcels);
	if (shard_outbox.begun)
		shard_stream_begin(&stream->stream, shard_outbox.incarnation);
	peer->streams[lane] = stream;
	MemoryContextSwitchTo(old);
	return stream;
}

/* Goes through the streams. */
#define EACH_STREAM(s) \
	for (int p_ = 0; p_ < shard_outbox.n_peers; p_++) \
		for (int l_ = 0; l_ < SHARD_LANES; l_++) \
			if (((s) = shard_outbox.peers[p_]->streams[l_]) != NULL)

/* What was built becomes a row of the log. */
static void
close_packet(OutStream *stream)
{
	OutBuild *build = &stream->build;
	OutHeader header = {.node = stream->peer->node,
						.gen = stream->stream.gen,
						.first_seq = build->first_seq,
						.n_rows = build->n_rows,
						.acked = stream->stream.acked,
						.flags = build->sent ? OUT_SENT : 0};
	ShardRow row = {.kind = SHARD_KIND_PACKET,
					.shard = stream->lane,
					.entity = "",
					.epoch = SHARD_NO_EPOCH};
	StringInfoData payload;
	OutPacket *packet;

	initStringInfo(&payload);
	shard_outbox_put_header(&payload, &header);
	appendBinaryStringInfo(&payload, build->parcels.data, build->parcels.len);
	row.payload = payload.data;
	row.payload_len = payload.len;
	packet = shard_outbox_make_packet(stream, build, true);
	(void) shard_outbox_forget_gone(packet);
	packet->low = shard_log_last_seq(shard_outbox.db) + 1;
	dlist_push_tail(&shard_outbox.turn, &packet->link);
	build->n_rows = build->n_shards = 0;
	resetStringInfo(&build->parcels);
	shard_log_append(&row);
	pfree(payload.data);

	/* one long message does not take its room until the worker ends */
	if (build->parcels.maxlen > 4 * PACKET_BYTES)
	{
		MemoryContext old = MemoryContextSwitchTo(shard_outbox.context);

		pfree(build->parcels.data);
		initStringInfo(&build->parcels);
		MemoryContextSwitchTo(old);
	}
}

void
shard_outbox_append(int32 node, const ShardItem *item)
{
	const ShardRow *row = item->body;
	OutStream *stream =
		shard_outbox_get_stream(node, shard_message_lane(item->type_id, item->shard), true);
	OutBuild *build = &stream->build;
	ShardParcel parcel = {.kind = row->kind,
						  .type_id = item->type_id,
						  .shard = item->shard,
						  .epoch = item->epoch,
						  .stamp = item->stamp,
						  .entity = row->entity,
						  .entity_len = row->entity_len,
						  .src_type = row->src_type,
						  .src_entity = row->src_type == 0 ? "" : row->src_entity,
						  .src_entity_len = row->src_type == 0 ? 0 : row->src_entity_len,
						  .mid_node = row->mid_node,
						  .mid_seq = row->mid_seq,
						  .payload = row->payload,
						  .payload_len = row->payload_len};

	/* a packet says of all its messages whether they were possibly sent before: under this tag none was */
	if (build->n_rows > 0 && build->sent != item->sent)
		close_packet(stream);
	build->sent = item->sent;
	stream->touched = true;
	if (build->n_rows == 0)
		build->first_seq = stream->stream.last + 1;
	(void) shard_stream_next(&stream->stream);
	build->n_rows++;
	shard_packet_put(&build->parcels, &parcel);
	shard_outbox_add_shard(build, &parcel);
	if (build->parcels.len >= PACKET_BYTES)
		close_packet(stream);
}

/*
 * A stream's first row, and the lineage with it, is stored by the transaction that appends the stream's
 * first packet.
 */
static void
store_new(OutStream *stream)
{
	if (stream->saved_last >= 0 || stream->saving)
		return;
	stream->saving = true;
	stream->saving_last = stream->stream.last;
	shard_outbox_table_store_stream(stream);
}

void
shard_outbox_flush(void)
{
	OutStream *stream;

	EACH_STREAM(stream)
	{
		if (!stream->touched)
			continue;
		if (stream->build.n_rows > 0)
			close_packet(stream);
		store_new(stream);
	}
}

/* The packets of the turn are stored. */
static void
keep_turn(XLogRecPtr lsn)
{
	int64 high = shard_log_last_seq(shard_outbox.db);
	TimestampTz now = GetCurrentTimestamp();

	while (!dlist_is_empty(&shard_outbox.turn))
	{
		OutPacket *packet =
			dlist_container(OutPacket, link, dlist_pop_head_node(&shard_outbox.turn));
		OutStream *stream = packet->stream;

		packet->high = high;
		packet->lsn = lsn;
		packet->at = now;
		packet->serial = ++shard_outbox.serial;
		stream->newest_low = packet->low;
		dlist_push_tail(&stream->logged, &packet->link);
		if (stream->next == NULL && stream->stream.state == SHARD_STREAM_OPEN &&
			packet->first_seq == stream->stream.sent + 1)
			stream->next = packet;
		if (stream->peer->unreachable)
			shard_outbox_count(packet);
		if (shard_outbox.cached > CACHE_BYTES)
			shard_outbox_forget_parcels(packet);
	}
}

/* Those that the turn moved are the oldest of the log. */
static void
keep_moved(OutStream *stream)
{
	while (!dlist_is_empty(&stream->logged))
	{
		OutPacket *packet = dlist_head_element(OutPacket, link, &stream->logged);

		if (!packet->moving)
			break;
		dlist_delete(&packet->link);
		packet->moving = false;
		packet->kept = true;
		shard_outbox_forget_parcels(packet);
		dlist_push_tail(&stream->kept, &packet->link);
		shard_outbox.dirty |= shard_lane_bit(stream->lane);
	}
}

void
shard_outbox_committed(XLogRecPtr lsn)
{
	OutStream *stream;

	while (!dlist_is_empty(&shard_outbox.deleting))
		shard_outbox_free_packet(
			dlist_container(OutPacket, link, dlist_pop_head_node(&shard_outbox.deleting)));
	EACH_STREAM(stream)
	{
		if (stream->accepting)
			shard_outbox_accepted(stream);
	}
	keep_turn(lsn);
	EACH_STREAM(stream)
	{
		if (stream->touched)
			stream->last = stream->stream.last;
		if (stream->saving)
			stream->saved_last = stream->saving_last;
		stream->touched = stream->saving = false;
		keep_moved(stream);
	}
}

/* The turn's packets and what it moved are as they were. */
static void
forget_moved(OutStream *stream)
{
	dlist_iter iter;

	dlist_foreach (iter, &stream->logged)
	{
		OutPacket *packet = dlist_container(OutPacket, link, iter.cur);

		if (!packet->moving)
			break;
		packet->moving = false;
	}
}

void
shard_outbox_aborted(void)
{
	OutStream *stream;

	while (!dlist_is_empty(&shard_outbox.turn))
		shard_outbox_free_packet(
			dlist_container(OutPacket, link, dlist_pop_head_node(&shard_outbox.turn)));
	while (!dlist_is_empty(&shard_outbox.deleting))
		dlist_push_head(&shard_outbox.gone, dlist_pop_head_node(&shard_outbox.deleting));
	EACH_STREAM(stream)
	{
		if (stream->accepting)
			shard_outbox_not_accepted(stream);
		if (stream->touched)
		{
			stream->stream.last = stream->last;
			stream->build.n_rows = stream->build.n_shards = 0;
			resetStringInfo(&stream->build.parcels);
		}
		stream->touched = stream->saving = false;
		forget_moved(stream);
	}
}

/*
 * Shows the items among some parcels of a stream, of which the first has that seq. sent: they were possibly sent before, to a
 * former home.
 */
void
shard_outbox_visit_parcels(const OutStream *stream, int64 seq, bool sent, const char *parcels,
						   int length, ShardOutboxVisit visit, void *arg)
{
	ShardReader reader = {parcels, parcels + length, false};
	ShardParcel parcel;
	int64 first_seq = seq;

	for (; shard_packet_get(&reader, &parcel); seq++)
	{
		ShardRow row = {.type_id = parcel.type_id,
						.shard = parcel.shard,
						.kind = parcel.kind,
						.entity = parcel.entity,
						.entity_len = parcel.entity_len,
						.payload = parcel.payload == NULL ? "" : parcel.payload,
						.payload_len = parcel.payload_len,
						.epoch = parcel.epoch,
						.stamp = parcel.stamp,
						.src_type = parcel.src_type,
						.src_entity = parcel.src_entity,
						.src_entity_len = parcel.src_entity_len,
						.mid_node = parcel.mid_node,
						.mid_seq = parcel.mid_seq};
		ShardItem item = {.type_id = parcel.type_id,
						  .shard = parcel.shard,
						  .epoch = parcel.epoch,
						  .sent = sent || shard_stream_possibly_sent(&stream->stream, seq),
						  .stamp = parcel.stamp,
						  .body = &row};

		if (parcel.kind != SHARD_KIND_VOID)
			visit(&item, &row, arg);
	}
	if (reader.failed)
		shard_outbox_damaged(stream, first_seq);
}

/* Collects a shard's items. */
typedef struct Collect
{
	int32 type_id;
	int32 shard;
	ShardOutboxVisit visit;
	void *arg;
} Collect;

static void
visit_item(const ShardItem *item, const ShardRow *row, void *arg)
{
	const Collect *collect = arg;

	if (item->type_id == collect->type_id && item->shard == collect->shard)
		collect->visit(item, row, collect->arg);
}

static void
visit_packet(OutPacket *packet, const char *parcels, int length, void *arg)
{
	shard_outbox_visit_parcels(packet->stream, packet->first_seq, packet->sent, parcels, length,
							   visit_item, arg);
}

static bool
has_shard(const OutPacket *packet, int32 type_id, int32 shard)
{
	for (int i = 0; i < packet->n_shards; i++)
		if (packet->shards[i].shard == shard && packet->shards[i].type_id == type_id)
			return true;
	return false;
}

/* The stored packets of a stream that have items of the shard, some at a time. */
static void
collect_stored(OutStream *stream, const Collect *collect)
{
	OutPacket *some[64];
	int n = 0;

	for (OutPacket *packet = shard_outbox_first(stream); packet != NULL;
		 packet = shard_outbox_after(packet))
	{
		if (!has_shard(packet, collect->type_id, collect->shard))
			continue;
		some[n++] = packet;
		if (n == lengthof(some))
		{
			shard_outbox_each_parcels(some, n, visit_packet, unconstify(Collect *, collect));
			n = 0;
		}
	}
	if (n > 0)
		shard_outbox_each_parcels(some, n, visit_packet, unconstify(Collect *, collect));
}

/* Packets of this very turn may not be written yet, but have their bytes. */
void
shard_outbox_collect(int32 type_id, int32 shard, ShardOutboxVisit visit, void *arg)
{
	int lane = shard_message_lane(type_id, shard);
	Collect collect = {type_id, shard, visit, arg};
	dlist_iter iter;

	for (int i = 0; i < shard_outbox.n_peers; i++)
	{
		OutStream *stream = shard_outbox.peers[i]->streams[lane];

		if (stream == NULL)
			continue;
		if (!stream->accepting)
			collect_stored(stream, &collect);
		if (stream->build.n_rows > 0)
			shard_outbox_visit_parcels(stream, stream->build.first_seq, stream->build.sent,
									   stream->build.parcels.data, stream->build.parcels.len,
									   visit_item, &collect);
	}
	dlist_foreach (iter, &shard_outbox.turn)
	{
		OutPacket *packet = dlist_container(OutPacket, link, iter.cur);

		if (packet->stream->lane == lane && has_shard(packet, type_id, shard))
			visit_packet(packet, packet->parcels, packet->length, &collect);
	}
}

int64
shard_outbox_last(int lane, int32 node)
{
	OutStream *stream = shard_outbox_get_stream(node, lane, false);

	return stream == NULL ? 0 : stream->stream.last;
}

uint64
shard_outbox_mark(void)
{
	return shard_outbox.serial;
}

bool
shard_outbox_passed(uint64 mark, bool stored_there)
{
	OutStream *stream;

	EACH_STREAM(stream)
	{
		for (OutPacket *packet = shard_outbox_first(stream);
			 packet != NULL && packet->serial <= mark; packet = shard_outbox_after(packet))
			if (!(stored_there && out_last_seq(packet) <= stream->stream.acked) &&
				shard_outbox_is_kept(packet))
				return false;
	}
	return true;
}
