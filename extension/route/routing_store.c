/*
 * route/routing_store.c
 *		What is durable of routing: tables shard.route, own, shard_input and parked.
 *
 * All of it happens in a turn's transaction. If the process dies right here, nothing of the turn
 * happened: the next worker reads the tables as of the turn before, and meets the same rows of the log
 * once more.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "entity/held.h"
#include "entity/request.h"
#include "route/routing_private.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Key of parked messages that have no stamp: behind all that have one. */
#define NOT_STAMPED PG_INT64_MAX

/* Payload of parked messages that is read at once, and the last one's. */
#define PARKED_BYTES (1024 * 1024)

/* Marks that are written by one statement. */
#define BASE_ROWS 1000

static ShardStatement select_route = {
	"SELECT r.node, r.epoch, r.lost, r.n, o.state, o.epoch, o.move_id, o.next_node, o.next_epoch,"
	" o.turn, o.oseq,"
	" EXISTS (SELECT FROM shard.parked p WHERE p.type_id = $1 AND p.shard = $2 AND p.turn IS NULL), r.doubt,"
	" c.n, c.epoch, c.lost, c.want, c.nodes[1], c.nodes[2], c.nodes[3], c.nodes[4]"
	" FROM (VALUES ($1, $2)) AS k (type_id, shard)"
	" LEFT JOIN shard.route r ON r.type_id = k.type_id AND r.shard = k.shard"
	" LEFT JOIN shard.own o ON o.type_id = k.type_id AND o.shard = k.shard"
	" LEFT JOIN shard.copy c ON c.type_id = k.type_id AND c.shard = k.shard",
	2,
	{INT4OID, INT4OID}};

/* Base marks in their order, and one more than there can be: if that comes, one of them is wrong. */
static ShardStatement select_base = {
	"SELECT prefix_kind, a, b, seq FROM shard.shard_input WHERE type_id = $1 AND shard = $2"
	" ORDER BY prefix_kind, a, b LIMIT 1 + $3",
	3,
	{INT4OID, INT4OID, INT4OID}};

/* Base marks that shard_mark_can_be() refuses; the lane is $4. */
static ShardStatement delete_strange_base = {
	"DELETE FROM shard.shard_input WHERE type_id = $1 AND shard = $2"
	" AND NOT (prefix_kind = 1 AND a BETWEEN 1 AND $3 AND b = $4 AND seq > 0)",
	4,
	{INT4OID, INT4OID, INT4OID, INT4OID}};

static ShardStatement insert_route = {
	"INSERT INTO shard.route AS r (type_id, shard, node, epoch, lost, n, doubt)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7)"
	" ON CONFLICT (type_id, shard) DO UPDATE SET node = EXCLUDED.node, epoch = EXCLUDED.epoch,"
	" lost = EXCLUDED.lost, n = EXCLUDED.n, doubt = EXCLUDED.doubt",
	7,
	{INT4OID, INT4OID, INT4OID, INT4OID, INT4OID, INT8OID, INT4OID}};

/* All three change one row, or none if it is not what was read before (W4). */
static ShardStatement insert_own = {
	"INSERT INTO shard.own (type_id, shard, epoch, state, move_id, next_node, next_epoch, turn, oseq)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (type_id, shard) DO NOTHING",
	9,
	{INT4OID, INT4OID, INT4OID, TEXTOID, INT8OID, INT4OID, INT4OID, INT8OID, INT8OID}};

static ShardStatement update_own = {
	"UPDATE shard.own SET epoch = $3, state = $4, move_id = $5, next_node = $6, next_epoch = $7,"
	" turn = $8, oseq = $9"
	" WHERE type_id = $1 AND shard = $2 AND epoch = $10 AND state = $11"
	" AND coalesce(move_id, 0) = $12",
	12,
	{INT4OID, INT4OID, INT4OID, TEXTOID, INT8OID, INT4OID, INT4OID, INT8OID, INT8OID, INT4OID,
	 TEXTOID, INT8OID}};

static ShardStatement delete_own = {
	"DELETE FROM shard.own"
	" WHERE type_id = $1 AND shard = $2 AND epoch = $3 AND state = $4 AND coalesce(move_id, 0) = $5",
	5,
	{INT4OID, INT4OID, INT4OID, TEXTOID, INT8OID}};

