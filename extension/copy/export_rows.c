/*
 * copy/export_rows.c
 *		The rows of a shard's parts, as an answer to its new home has them (M4).
 *
 * Comes from: export.c, with a part and the key of the row that the answer before ended with. Each part is read in the
 * order of its key, a batch at a time.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/timestamp.h"

#include "copy/export_private.h"
#include "copy/timer_copy.h"
#include "entity/state_copy.h"
#include "core/flow/route.h"
#include "log/log.h"

#include "base/compat.h"

/* Rows of our own tables that one statement reads. */
#define BATCH 200

static ShardStatement select_held = {
	"SELECT entity, seq, kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq, payload,"
	" place, number, attempts, next_at, sqlstate, error, held_at, pauses"
	" FROM shard.held WHERE type_id = $1 AND shard = $2 AND (entity, place, seq) > ($3, $4, $5)"
	" ORDER BY entity, place, seq LIMIT $6",
	6,
	{INT4OID, INT4OID, TEXTOID, TEXTOID, INT8OID, INT4OID}};

static ShardStatement select_marks = {
	"SELECT prefix_kind, a, b, seq FROM shard.shard_input"
	" WHERE type_id = $1 AND shard = $2 AND (prefix_kind, a, b) > ($3, $4, $5)"
	" ORDER BY prefix_kind, a, b LIMIT $6",
	6,
	{INT4OID, INT4OID, INT2OID, INT4OID, INT4OID, INT4OID}};

static ShardStatement select_ordered = {
	"SELECT entity, began, expected, skipped, late FROM shard.ordered"
	" WHERE type_id = $1 AND shard = $2 AND entity > $3 ORDER BY entity LIMIT $4",
	4,
	{INT4OID, INT4OID, TEXTOID, INT4OID}};

static ShardStatement select_history = {
	"SELECT entity, seq, at, sqlstate, error, attempts, decision, outcome, pause FROM shard.history"
	" WHERE type_id = $1 AND shard = $2 AND (entity, seq) > ($3, $4) ORDER BY entity, seq LIMIT $5",
	5,
	{INT4OID, INT4OID, TEXTOID, INT8OID, INT4OID}};

bool
shard_export_has_states(const ShardExport *export)
{
	return export->type->mode != SHARD_MODE_DROPPED && export->type->mode != SHARD_MODE_PROXY;
}

void
shard_export_run(ShardExport *export, ShardStatement *statement, ShardArguments *arguments)
{
	shard_security_end(&export->security);
	shard_security_begin_system(&export->security);
	shard_statement_run(statement, arguments, SPI_OK_SELECT);
}

void
shard_export_add_shard(const ShardExport *export, ShardArguments *arguments)
{
	shard_statement_add(arguments, Int32GetDatum(export->call.shard.type_id), false);
	shard_statement_add(arguments, Int32GetDatum(export->call.shard.shard), false);
}

/* Each of these functions appends rows behind the given key to the answer; true: there are no more. */

static bool
put_states(ShardExport *export, const char *after, int after_len)
{
	ShardStateCopy copy;
	bool all;

	if (!shard_export_has_states(export))
		return true;
	shard_security_begin(&export->security, export->type);
	shard_state_copy_open(&copy, export->type);
	export->n_rows = shard_state_copy_put_rows(&copy, export->call.shard.shard, after, after_len,
											   export->left, &export->rows, &export->after, &all);
	shard_state_copy_close(&copy);
	shard_security_end(&export->security);
	return all;
}

/* Microseconds from now to a time, which a column has. */
static int64
distance_to(uint64 number, int column, bool *known)
{
	bool isnull;
	TimestampTz at = DatumGetTimestampTz(shard_statement_column(number, column, &isnull));

	*known = !isnull && !TIMESTAMP_NOT_FINITE(at);
	return *known ? at - GetCurrentTransactionStartTimestamp() : 0;
}

