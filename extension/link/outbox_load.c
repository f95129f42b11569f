/*
 * link/outbox_load.c
 *		Streams and packets as they are stored, when a worker starts; new incarnations (X4).
 *
 * What shard.stream says is as old as the last rotation: the newest packets tell how far a stream has
 * come since, and each tells what was acknowledged when it was made. Which rows are gone is not stored
 * at all: a stream has everything from its last row down to the first one that is not stored, and what
 * is stored below that is kept, but was received.
 *
 * If the process dies right here: nothing is written but the lineage, which the next one writes again;
 * an incarnation without rows leaves no trace in it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlogdefs.h"
#include "access/xlog_internal.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "registry/catalog.h"
#include "log/cursor.h"
#include "shared/gate.h"
#include "link/outbox_private.h"

#include "base/compat.h"

/*
 * Everything that is visible now was committed before this point of the WAL. At the very begin of a page
 * the server names a place behind its header, where nothing is yet that could be flushed.
 */
static XLogRecPtr
end_of_wal(void)
{
	XLogRecPtr lsn = shard_gate_newest();
	uint32 offset = (uint32) (lsn % XLOG_BLCKSZ);

	if (offset == SizeOfXLogShortPHD || offset == SizeOfXLogLongPHD)
		lsn -= offset;
	return lsn;
}

/* For shard_outbox_table_streams. */
static void
load_stream(int32 node, int lane, const ShardStream *stored, const char *quarantine)
{
	OutStream *stream;
	MemoryContext old;

	if (lane < 0 || lane >= SHARD_LANES || !(shard_outbox.lanes & shard_lane_bit(lane)))
		return;
	stream = shard_outbox_get_stream(node, lane, true);
	old = MemoryContextSwitchTo(shard_outbox.context);
	stream->stream = *stored;
	stream->stream.begins = palloc(Max(stored->begin_space, 1) * sizeof(ShardStreamBegin));
	memcpy(stream->stream.begins, stored->begins, stored->n_begins * sizeof(ShardStreamBegin));
	stream->stream.begin_space = Max(stored->begin_space, 1);
	stream->quarantine = quarantine == NULL ? NULL : pstrdup(quarantine);
	stream->saved_last = stream->last = stored->last;
	MemoryContextSwitchTo(old);
}

/* A packet that is stored, at a seq of the log or in the table (0). */
static void
load_packet(OutStream *stream, const OutHeader *header, ShardReader *parcels, int64 seq,
			TimestampTz at)
{
	OutBuild *build = &stream->build;
	OutPacket *packet;

	build->first_seq = header->first_seq;
	build->sent = (header->flags & OUT_SENT) != 0;
	if (!shard_outbox_parse(build, parcels) || build->n_rows != header->n_rows)
		shard_outbox_damaged(stream, header->first_seq);
	packet = shard_outbox_make_packet(stream, build, false);
	build->n_rows = build->n_shards = 0;
	packet->low = packet->high = seq;
	packet->kept = seq == 0;
	packet->at = at;
	packet->lsn = shard_outbox.loaded_lsn;
	packet->serial = ++shard_outbox.serial;
	stream->stream.acked = Max(stream->stream.acked, header->acked);
	if (packet->kept)
		dlist_push_tail(&stream->kept, &packet->link);
	else
	{
		stream->newest_low = seq;
		dlist_push_tail(&stream->logged, &packet->link);
	}
	stream->last = stream->stream.last = Max(stream->last, out_last_seq(packet));

	(void) shard_outbox_forget_gone(packet);
	/* so that what is asked of its shards later needs no transaction */
	for (int i = 0; i < packet->n_shards; i++)
		(void) shard_outbox_route(packet->shards[i].type_id, packet->shards[i].shard);
}

/* For both: the header, and the stream that it belongs to; NULL: of a generation that is over. */
static OutStream *
stream_of(ShardReader *reader, int lane, OutHeader *header)
{
	OutStream *stream;

	if (!shard_outbox_get_header(reader, header) || header->channel != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED), errmsg("a packet of lane %d is damaged", lane)));
	stream = shard_outbox_get_stream(header->node, lane, true);
	return header->gen == stream->stream.gen ? stream : NULL;
}

static void
load_kept(int32 node, int lane, const char *payload, int length, TimestampTz at)
{
	ShardReader reader = {payload, payload + length, false};
	OutHeader header;
	OutStream *stream;
	OutPacket *packet;

	if (lane < 0 || lane >= SHARD_LANES || !(shard_outbox.lanes & shard_lane_bit(lane)))
		return;
	stream = stream_of(&reader, lane, &header);
	if (stream == NULL)
		return;
	load_packet(stream, &header, &reader, 0, at);
	packet = dlist_tail_element(OutPacket, link, &stream->kept);
	packet->length = (int) (payload + length - reader.at);
}

