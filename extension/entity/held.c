/*
 * entity/held.c
 *		The stash, what waits for its number, and the dead letters (doc/protocol.md D5, D25, H6).
 *
 * Comes from: queue.c and order.c, what waits; failure.c, order.c and deliver.c, what is given up.
 * Goes to: tables shard.held and shard.dead_letter; stash.c and order.c read the former again.
 *
 * All of it happens inside the worker's turn, so a message is in exactly one
 * place: the log above the cursor, the stash, that of its number, a dead letter,
 * or handled.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "entity/held.h"
#include "entity/record.h"
#include "entity/replica_home.h"
#include "entity/request.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Payload of held messages that is read at once, and the last row's. */
#define LOAD_BYTES (1024 * 1024)

static ShardStatement insert_stash = {
	"INSERT INTO shard.held (place, type_id, shard, entity, seq, kind, epoch, stamp, src_type,"
	" src_entity, mid_node, mid_seq, payload, attempts, next_at, sqlstate, error, pauses)"
	" VALUES ('stash', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
	17,
	{INT4OID, INT4OID, TEXTOID, INT8OID, INT2OID, INT4OID, BYTEAOID, INT4OID, TEXTOID, INT4OID,
	 INT8OID, BYTEAOID, INT4OID, TIMESTAMPTZOID, TEXTOID, TEXTOID, BOOLOID}};

static ShardStatement insert_ordered = {
	"INSERT INTO shard.held (place, type_id, shard, entity, seq, kind, epoch, stamp, src_type,"
	" src_entity, mid_node, mid_seq, payload, number)"
	" VALUES ('ordered', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
	" ON CONFLICT (type_id, shard, entity, number) WHERE place = 'ordered' DO NOTHING",
	13,
	{INT4OID, INT4OID, TEXTOID, INT8OID, INT2OID, INT4OID, BYTEAOID, INT4OID, TEXTOID, INT4OID,
	 INT8OID, BYTEAOID, INT8OID}};

static ShardStatement select_stash = {
	"SELECT seq, kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq, payload, attempts,"
	" next_at, number, pauses"
	" FROM shard.held WHERE type_id = $1 AND shard = $2 AND entity = $3 AND place = 'stash'"
	" AND seq > $5 ORDER BY seq LIMIT $4",
	5,
	{INT4OID, INT4OID, TEXTOID, INT4OID, INT8OID}};

static ShardStatement select_ordered = {
	"SELECT seq, kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq, payload, attempts,"
	" next_at, number, pauses"
	" FROM shard.held WHERE type_id = $1 AND shard = $2 AND entity = $3 AND place = 'ordered'"
	" AND number >= $5 ORDER BY number LIMIT $4",
	5,
	{INT4OID, INT4OID, TEXTOID, INT4OID, INT8OID}};

/* The whole key: what leaves place open reads all that is held of the entity. */
static ShardStatement delete_held = {
	"DELETE FROM shard.held WHERE type_id = $1 AND shard = $2 AND entity = $3 AND seq = $4"
	" AND place = $5",
	5,
	{INT4OID, INT4OID, TEXTOID, INT8OID, TEXTOID}};

static ShardStatement update_held = {
	"UPDATE shard.held SET attempts = $5, next_at = $6, sqlstate = $7, error = $8, pauses = $9"
	" WHERE type_id = $1 AND shard = $2 AND entity = $3 AND seq = $4 AND place = $10",
	10,
	{INT4OID, INT4OID, TEXTOID, INT8OID, INT4OID, TIMESTAMPTZOID, TEXTOID, TEXTOID, BOOLOID,
	 TEXTOID}};

static ShardStatement insert_dead = {
	"INSERT INTO shard.dead_letter (type_id, shard, entity, kind, epoch, stamp, src_type,"
	" src_entity, mid_node, mid_seq, payload, sqlstate, error, detail, hint, context, attempts,"
	" number, lost)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)",
	19,
	{INT4OID, INT4OID, TEXTOID, INT2OID, INT4OID, BYTEAOID, INT4OID, TEXTOID, INT4OID, INT8OID,
	 BYTEAOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, INT8OID, INT4OID}};

/*
 * A timer that is due, and what answers a request, go with their row of shard.timer: as letters they would mean nothing.
 * What SQL has touched is no message.
 */
StaticAssertDecl(SHARD_KIND_TIMER == 15 && SHARD_KIND_TOUCHED == 24 && SHARD_KIND_RESPONSE == 28,
				 "the statements here know the kinds of a timer that is due, of what SQL has "
				 "touched, and of an answer");

