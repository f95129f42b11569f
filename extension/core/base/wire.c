/*
 * core/base/wire.c
 *		Numbers and bytes in the form that they have on disk and between nodes.
 *
 * Every number has exactly one form: a reader fails on a longer one than needed, too, so equal
 * bytes and equal values are the same thing.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/wire.h"

#define MAX_UINT_BYTES 10 /* 64 bits, seven a byte */

/*
 * Append a number, seven bits a byte, lowest first; all bytes but the last have the high bit.
 */
void
shard_wire_put_uint(StringInfo out, uint64 value)
{
	char *at;

	enlargeStringInfo(out, MAX_UINT_BYTES);
	at = out->data + out->len;
	while (value >= 0x80)
	{
		*at++ = (char) (value | 0x80);
		value >>= 7;
	}
	*at++ = (char) value;
	*at = '\0';
	out->len = (int) (at - out->data);
}

/*
 * Append a signed number; small ones are short whatever their sign.
 */
void
shard_wire_put_int(StringInfo out, int64 value)
{
	uint64 bits = (uint64) value << 1;

	shard_wire_put_uint(out, value < 0 ? ~bits : bits);
}

/*
 * Append bytes behind their number.
 */
void
shard_wire_put_bytes(StringInfo out, const char *bytes, size_t length)
{
	shard_wire_put_uint(out, length);
	if (length > 0)
		appendBinaryStringInfo(out, bytes, (int) length);
}

void
shard_wire_put_uuid(StringInfo out, ShardUuid uuid)
{
	shard_wire_put_uint(out, uuid.high);
	shard_wire_put_uint(out, uuid.low);
}

void
shard_wire_put_text(StringInfo out, const char *text)
{
	shard_wire_put_bytes(out, text, text ? strlen(text) : 0);
}

/*
 * Nothing more can be read.
 */
static uint64
fail(ShardReader *reader)
{
	reader->failed = true;
	reader->at = reader->end;
	return 0;
}

/*
 * Read what shard_wire_put_uint wrote; 0 and failed if that does not stand here.
 */
uint64
shard_wire_get_uint(ShardReader *reader)
{
	const unsigned char *at = (const unsigned char *) reader->at;
	const unsigned char *end = (const unsigned char *) reader->end;
	uint64 value = 0;

	/* Nearly all are small. */
	if (at < end && *at < 0x80)
	{
		reader->at++;
		return *at;
	}
	for (int shift = 0; shift < 64 && at < end; shift += 7)
	{
		unsigned char byte = *at++;

		value |= (uint64) (byte & 0x7f) << shift;
		if (byte & 0x80)
			continue;
		if ((byte == 0 && shift > 0) || (shift == 63 && byte > 1))
			break;
		reader->at = (const char *) at;
		return value;
	}
	return fail(reader);
}

/*
 * Read what shard_wire_put_int wrote.
 */
int64
shard_wire_get_int(ShardReader *reader)
{
	uint64 bits = shard_wire_get_uint(reader);

	return (int64) (bits >> 1 ^ (bits & 1 ? ~UINT64CONST(0) : 0));
}

int32
shard_wire_get_int32(ShardReader *reader)
{
	int64 value = shard_wire_get_int(reader);

	if (value < PG_INT32_MIN || value > PG_INT32_MAX)
		return (int32) fail(reader);
	return (int32) value;
}

/* The empty string, of length 0, if the reader fails. */
const char *
shard_wire_get_bytes(ShardReader *reader, size_t *length)
{
	uint64 wanted = shard_wire_get_uint(reader);
	const char *bytes = reader->at;

	if (wanted > (uint64) (reader->end - reader->at))
		wanted = fail(reader);
	if (reader->failed)
		bytes = "";
	else
		reader->at += wanted;
	*length = (size_t) wanted;
	return bytes;
}

const char *
shard_wire_get_piece(ShardReader *reader, int *length)
{
	size_t size;
	const char *bytes = shard_wire_get_bytes(reader, &size);

	if (size > PG_INT32_MAX)
		reader->failed = true;
	*length = reader->failed ? 0 : (int) size;
	return *length > 0 ? bytes : "";
}

ShardUuid
shard_wire_get_uuid(ShardReader *reader)
{
	ShardUuid uuid;

	uuid.high = shard_wire_get_uint(reader);
	uuid.low = shard_wire_get_uint(reader);
	return uuid;
}

const char *
shard_wire_get_text(ShardReader *reader)
{
	size_t length;
	const char *bytes = shard_wire_get_bytes(reader, &length);

	return reader->failed ? "" : pnstrdup(bytes, length);
}

const char *
shard_wire_take_text(ShardReader *reader, size_t most, ShardArena *arena)
{
	size_t length;
	const char *bytes = shard_wire_get_bytes(reader, &length);
	char *text;

	if (length > most || (length > 0 && memchr(bytes, '\0', length)))
		reader->failed = true;
	if (reader->failed || !arena)
		return "";
	text = shard_arena_alloc(arena, length + 1);
	memcpy(text, bytes, length);
	return text;
}

bool
shard_wire_more(const ShardReader *reader, void *record, size_t size)
{
	memset(record, 0, size);
	return !reader->failed && reader->at < reader->end;
}

bool
shard_wire_taken(ShardReader *reader, bool good, void *record, size_t size)
{
	if (!reader->failed && good)
		return true;
	reader->failed = true;
	reader->at = reader->end;
	memset(record, 0, size);
	return false;
}
