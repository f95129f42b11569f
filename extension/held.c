/*
 * held.c
 *		The stash and the dead letters (doc/protocol.md D5, H6).
 *
 * All of it happens inside the worker's turn, so a message is in exactly one
 * place: the log above the cursor, the stash, a dead letter, or handled.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "held.h"

#include "compat.h"

#define MAX_PARAMETERS 18

/* A statement, planned at first use. */
typedef struct Statement
{
	const char *sql;
	int parameters;
	Oid type[MAX_PARAMETERS];
	SPIPlanPtr plan;
} Statement;

static Statement insert_stash = {
	"INSERT INTO shard.held (place, type_id, shard, entity, seq, kind, epoch, src_type, src_entity,"
	" mid_node, mid_seq, payload, attempts, next_at, sqlstate, error)"
	" VALUES ('stash', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
	15,
	{INT4OID, INT4OID, TEXTOID, INT8OID, INT2OID, INT4OID, INT4OID, TEXTOID, INT4OID, INT8OID,
	 BYTEAOID, INT4OID, TIMESTAMPTZOID, TEXTOID, TEXTOID}};

static Statement select_stash = {
	"SELECT seq, kind, epoch, src_type, src_entity, mid_node, mid_seq, payload, attempts, next_at"
	" FROM shard.held WHERE type_id = $1 AND shard = $2 AND entity = $3 AND place = 'stash'"
	" ORDER BY seq LIMIT $4",
	4,
	{INT4OID, INT4OID, TEXTOID, INT4OID}};

static Statement delete_stash = {
	"DELETE FROM shard.held WHERE type_id = $1 AND shard = $2 AND entity = $3"
	" AND place = 'stash' AND seq = $4",
	4,
	{INT4OID, INT4OID, TEXTOID, INT8OID}};

static Statement update_stash = {
	"UPDATE shard.held SET attempts = $5, next_at = $6, sqlstate = $7, error = $8"
	" WHERE type_id = $1 AND shard = $2 AND entity = $3 AND place = 'stash' AND seq = $4",
	8,
	{INT4OID, INT4OID, TEXTOID, INT8OID, INT4OID, TIMESTAMPTZOID, TEXTOID, TEXTOID}};

static Statement insert_dead = {
	"INSERT INTO shard.dead_letter (type_id, shard, entity, kind, epoch, src_type, src_entity,"
	" mid_node, mid_seq, payload, sqlstate, error, detail, hint, context, attempts)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
	16,
	{INT4OID, INT4OID, TEXTOID, INT2OID, INT4OID, INT4OID, TEXTOID, INT4OID, INT8OID, BYTEAOID,
	 TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID}};

static Statement select_entities = {
	"SELECT type_id, shard, entity, pg_catalog.count(*),"
	" (pg_catalog.array_agg(attempts ORDER BY seq))[1],"
	" (pg_catalog.array_agg(next_at ORDER BY seq))[1]"
	" FROM shard.held WHERE place = 'stash' GROUP BY type_id, shard, entity",
	0,
	{0}};

/* Values and nulls of a statement's parameters, filled in order. */
typedef struct Arguments
{
	int count;
	Datum value[MAX_PARAMETERS];
	char null[MAX_PARAMETERS];
} Arguments;

static void
add(Arguments *arguments, Datum value, bool isnull)
{
	arguments->value[arguments->count] = value;
	arguments->null[arguments->count++] = isnull ? 'n' : ' ';
}

static void
add_text(Arguments *arguments, const char *text, int len)
{
	add(arguments, text == NULL ? (Datum) 0 : PointerGetDatum(cstring_to_text_with_len(text, len)),
		text == NULL);
}

static void
add_string(Arguments *arguments, const char *text)
{
	add_text(arguments, text, text == NULL ? 0 : strlen(text));
}

/* type_id, shard, entity */
static void
add_entity(Arguments *arguments, const ShardRow *row)
{
	add(arguments, Int32GetDatum(row->type_id), false);
	add(arguments, Int32GetDatum(row->shard), false);
	add_text(arguments, row->entity, row->entity_len);
}

/* epoch, src_type, src_entity, mid_node, mid_seq, payload */
static void
add_message(Arguments *arguments, const ShardRow *row)
{
	add(arguments, Int32GetDatum(row->epoch), row->epoch < 0);
	add(arguments, Int32GetDatum(row->src_type), row->src_type == 0);
	add_text(arguments, row->src_type == 0 ? NULL : row->src_entity, row->src_entity_len);
	add(arguments, Int32GetDatum(row->mid_node), false);
	add(arguments, Int64GetDatum(row->mid_seq), false);
	add_text(arguments, row->payload, row->payload_len);
}

/* attempts, next_at, sqlstate, error */
static void
add_failure(Arguments *arguments, int attempts, TimestampTz next_at, const ErrorData *error)
{
	add(arguments, Int32GetDatum(attempts), false);
	add(arguments, TimestampTzGetDatum(next_at), next_at == 0);
	add_string(arguments, error == NULL ? NULL : unpack_sql_state(error->sqlerrcode));
	add_string(arguments, error == NULL ? NULL : error->message);
}

/* Runs a statement; the caller has connected. Plans it at first use. */
static void
run(Statement *statement, Arguments *arguments, int expected)
{
	if (statement->plan == NULL)
	{
		SPIPlanPtr plan = SPI_prepare(statement->sql, statement->parameters, statement->type);

		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not plan \"%s\"", statement->sql);
		statement->plan = plan;
	}
	ShardAssert(arguments->count == statement->parameters);
	if (SPI_execute_plan(statement->plan, arguments->value, arguments->null, false, 0) != expected)
		elog(ERROR, "could not run \"%s\"", statement->sql);
}

