/*
 * link/outbox_kept.c
 *		Packets that may go, and those that have to make room in the log (X6).
 *
 * A packet goes when its rows are received and none is kept any more. Until then the log holds the packet, as it holds
 * messages that were not read, but for a limited time: when a segment is to be emptied, a packet that has been in it
 * for long moves to table shard.outbox_kept.
 *
 * If the process dies right here: moving and deleting belong to a turn, so a packet is in exactly one of
 * the places when it is needed: where both have it, the table counts. A packet that went from memory
 * alone comes back with the next start, and goes again.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "core/base/message.h"
#include "base/guc.h"
#include "link/outbox_private.h"

#include "base/compat.h"

/* A packet stays in the log for this time, if there is room. */
#define KEEP_MS 30000

/* There is no room to wait when this many segments are in use. */
#define CROWDED_SEGMENTS (SHARD_SEGMENTS / 2)

/* Packets that one turn moves, and deletes; in bytes, and in rows. */
#define MOVE_BYTES (16 * 1024 * 1024)
#define DELETE_ROWS 1000

/* Packets at the front of a stream that are looked at though others before them stay. */
#define LOOK_BEHIND 32

void
shard_outbox_look_again(int32 type_id, int32 shard)
{
	shard_outbox.dirty |= shard_lane_bit(shard_message_lane(type_id, shard));
}

/* It is not needed any more. Rows of the table are deleted by a turn. */
static void
let_go(OutPacket *packet)
{
	OutStream *stream = packet->stream;

	if (stream->next == packet)
	{
		ShardAssert(stream->peer->gone);
		stream->next = NULL;
	}
	dlist_delete(&packet->link);
	stream->stream.truncated = Max(stream->stream.truncated, out_last_seq(packet));
	shard_outbox_uncount(packet);
	if (packet->kept)
		dlist_push_tail(&shard_outbox.gone, &packet->link);
	else
		shard_outbox_free_packet(packet);
}

/* Lets packets at the front of a list go. */
static bool
sweep(OutStream *stream, dlist_head *list)
{
	dlist_mutable_iter iter;
	int stayed = 0;
	bool any = false;

	dlist_foreach_modify (iter, list)
	{
		OutPacket *packet = dlist_container(OutPacket, link, iter.cur);

		if ((out_last_seq(packet) > stream->stream.acked && !stream->peer->gone) ||
			stayed >= LOOK_BEHIND)
			break;
		if (shard_outbox_is_kept(packet))
			stayed++;
		else
		{
			let_go(packet);
			any = true;
		}
	}
	return any;
}

bool
shard_outbox_changed(void)
{
	ShardLanes dirty = shard_outbox.dirty;
	bool any = false;

	shard_outbox.dirty = 0;
	if (dirty == 0)
		return false;
	for (int i = 0; i < shard_outbox.n_peers; i++)
		for (int lane = 0; lane < SHARD_LANES; lane++)
		{
			OutStream *stream = shard_outbox.peers[i]->streams[lane];

			if (stream == NULL || (dirty & shard_lane_bit(lane)) == 0)
				continue;
			any |= sweep(stream, &stream->kept);
			any |= sweep(stream, &stream->logged);
		}
	return any;
}

void
shard_outbox_gone(int32 node)
{
	OutPeer *peer = shard_outbox_get_peer(node, false);

	if (peer == NULL || peer->gone)
		return;
	peer->gone = true;
	shard_outbox.dirty = shard_outbox.lanes;
}

void
shard_outbox_types_changed(void)
{
	for (int i = 0; i < shard_outbox.n_peers; i++)
		for (int lane = 0; lane < SHARD_LANES; lane++)
		{
			OutStream *stream = shard_outbox.peers[i]->streams[lane];

			for (OutPacket *packet = stream == NULL ? NULL : shard_outbox_first(stream);
				 packet != NULL; packet = shard_outbox_after(packet))
				if (shard_outbox_forget_gone(packet))
					shard_outbox.dirty |= shard_lane_bit(lane);
		}
}

/* What a stream needs of the log: its packets, and the newest one, which alone knows its last seq. */
static int64
stream_needs(const OutStream *stream)
{
	dlist_head *logged = unconstify(dlist_head *, &stream->logged);
	int64 needed = PG_INT64_MAX;

	if (!dlist_is_empty(logged))
		needed = dlist_head_element(OutPacket, link, logged)->low;
	if (stream->last > Max(stream->saved_last, 0))
		needed = Min(needed, stream->newest_low);
	return needed;
}

