/*
 * copy_test.c
 *		Copying a shard: round trips, truncation at every byte, damaged bytes, what no encoder may write.
 */
#include "postgres_fe.h"

#include "common/pg_prng.h"
#include "core/copy.h"
#include "unit.h"

typedef union AnyStruct
{
	ShardExportCall export;
	ShardImportCall import;
	ShardCopyColumn column;
	ShardCopyCount count;
	ShardCopyChunk chunk;
	ShardCopyPosition position;
	ShardCopyHeld held;
	ShardCopyOrdered ordered;
	ShardStamp mark;
} AnyStruct;

typedef struct Form
{
	const char *name;
	bool (*get)(ShardReader *, AnyStruct *);
	void (*put)(StringInfo, const AnyStruct *);
} Form;

#define MEMBER(member) \
	static bool get_##member(ShardReader *reader, AnyStruct *any) \
	{ \
		return shard_copy_get_##member(reader, &any->member); \
	} \
	static void put_##member(StringInfo out, const AnyStruct *any) \
	{ \
		shard_copy_put_##member(out, &any->member); \
	}
#define FORM(member) \
	{ \
#member, get_##member, put_##member \
	}

MEMBER(export)
MEMBER(import)
MEMBER(column)
MEMBER(count)
MEMBER(chunk)
MEMBER(position)
MEMBER(held)
MEMBER(ordered)
MEMBER(mark)

static const Form forms[] = {FORM(export),	 FORM(import), FORM(column),  FORM(count), FORM(chunk),
							 FORM(position), FORM(held),   FORM(ordered), FORM(mark)};

/* A reader of bytes that are the whole of their own allocation; free(*copy) afterwards. */
static ShardReader
reader_of(const char *bytes, size_t length, char **copy)
{
	*copy = malloc(Max(length, 1));
	memcpy(*copy, bytes, length);
	return (ShardReader){*copy, *copy + length, false};
}

static bool
same_again(const Form *form, const AnyStruct *got, const char *bytes, size_t length)
{
	StringInfoData out;
	bool same;

	initStringInfo(&out);
	form->put(&out, got);
	same = (size_t) out.len == length && memcmp(out.data, bytes, length) == 0;
	pfree(out.data);
	return same;
}

/* A good struct comes back from its bytes, and from no beginning of them. */
static void
check_good(const char *name, const AnyStruct *any, const char *what)
{
	const Form *form = NULL;
	StringInfoData out;
	AnyStruct got;
	ShardReader reader;
	char *copy;

	for (size_t i = 0; i < lengthof(forms); i++)
		if (strcmp(forms[i].name, name) == 0)
			form = &forms[i];
	initStringInfo(&out);
	form->put(&out, any);
	reader = reader_of(out.data, out.len, &copy);
	ok(form->get(&reader, &got) && !reader.failed && reader.at == reader.end &&
		   same_again(form, &got, out.data, out.len),
	   "%s: %s comes back", name, what);
	ok(!form->get(&reader, &got) && !reader.failed, "%s: then comes the end", name);
	free(copy);
	for (int length = 1; length < out.len; length++)
	{
		reader = reader_of(out.data, length, &copy);
		if (form->get(&reader, &got) || !reader.failed || reader.at != reader.end)
			ok(false, "%s: %d of %d bytes are none", name, length, out.len);
		free(copy);
	}
	pfree(out.data);
}

static const ShardShardRef shard = {7, 999999, 4, 5};

static ShardCopyHeld
full_held(void)
{
	ShardCopyHeld held;

	memset(&held, 0, sizeof(held));
	held.entity = "e";
	held.entity_len = 1;
	held.kind = SHARD_KIND_TELL;
	held.epoch = 3;
	held.stamp = (ShardStamp){SHARD_PREFIX_NODE, 1, 15, SHARD_PACKET_MAX_SEQ - 1};
	held.src_type = 2;
	held.src_entity = "f";
	held.src_entity_len = 1;
	held.mid_node = 1;
	held.mid_seq = 9;
	held.payload = "\0{}";
	held.payload_len = 3;
	held.ordered = true;
	held.number = PG_INT64_MIN;
	held.attempts = 3;
	held.has_next = true;
	held.next_us = -5;
	held.waited_us = 6;
	held.sqlstate = "22012";
	held.sqlstate_len = 5;
	held.error = "division by zero";
	held.error_len = 16;
	return held;
}