static ShardStatement select_writer = {
	"SELECT xmin FROM shard.own WHERE type_id = $1 AND shard = $2", 2, {INT4OID, INT4OID}};

static ShardStatement insert_base = {
	"INSERT INTO shard.shard_input AS i (type_id, shard, prefix_kind, a, b, seq)"
	/* unnest() of several arrays is a matter of its bare name, which is not safe to use. */
	" SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3),"
	" pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6))"
	" ON CONFLICT (type_id, shard, prefix_kind, a, b) DO UPDATE SET seq = EXCLUDED.seq"
	" WHERE i.seq < EXCLUDED.seq",
	6,
	{INT4ARRAYOID, INT4ARRAYOID, INT2ARRAYOID, INT4ARRAYOID, INT4ARRAYOID, INT8ARRAYOID}};

static ShardStatement delete_base = {
	"DELETE FROM shard.shard_input WHERE type_id = $1 AND shard = $2", 2, {INT4OID, INT4OID}};

static ShardStatement delete_ordered = {
	"DELETE FROM shard.ordered WHERE ctid = ANY (ARRAY(SELECT ctid FROM shard.ordered"
	" WHERE type_id = $1 AND shard = $2 LIMIT $3))",
	3,
	{INT4OID, INT4OID, INT8OID}};

static ShardStatement delete_timers = {
	"DELETE FROM shard.timer WHERE ctid = ANY (ARRAY(SELECT ctid FROM shard.timer"
	" WHERE type_id = $1 AND shard = $2 LIMIT $3))",
	3,
	{INT4OID, INT4OID, INT8OID}};

static ShardStatement delete_history = {
	"DELETE FROM shard.history WHERE ctid = ANY (ARRAY(SELECT ctid FROM shard.history"
	" WHERE type_id = $1 AND shard = $2 LIMIT $3))",
	3,
	{INT4OID, INT4OID, INT8OID}};

static ShardStatement delete_stash = {
	"DELETE FROM shard.held WHERE ctid = ANY (ARRAY(SELECT ctid FROM shard.held"
	" WHERE type_id = $1 AND shard = $2 LIMIT $3))",
	3,
	{INT4OID, INT4OID, INT8OID}};

static ShardStatement insert_parked = {
	"INSERT INTO shard.parked (type_id, shard, rseq, arrival, kind, epoch, sent, stamp, entity,"
	" src_type, src_entity, mid_node, mid_seq, payload)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
#ifdef SHARD_MUTANT_NO_ORDER
	/* which meets rows again: an error would end all handling, and prove nothing */
	" ON CONFLICT (type_id, shard, rseq, arrival) DO UPDATE SET kind = excluded.kind"
#endif
	,
	14,
	{INT4OID, INT4OID, INT8OID, INT8OID, INT2OID, INT4OID, BOOLOID, BYTEAOID, TEXTOID, INT4OID,
	 TEXTOID, INT4OID, INT8OID, BYTEAOID}};

/* An item that may be there, with the same stamp. */
static ShardStatement insert_parked_again = {
	"INSERT INTO shard.parked (type_id, shard, rseq, arrival, kind, epoch, sent, stamp, entity,"
	" src_type, src_entity, mid_node, mid_seq, payload)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
	" ON CONFLICT (type_id, shard, rseq, arrival) DO NOTHING",
	14,
	{INT4OID, INT4OID, INT8OID, INT8OID, INT2OID, INT4OID, BOOLOID, BYTEAOID, TEXTOID, INT4OID,
	 TEXTOID, INT4OID, INT8OID, BYTEAOID}};

static ShardStatement select_parked = {
	"SELECT rseq, arrival, kind, epoch, sent, stamp, entity, src_type, src_entity, mid_node, mid_seq,"
	" payload FROM shard.parked WHERE type_id = $1 AND shard = $2 AND (rseq, arrival) > ($4, $5)"
	" AND turn IS NULL"
	" ORDER BY rseq, arrival LIMIT $3",
	5,
	{INT4OID, INT4OID, INT4OID, INT8OID, INT8OID}};

