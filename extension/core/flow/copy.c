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

#include "core/flow/copy.h"

/* More than any clock is wrong: a thousand years, in microseconds. */
#define MAX_DISTANCE (INT64CONST(1000) * 366 * 24 * 3600 * 1000000)

/* Nothing was tried as often, and there is room to count on. */
#define MAX_ATTEMPTS (1 << 30)

#define MAX_NAME 63
#define MAX_TYPE_NAME 1023
#define MAX_KEY (16 + SHARD_PACKET_MAX_ENTITY)

const char *const shard_copy_part_names[SHARD_COPY_PARTS] = {"nothing", "state", "stash", "marks",
															 "ordered"};

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
	if (!shard_kind_is_message(held->kind) && held->kind != SHARD_KIND_START &&
		held->kind != SHARD_KIND_PASSIVATE)
		return false;
	if (held->stamp.kind != SHARD_PREFIX_NONE && !good_stamp(&held->stamp))
		return false;
	return held->entity_len > 0 &&
		   good_text(held->entity, held->entity_len, SHARD_PACKET_MAX_ENTITY) &&
		   held->epoch >= -1 && held->src_type >= 0 &&
		   good_text(held->src_entity, held->src_entity_len, SHARD_PACKET_MAX_ENTITY) &&
		   held->mid_node > 0 && good_number(held->mid_seq) && held->payload_len >= 0 &&
		   held->attempts >= 0 && held->attempts <= MAX_ATTEMPTS &&
		   (held->ordered || held->number == 0) && good_distance(held->next_us) &&
		   good_distance(held->waited_us) && (held->has_next || held->next_us == 0) &&
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

/* ---- pieces ---------------------------------------------------------------------------------- */

/* 0 or 1. */
static bool
get_bool(ShardReader *reader)
{
	uint64 value = shard_wire_get_uint(reader);

	if (value > 1)
		reader->failed = true;
	return value == 1;
}

static void
put_shard(StringInfo out, const ShardShardRef *shard)
{
	shard_wire_put_int(out, shard->type_id);
	shard_wire_put_int(out, shard->shard);
	shard_wire_put_int(out, shard->epoch);
	shard_wire_put_int(out, shard->move_id);
}

static void
get_shard(ShardReader *reader, ShardShardRef *shard)
{
	shard->type_id = shard_wire_get_int32(reader);
	shard->shard = shard_wire_get_int32(reader);
	shard->epoch = shard_wire_get_int32(reader);
	shard->move_id = shard_wire_get_int(reader);
}

static void
put_stamp(StringInfo out, const ShardStamp *stamp)
{
	shard_wire_put_int(out, stamp->kind);
	if (stamp->kind == SHARD_PREFIX_NONE)
		return;
	shard_wire_put_int(out, stamp->a);
	shard_wire_put_int(out, stamp->b);
	shard_wire_put_int(out, stamp->seq);
}

