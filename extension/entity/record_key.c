/*
 * entity/record_key.c
 *		Rows of our own tables that a turn has written, as its records have them (Q28).
 *
 * Comes from: record_write.c, at the end of the turn, with keys that were noted. Each is read once, as the turn has left
 * it, whatever subtransactions, conflicts and defaults have made of it. Times are those of the calendar.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/timestamp.h"

#include "core/flow/route.h"
#include "entity/internal.h"
#include "entity/record.h"
#include "entity/timer.h"
#include "log/log_read.h"
#include "registry/statement.h"

#include "base/compat.h"

static ShardStatement select_held = {
	"SELECT kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq, payload, number, attempts,"
	" next_at, sqlstate, error, held_at, pauses FROM shard.held"
	" WHERE type_id = $1 AND shard = $2 AND entity = $3 AND place = $4 AND seq = $5",
	5,
	{INT4OID, INT4OID, TEXTOID, TEXTOID, INT8OID}};

static ShardStatement select_ordered = {"SELECT began, expected, skipped, late FROM shard.ordered"
										" WHERE type_id = $1 AND shard = $2 AND entity = $3",
										3,
										{INT4OID, INT4OID, TEXTOID}};

static ShardStatement select_history = {
	"SELECT seq, at, sqlstate, error, attempts, decision, outcome, pause FROM shard.history"
	" WHERE type_id = $1 AND shard = $2 AND entity = $3 ORDER BY seq DESC LIMIT $4",
	4,
	{INT4OID, INT4OID, TEXTOID, INT4OID}};

/* type_id, shard, entity */
static void
add_entity(ShardArguments *arguments, int32 type_id, int32 shard, const ShardTurnKey *key)
{
	shard_statement_add(arguments, Int32GetDatum(type_id), false);
	shard_statement_add(arguments, Int32GetDatum(shard), false);
	shard_statement_add_text(arguments, key->entity, key->entity_len);
}

/* The key with its row; no bytes: the row is gone. */
static void
put(StringInfo out, const ShardTurnKey *key, const StringInfoData *row)
{
	ShardTurnKey whole = *key;

	whole.row = row->len == 0 ? NULL : row->data;
	whole.row_len = row->len;
	shard_turn_put_key(out, &whole);
}

/* A time of a column, in microseconds since 2000. */
static int64
time_of(uint64 number, int column, bool *known)
{
	bool isnull;
	TimestampTz at = DatumGetTimestampTz(shard_statement_column(number, column, &isnull));

	*known = !isnull && !TIMESTAMP_NOT_FINITE(at);
	return *known ? at : 0;
}

static void
read_held(int32 type_id, int32 shard, const ShardTurnKey *key, StringInfo row)
{
	MemoryContext memory = CurrentMemoryContext;
	ShardCopyHeld held = {.entity = key->entity, .entity_len = key->entity_len};
	ShardArguments arguments = {0};
	const char *stamp;
	bool isnull;
	int len;

	SPI_connect();
	add_entity(&arguments, type_id, shard, key);
	shard_statement_add_text(&arguments, key->name, key->name_len);
	shard_statement_add(&arguments, Int64GetDatum(key->number), false);
	shard_statement_run(&select_held, &arguments, SPI_OK_SELECT);
	if (SPI_processed > 0)
	{
		held.kind = DatumGetInt16(shard_statement_column(0, 1, &isnull));
		held.epoch = DatumGetInt32(shard_statement_column(0, 2, &isnull));
		if (isnull)
			held.epoch = SHARD_NO_EPOCH;
		stamp = shard_statement_bytes(0, 3, memory, &len);
		if (stamp != NULL)
			held.stamp = shard_log_get_stamp(stamp);
		held.src_type = shard_statement_int4(0, 4);
		held.src_entity = shard_statement_bytes(0, 5, memory, &held.src_entity_len);
		held.mid_node = shard_statement_int4(0, 6);
		held.mid_seq = shard_statement_int8(0, 7);
		held.payload = shard_statement_bytes(0, 8, memory, &held.payload_len);
		held.number = shard_statement_int8(0, 9);
		held.ordered = key->name_len == 7; /* "ordered" */
		held.attempts = shard_statement_int4(0, 10);
		held.next_us = time_of(0, 11, &held.has_next);
		held.sqlstate = shard_statement_bytes(0, 12, memory, &held.sqlstate_len);
		held.error = shard_statement_bytes(0, 13, memory, &held.error_len);
		held.waited_us = time_of(0, 14, &isnull);
		held.pauses = held.has_next && DatumGetBool(shard_statement_column(0, 15, &isnull));

		/* a start that failed is no message, so it has no origin: it is this node's */
		if (held.mid_node == 0)
			held.mid_node = shard_log_read_self();
	}
	SPI_finish();
	if (held.kind != 0)
		shard_copy_put_held(row, &held);
}