static ShardStatement select_some_parked = {
	"SELECT type_id, shard, rseq, arrival FROM shard.parked"
	" WHERE (type_id, shard, rseq, arrival) > ($1, $2, $3, $4) AND turn IS NULL"
	" ORDER BY type_id, shard, rseq, arrival LIMIT $5",
	5,
	{INT4OID, INT4OID, INT8OID, INT8OID, INT4OID}};

static ShardStatement delete_parked = {
	"DELETE FROM shard.parked WHERE type_id = $1 AND shard = $2 AND rseq = $3 AND arrival = $4",
	4,
	{INT4OID, INT4OID, INT8OID, INT8OID}};

static ShardStatement bury_parked = {
	"WITH gone AS (DELETE FROM shard.parked WHERE type_id = $1 RETURNING *)"
	" INSERT INTO shard.dead_letter (type_id, shard, entity, kind, epoch, stamp, src_type,"
	" src_entity, mid_node, mid_seq, payload, sqlstate, error, hint, attempts)"
	" SELECT type_id, shard, entity, kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq,"
	" payload, '42704', '" SHARD_DROPPED_ERROR "',"
	" '" SHARD_DROPPED_HINT "', 0 FROM gone WHERE turn IS NULL ORDER BY shard, rseq, arrival",
	1,
	{INT4OID}};

static ShardStatement select_shards = {
	"SELECT type_id, shard, coalesce(p.messages, 0) FROM shard.own FULL JOIN"
	" (SELECT type_id, shard, pg_catalog.count(*) AS messages FROM shard.parked WHERE turn IS NULL"
	" GROUP BY type_id, shard) p USING (type_id, shard)",
	0,
	{0}};

/* Marks that wait for flush_base, column by column. */
static Datum base[6][BASE_ROWS];
static int base_rows = 0;

static void
add_key(ShardArguments *arguments, int32 type_id, int32 shard)
{
	shard_statement_add(arguments, Int32GetDatum(type_id), false);
	shard_statement_add(arguments, Int32GetDatum(shard), false);
}

/* The ownership row of a result of select_route, none if there is none. */
static void
read_own(ShardOwn *own)
{
	int len;
	char *state = shard_statement_bytes(0, 5, CurrentMemoryContext, &len);

	if (state == NULL)
		return;
	for (int i = SHARD_HOME_ACTIVE; i <= SHARD_HOME_CLEARING; i++)
		if (strcmp(state, shard_home_machine.state_names[i]) == 0)
			own->state = i;
	own->epoch = shard_statement_int4(0, 6);
	own->move_id = shard_statement_int8(0, 7);
	own->next_node = shard_statement_int4(0, 8);
	own->next_epoch = shard_statement_int4(0, 9);
	own->turn = shard_statement_int8(0, 10);
	own->oseq = shard_statement_int8(0, 11);
}

void
shard_routing_store_load(ShardRoute *route, MemoryContext memory)
{
	ShardArguments arguments = {0};
	bool isnull;

	SPI_connect();
	add_key(&arguments, route->type_id, route->shard);
	shard_statement_run(&select_route, &arguments, SPI_OK_SELECT);
	route->node = shard_statement_int4(0, 1);
	route->epoch = shard_statement_int4(0, 2);
	route->lost = shard_statement_int4(0, 3);
	route->n = shard_statement_int8(0, 4);
	read_own(&route->own);
	route->parked = DatumGetBool(shard_statement_column(0, 12, &isnull));
	route->doubt = shard_statement_int4(0, 13);
	if (memory != NULL)
		shard_routing_set_read(route, 14, memory);
	SPI_finish();
}

/* False: one of them cannot be; those before it are raised. */
static bool
read_base(ShardRoute *route, MemoryContext memory)
{
	ShardArguments arguments = {0};
	bool good = true;

	SPI_connect();
	add_key(&arguments, route->type_id, route->shard);
	shard_statement_add(&arguments, Int32GetDatum(SHARD_MAX_NODE_ID), false);
	shard_statement_run(&select_base, &arguments, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed && good; i++)
	{
		bool isnull;
		ShardStamp stamp = {DatumGetInt16(shard_statement_column(i, 1, &isnull)),
							shard_statement_int4(i, 2), shard_statement_int4(i, 3),
							shard_statement_int8(i, 4)};
		MemoryContext old = MemoryContextSwitchTo(memory);

		good = shard_mark_can_be(stamp, route->type_id, route->shard, SHARD_MAX_NODE_ID);
		if (good)
			shard_mark_raise(&route->marks, stamp);
		MemoryContextSwitchTo(old);
		CHECK_FOR_INTERRUPTS();
	}
	SPI_finish();
	return good;
}