/* Packets of the log; those that were moved to the table are there still, and known already. */
static void
load_logged(const ShardRow *row)
{
	ShardReader reader = {row->payload, row->payload + row->payload_len, false};
	OutHeader header;
	OutStream *stream = stream_of(&reader, row->shard, &header);
	const char *parcels = reader.at;

	if (stream == NULL)
		return;
	if (!dlist_is_empty(&stream->kept) &&
		header.first_seq <= out_last_seq(dlist_tail_element(OutPacket, link, &stream->kept)))
		return;
	load_packet(stream, &header, &reader, row->seq, GetCurrentTransactionStartTimestamp());
	dlist_tail_element(OutPacket, link, &stream->logged)->length = (int) (reader.end - parcels);
}

/* Everything below the rows that hang together up to the last one is gone, or received and kept. */
static void
find_truncated(OutStream *stream)
{
	int64 first = stream->last + 1;
	dlist_head *lists[] = {&stream->logged, &stream->kept};

	for (int i = 0; i < (int) lengthof(lists); i++)
	{
		dlist_iter iter;

		dlist_reverse_foreach(iter, lists[i])
		{
			OutPacket *packet = dlist_container(OutPacket, link, iter.cur);

			if (out_last_seq(packet) == first - 1)
				first = packet->first_seq;
		}
	}
	stream->stream.truncated = Max(stream->stream.truncated, first - 1);
	stream->stream.acked = Max(stream->stream.acked, stream->stream.truncated);
	stream->stream.sent = stream->stream.acked;
	stream->stream.ever_sent = stream->last;
	stream->stream.state = SHARD_STREAM_CLOSED;
}

void
shard_outbox_load(ShardDatabase *db, ShardLanes lanes, ShardRoutes *routes)
{
	/* a worker that failed half-way tries again */
	if (shard_outbox.context != NULL)
		MemoryContextDelete(shard_outbox.context);
	memset(&shard_outbox, 0, sizeof(shard_outbox));
	shard_outbox.db = db;
	shard_outbox.lanes = lanes;
	shard_outbox.routes = routes;
	shard_outbox.context =
		AllocSetContextCreate(TopMemoryContext, "shard outbox", ALLOCSET_DEFAULT_SIZES);
	dlist_init(&shard_outbox.gone);
	dlist_init(&shard_outbox.deleting);
	dlist_init(&shard_outbox.turn);

	shard_outbox.loaded_lsn = end_of_wal();
	shard_outbox_table_streams(load_stream);
	shard_outbox_table_kept(load_kept);
	shard_cursor_register(SHARD_KIND_PACKET, load_logged);
}

/*
 * Everything that is stored was seen, and possibly sent (H10). Before the first turn, which may take facts before this start is
 * admitted (I4).
 */
void
shard_outbox_loaded(void)
{
	for (int i = 0; i < shard_outbox.n_peers; i++)
		for (int lane = 0; lane < SHARD_LANES; lane++)
			if (shard_outbox.peers[i]->streams[lane] != NULL)
				find_truncated(shard_outbox.peers[i]->streams[lane]);
	shard_outbox.dirty = shard_outbox.lanes;
}

/* The lineage of a stream goes on with this incarnation. True: that is to be stored. */
static bool
begin_stream(OutStream *stream, ShardUuid incarnation)
{
	ShardStream *core = &stream->stream;
	MemoryContext old;

	shard_stream_close(core);
	if (core->n_begins > 0 &&
		shard_record_uuid_equal(core->begins[core->n_begins - 1].incarnation, incarnation))
		return false;
	old = MemoryContextSwitchTo(shard_outbox.context);
	shard_stream_begin(core, incarnation);
	MemoryContextSwitchTo(old);
	stream->next = NULL;
	return stream->saved_last >= 0;
}

/* Stores the streams that changed. */
static void
store_lineage(OutStream **streams, int n)
{
	StartTransactionCommand();
	(void) shard_catalog_lock(false);
	PushActiveSnapshot(GetTransactionSnapshot());
	for (int i = 0; i < n; i++)
		shard_outbox_table_store_stream(streams[i]);
	PopActiveSnapshot();
	CommitTransactionCommand();
	for (int i = 0; i < n; i++)
		streams[i]->saved_last = streams[i]->last;
}

void
shard_outbox_begin_incarnation(int32 self, int32 inc_no, ShardUuid incarnation)
{
	OutStream **streams;
	int n = 0;

	if (shard_outbox_is_ready(incarnation))
		return;
	shard_outbox.begun = false;
	streams = MemoryContextAlloc(TopMemoryContext,
								 Max(shard_outbox.n_peers, 1) * SHARD_LANES * sizeof(OutStream *));
	for (int i = 0; i < shard_outbox.n_peers; i++)
		for (int lane = 0; lane < SHARD_LANES; lane++)
		{
			OutStream *stream = shard_outbox.peers[i]->streams[lane];

			if (stream != NULL && begin_stream(stream, incarnation))
				streams[n++] = stream;
		}
	if (n > 0)
		store_lineage(streams, n);
	pfree(streams);
	shard_outbox.incarnation = incarnation;
	shard_outbox.begun = true;
}

bool
shard_outbox_is_ready(ShardUuid incarnation)
{
	return shard_outbox.begun && shard_record_uuid_equal(shard_outbox.incarnation, incarnation);
}