static void
read_ordered(int32 type_id, int32 shard, const ShardTurnKey *key, StringInfo row)
{
	ShardCopyOrdered ordered = {.entity = key->entity, .entity_len = key->entity_len};
	ShardArguments arguments = {0};
	bool found;

	SPI_connect();
	add_entity(&arguments, type_id, shard, key);
	shard_statement_run(&select_ordered, &arguments, SPI_OK_SELECT);
	found = SPI_processed > 0;
	if (found)
	{
		ordered.began = shard_statement_int8(0, 1);
		ordered.expected = shard_statement_int8(0, 2);
		ordered.skipped = shard_statement_int8(0, 3);
		ordered.late = shard_statement_int8(0, 4);
	}
	SPI_finish();
	if (found)
		shard_copy_put_ordered(row, &ordered);
}

static void
read_timer(int32 type_id, int32 shard, const ShardTurnKey *key, StringInfo row)
{
	const ShardTimerOwner owner = {type_id, shard, key->entity, key->entity_len};
	ShardTimer timer;
	ShardCopyTimer copy;

	if (!shard_timer_find(&owner, key->name, key->name_len, &timer))
		return;
	copy = (ShardCopyTimer){.entity = key->entity,
							.entity_len = key->entity_len,
							.name = key->name,
							.name_len = key->name_len,
							.due = timer.due,
							.generation = timer.generation,
							.first = timer.first,
							.period = timer.period,
							.repeats = timer.repeats,
							.zone = timer.zone,
							.zone_len = timer.zone == NULL ? 0 : (int) strlen(timer.zone),
							.missed = timer.missed,
							.fired = timer.fired,
							.idle = timer.idle,
							.message = timer.message,
							.message_len = timer.message_len};
	if (timer.repeats)
	{
		copy.months = timer.every.month;
		copy.days = timer.every.day;
		copy.time = timer.every.time;
	}
	shard_copy_put_timer(row, &copy);
}

/* A failure of the entity, and its key. */
static void
put_failure(StringInfo out, const ShardTurnKey *key, uint64 number)
{
	MemoryContext memory = CurrentMemoryContext;
	ShardTurnKey named = *key;
	ShardCopyHistory history = {.entity = key->entity,
								.entity_len = key->entity_len,
								.seq = shard_statement_int8(number, 1),
								.attempts = shard_statement_int4(number, 5)};
	StringInfoData row;
	bool isnull;

	history.ago_us = time_of(number, 2, &isnull);
	history.sqlstate = shard_statement_bytes(number, 3, memory, &history.sqlstate_len);
	history.error = shard_statement_bytes(number, 4, memory, &history.error_len);
	history.decision = shard_statement_bytes(number, 6, memory, &history.decision_len);
	history.outcome = shard_statement_bytes(number, 7, memory, &history.outcome_len);
	history.pause_us = DatumGetInt64(shard_statement_column(number, 8, &isnull));
	if (isnull)
		history.pause_us = -1;
	named.number = history.seq;
	initStringInfo(&row);
	shard_copy_put_history(&row, &history);
	put(out, &named, &row);
}

/* Inserts alone are noted: the newest rows are what the turn has written. */
static void
put_history(StringInfo out, int32 type_id, int32 shard, const ShardTurnKey *key, int times)
{
	ShardArguments arguments = {0};

	SPI_connect();
	add_entity(&arguments, type_id, shard, key);
	shard_statement_add(&arguments, Int32GetDatum(times), false);
	shard_statement_run(&select_history, &arguments, SPI_OK_SELECT);
	for (uint64 i = SPI_processed; i > 0; i--)
		put_failure(out, key, i - 1);
	SPI_finish();
}

void
shard_record_put_key(StringInfo out, int32 type_id, int32 shard, const ShardTurnKey *key, int times)
{
	StringInfoData row;

	initStringInfo(&row);
	switch (key->part)
	{
		case SHARD_COPY_STASH:
			read_held(type_id, shard, key, &row);
			break;
		case SHARD_COPY_ORDERED:
			read_ordered(type_id, shard, key, &row);
			break;
		case SHARD_COPY_TIMERS:
			read_timer(type_id, shard, key, &row);
			break;
		default:
			put_history(out, type_id, shard, key, times);
			pfree(row.data);
			return;
	}
	put(out, key, &row);
	pfree(row.data);
}