/* A message that waits. seq: where. */
static void
put_held(ShardExport *export, uint64 number, int64 *seq)
{
	MemoryContext memory = CurrentMemoryContext;
	ShardCopyHeld held = {0};
	const char *place;
	const char *stamp;
	bool isnull;
	int length;

	held.entity = shard_statement_bytes(number, 1, memory, &held.entity_len);
	*seq = shard_statement_int8(number, 2);
	held.kind = DatumGetInt16(shard_statement_column(number, 3, &isnull));
	held.epoch = DatumGetInt32(shard_statement_column(number, 4, &isnull));
	if (isnull)
		held.epoch = SHARD_NO_EPOCH;
	stamp = shard_statement_bytes(number, 5, memory, &length);
	if (stamp != NULL)
		held.stamp = shard_log_get_stamp(stamp);
	held.src_type = shard_statement_int4(number, 6);
	held.src_entity = shard_statement_bytes(number, 7, memory, &held.src_entity_len);
	held.mid_node = shard_statement_int4(number, 8);
	held.mid_seq = shard_statement_int8(number, 9);
	held.payload = shard_statement_bytes(number, 10, memory, &held.payload_len);
	place = shard_statement_bytes(number, 11, memory, &length);
	held.ordered = strcmp(place, "ordered") == 0;
	held.number = shard_statement_int8(number, 12);
	held.attempts = shard_statement_int4(number, 13);
	held.next_us = distance_to(number, 14, &held.has_next);
	held.sqlstate = shard_statement_bytes(number, 15, memory, &held.sqlstate_len);
	held.error = shard_statement_bytes(number, 16, memory, &held.error_len);
	held.waited_us = -distance_to(number, 17, &isnull);
	held.pauses = held.has_next && DatumGetBool(shard_statement_column(number, 18, &isnull));
	/* as the log has it: durable here first */
	if (held.mid_node == 0)
	{
		held.mid_node = export->callee.view.node;
		held.mid_seq = *seq;
	}
	shard_copy_put_held(&export->rows, &held);

	resetStringInfo(&export->after);
	shard_wire_put_int(&export->after, *seq);
	shard_wire_put_uint(&export->after, held.kind == SHARD_KIND_RESTART ? 2 : held.ordered ? 1 : 0);
	appendBinaryStringInfo(&export->after, held.entity, held.entity_len);
}

/* Arguments of select_held: behind the message that the key names. */
static void
add_held_key(ShardArguments *arguments, const char *after, int after_len)
{
	ShardReader reader = {after, after + after_len, false};
	int64 seq = shard_wire_get_int(&reader);
	uint64 place = shard_wire_get_uint(&reader);

	/* no entity is called "" */
	shard_statement_add_text(arguments, after_len == 0 || reader.failed ? "" : reader.at,
							 after_len == 0 || reader.failed ? 0 : (int) (reader.end - reader.at));
	shard_statement_add_string(arguments, place == 1 ? "ordered" : place == 2 ? "start" : "stash");
	shard_statement_add(arguments, Int64GetDatum(seq), false);
}

static bool
put_stash(ShardExport *export, const char *after, int after_len)
{
	ShardArguments arguments = {0};
	uint64 found;
	int64 seq;

	SPI_connect();
	shard_export_add_shard(export, &arguments);
	add_held_key(&arguments, after, after_len);
	shard_statement_add(&arguments, Int32GetDatum(BATCH), false);
	shard_export_run(export, &select_held, &arguments);
	found = SPI_processed;
	for (uint64 i = 0; i < found && (i == 0 || export->rows.len < export->left); i++)
	{
		put_held(export, i, &seq);
		export->n_rows++;
	}
	SPI_finish();
	shard_security_end(&export->security);
	return found < BATCH && export->n_rows == (int32) found;
}

static bool
put_marks(ShardExport *export, const char *after, int after_len)
{
	ShardReader reader = {after, after + after_len, after_len == 0};
	ShardArguments arguments = {0};
	bool isnull;
	uint64 found;

	SPI_connect();
	shard_export_add_shard(export, &arguments);
	shard_statement_add(&arguments, Int16GetDatum((int16) shard_wire_get_int32(&reader)), false);
	shard_statement_add(&arguments, Int32GetDatum(shard_wire_get_int32(&reader)), false);
	shard_statement_add(&arguments, Int32GetDatum(shard_wire_get_int32(&reader)), false);
	shard_statement_add(&arguments, Int32GetDatum(BATCH), false);
	shard_export_run(export, &select_marks, &arguments);
	found = SPI_processed;
	for (uint64 i = 0; i < found; i++)
	{
		ShardStamp mark = {DatumGetInt16(shard_statement_column(i, 1, &isnull)),
						   shard_statement_int4(i, 2), shard_statement_int4(i, 3),
						   shard_statement_int8(i, 4)};

		shard_copy_put_mark(&export->rows, &mark);
		resetStringInfo(&export->after);
		shard_wire_put_int(&export->after, mark.kind);
		shard_wire_put_int(&export->after, mark.a);
		shard_wire_put_int(&export->after, mark.b);
		export->n_rows++;
	}
	SPI_finish();
	shard_security_end(&export->security);
	return found < BATCH;
}

