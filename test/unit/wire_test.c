/*
 * wire_test.c
 *		Numbers and bytes: what is written is read again, and nothing else is.
 */
#include "postgres_fe.h"

#include "core/base/wire.h"
#include "unit.h"

static const int64 numbers[] = {
	0,
	1,
	-1,
	63,
	64,
	-64,
	-65,
	127,
	128,
	300,
	PG_INT32_MAX,
	PG_INT32_MIN,
	(int64) PG_INT32_MAX + 1,
	PG_INT64_MAX,
	PG_INT64_MAX - 1,
	PG_INT64_MIN,
	PG_INT64_MIN + 1,
};

/* A reader of bytes that are the whole of their own allocation; the caller frees them. */
static ShardReader
exact_reader(const char *bytes, size_t length, char **copy)
{
	ShardReader reader;

	*copy = malloc(Max(length, 1));
	memcpy(*copy, bytes, length);
	reader.at = *copy;
	reader.end = *copy + length;
	reader.failed = false;
	return reader;
}

static void
test_numbers(void)
{
	StringInfoData out;

	initStringInfo(&out);
	for (size_t i = 0; i < lengthof(numbers); i++)
	{
		char *copy;
		ShardReader reader;

		resetStringInfo(&out);
		shard_wire_put_int(&out, numbers[i]);
		shard_wire_put_uint(&out, (uint64) numbers[i]);
		reader = exact_reader(out.data, out.len, &copy);
		ok(shard_wire_get_int(&reader) == numbers[i] &&
			   shard_wire_get_uint(&reader) == (uint64) numbers[i] && !reader.failed &&
			   reader.at == reader.end,
		   INT64_FORMAT " comes back", numbers[i]);
		free(copy);

		for (int length = 0; length < out.len; length++)
		{
			reader = exact_reader(out.data, length, &copy);
			shard_wire_get_int(&reader);
			shard_wire_get_uint(&reader);
			if (!reader.failed)
				ok(false, "%d of %d bytes fail", length, out.len);
			free(copy);
		}
	}
	pfree(out.data);
}

static void
test_bad_numbers(void)
{
	static const struct
	{
		const char *bytes;
		size_t length;
	} bad[] = {
		{"\x80\x00", 2},									 /* longer than needed */
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10},	 /* 65 bits */
		{"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11} /* more bytes than 64 bits need */
	};

	for (size_t i = 0; i < lengthof(bad); i++)
	{
		char *copy;
		ShardReader reader = exact_reader(bad[i].bytes, bad[i].length, &copy);

		ok(shard_wire_get_uint(&reader) == 0 && reader.failed, "bad number %d", (int) i);
		ok(shard_wire_get_int(&reader) == 0 && reader.failed, "what follows fails, too");
		free(copy);
	}
}

static void
test_int32(void)
{
	StringInfoData out;
	ShardReader reader = {NULL, NULL, false};

	initStringInfo(&out);
	shard_wire_put_int(&out, PG_INT32_MIN);
	shard_wire_put_int(&out, (int64) PG_INT32_MAX + 1);
	reader.at = out.data;
	reader.end = out.data + out.len;
	is_int(shard_wire_get_int32(&reader), PG_INT32_MIN, "the smallest int32");
	ok(!reader.failed, "is one");
	is_int(shard_wire_get_int32(&reader), 0, "one more than the largest");
	ok(reader.failed, "is none");
	pfree(out.data);
}

static void
test_bytes(void)
{
	StringInfoData out;
	ShardReader reader = {NULL, NULL, false};
	size_t length;
	const char *bytes;

	initStringInfo(&out);
	shard_wire_put_bytes(&out, "a\0b", 3);
	shard_wire_put_bytes(&out, NULL, 0);
	reader.at = out.data;
	reader.end = out.data + out.len;
	bytes = shard_wire_get_bytes(&reader, &length);
	ok(length == 3 && memcmp(bytes, "a\0b", 3) == 0, "bytes come back");
	shard_wire_get_bytes(&reader, &length);
	ok(length == 0 && !reader.failed && reader.at == reader.end, "no bytes, too");

	reader.at = out.data;
	reader.end = out.data + 3;
	bytes = shard_wire_get_bytes(&reader, &length);
	ok(length == 0 && bytes[0] == '\0' && reader.failed, "bytes beyond the end fail");
	pfree(out.data);
}

int
main(void)
{
	test_numbers();
	test_bad_numbers();
	test_int32();
	test_bytes();
	return unit_done();
}