static ShardStatement bury_held = {
	"WITH gone AS (DELETE FROM shard.held WHERE ctid = ANY (ARRAY(SELECT h.ctid FROM shard.held h"
	" WHERE h.type_id = $1 AND NOT EXISTS (SELECT FROM shard.type t WHERE t.type_id = $1)"
	" FOR UPDATE OF h SKIP LOCKED)) RETURNING *)"
	" INSERT INTO shard.dead_letter (type_id, shard, entity, kind, epoch, stamp, src_type,"
	" src_entity, mid_node, mid_seq, payload, sqlstate, error, hint, attempts)"
	" SELECT type_id, shard, entity, kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq,"
	" payload, '42704', '" SHARD_DROPPED_ERROR "',"
	" '" SHARD_DROPPED_HINT "', attempts"
	" FROM gone WHERE place <> 'start' AND kind NOT IN (15, 24, 28) ORDER BY shard, entity, seq",
	1,
	{INT4OID}};

static ShardStatement bury_left = {
	"WITH gone AS (DELETE FROM shard.held WHERE type_id = $1 AND shard = $2 RETURNING *)"
	" INSERT INTO shard.dead_letter (type_id, shard, entity, kind, epoch, stamp, src_type,"
	" src_entity, mid_node, mid_seq, payload, sqlstate, error, hint, attempts)"
	" SELECT type_id, shard, entity, kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq,"
	" payload, '55000', $3, '" SHARD_LEFT_HINT "', attempts"
	" FROM gone WHERE place <> 'start' AND kind NOT IN (15, 24, 28) ORDER BY entity, number NULLS FIRST, seq",
	3,
	{INT4OID, INT4OID, TEXTOID}};

#define COUNTS \
	"SELECT type_id, shard, entity, pg_catalog.count(*) FILTER (WHERE place = 'stash')," \
	" (pg_catalog.array_agg(attempts ORDER BY seq) FILTER (WHERE place = 'stash'))[1]," \
	" (pg_catalog.array_agg(next_at ORDER BY seq) FILTER (WHERE place = 'stash'))[1]," \
	" pg_catalog.count(number), pg_catalog.min(number)," \
	" pg_catalog.min(held_at) FILTER (WHERE place = 'ordered')," \
	" pg_catalog.count(*) FILTER (WHERE place = 'start')," \
	" pg_catalog.max(attempts) FILTER (WHERE place = 'start')," \
	" pg_catalog.max(next_at) FILTER (WHERE place = 'start')," \
	" (pg_catalog.array_agg(pauses ORDER BY seq) FILTER (WHERE place = 'stash'))[1]," \
	" pg_catalog.count(*) FILTER (WHERE kind = 24)"
#define SELECT_COUNTS COUNTS " FROM shard.held"
#define GROUPED " GROUP BY type_id, shard, entity"

static ShardStatement select_counts = {SELECT_COUNTS GROUPED, 0, {0}};

static ShardStatement select_counts_of_type = {SELECT_COUNTS " WHERE type_id = $1" GROUPED,
											   1,
											   {INT4OID}};

static ShardStatement select_counts_of_shard = {SELECT_COUNTS
												" WHERE type_id = $1 AND shard = $2" GROUPED,
												2,
												{INT4OID, INT4OID}};

static ShardStatement select_count = {SELECT_COUNTS
									  " WHERE type_id = $1 AND shard = $2 AND entity = $3" GROUPED,
									  3,
									  {INT4OID, INT4OID, TEXTOID}};

static ShardStatement select_any = {"SELECT FROM shard.held WHERE type_id = $1 LIMIT 1",
									1,
									{INT4OID}};

/* At most a number of rows, in the order of their keys. */
static ShardStatement select_some_counts = {
	COUNTS " FROM (SELECT type_id, shard, entity, place, seq, attempts, next_at, number, held_at,"
		   " pauses, kind"
		   " FROM shard.held WHERE (type_id, shard, entity) > ($1, $2, $3)"
		   " ORDER BY type_id, shard, entity LIMIT $4) h" GROUPED
		   " ORDER BY type_id, shard, entity",
	4,
	{INT4OID, INT4OID, TEXTOID, INT4OID}};

