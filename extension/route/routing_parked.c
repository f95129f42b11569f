/*
 * route/routing_parked.c
 *		Table shard.parked: messages that wait for a home.
 *
 * A statement for each message would cost many times as much as handling it, and who sends to a new type has all of it
 * parked. So what a turn adds is gathered in memory, and of what it removes, up to where each shard's are gone. Both go to
 * the table together: before it is read where the turn has changed it, when there is much, and at the turn's end.
 *
 * What is removed of a shard goes as a range of keys: it is read in their order, and as a write deletes before it inserts, nothing
 * that the turn adds is within. If there is more, another process, which should not, has put it there since; the turn is run
 * again, and meets it.
 *
 * All of it happens in a turn's transaction. If the process dies right here, nothing of the turn happened, whether it was
 * written or only gathered: the next worker meets the same rows of the log, and the same parked ones, once more.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "entity/execution.h"
#include "entity/held.h"
#include "entity/request.h"
#include "route/routing_private.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Key of messages that have no stamp: behind all that have one. */
#define NOT_STAMPED PG_INT64_MAX

/* Payload that is read at once, and the last message's. */
#define READ_BYTES (1024 * 1024)

/* What is gathered at most: messages, their bytes, and shards from which messages were removed. */
#define ROWS 1000
#define BYTES (1024 * 1024)
#define RANGES 1000

#define COLUMNS 14

#define INSERT \
	"INSERT INTO shard.parked (type_id, shard, rseq, arrival, kind, epoch, sent, stamp, entity," \
	" src_type, src_entity, mid_node, mid_seq, payload)"

/* A broken build that meets rows again: an error would end all handling, and prove nothing. */
#ifdef SHARD_MUTANT_NO_ORDER
#define IF_NEW " ON CONFLICT (type_id, shard, rseq, arrival) DO NOTHING"
#else
#define IF_NEW ""
#endif

static ShardStatement insert_rows = {
	INSERT
	/* unnest() of several arrays is a matter of its bare name, which is not safe to use. */
	" SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3),"
	" pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6), pg_catalog.unnest($7),"
	" pg_catalog.unnest($8), pg_catalog.unnest($9), pg_catalog.unnest($10), pg_catalog.unnest($11),"
	" pg_catalog.unnest($12), pg_catalog.unnest($13), pg_catalog.unnest($14))" IF_NEW,
	COLUMNS,
	{INT4ARRAYOID, INT4ARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT2ARRAYOID, INT4ARRAYOID,
	 BOOLARRAYOID, BYTEAARRAYOID, TEXTARRAYOID, INT4ARRAYOID, TEXTARRAYOID, INT4ARRAYOID,
	 INT8ARRAYOID, BYTEAARRAYOID}};

static ShardStatement insert_row = {
	INSERT " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)" IF_NEW,
	COLUMNS,
	{INT4OID, INT4OID, INT8OID, INT8OID, INT2OID, INT4OID, BOOLOID, BYTEAOID, TEXTOID, INT4OID,
	 TEXTOID, INT4OID, INT8OID, BYTEAOID}};

static ShardStatement delete_range = {
	"DELETE FROM shard.parked WHERE type_id = $1 AND shard = $2"
	" AND (rseq, arrival) >= ($3, $4) AND (rseq, arrival) <= ($5, $6)",
	6,
	{INT4OID, INT4OID, INT8OID, INT8OID, INT8OID, INT8OID}};

static ShardStatement select_parked = {
	"SELECT rseq, arrival, kind, epoch, sent, stamp, entity, src_type, src_entity, mid_node, mid_seq,"
	" payload FROM shard.parked WHERE type_id = $1 AND shard = $2 AND (rseq, arrival) > ($3, $4)"
	" ORDER BY rseq, arrival LIMIT $5",
	5,
	{INT4OID, INT4OID, INT8OID, INT8OID, INT4OID}};

