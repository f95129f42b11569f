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

#include "base/compat.h"

#define MAX_PARAMETERS 9

/* Rows that are fetched at a time: each may be as long as a packet. */
#define FETCH 50

/* A statement, planned at first use. */
typedef struct Statement
{
	const char *sql;
	int parameters;
	Oid type[MAX_PARAMETERS];
	SPIPlanPtr plan;
} Statement;

static Statement select_streams = {
	"SELECT node, lane, gen, last, acked, truncated, begins, quarantine FROM shard.stream"
	" WHERE channel = 0",
	0,
	{0},
	NULL};

static Statement store_stream = {
	"INSERT INTO shard.stream AS s (node, lane, channel, gen, last, acked, truncated, begins,"
	" quarantine) VALUES ($1, $2, 0, $3, $4, $5, $6, $7, $8)"
	" ON CONFLICT (node, lane, channel) DO UPDATE SET gen = excluded.gen, last = excluded.last,"
	" acked = excluded.acked, truncated = excluded.truncated, begins = excluded.begins,"
	" quarantine = excluded.quarantine",
	8,
	{INT4OID, INT2OID, INT4OID, INT8OID, INT8OID, INT8OID, BYTEAOID, TEXTOID},
	NULL};

static Statement select_kept = {
	"SELECT node, lane, payload, kept_at FROM shard.outbox_kept WHERE channel = 0"
	" ORDER BY node, lane, first_seq",
	0,
	{0},
	NULL};

static Statement insert_kept = {
	"INSERT INTO shard.outbox_kept (node, lane, channel, first_seq, rows, payload)"
	" VALUES ($1, $2, 0, $3, $4, $5)",
	5,
	{INT4OID, INT2OID, INT8OID, INT4OID, BYTEAOID},
	NULL};

static Statement delete_kept = {
	"DELETE FROM shard.outbox_kept WHERE node = $1 AND lane = $2 AND channel = 0 AND first_seq = $3",
	3,
	{INT4OID, INT2OID, INT8OID},
	NULL};

static Statement delete_all_kept = {
	"DELETE FROM shard.outbox_kept WHERE node = $1 AND lane = $2 AND channel = 0",
	2,
	{INT4OID, INT2OID},
	NULL};

static Statement read_kept = {
	"SELECT payload FROM shard.outbox_kept WHERE node = $1 AND lane = $2 AND channel = 0"
	" AND first_seq = $3",
	3,
	{INT4OID, INT2OID, INT8OID},
	NULL};

/* Plans it at first use; the caller has connected. */
static SPIPlanPtr
plan_of(Statement *statement)
{
	if (statement->plan == NULL)
	{
		SPIPlanPtr plan = SPI_prepare(statement->sql, statement->parameters, statement->type);

		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not plan \"%s\"", statement->sql);
		statement->plan = plan;
	}
	return statement->plan;
}

/* Runs a statement; the caller has connected. nulls as for SPI_execute_plan. */
static void
run(Statement *statement, Datum *values, const char *nulls, int expected)
{
	if (SPI_execute_plan(plan_of(statement), values, nulls, false, 0) != expected)
		elog(ERROR, "could not run \"%s\"", statement->sql);
}

/* Runs one that changes exactly one row. */
static void
change_one(Statement *statement, Datum *values, const char *nulls, int expected)
{
	SPI_connect();
	run(statement, values, nulls, expected);
	if (SPI_processed != 1)
		elog(ERROR, "\"%s\" changed " UINT64_FORMAT " rows", statement->sql, SPI_processed);
	SPI_finish();
}

/* A column of a row of the result; 0 for SQL NULL. */
static Datum
column(uint64 row, int number)
{
	bool isnull;

	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number, &isnull);
}

static Datum
bytes_datum(const char *bytes, int length)
{
	return PointerGetDatum(cstring_to_text_with_len(bytes, length));
}

