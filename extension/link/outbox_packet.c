/*
 * link/outbox_packet.c
 *		Packets: how they look in the log, what is remembered of each, their bytes.
 *
 * A packet in memory is a summary: which shards, under which tag, up to which stamp. That answers
 * whether anything of it is kept without reading it. Its bytes stay in memory, too, as long as they
 * are few; if not, they are read back when it is sent.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "registry/catalog.h"
#include "log/log_read.h"
#include "link/outbox_private.h"
#include "registry/registry.h"

#include "base/compat.h"

void
shard_outbox_put_header(StringInfo out, const OutHeader *header)
{
	shard_wire_put_int(out, header->node);
	shard_wire_put_int(out, header->channel);
	shard_wire_put_int(out, header->gen);
	shard_wire_put_int(out, header->first_seq);
	shard_wire_put_int(out, header->n_rows);
	shard_wire_put_int(out, header->acked);
	shard_wire_put_int(out, header->flags);
}

bool
shard_outbox_get_header(ShardReader *reader, OutHeader *header)
{
	header->node = shard_wire_get_int32(reader);
	header->channel = shard_wire_get_int32(reader);
	header->gen = shard_wire_get_int32(reader);
	header->first_seq = shard_wire_get_int(reader);
	header->n_rows = shard_wire_get_int32(reader);
	header->acked = shard_wire_get_int(reader);
	header->flags = shard_wire_get_int32(reader);
	return !reader->failed;
}

void
shard_outbox_damaged(const OutStream *stream, int64 first_seq)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
					errmsg("packet " INT64_FORMAT " for node %d, lane %d, is damaged", first_seq,
						   stream->peer->node, stream->lane)));
}

/* Notes the item's shard in the summary. */
void
shard_outbox_add_shard(OutBuild *build, const ShardParcel *parcel)
{
	uint32 hash = ((uint32) parcel->shard * 31 + (uint32) parcel->type_id) % lengthof(build->place);
	int i = build->place[hash];
	OutShard *shard;

	if (parcel->kind == SHARD_KIND_VOID || parcel->stamp.kind != SHARD_PREFIX_NODE)
		return;
	if (i >= build->n_shards || build->shards[i].shard != parcel->shard ||
		build->shards[i].type_id != parcel->type_id || build->shards[i].epoch != parcel->epoch)
	{
		for (i = 0; i < build->n_shards; i++)
			if (build->shards[i].shard == parcel->shard &&
				build->shards[i].type_id == parcel->type_id &&
				build->shards[i].epoch == parcel->epoch)
				break;
		build->place[hash] = (uint16) i;
	}
	if (i == build->n_shards)
	{
		if (build->n_shards == build->space)
		{
			build->space = Max(16, build->space * 2);
			build->shards =
				build->shards == NULL
					? MemoryContextAlloc(shard_outbox.context, build->space * sizeof(OutShard))
					: repalloc(build->shards, build->space * sizeof(OutShard));
		}
		build->shards[build->n_shards++] =
			(OutShard){parcel->type_id, parcel->shard, parcel->epoch, 0, 0};
	}
	shard = &build->shards[i];
	shard->items++;
	shard->max_rseq = Max(shard->max_rseq, parcel->stamp.seq);
}

/*
 * Takes shards of types that are gone off the summary: nothing of them is kept (X6). Needs a transaction and a
 * snapshot. True: there were some.
 */
bool
shard_outbox_forget_gone(OutPacket *packet)
{
	int n = 0;

	for (int i = 0; i < packet->n_shards; i++)
		if (shard_registry_known(packet->shards[i].type_id) != NULL)
			n++;
#ifdef SHARD_MUTANT_GONE_TYPES_KEPT
	n = packet->n_shards;
#endif
	if (n == packet->n_shards)
		return false;
	shard_outbox_uncount(packet);
	n = 0;
	for (int i = 0; i < packet->n_shards; i++)
		if (shard_registry_known(packet->shards[i].type_id) != NULL)
			packet->shards[n++] = packet->shards[i];
	packet->n_shards = n;
	return true;
}

/* Builds the summary of parcels that were stored; false if they are damaged. */
bool
shard_outbox_parse(OutBuild *build, ShardReader *reader)
{
	ShardParcel parcel;

	while (shard_packet_get(reader, &parcel))
	{
		shard_outbox_add_shard(build, &parcel);
		build->n_rows++;
	}
	return !reader->failed;
}

/* A packet of what was built, in no list yet. cache: with its bytes. */
OutPacket *
shard_outbox_make_packet(OutStream *stream, const OutBuild *build, bool cache)
{
	MemoryContext old = MemoryContextSwitchTo(shard_outbox.context);
	OutPacket *packet = palloc0(sizeof(OutPacket));

	packet->stream = stream;
	packet->first_seq = build->first_seq;
	packet->n_rows = build->n_rows;
	packet->sent = build->sent;
	packet->n_shards = build->n_shards;
	packet->length = build->parcels.len;
	if (build->n_shards > 0)
	{
		packet->shards = palloc(build->n_shards * sizeof(OutShard));
		memcpy(packet->shards, build->shards, build->n_shards * sizeof(OutShard));
	}
	if (cache)
	{
		packet->parcels = palloc(Max(packet->length, 1));
		memcpy(packet->parcels, build->parcels.data, packet->length);
		shard_outbox.cached += packet->length;
	}
	MemoryContextSwitchTo(old);
	return packet;
}