static ShardStatement select_some = {"SELECT type_id, shard, rseq, arrival FROM shard.parked"
									 " WHERE (type_id, shard, rseq, arrival) > ($1, $2, $3, $4)"
									 " ORDER BY type_id, shard, rseq, arrival LIMIT $5",
									 5,
									 {INT4OID, INT4OID, INT8OID, INT8OID, INT4OID}};

static ShardStatement bury = {
	"WITH gone AS (DELETE FROM shard.parked WHERE type_id = $1 RETURNING *)"
	" INSERT INTO shard.dead_letter (type_id, shard, entity, kind, epoch, stamp, src_type,"
	" src_entity, mid_node, mid_seq, payload, sqlstate, error, hint, attempts)"
	" SELECT type_id, shard, entity, kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq,"
	" payload, '42704', '" SHARD_DROPPED_ERROR "',"
	" '" SHARD_DROPPED_HINT "', 0 FROM gone ORDER BY shard, rseq, arrival",
	1,
	{INT4OID}};

/* Messages of one shard that were removed, from the first to the last. */
typedef struct Range
{
	const ShardRoute *route;
	ShardParkedPlace first;
	ShardParkedPlace last;
	uint64 rows;
} Range;

/* What is gathered: messages that were added, column by column, */
static struct
{
	Datum value[COLUMNS][ROWS];
	bool null[COLUMNS][ROWS];
	int rows;
	Size bytes; /* of payload */
} added;

/* and those that were removed. */
static struct
{
	Range range[RANGES];
	int count;
} removed;

static void
add_place(ShardArguments *arguments, const ShardParkedPlace *place)
{
	shard_statement_add(arguments, Int32GetDatum(place->type_id), false);
	shard_statement_add(arguments, Int32GetDatum(place->shard), false);
	shard_statement_add(arguments, Int64GetDatum(place->rseq), false);
	shard_statement_add(arguments, Int64GetDatum(place->arrival), false);
}

ShardParkedPlace
shard_routing_parked_place(const ShardItem *item, const ShardRow *row)
{
	bool stamped = item->stamp.kind != SHARD_PREFIX_NONE;

	return (ShardParkedPlace){.type_id = item->type_id,
							  .shard = item->shard,
							  .rseq = stamped ? item->stamp.seq : NOT_STAMPED,
							  .arrival = row->seq};
}

/* ---- what is gathered ------------------------------------------------------------------------- */

/* The columns of a message, in current memory. */
static void
add_message(ShardArguments *arguments, const ShardItem *item, const ShardRow *row)
{
	bool stamped = item->stamp.kind != SHARD_PREFIX_NONE;
	ShardParkedPlace place = shard_routing_parked_place(item, row);
	char stamp[SHARD_LOG_STAMP_BYTES];

	shard_log_put_stamp(stamp, item->stamp);
	add_place(arguments, &place);
	shard_statement_add(arguments, Int16GetDatum(row->kind), false);
	shard_statement_add(arguments, Int32GetDatum(item->epoch), item->epoch < 0);
	shard_statement_add(arguments, BoolGetDatum(item->sent), false);
	shard_statement_add_text(arguments, stamped ? stamp : NULL, sizeof(stamp));
	shard_statement_add_text(arguments, row->entity, row->entity_len);
	shard_statement_add(arguments, Int32GetDatum(row->src_type), row->src_type == 0);
	shard_statement_add_text(arguments, row->src_type == 0 ? NULL : row->src_entity,
							 row->src_entity_len);
	shard_statement_add(arguments, Int32GetDatum(row->mid_node), false);
	shard_statement_add(arguments, Int64GetDatum(row->mid_seq), false);
	shard_statement_add_text(arguments, row->payload == NULL ? "" : row->payload, row->payload_len);
}