/* A lineage as bytes: for each incarnation its uuid and its first seq. */
static Datum
pack_begins(const ShardStream *stream)
{
	StringInfoData out;

	initStringInfo(&out);
	for (int i = 0; i < stream->n_begins; i++)
	{
		shard_wire_put_uint(&out, stream->begins[i].incarnation.high);
		shard_wire_put_uint(&out, stream->begins[i].incarnation.low);
		shard_wire_put_int(&out, stream->begins[i].first);
	}
	return bytes_datum(out.data, out.len);
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
		begin->incarnation.high = shard_wire_get_uint(&reader);
		begin->incarnation.low = shard_wire_get_uint(&reader);
		begin->first = shard_wire_get_int(&reader);
	}
	if (reader.failed)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED), errmsg("a row of shard.stream is damaged")));
}

void
shard_outbox_table_streams(OutStreamVisit visit)
{
	SPI_connect();
	run(&select_streams, NULL, NULL, SPI_OK_SELECT);
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

/* As it is now, the turn's rows included. */
void
shard_outbox_table_store_stream(const OutStream *stream)
{
	const ShardStream *core = &stream->stream;
	Datum values[8] = {Int32GetDatum(stream->peer->node),
					   Int16GetDatum(stream->lane),
					   Int32GetDatum(core->gen),
					   Int64GetDatum(core->last),
					   Int64GetDatum(core->acked),
					   Int64GetDatum(core->truncated),
					   pack_begins(core),
					   (Datum) 0};
	char nulls[9] = "        ";

	if (stream->quarantine == NULL)
		nulls[7] = 'n';
	else
		values[7] = CStringGetTextDatum(stream->quarantine);
	change_one(&store_stream, values, nulls, SPI_OK_INSERT);
}

void
shard_outbox_table_kept(OutKeptVisit visit)
{
	Portal portal;

	SPI_connect();
	portal = SPI_cursor_open(NULL, plan_of(&select_kept), NULL, NULL, false);
	for (;;)
	{
		SPI_cursor_fetch(portal, true, FETCH);
		if (SPI_processed == 0)
			break;
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			struct varlena *bytes = PG_DETOAST_DATUM_PACKED(column(i, 3));

			visit(DatumGetInt32(column(i, 1)), DatumGetInt16(column(i, 2)), VARDATA_ANY(bytes),
				  VARSIZE_ANY_EXHDR(bytes), DatumGetTimestampTz(column(i, 4)));
			if ((Pointer) bytes != DatumGetPointer(column(i, 3)))
				pfree(bytes);
		}
		SPI_freetuptable(SPI_tuptable);
	}
	SPI_cursor_close(portal);
	SPI_finish();
}

/* node, lane, first_seq */
static void
key_of(const OutPacket *packet, Datum *values)
{
	values[0] = Int32GetDatum(packet->stream->peer->node);
	values[1] = Int16GetDatum(packet->stream->lane);
	values[2] = Int64GetDatum(packet->first_seq);
}

void
shard_outbox_table_keep(const OutPacket *packet, const char *payload, int length)
{
	Datum values[5];

	key_of(packet, values);
	values[3] = Int32GetDatum(packet->n_rows);
	values[4] = bytes_datum(payload, length);
	change_one(&insert_kept, values, NULL, SPI_OK_INSERT);
	pfree(DatumGetPointer(values[4]));
}

void
shard_outbox_table_forget(const OutPacket *packet)
{
	Datum values[3];

	key_of(packet, values);
	change_one(&delete_kept, values, NULL, SPI_OK_DELETE);
}

void
shard_outbox_table_forget_all(const OutStream *stream)
{
	Datum values[2] = {Int32GetDatum(stream->peer->node), Int16GetDatum(stream->lane)};

	SPI_connect();
	run(&delete_all_kept, values, NULL, SPI_OK_DELETE);
	SPI_finish();
}

bool
shard_outbox_table_read(const OutPacket *packet, OutBytes visit, void *arg)
{
	Datum values[3];
	bool found;

	key_of(packet, values);
	SPI_connect();
	run(&read_kept, values, NULL, SPI_OK_SELECT);
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
