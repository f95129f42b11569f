/*
 * core/flow/copy.c
 *		Copying a shard from its old home to its new one: calls, answers, rows (M4, M17).
 *
 * For each struct one function says what is a good one, as in core/packet.c: the encoder asserts it, the
 * decoder fails on anything else.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "port/pg_crc32c.h"

#include "core/base/fields.h"
#include "core/flow/copy.h"

/* More than any clock is wrong: a thousand years, in microseconds. */
#define MAX_DISTANCE (INT64CONST(1000) * 366 * 24 * 3600 * 1000000)

/* Nothing was tried as often, and there is room to count on. */
#define MAX_ATTEMPTS (1 << 30)

#define MAX_NAME 63
#define MAX_TYPE_NAME 1023
#define MAX_KEY (16 + 2 * SHARD_PACKET_MAX_ENTITY)

const char *const shard_copy_part_names[SHARD_COPY_PARTS] = {"nothing", "state",  "stash",	"marks",
															 "ordered", "timers", "history"};

/* ---- what is good ---------------------------------------------------------------------------- */

static bool
good_number(int64 number)
{
	return number >= 0 && number < SHARD_PACKET_MAX_SEQ;
}

static bool
good_text(const char *text, int length, int most)
{
	return length >= 0 && length <= most && (length == 0 || memchr(text, '\0', length) == NULL);
}

static bool
good_kind(int32 kind)
{
	return kind == SHARD_COPY_PREPARE || kind == SHARD_COPY_ROWS;
}

/* The epoch to come is never the first one: that has nothing to copy. */
static bool
good_shard(const ShardShardRef *shard)
{
	return shard->type_id > 0 && shard->shard >= 0 && shard->epoch > SHARD_FIRST_EPOCH &&
		   good_number(shard->move_id);
}

static bool
good_position(const ShardCopyPosition *position)
{
	return position->part >= SHARD_COPY_NONE && position->part < SHARD_COPY_PARTS &&
		   position->after_len >= 0 && position->after_len <= MAX_KEY &&
		   (position->part != SHARD_COPY_NONE || position->after_len == 0);
}

static bool
good_export(const ShardExportCall *call)
{
	return good_kind(call->kind) && good_shard(&call->shard) && call->type_name_len > 0 &&
		   good_text(call->type_name, call->type_name_len, MAX_NAME) && call->max_bytes > 0 &&
		   good_position(&call->position) && call->owner_len > 0 &&
		   good_text(call->owner, call->owner_len, MAX_NAME);
}

static bool
good_import(const ShardImportCall *call)
{
	return good_kind(call->kind) && good_shard(&call->shard) && call->node > 0 &&
		   call->node <= SHARD_MAX_NODE_ID;
}

static bool
good_column(const ShardCopyColumn *column)
{
	return column->name_len > 0 && good_text(column->name, column->name_len, MAX_NAME) &&
		   column->type_len > 0 && good_text(column->type, column->type_len, MAX_TYPE_NAME) &&
		   column->flags >= 0;
}

static bool
good_count(const ShardCopyCount *count)
{
	return count->part > SHARD_COPY_NONE && good_number(count->rows);
}

/* A row has at least one byte, so their number is bounded by what was sent. */
static bool
good_chunk(const ShardCopyChunk *chunk)
{
	return chunk->part > SHARD_COPY_NONE && chunk->part < SHARD_COPY_PARTS && chunk->n_rows > 0 &&
		   chunk->n_rows <= chunk->rows_len;
}

static bool
good_stamp(const ShardStamp *stamp)
{
	return stamp->kind == SHARD_PREFIX_NODE && stamp->a > 0 && stamp->b >= 0 &&
		   stamp->b < SHARD_LANES && stamp->seq > 0 && good_number(stamp->seq);
}

static bool
good_distance(int64 us)
{
	return us >= -MAX_DISTANCE && us <= MAX_DISTANCE;
}