void
shard_routing_parked_add(const ShardItem *item, const ShardRow *row)
{
	bool large = row->payload_len >= BYTES;
	ShardArguments message = {0};
	MemoryContext old;

	if (large || added.rows == ROWS || added.bytes >= BYTES)
		shard_routing_parked_write();
	old = MemoryContextSwitchTo(shard_routing.gathered);
	add_message(&message, item, row);
	if (large)
	{
		/* by itself: an array of it would be yet another copy */
		shard_execution_end_user_code();
		shard_statement_change_one(&insert_row, &message, SPI_OK_INSERT);
		MemoryContextReset(shard_routing.gathered);
	}
	else
	{
		for (int column = 0; column < COLUMNS; column++)
		{
			added.value[column][added.rows] = message.value[column];
			added.null[column][added.rows] = message.null[column] == 'n';
		}
		added.rows++;
		added.bytes += row->payload_len;
	}
	MemoryContextSwitchTo(old);
}

void
shard_routing_parked_remove(ShardRoute *route, const ShardParked *parked)
{
	ShardParkedPlace place = {route->type_id, route->shard, parked->rseq, parked->arrival};
	Range *range = &removed.range[route->leaving];

	if (route->leaving >= removed.count || range->route != route)
	{
		if (removed.count == RANGES)
			shard_routing_parked_write();
		route->leaving = removed.count++;
		range = &removed.range[route->leaving];
		*range = (Range){.route = route, .first = place};
	}
	range->last = place;
	range->rows++;
}

bool
shard_routing_parked_has_added(void)
{
	return added.rows > 0;
}

void
shard_routing_parked_forget(void)
{
	added.rows = removed.count = 0;
	added.bytes = 0;
	MemoryContextReset(shard_routing.gathered);
}

/* ---- to the table ----------------------------------------------------------------------------- */

static void
delete_rows(const Range *range)
{
	ShardArguments arguments = {0};
	uint64 deleted;

	add_place(&arguments, &range->first);
	shard_statement_add(&arguments, Int64GetDatum(range->last.rseq), false);
	shard_statement_add(&arguments, Int64GetDatum(range->last.arrival), false);
	SPI_connect();
	shard_statement_run(&delete_range, &arguments, SPI_OK_DELETE);
	deleted = SPI_processed;
	SPI_finish();
#ifdef SHARD_MUTANT_PARKED_RANGE_UNCHECKED
	return;
#endif
	if (deleted <= range->rows)
		return;
	shard_routing.overtaken = true;
	ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("messages of shard %d of entity type %d were parked by another process",
						   range->first.shard, range->first.type_id),
					errdetail("They are read again, and the turn starts again.")));
}

/* A column of what was added, as an array. */
static Datum
array_of(int column)
{
	Oid type = get_element_type(insert_rows.type[column]);
	int lower = 1;
	int16 length;
	bool by_value;
	char align;

	get_typlenbyvalalign(type, &length, &by_value, &align);
	return PointerGetDatum(construct_md_array(added.value[column], added.null[column], 1,
											  &added.rows, &lower, type, length, by_value, align));
}

static void
insert_gathered(void)
{
	ShardArguments arguments = {0};

	for (int column = 0; column < COLUMNS; column++)
		shard_statement_add(&arguments, array_of(column), false);
	SPI_connect();
	shard_statement_run(&insert_rows, &arguments, SPI_OK_INSERT);
#ifndef SHARD_MUTANT_NO_ORDER
	if (SPI_processed != (uint64) added.rows)
		elog(ERROR, "%d messages were to be parked, not " UINT64_FORMAT, added.rows, SPI_processed);
#endif
	SPI_finish();
}

void
shard_routing_parked_write(void)
{
	MemoryContext old;

	if (added.rows == 0 && removed.count == 0)
		return;
	ShardAssert(GetCurrentTransactionNestLevel() == 1);
	shard_execution_end_user_code();
	old = MemoryContextSwitchTo(shard_routing.gathered);
	for (int i = 0; i < removed.count; i++)
		delete_rows(&removed.range[i]);
	if (added.rows > 0)
		insert_gathered();
	MemoryContextSwitchTo(old);
	shard_routing_parked_forget();
}