static ShardStatement put_start = {
	"INSERT INTO shard.held (place, type_id, shard, entity, seq, kind, mid_node, mid_seq, payload,"
	" attempts, next_at, sqlstate, error)"
	" VALUES ('start', $1, $2, $3, 0, $4, 0, 0, '', $5, $6, $7, $8)"
	" ON CONFLICT (type_id, shard, entity, place, seq) DO UPDATE SET attempts = EXCLUDED.attempts,"
	" next_at = EXCLUDED.next_at, sqlstate = coalesce(EXCLUDED.sqlstate, held.sqlstate),"
	" error = coalesce(EXCLUDED.error, held.error)",
	8,
	{INT4OID, INT4OID, TEXTOID, INT2OID, INT4OID, TIMESTAMPTZOID, TEXTOID, TEXTOID}};

static ShardStatement delete_start = {
	"DELETE FROM shard.held WHERE type_id = $1 AND shard = $2 AND entity = $3 AND place = 'start'"
	" AND seq = 0",
	3,
	{INT4OID, INT4OID, TEXTOID}};

/* type_id, shard, entity */
static void
add_entity(ShardArguments *arguments, const ShardRow *row)
{
	shard_statement_add(arguments, Int32GetDatum(row->type_id), false);
	shard_statement_add(arguments, Int32GetDatum(row->shard), false);
	shard_statement_add_text(arguments, row->entity, row->entity_len);
}

/* epoch, stamp, src_type, src_entity, mid_node, mid_seq, payload */
static void
add_message(ShardArguments *arguments, const ShardRow *row)
{
	char stamp[SHARD_LOG_STAMP_BYTES];

	shard_log_put_stamp(stamp, row->stamp);
	shard_statement_add(arguments, Int32GetDatum(row->epoch), row->epoch < 0);
	shard_statement_add_text(arguments, row->stamp.kind == SHARD_PREFIX_NONE ? NULL : stamp,
							 sizeof(stamp));
	shard_statement_add(arguments, Int32GetDatum(row->src_type), row->src_type == 0);
	shard_statement_add_text(arguments, row->src_type == 0 ? NULL : row->src_entity,
							 row->src_entity_len);
	shard_statement_add(arguments, Int32GetDatum(row->mid_node), false);
	shard_statement_add(arguments, Int64GetDatum(row->mid_seq), false);
	shard_statement_add_text(arguments, row->payload, row->payload_len);
}

/* attempts, next_at, sqlstate, error */
static void
add_failure(ShardArguments *arguments, int attempts, TimestampTz next_at, const ErrorData *error)
{
	shard_statement_add(arguments, Int32GetDatum(attempts), false);
	shard_statement_add(arguments, TimestampTzGetDatum(next_at), next_at == 0);
	shard_statement_add_string(arguments,
							   error == NULL ? NULL : unpack_sql_state(error->sqlerrcode));
	shard_statement_add_string(arguments, error == NULL ? NULL : error->message);
}

/* The same, and pauses */
static void
add_why(ShardArguments *arguments, const ShardHeldWhy *why)
{
	add_failure(arguments, why->attempts, why->next_at, why->error);
	shard_statement_add(arguments, BoolGetDatum(why->pauses), false);
}

/*
 * The number in the shard, which has replicas, of what has that number within the turn (Q34, Q35). lost: the newest epoch that
 * began without the shard's state.
 */
static int64
number_in_shard(const ShardRow *row, int number, int32 *lost)
{
	ShardTurnRecord record = {0};
	ShardReplicaHome home;

	*lost = shard_replica_shard_stands(&home, row->type_id, row->shard);
	shard_replica_next(&home, 0, &record);
	if (number >= SHARD_TURN_ROWS)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("a turn has done too much to number what it has done in shard %d of "
							   "entity type %d",
							   row->shard, row->type_id)));
	return shard_turn_row_number(record.turn, number);
}

/* Where a row of the shard waits that cannot be handled now. */
static int64
place_of(const ShardRow *row)
{
	int32 lost;

#ifdef SHARD_MUTANT_STASH_BY_NODE
	return row->seq;
#endif
	if (likely(!shard_record_is_noted(row->type_id)))
		return row->seq;
	return number_in_shard(row, shard_record_waiting(row->type_id, row->shard), &lost);
}

int64
shard_held_stash(const ShardRow *row, const ShardHeldWhy *why)
{
	ShardArguments arguments = {0};
	int64 seq = place_of(row);

	add_entity(&arguments, row);
	shard_statement_add(&arguments, Int64GetDatum(seq), false);
	shard_statement_add(&arguments, Int16GetDatum(row->kind), false);
	add_message(&arguments, row);
	add_why(&arguments, why);
	shard_statement_change_one(&insert_stash, &arguments, SPI_OK_INSERT);
	shard_record_held(row, "stash", seq);
	return seq;
}