static void
get_stamp(ShardReader *reader, ShardStamp *stamp)
{
	stamp->kind = shard_wire_get_int32(reader);
	if (stamp->kind == SHARD_PREFIX_NONE)
		return;
	stamp->a = shard_wire_get_int32(reader);
	stamp->b = shard_wire_get_int32(reader);
	stamp->seq = shard_wire_get_int(reader);
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

/* ---- calls ----------------------------------------------------------------------------------- */

void
shard_copy_put_export(StringInfo out, const ShardExportCall *call)
{
	Assert(good_export(call));
	shard_wire_put_int(out, call->kind);
	put_shard(out, &call->shard);
	shard_wire_put_bytes(out, call->type_name, call->type_name_len);
	shard_wire_put_int(out, call->max_bytes);
	shard_copy_put_position(out, &call->position);
	shard_wire_put_bytes(out, call->owner, call->owner_len);
}

bool
shard_copy_get_export(ShardReader *reader, ShardExportCall *call)
{
	if (!shard_wire_more(reader, call, sizeof(*call)))
		return false;
	call->kind = shard_wire_get_int32(reader);
	get_shard(reader, &call->shard);
	call->type_name = shard_wire_get_piece(reader, &call->type_name_len);
	call->max_bytes = shard_wire_get_int32(reader);
	if (!shard_copy_get_position(reader, &call->position))
		reader->failed = true;
	call->owner = shard_wire_get_piece(reader, &call->owner_len);
	return shard_wire_taken(reader, good_export(call), call, sizeof(*call));
}

void
shard_copy_put_import(StringInfo out, const ShardImportCall *call)
{
	Assert(good_import(call));
	shard_wire_put_int(out, call->kind);
	put_shard(out, &call->shard);
	shard_wire_put_int(out, call->node);
	shard_wire_put_uint(out, call->secret);
}

bool
shard_copy_get_import(ShardReader *reader, ShardImportCall *call)
{
	if (!shard_wire_more(reader, call, sizeof(*call)))
		return false;
	call->kind = shard_wire_get_int32(reader);
	get_shard(reader, &call->shard);
	call->node = shard_wire_get_int32(reader);
	call->secret = shard_wire_get_uint(reader);
	return shard_wire_taken(reader, good_import(call), call, sizeof(*call));
}

/* ---- answers --------------------------------------------------------------------------------- */

void
shard_copy_put_column(StringInfo out, const ShardCopyColumn *column)
{
	Assert(good_column(column));
	shard_wire_put_bytes(out, column->name, column->name_len);
	shard_wire_put_bytes(out, column->type, column->type_len);
	shard_wire_put_int(out, column->flags);
}

bool
shard_copy_get_column(ShardReader *reader, ShardCopyColumn *column)
{
	if (!shard_wire_more(reader, column, sizeof(*column)))
		return false;
	column->name = shard_wire_get_piece(reader, &column->name_len);
	column->type = shard_wire_get_piece(reader, &column->type_len);
	column->flags = shard_wire_get_int32(reader);
	return shard_wire_taken(reader, good_column(column), column, sizeof(*column));
}

void
shard_copy_put_count(StringInfo out, const ShardCopyCount *count)
{
	Assert(good_count(count));
	shard_wire_put_int(out, count->part);
	shard_wire_put_int(out, count->rows);
}

bool
shard_copy_get_count(ShardReader *reader, ShardCopyCount *count)
{
	if (!shard_wire_more(reader, count, sizeof(*count)))
		return false;
	count->part = shard_wire_get_int32(reader);
	count->rows = shard_wire_get_int(reader);
	return shard_wire_taken(reader, good_count(count), count, sizeof(*count));
}

void
shard_copy_put_chunk(StringInfo out, const ShardCopyChunk *chunk)
{
	Assert(good_chunk(chunk));
	shard_wire_put_int(out, chunk->part);
	shard_wire_put_int(out, chunk->n_rows);
	shard_wire_put_uint(out, checksum(chunk->rows, chunk->rows_len));
	shard_wire_put_bytes(out, chunk->rows, chunk->rows_len);
}

bool
shard_copy_get_chunk(ShardReader *reader, ShardCopyChunk *chunk)
{
	uint64 crc;

	if (!shard_wire_more(reader, chunk, sizeof(*chunk)))
		return false;
	chunk->part = shard_wire_get_int32(reader);
	chunk->n_rows = shard_wire_get_int32(reader);
	crc = shard_wire_get_uint(reader);
	chunk->rows = shard_wire_get_piece(reader, &chunk->rows_len);
	return shard_wire_taken(reader,
							good_chunk(chunk) && crc == checksum(chunk->rows, chunk->rows_len),
							chunk, sizeof(*chunk));
}

void
shard_copy_put_position(StringInfo out, const ShardCopyPosition *position)
{
	Assert(good_position(position));
	shard_wire_put_int(out, position->part);
	shard_wire_put_bytes(out, position->after, position->after_len);
}

bool
shard_copy_get_position(ShardReader *reader, ShardCopyPosition *position)
{
	if (!shard_wire_more(reader, position, sizeof(*position)))
		return false;
	position->part = shard_wire_get_int32(reader);
	position->after = shard_wire_get_piece(reader, &position->after_len);
	return shard_wire_taken(reader, good_position(position), position, sizeof(*position));
}

/* ---- rows ------------------------------------------------------------------------------------ */

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

void
shard_copy_put_held(StringInfo out, const ShardCopyHeld *held)
{
	Assert(good_held(held));
	shard_wire_put_bytes(out, held->entity, held->entity_len);
	shard_wire_put_int(out, held->kind);
	shard_wire_put_int(out, held->epoch);
	put_stamp(out, &held->stamp);
	shard_wire_put_int(out, held->src_type);
	shard_wire_put_bytes(out, held->src_entity, held->src_entity_len);
	shard_wire_put_int(out, held->mid_node);
	shard_wire_put_int(out, held->mid_seq);
	shard_wire_put_bytes(out, held->payload, held->payload_len);
	shard_wire_put_uint(out, held->ordered ? 1 : 0);
	shard_wire_put_int(out, held->number);
	shard_wire_put_int(out, held->attempts);
	shard_wire_put_uint(out, held->has_next ? 1 : 0);
	shard_wire_put_int(out, held->next_us);
	shard_wire_put_int(out, held->waited_us);
	shard_wire_put_bytes(out, held->sqlstate, held->sqlstate_len);
	shard_wire_put_bytes(out, held->error, held->error_len);
}

bool
shard_copy_get_held(ShardReader *reader, ShardCopyHeld *held)
{
	if (!shard_wire_more(reader, held, sizeof(*held)))
		return false;
	held->entity = shard_wire_get_piece(reader, &held->entity_len);
	held->kind = shard_wire_get_int32(reader);
	held->epoch = shard_wire_get_int32(reader);
	get_stamp(reader, &held->stamp);
	held->src_type = shard_wire_get_int32(reader);
	held->src_entity = shard_wire_get_piece(reader, &held->src_entity_len);
	held->mid_node = shard_wire_get_int32(reader);
	held->mid_seq = shard_wire_get_int(reader);
	held->payload = shard_wire_get_piece(reader, &held->payload_len);
	held->ordered = get_bool(reader);
	held->number = shard_wire_get_int(reader);
	held->attempts = shard_wire_get_int32(reader);
	held->has_next = get_bool(reader);
	held->next_us = shard_wire_get_int(reader);
	held->waited_us = shard_wire_get_int(reader);
	held->sqlstate = shard_wire_get_piece(reader, &held->sqlstate_len);
	held->error = shard_wire_get_piece(reader, &held->error_len);
	return shard_wire_taken(reader, good_held(held), held, sizeof(*held));
}

void
shard_copy_put_mark(StringInfo out, const ShardStamp *mark)
{
	Assert(good_stamp(mark));
	put_stamp(out, mark);
}

bool
shard_copy_get_mark(ShardReader *reader, ShardStamp *mark)
{
	if (!shard_wire_more(reader, mark, sizeof(*mark)))
		return false;
	get_stamp(reader, mark);
	return shard_wire_taken(reader, good_stamp(mark), mark, sizeof(*mark));
}

void
shard_copy_put_ordered(StringInfo out, const ShardCopyOrdered *ordered)
{
	Assert(good_ordered(ordered));
	shard_wire_put_bytes(out, ordered->entity, ordered->entity_len);
	shard_wire_put_int(out, ordered->began);
	shard_wire_put_int(out, ordered->expected);
	shard_wire_put_int(out, ordered->skipped);
	shard_wire_put_int(out, ordered->late);
}

bool
shard_copy_get_ordered(ShardReader *reader, ShardCopyOrdered *ordered)
{
	if (!shard_wire_more(reader, ordered, sizeof(*ordered)))
		return false;
	ordered->entity = shard_wire_get_piece(reader, &ordered->entity_len);
	ordered->began = shard_wire_get_int(reader);
	ordered->expected = shard_wire_get_int(reader);
	ordered->skipped = shard_wire_get_int(reader);
	ordered->late = shard_wire_get_int(reader);
	return shard_wire_taken(reader, good_ordered(ordered), ordered, sizeof(*ordered));
}