/* No item can be compared with them: they say nothing, and the shard's next home would refuse them (M4). */
static void
delete_strange(const ShardRoute *route)
{
	int32 lane = shard_message_lane(route->type_id, route->shard);
	ShardArguments arguments = {0};
	uint64 deleted;

	SPI_connect();
	add_key(&arguments, route->type_id, route->shard);
	shard_statement_add(&arguments, Int32GetDatum(SHARD_MAX_NODE_ID), false);
	shard_statement_add(&arguments, Int32GetDatum(lane), false);
	shard_statement_run(&delete_strange_base, &arguments, SPI_OK_DELETE);
	deleted = SPI_processed;
	SPI_finish();
	ereport(LOG, (errcode(ERRCODE_DATA_CORRUPTED),
				  errmsg("shard %d of entity type %d had " UINT64_FORMAT
						 " marks that no shard can have: they were deleted",
						 route->shard, route->type_id, deleted),
				  errdetail("The marks are not of the shard's lane, %d, or of nodes that cannot "
							"exist.",
							lane),
				  errhint("The marks came with a copy of the shard, or were written to "
						  "shard.shard_input by SQL.")));
}

void
shard_routing_store_load_base(ShardRoute *route, MemoryContext memory)
{
	if (read_base(route, memory))
		return;
	delete_strange(route);
	(void) read_base(route, memory);
}

void
shard_routing_store_write_route(const ShardRoute *route)
{
	ShardArguments arguments = {0};

	add_key(&arguments, route->type_id, route->shard);
	shard_statement_add(&arguments, Int32GetDatum(route->node), false);
	shard_statement_add(&arguments, Int32GetDatum(route->epoch), false);
	shard_statement_add(&arguments, Int32GetDatum(route->lost), false);
	shard_statement_add(&arguments, Int64GetDatum(route->n), false);
	shard_statement_add(&arguments, Int32GetDatum(route->doubt), false);
	shard_statement_change_one(&insert_route, &arguments, SPI_OK_INSERT);
}

/* epoch, state, move_id: what no two different rows of a shard have in common. */
static void
add_version(ShardArguments *arguments, const ShardOwn *own)
{
	shard_statement_add(arguments, Int32GetDatum(own->epoch), false);
	shard_statement_add_string(arguments, shard_home_machine.state_names[own->state]);
	shard_statement_add(arguments, Int64GetDatum(own->move_id), false);
}

bool
shard_routing_store_write_own(int32 type_id, int32 shard, const ShardOwn *own,
							  const ShardOwn *before)
{
	ShardArguments arguments = {0};
	ShardStatement *statement = before->state == SHARD_HOME_NONE ? &insert_own : &update_own;
	int expected = before->state == SHARD_HOME_NONE ? SPI_OK_INSERT : SPI_OK_UPDATE;
	bool changed;

	/* the row's writer stays that of the seal as long as the shard is sealed */
	if (memcmp(own, before, sizeof(*own)) == 0)
		return true;
	add_key(&arguments, type_id, shard);
	if (own->state == SHARD_HOME_NONE)
	{
		statement = &delete_own;
		expected = SPI_OK_DELETE;
	}
	else
	{
		add_version(&arguments, own);
		shard_statement_add(&arguments, Int32GetDatum(own->next_node), false);
		shard_statement_add(&arguments, Int32GetDatum(own->next_epoch), false);
		shard_statement_add(&arguments, Int64GetDatum(own->turn), false);
		shard_statement_add(&arguments, Int64GetDatum(own->oseq), false);
	}
	if (before->state != SHARD_HOME_NONE)
		add_version(&arguments, before);
	SPI_connect();
	shard_statement_run(statement, &arguments, expected);
	changed = SPI_processed == 1;
	SPI_finish();
	return changed;
}