/* Runs a statement that returns nothing and changes exactly one row. */
static void
change_one(Statement *statement, Arguments *arguments, int expected)
{
	SPI_connect();
	run(statement, arguments, expected);
	if (SPI_processed != 1)
		elog(ERROR, "\"%s\" changed " UINT64_FORMAT " rows", statement->sql, SPI_processed);
	SPI_finish();
}

void
shard_held_stash(const ShardRow *row, int attempts, TimestampTz next_at, const ErrorData *error)
{
	Arguments arguments = {0};

	add_entity(&arguments, row);
	add(&arguments, Int64GetDatum(row->seq), false);
	add(&arguments, Int16GetDatum(row->kind), false);
	add_message(&arguments, row);
	add_failure(&arguments, attempts, next_at, error);
	change_one(&insert_stash, &arguments, SPI_OK_INSERT);
}

void
shard_held_delete(const ShardRow *row)
{
	Arguments arguments = {0};

	add_entity(&arguments, row);
	add(&arguments, Int64GetDatum(row->seq), false);
	change_one(&delete_stash, &arguments, SPI_OK_DELETE);
}

void
shard_held_failed(const ShardRow *row, int attempts, TimestampTz next_at, const ErrorData *error)
{
	Arguments arguments = {0};

	add_entity(&arguments, row);
	add(&arguments, Int64GetDatum(row->seq), false);
	add_failure(&arguments, attempts, next_at, error);
	change_one(&update_stash, &arguments, SPI_OK_UPDATE);
}

void
shard_held_dead_letter(const ShardRow *row, int attempts, const ErrorData *error)
{
	Arguments arguments = {0};

	add_entity(&arguments, row);
	add(&arguments, Int16GetDatum(row->kind), false);
	add_message(&arguments, row);
	add_string(&arguments, unpack_sql_state(error->sqlerrcode));
	add_string(&arguments, error->message == NULL ? "" : error->message);
	add_string(&arguments, error->detail);
	add_string(&arguments, error->hint);
	add_string(&arguments, error->context);
	add(&arguments, Int32GetDatum(attempts), false);
	change_one(&insert_dead, &arguments, SPI_OK_INSERT);
}

/* A column of the result row, in caller's memory; *isnull for SQL NULL. */
static Datum
result_column(uint64 number, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[number], SPI_tuptable->tupdesc, column, isnull);
}

/* Bytes of a varlena column, copied; NULL for SQL NULL. */
static char *
copy_bytes(uint64 number, int column, MemoryContext context, int *len)
{
	bool isnull;
	Datum value = result_column(number, column, &isnull);
	struct varlena *bytes;
	char *copy;

	*len = 0;
	if (isnull)
		return NULL;
	bytes = PG_DETOAST_DATUM_PACKED(value);
	*len = VARSIZE_ANY_EXHDR(bytes);
	copy = MemoryContextAlloc(context, *len + 1);
	memcpy(copy, VARDATA_ANY(bytes), *len);
	return copy;
}

/* A row of select_stash. */
static ShardHeld *
read_held(uint64 number, MemoryContext context)
{
	ShardHeld *held = MemoryContextAllocZero(context, sizeof(ShardHeld));
	ShardRow *row = &held->row;
	bool isnull;

	row->seq = DatumGetInt64(result_column(number, 1, &isnull));
	row->kind = DatumGetInt16(result_column(number, 2, &isnull));
	row->epoch = DatumGetInt32(result_column(number, 3, &isnull));
	if (isnull)
		row->epoch = -1;
	row->src_type = DatumGetInt32(result_column(number, 4, &isnull));
	if (isnull)
		row->src_type = 0;
	row->src_entity = copy_bytes(number, 5, context, &row->src_entity_len);
	row->mid_node = DatumGetInt32(result_column(number, 6, &isnull));
	row->mid_seq = DatumGetInt64(result_column(number, 7, &isnull));
	row->payload = copy_bytes(number, 8, context, &row->payload_len);
	held->attempts = DatumGetInt32(result_column(number, 9, &isnull));
	held->next_at = DatumGetTimestampTz(result_column(number, 10, &isnull));
	if (isnull)
		held->next_at = 0;
	return held;
}

List *
shard_held_load(int32 type_id, int shard, const char *entity, int entity_len, int limit)
{
	MemoryContext context = CurrentMemoryContext;
	Arguments arguments = {0};
	List *result = NIL;
	char *id = pnstrdup(entity, entity_len);

	SPI_connect();
	add(&arguments, Int32GetDatum(type_id), false);
	add(&arguments, Int32GetDatum(shard), false);
	add_text(&arguments, entity, entity_len);
	add(&arguments, Int32GetDatum(limit), false);
	run(&select_stash, &arguments, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		ShardHeld *held = read_held(i, context);
		MemoryContext old = MemoryContextSwitchTo(context);

		held->row.type_id = type_id;
		held->row.shard = shard;
		held->row.entity = id;
		held->row.entity_len = entity_len;
		result = lappend(result, held);
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	return result;
}

void
shard_held_each_entity(ShardHeldVisit visit, void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	Arguments arguments = {0};

	SPI_connect();
	run(&select_entities, &arguments, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool isnull;
		int len;
		char *id = copy_bytes(i, 3, context, &len);
		TimestampTz next_at = DatumGetTimestampTz(result_column(i, 6, &isnull));

		if (isnull)
			next_at = 0;
		visit(DatumGetInt32(result_column(i, 1, &isnull)),
			  DatumGetInt32(result_column(i, 2, &isnull)), id, len,
			  DatumGetInt64(result_column(i, 4, &isnull)),
			  DatumGetInt32(result_column(i, 5, &isnull)), next_at, arg);
	}
	SPI_finish();
}
