/*
 * link/stream_position_table.c
 *		Positions of streams from peers as they are stored: table shard.position, rows of the log.
 *
 * If the process dies right here: in shard_stream_position_save() before the commit, the segment is as it
 * was, with the rows. After it and before shard_stream_position_saved(), the next rotation writes the same
 * once more.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/uuid.h"

#include "registry/catalog.h"
#include "link/stream_position_table.h"
#include "shared/told.h"
#include "registry/statement.h"

#include "base/compat.h"

static ShardStatement select_positions = {
	"SELECT origin, lane, channel, inc, gen, seq, writer, quarantine FROM shard.position"};

static ShardStatement upsert_position = {
	"INSERT INTO shard.position (origin, lane, channel, inc, gen, seq, writer, quarantine)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
	" ON CONFLICT (origin, lane, channel) DO UPDATE SET inc = EXCLUDED.inc, gen = EXCLUDED.gen,"
	" seq = EXCLUDED.seq, writer = EXCLUDED.writer, quarantine = EXCLUDED.quarantine",
	8,
	{INT4OID, INT2OID, INT2OID, INT4OID, INT4OID, INT8OID, UUIDOID, TEXTOID}};

/* What the last shard_stream_position_save() wrote, until its transaction has committed. */
static ShardPeerPosition *written = NULL;
static int n_written = 0;

static const char *const origin_regressed = "origin regressed";
static const char *const receiver_regressed = "receiver regressed";

const char *
shard_stream_position_quarantine(int32 state)
{
	if (state == SHARD_STREAM_ORIGIN_REGRESSED)
		return origin_regressed;
	return state == SHARD_STREAM_RECEIVER_REGRESSED ? receiver_regressed : NULL;
}

/* The same, back. */
static int32
quarantine_of(const char *text)
{
	if (text == NULL)
		return 0;
	return strcmp(text, origin_regressed) == 0 ? SHARD_STREAM_ORIGIN_REGRESSED
											   : SHARD_STREAM_RECEIVER_REGRESSED;
}

/* A uuid as a value, most significant byte first. */
static Datum
uuid_datum(ShardUuid uuid)
{
	pg_uuid_t *result = palloc(sizeof(pg_uuid_t));

	for (int i = 0; i < 8; i++)
	{
		result->data[i] = (unsigned char) (uuid.high >> (56 - 8 * i));
		result->data[8 + i] = (unsigned char) (uuid.low >> (56 - 8 * i));
	}
	return UUIDPGetDatum(result);
}

static ShardUuid
datum_uuid(Datum datum)
{
	const pg_uuid_t *value = DatumGetUUIDP(datum);
	ShardUuid uuid = {0, 0};

	for (int i = 0; i < 8; i++)
	{
		uuid.high = uuid.high << 8 | value->data[i];
		uuid.low = uuid.low << 8 | value->data[8 + i];
	}
	return uuid;
}

/* ---- start ------------------------------------------------------------------------------------ */

/* A row of the table. */
static void
take_table_row(HeapTuple row, TupleDesc desc)
{
	ShardPeerPosition position = {0};
	bool isnull;

	position.key.dboid = MyDatabaseId;
	position.key.origin = DatumGetInt32(SPI_getbinval(row, desc, 1, &isnull));
	position.key.lane = DatumGetInt16(SPI_getbinval(row, desc, 2, &isnull));
	position.key.channel = DatumGetInt16(SPI_getbinval(row, desc, 3, &isnull));
	position.stream.inc = DatumGetInt32(SPI_getbinval(row, desc, 4, &isnull));
	position.stream.gen = DatumGetInt32(SPI_getbinval(row, desc, 5, &isnull));
	position.stream.seq = DatumGetInt64(SPI_getbinval(row, desc, 6, &isnull));
	position.stream.writer = datum_uuid(SPI_getbinval(row, desc, 7, &isnull));
	position.quarantine = quarantine_of(SPI_getvalue(row, desc, 8));
	position.in_table = true;
	shard_stream_position_found(&position);
}

void
shard_stream_position_load(ShardDatabase *db)
{
	shard_stream_position_begin(db, shard_catalog_get()->node);
	SPI_connect();
	shard_statement_read(&select_positions, &(ShardArguments){0}, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		take_table_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	SPI_finish();
}

void
shard_stream_position_row(const ShardRow *row)
{
	ShardPeerPosition position;

	if (!shard_stream_position_parse(row->payload, row->payload_len, &position))
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("position " INT64_FORMAT " in the inbox is damaged", row->seq)));
	position.row_seq = row->seq;
	shard_stream_position_found(&position);
}

void
shard_stream_position_loaded(ShardDatabase *db, ShardLanes lanes)
{
	shard_stream_position_ready(db, shard_catalog_get()->node, lanes);
}

/* ---- writing --------------------------------------------------------------------------------- */

void
shard_stream_position_store(const ShardPeerPosition *position)
{
	const ShardStreamPositionKey *key = &position->key;
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(key->origin), false);
	shard_statement_add(&arguments, Int16GetDatum(key->lane), false);
	shard_statement_add(&arguments, Int16GetDatum(key->channel), false);
	shard_statement_add(&arguments, Int32GetDatum(position->stream.inc), false);
	shard_statement_add(&arguments, Int32GetDatum(position->stream.gen), false);
	shard_statement_add(&arguments, Int64GetDatum(position->stream.seq), false);
	shard_statement_add(&arguments, uuid_datum(position->stream.writer), false);
	shard_statement_add_string(&arguments, shard_stream_position_quarantine(position->quarantine));
	shard_statement_run(&upsert_position, &arguments, SPI_OK_INSERT);
}

/* Forgets what the last save wrote. */
static void
forget_written(void)
{
	if (written != NULL)
		pfree(written);
	written = NULL;
	n_written = 0;
}

void
shard_stream_position_save(int64 last_seq)
{
	int count;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	forget_written();
	written = shard_stream_position_list(MyDatabaseId, &count);
	MemoryContextSwitchTo(old);
	for (int i = 0; i < count; i++)
	{
		if (written[i].row_seq == 0 || written[i].row_seq > last_seq || written[i].in_table)
			continue;
		shard_stream_position_store(&written[i]);
		written[n_written++] = written[i];
	}
}

void
shard_stream_position_saved(void)
{
	shard_stream_position_set_in_table(written, n_written);
	forget_written();
}

void
shard_stream_position_tell_quarantine(ShardDatabase *db, const ShardPeerPosition *position)
{
	const char *more;

	if (!shard_told_may(db, position->key.origin, "quarantine", 0, &more))
		return;
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("stream from node %d on lane %d is quarantined: %s%s", position->key.origin,
					position->key.lane, shard_stream_position_quarantine(position->quarantine),
					more),
			 errdetail("Received up to " INT64_FORMAT " here.", position->stream.seq),
			 errhint("Find out which of the two databases was put back from a copy, then call "
					 "shard_link_accept() on both nodes.")));
}