bool
shard_held_insert_ordered(const ShardRow *row, int64 number)
{
	ShardArguments arguments = {0};
	int64 seq = place_of(row);
	bool inserted;

	add_entity(&arguments, row);
	shard_statement_add(&arguments, Int64GetDatum(seq), false);
	shard_statement_add(&arguments, Int16GetDatum(row->kind), false);
	add_message(&arguments, row);
	shard_statement_add(&arguments, Int64GetDatum(number), false);
	SPI_connect();
	shard_statement_run(&insert_ordered, &arguments, SPI_OK_INSERT);
	inserted = SPI_processed == 1;
	SPI_finish();
	if (inserted)
		shard_record_held(row, "ordered", seq);
	return inserted;
}

/* Changes a held message, whose place is the last argument, still missing. It is in one, whichever. */
static void
change_held(ShardStatement *statement, const ShardRow *row, const ShardArguments *arguments,
			int expected)
{
	ShardArguments stash = *arguments;
	ShardArguments ordered = *arguments;
	bool found;

	SPI_connect();
	shard_statement_add_string(&stash, "stash");
	shard_statement_run(statement, &stash, expected);
	found = SPI_processed == 1;
	SPI_finish();
	if (!found)
	{
		shard_statement_add_string(&ordered, "ordered");
		shard_statement_change_one(statement, &ordered, expected);
	}
	shard_record_held(row, found ? "stash" : "ordered", row->seq);
}

void
shard_held_delete(const ShardRow *row)
{
	ShardArguments arguments = {0};

	add_entity(&arguments, row);
	shard_statement_add(&arguments, Int64GetDatum(row->seq), false);
	change_held(&delete_held, row, &arguments, SPI_OK_DELETE);
}

void
shard_held_failed(const ShardRow *row, const ShardHeldWhy *why)
{
	ShardArguments arguments = {0};

	add_entity(&arguments, row);
	shard_statement_add(&arguments, Int64GetDatum(row->seq), false);
	add_why(&arguments, why);
	change_held(&update_held, row, &arguments, SPI_OK_UPDATE);
}

/* The name of a letter that has this number within the turn (Q35): parameters of insert_dead; 0: it has none. */
static void
add_name(ShardArguments *arguments, const ShardRow *row, int number)
{
	int64 name = 0;
	int32 lost = 0;

	if (number > 0)
		name = number_in_shard(row, number, &lost);
	shard_statement_add(arguments, Int64GetDatum(name), number == 0);
	shard_statement_add(arguments, Int32GetDatum(lost), number == 0);
}

void
shard_held_dead_letter(const ShardRow *row, int attempts, const ErrorData *error, bool stray)
{
	ShardArguments arguments = {0};
	int number = stray ? 0 : shard_record_letter(row, attempts, error);

	add_entity(&arguments, row);
	shard_statement_add(&arguments, Int16GetDatum(row->kind), false);
	add_message(&arguments, row);
	shard_statement_add_string(&arguments, unpack_sql_state(error->sqlerrcode));
	shard_statement_add_string(&arguments, error->message == NULL ? "" : error->message);
	shard_statement_add_string(&arguments, error->detail);
	shard_statement_add_string(&arguments, error->hint);
	shard_statement_add_string(&arguments, error->context);
	shard_statement_add(&arguments, Int32GetDatum(attempts), false);
	add_name(&arguments, row, number);
	shard_statement_change_one(&insert_dead, &arguments, SPI_OK_INSERT);
}

void
shard_held_put_start(const ShardRow *row, int attempts, TimestampTz next_at, const ErrorData *error)
{
	ShardArguments arguments = {0};

	add_entity(&arguments, row);
	shard_statement_add(&arguments, Int16GetDatum(SHARD_KIND_RESTART), false);
	add_failure(&arguments, attempts, next_at, error);
	shard_statement_change_one(&put_start, &arguments, SPI_OK_INSERT);
	shard_record_held(row, "start", 0);
}

void
shard_held_delete_start(const ShardRow *row)
{
	ShardArguments arguments = {0};

	add_entity(&arguments, row);
	SPI_connect();
	shard_statement_run(&delete_start, &arguments, SPI_OK_DELETE);
	SPI_finish();
	shard_record_held(row, "start", 0);
}

