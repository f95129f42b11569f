/*
 * link/outbox_table.c
 *		The outbox's tables: shard.stream and shard.outbox_kept.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "link/outbox_private.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Rows that are fetched at a time: each may be as long as a packet. */
#define FETCH 50

static ShardStatement select_streams = {
	"SELECT node, lane, gen, last, acked, truncated, begins, quarantine FROM shard.stream"
	" WHERE channel = 0",
	0,
	{0}};

static ShardStatement store_stream = {
	"INSERT INTO shard.stream AS s (node, lane, channel, gen, last, acked, truncated, begins,"
	" quarantine) VALUES ($1, $2, 0, $3, $4, $5, $6, $7, $8)"
	" ON CONFLICT (node, lane, channel) DO UPDATE SET gen = excluded.gen, last = excluded.last,"
	" acked = excluded.acked, truncated = excluded.truncated, begins = excluded.begins,"
	" quarantine = excluded.quarantine",
	8,
	{INT4OID, INT2OID, INT4OID, INT8OID, INT8OID, INT8OID, BYTEAOID, TEXTOID}};

static ShardStatement select_kept = {
	"SELECT lane, payload, kept_at FROM shard.outbox_kept WHERE channel = 0"
	" ORDER BY node, lane, first_seq",
	0,
	{0}};

static ShardStatement insert_kept = {
	"INSERT INTO shard.outbox_kept (node, lane, channel, first_seq, rows, payload)"
	" VALUES ($1, $2, 0, $3, $4, $5)",
	5,
	{INT4OID, INT2OID, INT8OID, INT4OID, BYTEAOID}};

static ShardStatement delete_kept = {
	"DELETE FROM shard.outbox_kept WHERE node = $1 AND lane = $2 AND channel = 0 AND first_seq = $3",
	3,
	{INT4OID, INT2OID, INT8OID}};

static ShardStatement delete_all_kept = {
	"DELETE FROM shard.outbox_kept WHERE node = $1 AND lane = $2 AND channel = 0",
	2,
	{INT4OID, INT2OID}};

static ShardStatement read_kept = {
	"SELECT payload FROM shard.outbox_kept WHERE node = $1 AND lane = $2 AND channel = 0"
	" AND first_seq = $3",
	3,
	{INT4OID, INT2OID, INT8OID}};

/* A column of a row of the result; 0 for SQL NULL. */
static Datum
column(uint64 row, int number)
{
	bool isnull;

	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number, &isnull);
}

/* A lineage as bytes: for each incarnation its uuid and its first seq. */
static void
add_begins(ShardArguments *arguments, const ShardStream *stream)
{
	StringInfoData out;

	initStringInfo(&out);
	for (int i = 0; i < stream->n_begins; i++)
	{
		shard_wire_put_uuid(&out, stream->begins[i].incarnation);
		shard_wire_put_int(&out, stream->begins[i].first);
	}
	shard_statement_add_text(arguments, out.data, out.len);
}

static void
unpack_begins(ShardStream *stream, Datum datum)
{
	struct varlena *bytes = PG_DETOAST_DATUM_PACKED(datum);
	ShardReader reader = {VARDATA_ANY(bytes), VARDATA_ANY(bytes) + VARSIZE_ANY_EXHDR(bytes), false};

	while (reader.at < reader.end)
	{
		ShardStreamBegin *begin;

		if (stream->n_begins == stream->begin_space)
		{
			stream->begin_space = Max(4, stream->begin_space * 2);
			stream->begins =
				stream->begins == NULL
					? palloc(stream->begin_space * sizeof(ShardStreamBegin))
					: repalloc(stream->begins, stream->begin_space * sizeof(ShardStreamBegin));
		}
		begin = &stream->begins[stream->n_begins++];
		begin->incarnation = shard_wire_get_uuid(&reader);
		begin->first = shard_wire_get_int(&reader);
	}
	if (reader.failed)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED), errmsg("a row of shard.stream is damaged")));
}