TransactionId
shard_routing_store_own_writer(int32 type_id, int32 shard)
{
	ShardArguments arguments = {0};
	TransactionId writer = InvalidTransactionId;
	bool isnull;

	SPI_connect();
	add_key(&arguments, type_id, shard);
	shard_statement_run(&select_writer, &arguments, SPI_OK_SELECT);
	if (SPI_processed == 1)
		writer = DatumGetTransactionId(shard_statement_column(0, 1, &isnull));
	SPI_finish();
	return writer;
}

/* A column of what waits for flush_base, as an array. */
static Datum
base_column(int column, Oid type, int length, bool by_value, char align)
{
	return PointerGetDatum(construct_array(base[column], base_rows, type, length, by_value, align));
}

void
shard_routing_store_flush_base(void)
{
	ShardArguments arguments = {0};

	if (base_rows == 0)
		return;
	for (int column = 0; column < lengthof(base); column++)
	{
		Datum array;

		if (column == 2)
			array = base_column(column, INT2OID, sizeof(int16), true, TYPALIGN_SHORT);
		else if (column == 5)
			array = base_column(column, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
		else
			array = base_column(column, INT4OID, sizeof(int32), true, TYPALIGN_INT);
		shard_statement_add(&arguments, array, false);
	}
	base_rows = 0;
	shard_statement_change(&insert_base, &arguments, SPI_OK_INSERT);
}

void
shard_routing_store_forget_base(void)
{
	base_rows = 0;
}

void
shard_routing_store_write_base(const ShardRoute *route)
{
	for (int i = 0; i < route->marks.n_marks; i++)
	{
		const ShardStamp *stamp = &route->marks.marks[i].stamp;

		if (stamp->seq <= 0)
			continue;
		base[0][base_rows] = Int32GetDatum(route->type_id);
		base[1][base_rows] = Int32GetDatum(route->shard);
		base[2][base_rows] = Int16GetDatum(stamp->kind);
		base[3][base_rows] = Int32GetDatum(stamp->a);
		base[4][base_rows] = Int32GetDatum(stamp->b);
		base[5][base_rows++] = Int64GetDatum(stamp->seq);
		if (base_rows == BASE_ROWS)
			shard_routing_store_flush_base();
	}
}

/* Deletes rows of a shard, at most limit; returns how many. */
static int64
delete_some(ShardStatement *statement, int32 type_id, int32 shard, int64 limit)
{
	ShardArguments arguments = {0};

	add_key(&arguments, type_id, shard);
	shard_statement_add(&arguments, Int64GetDatum(limit), false);
	shard_statement_run(statement, &arguments, SPI_OK_DELETE);
	return (int64) SPI_processed;
}

bool
shard_routing_store_discard(int32 type_id, int32 shard, int64 limit)
{
	ShardArguments marks = {0};
	bool all;

	SPI_connect();
	all = delete_some(&delete_stash, type_id, shard, limit) < limit &&
		  delete_some(&delete_ordered, type_id, shard, limit) < limit &&
		  delete_some(&delete_timers, type_id, shard, limit) < limit &&
		  delete_some(&delete_history, type_id, shard, limit) < limit;
	if (all)
	{
		/* one per origin and lane: few */
		add_key(&marks, type_id, shard);
		shard_statement_run(&delete_base, &marks, SPI_OK_DELETE);
	}
	SPI_finish();
	return all;
}

ShardParkedPlace
shard_routing_store_place(const ShardItem *item, const ShardRow *row)
{
	bool stamped = item->stamp.kind != SHARD_PREFIX_NONE;

	return (ShardParkedPlace){.type_id = item->type_id,
							  .shard = item->shard,
							  .rseq = stamped ? item->stamp.seq : NOT_STAMPED,
							  .arrival = row->seq};
}

/* All columns of a parked message; stamp: room for it. */
static void
add_parked(ShardArguments *arguments, const ShardItem *item, const ShardRow *row,
		   char stamp[SHARD_LOG_STAMP_BYTES])
{
	bool stamped = item->stamp.kind != SHARD_PREFIX_NONE;
	ShardParkedPlace place = shard_routing_store_place(item, row);

	shard_log_put_stamp(stamp, item->stamp);
	add_key(arguments, item->type_id, item->shard);
	shard_statement_add(arguments, Int64GetDatum(place.rseq), false);
	shard_statement_add(arguments, Int64GetDatum(place.arrival), false);
	shard_statement_add(arguments, Int16GetDatum(row->kind), false);
	shard_statement_add(arguments, Int32GetDatum(item->epoch), item->epoch < 0);
	shard_statement_add(arguments, BoolGetDatum(item->sent), false);
	shard_statement_add_text(arguments, stamped ? stamp : NULL, SHARD_LOG_STAMP_BYTES);
	shard_statement_add_text(arguments, row->entity, row->entity_len);
	shard_statement_add(arguments, Int32GetDatum(row->src_type), row->src_type == 0);
	shard_statement_add_text(arguments, row->src_type == 0 ? NULL : row->src_entity,
							 row->src_entity_len);
	shard_statement_add(arguments, Int32GetDatum(row->mid_node), false);
	shard_statement_add(arguments, Int64GetDatum(row->mid_seq), false);
	shard_statement_add_text(arguments, row->payload == NULL ? "" : row->payload, row->payload_len);
}

void
shard_routing_store_park(const ShardItem *item, const ShardRow *row)
{
	ShardArguments arguments = {0};
	char stamp[SHARD_LOG_STAMP_BYTES];

	add_parked(&arguments, item, row, stamp);
	shard_statement_change_one(&insert_parked, &arguments, SPI_OK_INSERT);
}

bool
shard_routing_store_park_again(const ShardItem *item, const ShardRow *row)
{
	ShardArguments arguments = {0};
	char stamp[SHARD_LOG_STAMP_BYTES];
	bool inserted;

	add_parked(&arguments, item, row, stamp);
	SPI_connect();
	shard_statement_run(&insert_parked_again, &arguments, SPI_OK_INSERT);
	inserted = SPI_processed == 1;
	SPI_finish();
	return inserted;
}

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
shard_routing_store_parked(const ShardParkedPlace *after, int limit, int *count, bool *last)
{
	MemoryContext context = CurrentMemoryContext;
	ShardArguments arguments = {0};
	ShardParked *result;
	Size bytes = 0;

	SPI_connect();
	add_key(&arguments, after->type_id, after->shard);
	shard_statement_add(&arguments, Int32GetDatum(limit), false);
	shard_statement_add(&arguments, Int64GetDatum(after->rseq), false);
	shard_statement_add(&arguments, Int64GetDatum(after->arrival), false);
	shard_statement_run(&select_parked, &arguments, SPI_OK_SELECT);
	result = MemoryContextAllocZero(context, Max(SPI_processed, 1) * sizeof(ShardParked));
	for (*count = 0; *count < SPI_processed && bytes <= PARKED_BYTES; (*count)++)
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

void
shard_routing_store_unpark(const ShardParked *parked)
{
	ShardArguments arguments = {0};

	add_key(&arguments, parked->item.type_id, parked->item.shard);
	shard_statement_add(&arguments, Int64GetDatum(parked->rseq), false);
	shard_statement_add(&arguments, Int64GetDatum(parked->arrival), false);
	shard_statement_change(&delete_parked, &arguments, SPI_OK_DELETE);
}

int64
shard_routing_store_bury(int32 type_id)
{
	ShardArguments arguments = {0};
	int64 rows;

	shard_request_refuse_kept(type_id, true);
	SPI_connect();
	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_run(&bury_parked, &arguments, SPI_OK_INSERT);
	rows = (int64) SPI_processed;
	SPI_finish();
	return rows;
}

void
shard_routing_store_each(ShardRoutingVisit visit, void *arg)
{
	ShardArguments arguments = {0};

	SPI_connect();
	shard_statement_run(&select_shards, &arguments, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
		visit(shard_statement_int4(i, 1), shard_statement_int4(i, 2), shard_statement_int8(i, 3),
			  arg);
	SPI_finish();
}

int
shard_routing_store_some(ShardParkedPlace *place, int limit, ShardRoutingVisit visit, void *arg)
{
	ShardArguments arguments = {0};
	int rows;

	SPI_connect();
	add_key(&arguments, place->type_id, place->shard);
	shard_statement_add(&arguments, Int64GetDatum(place->rseq), false);
	shard_statement_add(&arguments, Int64GetDatum(place->arrival), false);
	shard_statement_add(&arguments, Int32GetDatum(limit), false);
	shard_statement_run(&select_some_parked, &arguments, SPI_OK_SELECT);
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
