/*
 * core/base/fields.h
 *		A record as bytes, from one function that names its fields in their order.
 *
 * Such a function calls one of those below for each field. If ShardFields has "out", they append the
 * field and change nothing in the record; else they read it from the reader. So there is one list of
 * fields for both directions, and the compiler compares each field with its form.
 */
#pragma once

#include "core/base/wire.h"

typedef struct ShardFields
{
	StringInfo out;		 /* where the record is written; NULL: it is read */
	ShardReader *reader; /* what it is read from */
	ShardArena *arena;	 /* where texts go that are read; NULL: they are "" */
} ShardFields;

static inline bool
shard_fields_failed(const ShardFields *fields)
{
	return !fields->out && fields->reader->failed;
}

/* A check of what was read; the reader fails if it is not good. */
static inline void
shard_fields_check(ShardFields *fields, bool good)
{
	if (!fields->out && !good)
		fields->reader->failed = true;
}

/*
 * Does the record go on? Fields that were added at the end are not there in what an older version wrote; a record that
 * is written has all.
 */
static inline bool
shard_fields_more(const ShardFields *fields)
{
	return fields->out || (!fields->reader->failed && fields->reader->end > fields->reader->at);
}

static inline void
shard_fields_uint64(ShardFields *fields, uint64 *number)
{
	if (fields->out)
		shard_wire_put_uint(fields->out, *number);
	else
		*number = shard_wire_get_uint(fields->reader);
}

static inline void
shard_fields_int64(ShardFields *fields, int64 *number)
{
	if (fields->out)
		shard_wire_put_int(fields->out, *number);
	else
		*number = shard_wire_get_int(fields->reader);
}

static inline void
shard_fields_int32(ShardFields *fields, int32 *number)
{
	if (fields->out)
		shard_wire_put_int(fields->out, *number);
	else
		*number = shard_wire_get_int32(fields->reader);
}

/* The length of a list, from 0 to most. */
static inline void
shard_fields_count(ShardFields *fields, int *count, int most)
{
	uint64 number = (uint64) *count;

	shard_fields_uint64(fields, &number);
	shard_fields_check(fields, number <= (uint64) most);
	if (!fields->out)
		*count = fields->reader->failed ? 0 : (int) number;
}

/* 0 or 1. */
static inline void
shard_fields_bool(ShardFields *fields, bool *flag)
{
	int number = *flag ? 1 : 0;

	shard_fields_count(fields, &number, 1);
	if (!fields->out)
		*flag = number == 1;
}

static inline void
shard_fields_uuid(ShardFields *fields, ShardUuid *uuid)
{
	shard_fields_uint64(fields, &uuid->high);
	shard_fields_uint64(fields, &uuid->low);
}

/* A terminated text of at most that many bytes; NULL is written as "". */
static inline void
shard_fields_text(ShardFields *fields, const char **text, size_t most)
{
	if (fields->out)
		shard_wire_put_text(fields->out, *text);
	else
		*text = shard_wire_take_text(fields->reader, most, fields->arena);
}

/* Bytes, which are read where they stand. */
static inline void
shard_fields_piece(ShardFields *fields, const char **bytes, int *length)
{
	if (fields->out)
		shard_wire_put_bytes(fields->out, *bytes, *length);
	else
		*bytes = shard_wire_get_piece(fields->reader, length);
}

/*
 * The function that writes a record, and the one that reads the next record, if there is one: by NAME_fields(), which
 * names its fields. Only what good_NAME() calls good is written, or taken.
 */
#define SHARD_FIELDS_CODEC(put, get, Struct, name) \
	void put(StringInfo out, const Struct *name) \
	{ \
		Assert(good_##name(name)); \
		name##_fields(&(ShardFields){.out = out}, unconstify(Struct *, name)); \
	} \
\
	bool get(ShardReader *reader, Struct *name) \
	{ \
		if (!shard_wire_more(reader, name, sizeof(*name))) \
			return false; \
		name##_fields(&(ShardFields){.reader = reader}, name); \
		return shard_wire_taken(reader, good_##name(name), name, sizeof(*name)); \
	}