void
shard_outbox_table_streams(OutStreamVisit visit)
{
	ShardArguments arguments = {0};

	SPI_connect();
	shard_statement_run(&select_streams, &arguments, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		ShardStream stream = {.gen = DatumGetInt32(column(i, 3)),
							  .last = DatumGetInt64(column(i, 4)),
							  .acked = DatumGetInt64(column(i, 5)),
							  .truncated = DatumGetInt64(column(i, 6))};
		Datum quarantine = column(i, 8);

		unpack_begins(&stream, column(i, 7));
		visit(DatumGetInt32(column(i, 1)), DatumGetInt16(column(i, 2)), &stream,
			  quarantine == 0 ? NULL : TextDatumGetCString(quarantine));
	}
	SPI_finish();
}

/* node, lane */
static void
add_lane(ShardArguments *arguments, const OutStream *stream)
{
	shard_statement_add(arguments, Int32GetDatum(stream->peer->node), false);
	shard_statement_add(arguments, Int16GetDatum(stream->lane), false);
}

/* As it is now, the turn's rows included. */
void
shard_outbox_table_store_stream(const OutStream *stream)
{
	const ShardStream *core = &stream->stream;
	ShardArguments arguments = {0};

	add_lane(&arguments, stream);
	shard_statement_add(&arguments, Int32GetDatum(core->gen), false);
	shard_statement_add(&arguments, Int64GetDatum(core->last), false);
	shard_statement_add(&arguments, Int64GetDatum(core->acked), false);
	shard_statement_add(&arguments, Int64GetDatum(core->truncated), false);
	add_begins(&arguments, core);
	shard_statement_add_string(&arguments, stream->quarantine);
	shard_statement_change_one(&store_stream, &arguments, SPI_OK_INSERT);
}

void
shard_outbox_table_kept(OutKeptVisit visit)
{
	Portal portal;

	SPI_connect();
	/* a cursor of its own: what is kept may be more than fits in memory */
	portal = shard_statement_open(&select_kept);
	for (;;)
	{
		SPI_cursor_fetch(portal, true, FETCH);
		if (SPI_processed == 0)
			break;
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			struct varlena *bytes = PG_DETOAST_DATUM_PACKED(column(i, 2));

			visit(DatumGetInt16(column(i, 1)), VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes),
				  DatumGetTimestampTz(column(i, 3)));
			if ((Pointer) bytes != DatumGetPointer(column(i, 2)))
				pfree(bytes);
		}
		SPI_freetuptable(SPI_tuptable);
	}
	SPI_cursor_close(portal);
	SPI_finish();
}

/* node, lane, first_seq */
static void
add_key(ShardArguments *arguments, const OutPacket *packet)
{
	add_lane(arguments, packet->stream);
	shard_statement_add(arguments, Int64GetDatum(packet->first_seq), false);
}

void
shard_outbox_table_keep(const OutPacket *packet, const char *payload, int length)
{
	ShardArguments arguments = {0};

	add_key(&arguments, packet);
	shard_statement_add(&arguments, Int32GetDatum(packet->n_rows), false);
	shard_statement_add_text(&arguments, payload, length);
	shard_statement_change_one(&insert_kept, &arguments, SPI_OK_INSERT);
	pfree(DatumGetPointer(arguments.value[arguments.count - 1]));
}

void
shard_outbox_table_forget(const OutPacket *packet)
{
	ShardArguments arguments = {0};

	add_key(&arguments, packet);
	shard_statement_change_one(&delete_kept, &arguments, SPI_OK_DELETE);
}

void
shard_outbox_table_forget_all(const OutStream *stream)
{
	ShardArguments arguments = {0};

	add_lane(&arguments, stream);
	shard_statement_change(&delete_all_kept, &arguments, SPI_OK_DELETE);
}

bool
shard_outbox_table_read(const OutPacket *packet, OutBytes visit, void *arg)
{
	ShardArguments arguments = {0};
	bool found;

	add_key(&arguments, packet);
	SPI_connect();
	shard_statement_run(&read_kept, &arguments, SPI_OK_SELECT);
	found = SPI_processed == 1;
	if (found)
	{
		struct varlena *bytes = PG_DETOAST_DATUM_PACKED(column(0, 1));
		ShardReader reader = {VARDATA_ANY(bytes), VARDATA_ANY(bytes) + VARSIZE_ANY_EXHDR(bytes),
							  false};
		OutHeader header;

		found = shard_outbox_get_header(&reader, &header);
		if (found)
			visit(unconstify(OutPacket *, packet), reader.at, (int) (reader.end - reader.at), arg);
	}
	SPI_finish();
	return found;
}
