/*
 * core/base/wire.h
 *		Numbers and bytes in the form that they have on disk and between nodes.
 *
 * Whole numbers are variable-length (seven bits a byte, lowest first; signed ones zigzag), so that
 * byte order and word size do not matter. A reader never reads beyond its end: after the first value
 * that does not fit it is "failed", returns zeros, and its owner looks once, at the end.
 */
#pragma once

#include "lib/stringinfo.h"

#include "core/base/arena.h"

typedef struct ShardReader
{
	const char *at;
	const char *end;
	bool failed;
} ShardReader;

typedef struct ShardUuid
{
	uint64 high;
	uint64 low;
} ShardUuid;

extern void shard_wire_put_uint(StringInfo out, uint64 value);
extern void shard_wire_put_int(StringInfo out, int64 value);
extern void shard_wire_put_bytes(StringInfo out, const char *bytes, size_t length);

extern void shard_wire_put_uuid(StringInfo out, ShardUuid uuid);

/* A terminated text; NULL as "". */
extern void shard_wire_put_text(StringInfo out, const char *text);

extern uint64 shard_wire_get_uint(ShardReader *reader);
extern int64 shard_wire_get_int(ShardReader *reader);
extern ShardUuid shard_wire_get_uuid(ShardReader *reader);

/* A signed number; a value beyond int32 fails the reader. */
extern int32 shard_wire_get_int32(ShardReader *reader);

/* Points into the reader's buffer; *length bytes. */
extern const char *shard_wire_get_bytes(ShardReader *reader, size_t *length);

/* Bytes as shard_wire_get_bytes() gives them, at most PG_INT32_MAX; "" if there are none. */
extern const char *shard_wire_get_piece(ShardReader *reader, int *length);

/* A terminated copy of a text; palloc'd. */
extern const char *shard_wire_get_text(ShardReader *reader);

/*
 * A terminated copy in the arena; "" without an arena. A text of more than most bytes, or with a zero byte, fails the
 * reader.
 */
extern const char *shard_wire_take_text(ShardReader *reader, size_t most, ShardArena *arena);

/*
 * The beginning and the end of a function that reads a record. more: is there another record? taken: could the record be
 * read, and is it good? If not, the record is all zero, and the reader reads nothing more.
 */
extern bool shard_wire_more(const ShardReader *reader, void *record, size_t size);
extern bool shard_wire_taken(ShardReader *reader, bool good, void *record, size_t size);