static bool
good_held(const ShardCopyHeld *held)
{
	if (!shard_kind_is_for_entity(held->kind) && held->kind != SHARD_KIND_RESTART)
		return false;
	if (held->stamp.kind != SHARD_PREFIX_NONE && !good_stamp(&held->stamp))
		return false;
	return held->entity_len > 0 &&
		   good_text(held->entity, held->entity_len, SHARD_PACKET_MAX_ENTITY) &&
		   held->epoch >= -1 && held->src_type >= 0 &&
		   good_text(held->src_entity, held->src_entity_len, SHARD_PACKET_MAX_ENTITY) &&
		   held->mid_node > 0 && good_number(held->mid_seq) && held->payload_len >= 0 &&
		   held->attempts >= 0 && held->attempts <= MAX_ATTEMPTS &&
		   (held->ordered || held->number == 0) && (held->has_next || !held->pauses) &&
		   good_distance(held->next_us) && good_distance(held->waited_us) &&
		   (held->has_next || held->next_us == 0) &&
		   (held->sqlstate_len == 0 || held->sqlstate_len == 5) &&
		   good_text(held->sqlstate, held->sqlstate_len, 5) &&
		   good_text(held->error, held->error_len, PG_INT32_MAX);
}

static bool
good_ordered(const ShardCopyOrdered *ordered)
{
	return ordered->entity_len > 0 &&
		   good_text(ordered->entity, ordered->entity_len, SHARD_PACKET_MAX_ENTITY) &&
		   ordered->skipped >= 0 && ordered->late >= 0;
}

/* Microseconds; what is shorter is refused by whoever makes timers, too (E31). */
#define SHORTEST_PERIOD 10000

static bool
good_period(const ShardCopyTimer *timer)
{
	return timer->months >= 0 && timer->days >= 0 && timer->time >= 0 &&
		   timer->repeats == (timer->months > 0 || timer->days > 0 || timer->time > 0) &&
		   (!timer->repeats || timer->months > 0 || timer->days > 0 ||
			timer->time >= SHORTEST_PERIOD) &&
		   (timer->idle == 0 || timer->idle >= SHORTEST_PERIOD);
}

static bool
good_timer(const ShardCopyTimer *timer)
{
	return timer->entity_len > 0 &&
		   good_text(timer->entity, timer->entity_len, SHARD_PACKET_MAX_ENTITY) &&
		   good_text(timer->name, timer->name_len, SHARD_PACKET_MAX_ENTITY) && timer->period >= 0 &&
		   good_period(timer) && good_text(timer->zone, timer->zone_len, SHARD_PACKET_MAX_ENTITY) &&
		   timer->missed > 0 && good_number(timer->fired) &&
		   (timer->idle > 0) == (timer->name_len == 0) && timer->message_len > 0;
}