static void
test_round_trips(void)
{
	AnyStruct any;

	memset(&any, 0, sizeof(any));
	any.export =
		(ShardExportCall){SHARD_COPY_ROWS, shard, "counter", 7, 1000, {SHARD_COPY_STATE, "\0a", 2}};
	check_good("export", &any, "one that goes on");
	any.export.position = (ShardCopyPosition){SHARD_COPY_NONE, "", 0};
	any.export.kind = SHARD_COPY_PREPARE;
	check_good("export", &any, "a first one");
	memset(&any, 0, sizeof(any));
	any.import = (ShardImportCall){SHARD_COPY_ROWS, shard, 3, PG_UINT64_MAX};
	check_good("import", &any, "one");
	memset(&any, 0, sizeof(any));
	any.column = (ShardCopyColumn){"state", 5, "jsonb", 5, SHARD_COPY_COLUMN_TEXT};
	check_good("column", &any, "one");
	memset(&any, 0, sizeof(any));
	any.count = (ShardCopyCount){77, SHARD_PACKET_MAX_SEQ - 1};
	check_good("count", &any, "one of a part that is not known");
	memset(&any, 0, sizeof(any));
	any.chunk = (ShardCopyChunk){SHARD_COPY_MARKS, 2, "abc", 3};
	check_good("chunk", &any, "one");
	memset(&any, 0, sizeof(any));
	any.position = (ShardCopyPosition){SHARD_COPY_ORDERED, "x", 1};
	check_good("position", &any, "one");
	memset(&any, 0, sizeof(any));
	any.held = full_held();
	check_good("held", &any, "one with all fields");
	any.held = (ShardCopyHeld){.entity = "e",
							   .entity_len = 1,
							   .kind = SHARD_KIND_PASSIVATE,
							   .epoch = -1,
							   .mid_node = 1,
							   .src_entity = "",
							   .payload = "",
							   .sqlstate = "",
							   .error = ""};
	check_good("held", &any, "one with few fields");
	memset(&any, 0, sizeof(any));
	any.ordered = (ShardCopyOrdered){"e", 1, PG_INT64_MIN, PG_INT64_MAX, 2, 3};
	check_good("ordered", &any, "one");
	memset(&any, 0, sizeof(any));
	any.mark = (ShardStamp){SHARD_PREFIX_NODE, 1, 0, 1};
	check_good("mark", &any, "one");
}

/* Any bit of a chunk that changes is noticed. */
static void
test_damage(void)
{
	ShardCopyChunk chunk = {SHARD_COPY_STATE, 3, "three rows, or what may pass for them", 37};
	ShardCopyChunk got;
	StringInfoData out;
	ShardReader reader;
	char *copy;
	int taken = 0;

	initStringInfo(&out);
	shard_copy_put_chunk(&out, &chunk);
	for (int bit = 16; bit < out.len * 8; bit++)
	{
		out.data[bit / 8] ^= 1 << bit % 8;
		reader = reader_of(out.data, out.len, &copy);
		taken += shard_copy_get_chunk(&reader, &got);
		free(copy);
		out.data[bit / 8] ^= 1 << bit % 8;
	}
	ok(taken == 0, "chunk: one that is damaged is refused");
	pfree(out.data);
}

static void
test_fields(void)
{
	StringInfoData out;
	ShardReader reader;
	const char *bytes;
	char *copy;
	int length;

	initStringInfo(&out);
	shard_copy_put_field(&out, "abc", 3);
	shard_copy_put_field(&out, NULL, 0);
	shard_copy_put_field(&out, "", 0);
	reader = reader_of(out.data, out.len, &copy);
	ok(shard_copy_get_field(&reader, &bytes, &length) && length == 3 &&
		   memcmp(bytes, "abc", 3) == 0,
	   "field: bytes");
	ok(shard_copy_get_field(&reader, &bytes, &length) && bytes == NULL, "field: NULL");
	ok(shard_copy_get_field(&reader, &bytes, &length) && bytes != NULL && length == 0,
	   "field: no bytes");
	ok(!shard_copy_get_field(&reader, &bytes, &length) && !reader.failed, "field: the end");
	free(copy);
	reader = reader_of(out.data, 2, &copy);
	ok(!shard_copy_get_field(&reader, &bytes, &length) && reader.failed, "field: cut");
	free(copy);
	pfree(out.data);
}

/* Bad structs, as bytes that an encoder without assertions would write. */
static void
test_bad(void)
{
	static const unsigned char bad[][6] = {
		{2, 0x80, 0}, /* count: a number too long */
		{0, 2},		  /* count: of no part */
		{2, 1},		  /* count: fewer than none */
		{10, 0},	  /* position: of an unknown part */
		{0, 1, 'x'},  /* position: nothing, and a key */
	};
	ShardCopyCount count;
	ShardCopyPosition position;

	for (size_t i = 0; i < lengthof(bad); i++)
	{
		ShardReader reader = {(const char *) bad[i], (const char *) bad[i] + 3, false};
		bool took = i < 3 ? shard_copy_get_count(&reader, &count)
						  : shard_copy_get_position(&reader, &position);

		ok(!took && reader.failed, "bad bytes %d are refused", (int) i);
	}
}

static void
test_noise(void)
{
	pg_prng_state state;

	pg_prng_seed(&state, 5);
	for (int i = 0; i < 20000; i++)
	{
		char bytes[64];
		int length = 1 + (int) (pg_prng_uint32(&state) % sizeof(bytes));
		const Form *form = &forms[i % lengthof(forms)];
		ShardReader reader;
		AnyStruct got;
		char *copy;

		for (int j = 0; j < length; j++)
			bytes[j] = (char) (pg_prng_uint32(&state) % (i % 2 ? 256 : 6));
		reader = reader_of(bytes, length, &copy);
		while (form->get(&reader, &got))
			;
		free(copy);
	}
	ok(true, "noise harms nobody");
}

int
main(void)
{
	test_round_trips();
	test_damage();
	test_fields();
	test_bad();
	test_noise();
	return unit_done();
}