int64
shard_held_bury(int32 type_id)
{
	ShardArguments arguments = {0};
	int64 messages;

	shard_request_refuse_kept(type_id, false);
	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	SPI_connect();
	shard_statement_run(&bury_held, &arguments, SPI_OK_INSERT);
	messages = SPI_processed;
	SPI_finish();
	return messages;
}

int64
shard_held_bury_left(int32 type_id, int shard, bool undone)
{
	ShardArguments arguments = {0};
	int64 messages;

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(shard), false);
	shard_statement_add_string(&arguments, undone ? SHARD_UNDONE_ERROR : SHARD_LOST_ERROR);
	SPI_connect();
	shard_statement_run(&bury_left, &arguments, SPI_OK_INSERT);
	messages = (int64) SPI_processed;
	SPI_finish();
	return messages;
}

/* A row of select_stash or select_ordered. */
static ShardHeld *
read_held(uint64 number, MemoryContext context)
{
	ShardHeld *held = MemoryContextAllocZero(context, sizeof(ShardHeld));
	ShardRow *row = &held->row;
	char *stamp;
	int len;
	bool isnull;

	row->seq = shard_statement_int8(number, 1);
	row->kind = DatumGetInt16(shard_statement_column(number, 2, &isnull));
	row->epoch = DatumGetInt32(shard_statement_column(number, 3, &isnull));
	if (isnull)
		row->epoch = -1;
	stamp = shard_statement_bytes(number, 4, context, &len);
	if (stamp != NULL)
		row->stamp = shard_log_get_stamp(stamp);
	row->src_type = shard_statement_int4(number, 5);
	row->src_entity = shard_statement_bytes(number, 6, context, &row->src_entity_len);
	row->mid_node = shard_statement_int4(number, 7);
	row->mid_seq = shard_statement_int8(number, 8);
	row->payload = shard_statement_bytes(number, 9, context, &row->payload_len);
	held->attempts = shard_statement_int4(number, 10);
	held->next_at = DatumGetTimestampTz(shard_statement_column(number, 11, &isnull));
	if (isnull)
		held->next_at = 0;
	held->number = shard_statement_int8(number, 12);
	held->pauses = DatumGetBool(shard_statement_column(number, 13, &isnull));
	return held;
}

/* type_id, shard, entity, and how many rows */
static void
add_load(ShardArguments *arguments, int32 type_id, int shard, const char *entity, int entity_len,
		 int limit)
{
	shard_statement_add(arguments, Int32GetDatum(type_id), false);
	shard_statement_add(arguments, Int32GetDatum(shard), false);
	shard_statement_add_text(arguments, entity, entity_len);
	shard_statement_add(arguments, Int32GetDatum(limit), false);
}

/*
 * Rows of an entity that one of the two statements has found. Large ones are still where they were stored, and
 * not more of them are read than have LOAD_BYTES; two at least.
 */
static List *
take_rows(MemoryContext context, int32 type_id, int shard, const char *entity, int entity_len,
		  int limit, bool *last)
{
	char *id = MemoryContextAlloc(context, entity_len);
	List *result = NIL;
	Size bytes = 0;

	memcpy(id, entity, entity_len);
	*last = SPI_processed < limit;
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		MemoryContext old;
		ShardHeld *held;

		if (bytes > LOAD_BYTES && i > 1)
		{
			*last = false;
			break;
		}
		held = read_held(i, context);
		held->row.type_id = type_id;
		held->row.shard = shard;
		held->row.entity = id;
		held->row.entity_len = entity_len;
		bytes += held->row.payload_len;
		old = MemoryContextSwitchTo(context);
		result = lappend(result, held);
		MemoryContextSwitchTo(old);
	}
	return result;
}

List *
shard_held_load(int32 type_id, int shard, const char *entity, int entity_len, int64 after,
				int limit, bool *last)
{
	MemoryContext context = CurrentMemoryContext;
	ShardArguments arguments = {0};
	List *result;

	SPI_connect();
	add_load(&arguments, type_id, shard, entity, entity_len, limit);
	shard_statement_add(&arguments, Int64GetDatum(after), false);
	shard_statement_run(&select_stash, &arguments, SPI_OK_SELECT);
	result = take_rows(context, type_id, shard, entity, entity_len, limit, last);
	SPI_finish();
	return result;
}

List *
shard_held_load_ordered(int32 type_id, int shard, const char *entity, int entity_len, int64 from,
						int limit, bool *last)
{
	MemoryContext context = CurrentMemoryContext;
	ShardArguments arguments = {0};
	List *result;

	SPI_connect();
	add_load(&arguments, type_id, shard, entity, entity_len, limit);
	shard_statement_add(&arguments, Int64GetDatum(from), false);
	shard_statement_run(&select_ordered, &arguments, SPI_OK_SELECT);
	result = take_rows(context, type_id, shard, entity, entity_len, limit, last);
	SPI_finish();
	return result;
}