static bool
good_history(const ShardCopyHistory *history)
{
	return history->entity_len > 0 &&
		   good_text(history->entity, history->entity_len, SHARD_PACKET_MAX_ENTITY) &&
		   good_number(history->seq) && good_distance(history->ago_us) &&
		   history->sqlstate_len == 5 && good_text(history->sqlstate, history->sqlstate_len, 5) &&
		   good_text(history->error, history->error_len, PG_INT32_MAX) && history->attempts > 0 &&
		   history->attempts <= MAX_ATTEMPTS &&
		   good_text(history->decision, history->decision_len, MAX_NAME) &&
		   good_text(history->outcome, history->outcome_len, MAX_NAME) && history->pause_us >= -1 &&
		   good_distance(history->pause_us);
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void
stamp_fields(ShardFields *fields, ShardStamp *stamp)
{
	shard_fields_int32(fields, &stamp->kind);
	if (stamp->kind == SHARD_PREFIX_NONE)
		return;
	shard_fields_int32(fields, &stamp->a);
	shard_fields_int32(fields, &stamp->b);
	shard_fields_int64(fields, &stamp->seq);
}

static void
position_fields(ShardFields *fields, ShardCopyPosition *position)
{
	shard_fields_int32(fields, &position->part);
	shard_fields_piece(fields, &position->after, &position->after_len);
}

static void
export_fields(ShardFields *fields, ShardExportCall *call)
{
	shard_fields_int32(fields, &call->kind);
	shard_control_shard_fields(fields, &call->shard);
	shard_fields_piece(fields, &call->type_name, &call->type_name_len);
	shard_fields_int32(fields, &call->max_bytes);
	position_fields(fields, &call->position);
	shard_fields_piece(fields, &call->owner, &call->owner_len);
}

static void
import_fields(ShardFields *fields, ShardImportCall *call)
{
	shard_fields_int32(fields, &call->kind);
	shard_control_shard_fields(fields, &call->shard);
	shard_fields_int32(fields, &call->node);
	shard_fields_uint64(fields, &call->secret);
}

static void
column_fields(ShardFields *fields, ShardCopyColumn *column)
{
	shard_fields_piece(fields, &column->name, &column->name_len);
	shard_fields_piece(fields, &column->type, &column->type_len);
	shard_fields_int32(fields, &column->flags);
}

static void
count_fields(ShardFields *fields, ShardCopyCount *count)
{
	shard_fields_int32(fields, &count->part);
	shard_fields_int64(fields, &count->rows);
}

static uint32
checksum(const char *bytes, int length)
{
	pg_crc32c crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, bytes, length);
	FIN_CRC32C(crc);
	return crc;
}

/* With a checksum of the rows, which stands before them. */
static void
chunk_fields(ShardFields *fields, ShardCopyChunk *chunk)
{
	uint64 crc = fields->out ? checksum(chunk->rows, chunk->rows_len) : 0;

	shard_fields_int32(fields, &chunk->part);
	shard_fields_int32(fields, &chunk->n_rows);
	shard_fields_uint64(fields, &crc);
	shard_fields_piece(fields, &chunk->rows, &chunk->rows_len);
	if (!fields->out && crc != checksum(chunk->rows, chunk->rows_len))
		fields->reader->failed = true;
}

static void
held_fields(ShardFields *fields, ShardCopyHeld *held)
{
	shard_fields_piece(fields, &held->entity, &held->entity_len);
	shard_fields_int32(fields, &held->kind);
	shard_fields_int32(fields, &held->epoch);
	stamp_fields(fields, &held->stamp);
	shard_fields_int32(fields, &held->src_type);
	shard_fields_piece(fields, &held->src_entity, &held->src_entity_len);
	shard_fields_int32(fields, &held->mid_node);
	shard_fields_int64(fields, &held->mid_seq);
	shard_fields_piece(fields, &held->payload, &held->payload_len);
	shard_fields_bool(fields, &held->ordered);
	shard_fields_int64(fields, &held->number);
	shard_fields_int32(fields, &held->attempts);
	shard_fields_bool(fields, &held->has_next);
	shard_fields_int64(fields, &held->next_us);
	shard_fields_int64(fields, &held->waited_us);
	shard_fields_piece(fields, &held->sqlstate, &held->sqlstate_len);
	shard_fields_piece(fields, &held->error, &held->error_len);
	shard_fields_bool(fields, &held->pauses);
}

static void
ordered_fields(ShardFields *fields, ShardCopyOrdered *ordered)
{
	shard_fields_piece(fields, &ordered->entity, &ordered->entity_len);
	shard_fields_int64(fields, &ordered->began);
	shard_fields_int64(fields, &ordered->expected);
	shard_fields_int64(fields, &ordered->skipped);
	shard_fields_int64(fields, &ordered->late);
}