int64
shard_outbox_needed(int lane)
{
	int64 needed = PG_INT64_MAX;

	for (int i = 0; i < shard_outbox.n_peers; i++)
		if (shard_outbox.peers[i]->streams[lane] != NULL)
			needed = Min(needed, stream_needs(shard_outbox.peers[i]->streams[lane]));
	return needed;
}

/* Whether rotation should not wait for packets that will soon go. */
static bool
is_crowded(void)
{
	ShardLog *log = &shard_outbox.db->log;
	uint64 limit = (uint64) shard_inbox_max_size * 1024;

	/* a hint, so no lock */
	return *((volatile int *) &log->live_count) >= CROWDED_SEGMENTS ||
		   (limit > 0 && pg_atomic_read_u64(&log->bytes) > limit / 2);
}

/* For out_each_parcels. */
static void
move_packet(OutPacket *packet, const char *parcels, int length, void *arg)
{
	OutHeader header = {.node = packet->stream->peer->node,
						.gen = packet->stream->stream.gen,
						.first_seq = packet->first_seq,
						.n_rows = packet->n_rows,
						.acked = packet->stream->stream.acked,
						.flags = packet->sent ? OUT_SENT : 0};
	StringInfoData payload;

	initStringInfo(&payload);
	shard_outbox_put_header(&payload, &header);
	appendBinaryStringInfo(&payload, parcels, length);
	shard_outbox_table_keep(packet, payload.data, payload.len);
	pfree(payload.data);
}

/* Moves the oldest packets of a stream. */
static bool
move_packets(OutStream *stream, int64 seq, TimestampTz before, int64 *room)
{
	OutPacket *some[64];
	int n = 0;
	dlist_iter iter;

	dlist_foreach (iter, &stream->logged)
	{
		OutPacket *packet = dlist_container(OutPacket, link, iter.cur);

		if (packet->low > seq || packet->at > before || *room <= 0 || n == lengthof(some))
			break;
		packet->moving = true;
		*room -= packet->length;
		some[n++] = packet;
	}
	if (n > 0)
		shard_outbox_each_parcels(some, n, move_packet, NULL);
	return n > 0;
}

/* Deletes rows of packets that went; they come back into the list if the turn aborts. */
static bool
delete_gone(void)
{
	dlist_mutable_iter iter;
	int n = 0;

	dlist_foreach_modify (iter, &shard_outbox.gone)
	{
		OutPacket *packet = dlist_container(OutPacket, link, iter.cur);

		if (packet->stream->accepting)
			continue;
		if (n++ == DELETE_ROWS)
			break;
		dlist_delete(&packet->link);
		dlist_push_tail(&shard_outbox.deleting, &packet->link);
		shard_outbox_table_forget(packet);
	}
	return n > 0;
}

/* Rotation wants everything up to seq left behind. */
static bool
leave_log(int64 seq)
{
	TimestampTz before = GetCurrentTimestamp();
	int64 room = MOVE_BYTES;
	bool wrote = false;

	if (!is_crowded())
		before = TimestampTzPlusMilliseconds(before, -KEEP_MS);
	for (int i = 0; i < shard_outbox.n_peers; i++)
		for (int lane = 0; lane < SHARD_LANES; lane++)
		{
			OutStream *stream = shard_outbox.peers[i]->streams[lane];

			if (stream == NULL || stream->accepting || stream_needs(stream) > seq)
				continue;
			wrote |= move_packets(stream, seq, before, &room);
			if (stream->saved_last >= 0 && stream->saved_last < stream->last &&
				stream->newest_low <= seq && !stream->saving)
			{
				stream->saving = true;
				stream->saving_last = stream->stream.last;
				shard_outbox_table_store_stream(stream);
				wrote = true;
			}
		}
	return wrote;
}

bool
shard_outbox_leave(int64 seq)
{
	bool wrote = false;

	if (!dlist_is_empty(&shard_outbox.gone))
		wrote = delete_gone();
	if (seq > 0)
		wrote |= leave_log(seq);
	return wrote;
}