void
shard_outbox_forget_parcels(OutPacket *packet)
{
	if (packet->parcels == NULL)
		return;
	shard_outbox.cached -= packet->length;
	pfree(packet->parcels);
	packet->parcels = NULL;
}

/* It is in no list. */
void
shard_outbox_free_packet(OutPacket *packet)
{
	shard_outbox_uncount(packet);
	shard_outbox_forget_parcels(packet);
	if (packet->shards != NULL)
		pfree(packet->shards);
	pfree(packet);
}

/* Entries live where the routes live: longer than the caller's memory context. */
static ShardRoute *
get_route(int32 type_id, int32 shard)
{
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(shard_outbox.routes));
	ShardRoute *route = shard_route_get(shard_outbox.routes, type_id, shard);

	MemoryContextSwitchTo(old);
	return route;
}

/* The route of a shard, read if it was not; NULL: not now. */
ShardRoute *
shard_outbox_route(int32 type_id, int32 shard)
{
	ShardRoute *route = shard_route_known(shard_outbox.routes, type_id, shard);
	MemoryContext old = CurrentMemoryContext;

	if (route != NULL && route->loaded)
		return route;
	if (IsTransactionState())
		return get_route(type_id, shard);
	StartTransactionCommand();
	route = NULL;
	if (shard_catalog_lock(true))
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		route = get_route(type_id, shard);
		PopActiveSnapshot();
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
	return route;
}

/* Is any item still this origin's to keep (X6)? */
bool
shard_outbox_is_kept(const OutPacket *packet)
{
	for (int i = 0; i < packet->n_shards; i++)
	{
		const OutShard *shard = &packet->shards[i];
		const ShardRoute *route = shard_outbox_route(shard->type_id, shard->shard);
		ShardItem item = {.type_id = shard->type_id,
						  .shard = shard->shard,
						  .epoch = shard->epoch,
						  .stamp = {.kind = SHARD_PREFIX_NODE, .seq = shard->max_rseq}};

		if (route == NULL || shard_route_kept(route, &item))
			return true;
	}
	return false;
}

/* Packets of a stream in order of seq: those of the table, then those of the log. */
OutPacket *
shard_outbox_first(OutStream *stream)
{
	if (!dlist_is_empty(&stream->kept))
		return dlist_head_element(OutPacket, link, &stream->kept);
	if (!dlist_is_empty(&stream->logged))
		return dlist_head_element(OutPacket, link, &stream->logged);
	return NULL;
}

OutPacket *
shard_outbox_after(OutPacket *packet)
{
	OutStream *stream = packet->stream;
	dlist_head *list = packet->kept ? &stream->kept : &stream->logged;

	if (dlist_has_next(list, &packet->link))
		return dlist_container(OutPacket, link, dlist_next_node(list, &packet->link));
	if (packet->kept && !dlist_is_empty(&stream->logged))
		return dlist_head_element(OutPacket, link, &stream->logged);
	return NULL;
}

/* What a scan of the log looks for. */
typedef struct OutSearch
{
	OutStream *stream;
	OutPacket **packets; /* in order of seq, which is that of the log */
	int n;
	int at;
	OutBytes visit;
	void *arg;
} OutSearch;

static bool
want_row(const ShardRowFixed *row, void *arg)
{
	const OutSearch *search = arg;

	return row->kind == SHARD_KIND_PACKET && row->shard == search->stream->lane;
}

static void
visit_row(const ShardRow *row, void *arg)
{
	OutSearch *search = arg;
	ShardReader reader = {row->payload, row->payload + row->payload_len, false};
	OutHeader header;

	if (!shard_outbox_get_header(&reader, &header))
		shard_outbox_damaged(search->stream, 0);
	if (header.node != search->stream->peer->node || header.gen != search->stream->stream.gen)
		return;
	while (search->at < search->n && search->packets[search->at]->first_seq < header.first_seq)
		search->at++;
	if (search->at == search->n || search->packets[search->at]->first_seq != header.first_seq)
		return;
	search->visit(search->packets[search->at], reader.at, (int) (reader.end - reader.at),
				  search->arg);
	search->packets[search->at++] = NULL;
}

/* Those that are in the log only, in one scan. */
static void
read_logged(OutPacket **packets, int n, OutBytes visit, void *arg)
{
	OutSearch search = {packets[0]->stream, packets, n, 0, visit, arg};
	ShardLogScan scan = {.snapshot = GetActiveSnapshot(),
						 .from = packets[0]->low,
						 .upto = packets[n - 1]->high,
						 .payload = true,
						 .want = want_row,
						 .visit = visit_row,
						 .arg = &search};

	shard_log_read(&scan);
	for (int i = 0; i < n; i++)
		if (packets[i] != NULL)
			shard_outbox_damaged(packets[i]->stream, packets[i]->first_seq);
}

void
shard_outbox_each_parcels(OutPacket **packets, int n, OutBytes visit, void *arg)
{
	OutPacket **logged = palloc(n * sizeof(OutPacket *));
	int to_read = 0;

	for (int i = 0; i < n; i++)
	{
		OutPacket *packet = packets[i];

		if (packet->parcels != NULL)
			visit(packet, packet->parcels, packet->length, arg);
		else if (!packet->kept)
			logged[to_read++] = packet;
		else if (!shard_outbox_table_read(packet, visit, arg))
			shard_outbox_damaged(packet->stream, packet->first_seq);
	}
	if (to_read > 0)
		read_logged(logged, to_read, visit, arg);
	pfree(logged);
}