static void
timer_fields(ShardFields *fields, ShardCopyTimer *timer)
{
	shard_fields_piece(fields, &timer->entity, &timer->entity_len);
	shard_fields_piece(fields, &timer->name, &timer->name_len);
	shard_fields_int64(fields, &timer->due);
	shard_fields_int64(fields, &timer->generation);
	shard_fields_int64(fields, &timer->first);
	shard_fields_int64(fields, &timer->period);
	shard_fields_bool(fields, &timer->repeats);
	shard_fields_int32(fields, &timer->months);
	shard_fields_int32(fields, &timer->days);
	shard_fields_int64(fields, &timer->time);
	shard_fields_piece(fields, &timer->zone, &timer->zone_len);
	shard_fields_int32(fields, &timer->missed);
	shard_fields_int64(fields, &timer->fired);
	shard_fields_int64(fields, &timer->idle);
	shard_fields_piece(fields, &timer->message, &timer->message_len);
}

static void
history_fields(ShardFields *fields, ShardCopyHistory *history)
{
	shard_fields_piece(fields, &history->entity, &history->entity_len);
	shard_fields_int64(fields, &history->seq);
	shard_fields_int64(fields, &history->ago_us);
	shard_fields_piece(fields, &history->sqlstate, &history->sqlstate_len);
	shard_fields_piece(fields, &history->error, &history->error_len);
	shard_fields_int32(fields, &history->attempts);
	shard_fields_piece(fields, &history->decision, &history->decision_len);
	shard_fields_piece(fields, &history->outcome, &history->outcome_len);
	shard_fields_int64(fields, &history->pause_us);
}

SHARD_FIELDS_CODEC(shard_copy_put_export, shard_copy_get_export, ShardExportCall, export)
SHARD_FIELDS_CODEC(shard_copy_put_import, shard_copy_get_import, ShardImportCall, import)
SHARD_FIELDS_CODEC(shard_copy_put_column, shard_copy_get_column, ShardCopyColumn, column)
SHARD_FIELDS_CODEC(shard_copy_put_count, shard_copy_get_count, ShardCopyCount, count)
SHARD_FIELDS_CODEC(shard_copy_put_chunk, shard_copy_get_chunk, ShardCopyChunk, chunk)
SHARD_FIELDS_CODEC(shard_copy_put_position, shard_copy_get_position, ShardCopyPosition, position)
SHARD_FIELDS_CODEC(shard_copy_put_held, shard_copy_get_held, ShardCopyHeld, held)
SHARD_FIELDS_CODEC(shard_copy_put_mark, shard_copy_get_mark, ShardStamp, stamp)
SHARD_FIELDS_CODEC(shard_copy_put_ordered, shard_copy_get_ordered, ShardCopyOrdered, ordered)
SHARD_FIELDS_CODEC(shard_copy_put_timer, shard_copy_get_timer, ShardCopyTimer, timer)
SHARD_FIELDS_CODEC(shard_copy_put_history, shard_copy_get_history, ShardCopyHistory, history)

/* ---- a field of a state row ------------------------------------------------------------------ */

/* The length and one; 0 for NULL. */
void
shard_copy_put_field(StringInfo out, const char *bytes, int length)
{
	if (bytes == NULL)
	{
		shard_wire_put_uint(out, 0);
		return;
	}
	shard_wire_put_uint(out, (uint64) length + 1);
	if (length > 0)
		appendBinaryStringInfo(out, bytes, length);
}

bool
shard_copy_get_field(ShardReader *reader, const char **bytes, int *length)
{
	uint64 size;

	*bytes = NULL;
	*length = 0;
	if (reader->failed || reader->at >= reader->end)
		return false;
	size = shard_wire_get_uint(reader);
	if (reader->failed || size == 0)
		return !reader->failed;
	if (size - 1 > (uint64) (reader->end - reader->at) || size - 1 > PG_INT32_MAX)
	{
		reader->failed = true;
		reader->at = reader->end;
		return false;
	}
	*bytes = reader->at;
	*length = (int) (size - 1);
	reader->at += *length;
	return true;
}