/* ---- from the table --------------------------------------------------------------------------- */

/* A row of select_parked. */
static void
read_parked(uint64 number, ShardParked *parked, MemoryContext context)
{
	ShardRow *row = &parked->row;
	char *stamp;
	int len;
	bool isnull;

	parked->rseq = shard_statement_int8(number, 1);
	parked->arrival = shard_statement_int8(number, 2);
	row->kind = DatumGetInt16(shard_statement_column(number, 3, &isnull));
	row->epoch = DatumGetInt32(shard_statement_column(number, 4, &isnull));
	if (isnull)
		row->epoch = SHARD_NO_EPOCH;
	parked->item.sent = DatumGetBool(shard_statement_column(number, 5, &isnull));
	stamp = shard_statement_bytes(number, 6, context, &len);
	if (stamp != NULL)
		row->stamp = shard_log_get_stamp(stamp);
	row->entity = shard_statement_bytes(number, 7, context, &row->entity_len);
	row->src_type = shard_statement_int4(number, 8);
	row->src_entity = shard_statement_bytes(number, 9, context, &row->src_entity_len);
	row->mid_node = shard_statement_int4(number, 10);
	row->mid_seq = shard_statement_int8(number, 11);
	row->payload = shard_statement_bytes(number, 12, context, &row->payload_len);

	/* should it have to wait in the stash: stamped ones first, then by arrival, as here */
	row->seq = parked->rseq == NOT_STAMPED ? parked->arrival : PG_INT64_MIN + parked->rseq;
}

ShardParked *
shard_routing_parked_read(const ShardParkedPlace *after, int limit, int *count, bool *last)
{
	MemoryContext context = CurrentMemoryContext;
	ShardArguments arguments = {0};
	ShardParked *result;
	Size bytes = 0;

	SPI_connect();
	add_place(&arguments, after);
	shard_statement_add(&arguments, Int32GetDatum(limit), false);
	shard_statement_run(&select_parked, &arguments, SPI_OK_SELECT);
	result = MemoryContextAllocZero(context, Max(SPI_processed, 1) * sizeof(ShardParked));
	for (*count = 0; *count < SPI_processed && bytes <= READ_BYTES; (*count)++)
	{
		ShardParked *parked = &result[*count];

		/* a large one is still where it was stored */
		read_parked(*count, parked, context);
		bytes += parked->row.payload_len;
		parked->row.type_id = parked->item.type_id = after->type_id;
		parked->row.shard = parked->item.shard = after->shard;
		parked->item.epoch = parked->row.epoch;
		parked->item.stamp = parked->row.stamp;
		parked->item.body = &parked->row;
	}
	*last = SPI_processed < limit && *count == SPI_processed;
	SPI_finish();
	return result;
}

int64
shard_routing_parked_bury(int32 type_id)
{
	ShardArguments arguments = {0};
	int64 rows;

	shard_request_refuse_kept(type_id, true);
	SPI_connect();
	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_run(&bury, &arguments, SPI_OK_INSERT);
	rows = (int64) SPI_processed;
	SPI_finish();
	return rows;
}

int
shard_routing_parked_some(ShardParkedPlace *place, int limit, ShardRoutingVisit visit, void *arg)
{
	ShardArguments arguments = {0};
	int rows;

	SPI_connect();
	add_place(&arguments, place);
	shard_statement_add(&arguments, Int32GetDatum(limit), false);
	shard_statement_run(&select_some, &arguments, SPI_OK_SELECT);
	rows = (int) SPI_processed;
	for (int i = 0; i < rows; i++)
	{
		*place = (ShardParkedPlace){.type_id = shard_statement_int4(i, 1),
									.shard = shard_statement_int4(i, 2),
									.rseq = shard_statement_int8(i, 3),
									.arrival = shard_statement_int8(i, 4)};
		visit(place->type_id, place->shard, 1, arg);
	}
	SPI_finish();
	return rows;
}