/* The counts in a row of SELECT_COUNTS. */
static ShardHeldCount
read_count(uint64 number)
{
	bool isnull;

	return (ShardHeldCount){.stash = shard_statement_int8(number, 4),
							.attempts = shard_statement_int4(number, 5),
							.next_at = shard_statement_int8(number, 6),
							.ordered = shard_statement_int8(number, 7),
							.lowest = shard_statement_int8(number, 8),
							.oldest = shard_statement_int8(number, 9),
							.start = shard_statement_int8(number, 10) > 0,
							.starts = shard_statement_int4(number, 11),
							.start_at = shard_statement_int8(number, 12),
							.pauses = DatumGetBool(shard_statement_column(number, 13, &isnull)),
							.touched = shard_statement_int8(number, 14)};
}

ShardHeldCount
shard_held_count(int32 type_id, int shard, const char *entity, int entity_len)
{
	ShardArguments arguments = {0};
	ShardHeldCount result = {0};

	SPI_connect();
	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(shard), false);
	shard_statement_add_text(&arguments, entity, entity_len);
	shard_statement_run(&select_count, &arguments, SPI_OK_SELECT);
	if (SPI_processed > 0)
		result = read_count(0);
	SPI_finish();
	return result;
}

/* Visits what a statement finds. */
static void
visit_counts(ShardStatement *statement, ShardArguments *arguments, ShardHeldVisit visit, void *arg)
{
	MemoryContext context = CurrentMemoryContext;

	SPI_connect();
	shard_statement_run(statement, arguments, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		int len;
		char *id = shard_statement_bytes(i, 3, context, &len);
		ShardHeldCount held = read_count(i);

		visit(shard_statement_int4(i, 1), shard_statement_int4(i, 2), id, len, &held, arg);
		pfree(id);
		CHECK_FOR_INTERRUPTS();
	}
	SPI_finish();
}

/* The entity of a row of SELECT_COUNTS. */
static void
read_place(uint64 number, ShardHeldPlace *place)
{
	char *id = shard_statement_bytes(number, 3, CurrentMemoryContext, &place->entity_len);

	place->type_id = shard_statement_int4(number, 1);
	place->shard = shard_statement_int4(number, 2);
	memcpy(place->entity, id, place->entity_len);
	pfree(id);
}

int64
shard_held_some(ShardHeldPlace *place, int limit, ShardHeldVisit visit, void *arg, bool *more)
{
	ShardArguments arguments = {0};
	int64 rows = 0;
	int64 visited = 0;
	uint64 whole;

	SPI_connect();
	add_load(&arguments, place->type_id, place->shard, place->entity, place->entity_len, limit);
	shard_statement_run(&select_some_counts, &arguments, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		ShardHeldCount held = read_count(i);

		rows += held.stash + held.ordered + held.start;
	}

	/* the last entity may have more messages */
	*more = rows >= limit;
	whole = *more ? SPI_processed - 1 : SPI_processed;
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		ShardHeldCount held = read_count(i);

		if (i == whole && whole > 0)
			break;
		read_place(i, place);
		if (i == whole)
			held = shard_held_count(place->type_id, place->shard, place->entity, place->entity_len);
		visit(place->type_id, place->shard, place->entity, place->entity_len, &held, arg);
		visited += held.stash + held.ordered + held.start;
	}
	SPI_finish();
	return visited;
}

void
shard_held_each(ShardHeldVisit visit, void *arg)
{
	ShardArguments arguments = {0};

	visit_counts(&select_counts, &arguments, visit, arg);
}

bool
shard_held_any(int32 type_id)
{
	ShardArguments arguments = {0};
	bool found;

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	SPI_connect();
	shard_statement_run(&select_any, &arguments, SPI_OK_SELECT);
	found = SPI_processed > 0;
	SPI_finish();
	return found;
}

void
shard_held_each_of_type(int32 type_id, ShardHeldVisit visit, void *arg)
{
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	visit_counts(&select_counts_of_type, &arguments, visit, arg);
}

void
shard_held_each_of_shard(int32 type_id, int shard, ShardHeldVisit visit, void *arg)
{
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(shard), false);
	visit_counts(&select_counts_of_shard, &arguments, visit, arg);
}