static bool
put_ordered(ShardExport *export, const char *after, int after_len)
{
	ShardArguments arguments = {0};
	uint64 found;

	SPI_connect();
	shard_export_add_shard(export, &arguments);
	shard_statement_add_text(&arguments, after == NULL ? "" : after, after_len);
	shard_statement_add(&arguments, Int32GetDatum(BATCH), false);
	shard_export_run(export, &select_ordered, &arguments);
	found = SPI_processed;
	for (uint64 i = 0; i < found; i++)
	{
		ShardCopyOrdered ordered = {.began = shard_statement_int8(i, 2),
									.expected = shard_statement_int8(i, 3),
									.skipped = shard_statement_int8(i, 4),
									.late = shard_statement_int8(i, 5)};

		ordered.entity = shard_statement_bytes(i, 1, CurrentMemoryContext, &ordered.entity_len);
		shard_copy_put_ordered(&export->rows, &ordered);
		resetStringInfo(&export->after);
		appendBinaryStringInfo(&export->after, ordered.entity, ordered.entity_len);
		export->n_rows++;
	}
	SPI_finish();
	shard_security_end(&export->security);
	return found < BATCH;
}

static bool
put_timers(ShardExport *export, const char *after, int after_len)
{
	bool all;

	shard_security_end(&export->security);
	shard_security_begin_system(&export->security);
	export->n_rows =
		shard_copy_timers_put(export->call.shard.type_id, export->call.shard.shard, after,
							  after_len, export->left, &export->rows, &export->after, &all);
	shard_security_end(&export->security);
	return all;
}

/* A failure of an entity. */
static void
put_failure(ShardExport *export, uint64 number)
{
	MemoryContext memory = CurrentMemoryContext;
	ShardCopyHistory history = {.seq = shard_statement_int8(number, 2),
								.attempts = shard_statement_int4(number, 6)};
	bool isnull;

	history.entity = shard_statement_bytes(number, 1, memory, &history.entity_len);
	history.ago_us = -distance_to(number, 3, &isnull);
	history.sqlstate = shard_statement_bytes(number, 4, memory, &history.sqlstate_len);
	history.error = shard_statement_bytes(number, 5, memory, &history.error_len);
	history.decision = shard_statement_bytes(number, 7, memory, &history.decision_len);
	history.outcome = shard_statement_bytes(number, 8, memory, &history.outcome_len);
	history.pause_us = DatumGetInt64(shard_statement_column(number, 9, &isnull));
	if (isnull)
		history.pause_us = -1;
	shard_copy_put_history(&export->rows, &history);
	resetStringInfo(&export->after);
	shard_wire_put_int(&export->after, history.seq);
	appendBinaryStringInfo(&export->after, history.entity, history.entity_len);
	export->n_rows++;
}

static bool
put_history(ShardExport *export, const char *after, int after_len)
{
	ShardReader reader = {after, after + after_len, after_len == 0};
	ShardArguments arguments = {0};
	int64 seq = shard_wire_get_int(&reader);
	uint64 found;

	SPI_connect();
	shard_export_add_shard(export, &arguments);
	if (after_len == 0)
		shard_statement_add_text(&arguments, "", 0);
	else
		shard_statement_add_text(&arguments, reader.at, (int) (reader.end - reader.at));
	shard_statement_add(&arguments, Int64GetDatum(seq), false);
	shard_statement_add(&arguments, Int32GetDatum(BATCH), false);
	shard_export_run(export, &select_history, &arguments);
	found = SPI_processed;
	for (uint64 i = 0; i < found && (i == 0 || export->rows.len < export->left); i++)
		put_failure(export, i);
	SPI_finish();
	shard_security_end(&export->security);
	return found < BATCH && export->n_rows == (int32) found;
}

static bool (*const parts[SHARD_COPY_PARTS])(ShardExport *, const char *, int) = {
	[SHARD_COPY_STATE] = put_states,  [SHARD_COPY_STASH] = put_stash,
	[SHARD_COPY_MARKS] = put_marks,	  [SHARD_COPY_ORDERED] = put_ordered,
	[SHARD_COPY_TIMERS] = put_timers, [SHARD_COPY_HISTORY] = put_history,
};

bool
shard_export_put_part(ShardExport *export, int32 part, const char *after, int after_len)
{
	return parts[part](export, after, after_len);
}
