/*
 * control_test.c
 *		Messages of the control plane: round trips, truncation at every byte, noise.
 */
#include "postgres_fe.h"

#include "common/pg_prng.h"
#include "core/map/control.h"
#include "unit.h"

static ShardArena *arena;

/* Decode bytes that are the whole of their own allocation. */
static bool
decode(const char *bytes, size_t length, ShardControl *message)
{
	char *copy = malloc(Max(length, 1));
	bool good;

	memcpy(copy, bytes, length);
	good = shard_control_decode(copy, length, arena, message);
	free(copy);
	return good;
}

/* A message that uses every field. */
static ShardControl
full_message(void)
{
	static ShardMapEntry entries[] = {{{SHARD_MAP_HOME, 5, 1}, 9, false, 3, "x\0y"},
									  {{SHARD_MAP_PIN, 0, 7}, PG_INT64_MAX, true, 0, ""}};
	static ShardShardRef shards[] = {{1, 2, 3, 4}, {-1, PG_INT32_MIN, PG_INT32_MAX, PG_INT64_MIN}};
	static int32 nodes[] = {1, 2, 3};
	static int32 nodes2[] = {-4};
	ShardControl message;

	memset(&message, 0, sizeof(message));
	message.kind = SHARD_CONTROL_ACCEPT;
	message.cluster.high = 1;
	message.cluster.low = PG_UINT64_MAX;
	message.era = 2;
	message.protocol_version = 3;
	message.from = 4;
	message.from_inc = 5;
	message.to = 6;
	message.to_inc = -7;
	message.b = PG_INT64_MAX;
	message.ballot = PG_INT64_MIN;
	message.any_point.b = 8;
	message.any_point.n = 9;
	message.any_n = 10;
	message.commit_n = 11;
	message.token = 12;
	message.flag = true;
	message.node = 13;
	message.word1 = 14;
	message.word2 = 15;
	message.type_id = 16;
	message.uuid.low = 17;
	message.uuid2.high = 18;
	message.text = "why \xC3\xA9";
	message.n_entries = lengthof(entries);
	message.entries = entries;
	message.n_shards = lengthof(shards);
	message.shards = shards;
	message.n_nodes = lengthof(nodes);
	message.nodes = nodes;
	message.n_nodes2 = lengthof(nodes2);
	message.nodes2 = nodes2;
	return message;
}

static void
test_round_trip(void)
{
	ShardControl message = full_message();
	ShardControl got;
	StringInfoData out;
	StringInfoData again;

	initStringInfo(&out);
	initStringInfo(&again);
	shard_control_encode(&out, &message);
	ok(decode(out.data, out.len, &got), "a message that uses every field");
	shard_control_encode(&again, &got);
	ok(out.len == again.len && memcmp(out.data, again.data, out.len) == 0, "comes back the same");
	ok(got.kind == message.kind && got.to_inc == -7 && got.ballot == PG_INT64_MIN &&
		   got.any_point.n == 9 && got.flag && strcmp(got.text, message.text) == 0,
	   "with its fields");
	ok(got.n_entries == 2 && got.entries[0].length == 3 &&
		   memcmp(got.entries[0].value, "x\0y", 3) == 0 && got.entries[1].deleted &&
		   got.entries[1].n == PG_INT64_MAX && got.shards[1].move_id == PG_INT64_MIN &&
		   got.n_nodes == 3 && got.nodes2[0] == -4,
	   "and lists");

	for (int length = 0; length < out.len; length++)
	{
		if (decode(out.data, length, &got) || got.kind != 0)
			ok(false, "%d of %d bytes are no message", length, out.len);
	}
	appendStringInfoChar(&out, 'x');
	ok(!decode(out.data, out.len, &got), "a byte too many");

	memset(&message, 0, sizeof(message));
	message.kind = SHARD_CONTROL_MEMBER_HEARTBEAT;
	resetStringInfo(&out);
	shard_control_encode(&out, &message);
	is_int(out.len, 2, "a message without fields has two bytes");
	message.text = "";
	resetStringInfo(&out);
	shard_control_encode(&out, &message);
	ok(decode(out.data, out.len, &got) && got.text && got.text[0] == '\0', "an empty text is one");
	pfree(out.data);
	pfree(again.data);
}

static void
test_kinds(void)
{
	for (int kind = 0; kind < 300; kind++)
	{
		StringInfoData out;
		ShardControl got;

		initStringInfo(&out);
		shard_wire_put_uint(&out, kind);
		shard_wire_put_uint(&out, 0);
		if (decode(out.data, out.len, &got) != (shard_control_name(kind) != NULL))
			ok(false, "kind %d is decoded if and only if it has a name", kind);
		pfree(out.data);
	}
	ok(strcmp(shard_control_name(SHARD_CONTROL_PREPARE), "prepare") == 0, "kinds have names");
	ok(shard_control_name(-1) == NULL, "what is none has no name");
}

/* Lists that claim more than there is must be refused before memory is taken for them. */
static void
test_bad_lists(void)
{
	for (int field = 0; field < 64; field++)
	{
		StringInfoData out;
		ShardControl got;

		initStringInfo(&out);
		shard_wire_put_uint(&out, SHARD_CONTROL_ACCEPT);
		shard_wire_put_uint(&out, UINT64CONST(1) << field);
		shard_wire_put_uint(&out, PG_UINT64_MAX / 8);
		shard_wire_put_uint(&out, 1);
		shard_wire_put_uint(&out, 1);
		if (field >= 20 && decode(out.data, out.len, &got))
			ok(false, "field %d", field);
		pfree(out.data);
	}
	ok(true, "counts beyond the message are refused");
}

/* P78: a key that nothing has; a home under it would become a fact that its lane's worker refuses for ever. */
static void
test_bad_keys(void)
{
	static const ShardMapKey keys[] = {{0, 1, 2}, {SHARD_MAP_HOME, -9, 2}, {SHARD_MAP_HOME, 9, -9}};

	for (int i = 0; i < (int) lengthof(keys); i++)
	{
		ShardMapEntry entry = {{SHARD_MAP_HOME, 9, 9}, 7, false, 0, ""};
		ShardControl message = {.kind = SHARD_CONTROL_LEARN, .n_entries = 1, .entries = &entry};
		ShardControl got;
		StringInfoData out;

		initStringInfo(&out);
		shard_control_encode(&out, &message);
		ok(decode(out.data, out.len, &got), "an entry");
		entry.key = keys[i];
		resetStringInfo(&out);
		shard_control_encode(&out, &message);
		ok(!decode(out.data, out.len, &got), "none with key %d %d %d", keys[i].kind, keys[i].a,
		   keys[i].b);
		pfree(out.data);
	}
}

/* A list of so many of the smallest elements. */
static bool
takes(int field, int bytes, int count)
{
	StringInfoData out;
	ShardControl got;
	bool good;

	initStringInfo(&out);
	shard_wire_put_uint(&out, SHARD_CONTROL_LEARN);
	shard_wire_put_uint(&out, UINT64CONST(1) << field);
	shard_wire_put_uint(&out, count);
	for (int i = 0; i < count; i++)
	{
		/* 1 as a kind of entries, and 0 */
		appendBinaryStringInfo(&out, "\2\0\0\0\0", bytes);
	}
	good = decode(out.data, out.len, &got);
	pfree(out.data);
	shard_arena_reset(arena);
	return good;
}

/* P46: what lists take does not grow with the bytes beyond what honest ones have. */
static void
test_long_lists(void)
{
	static const int fields[][2] = {{21, 5}, {22, 4}, {23, 1}, {24, 1}};

	for (int i = 0; i < (int) lengthof(fields); i++)
	{
		ok(takes(fields[i][0], fields[i][1], SHARD_CONTROL_MAX_ELEMENTS),
		   "field %d: as many as there can be", fields[i][0]);
		ok(!takes(fields[i][0], fields[i][1], SHARD_CONTROL_MAX_ELEMENTS + 1), "field %d: one more",
		   fields[i][0]);
	}
}

/* The header is read alone, whatever is behind it. */
static void
test_header(void)
{
	ShardControl message = full_message();
	StringInfoData out;
	ShardControl got;

	initStringInfo(&out);
	shard_control_encode(&out, &message);
	ok(shard_control_decode_header(out.data, out.len, &got) && got.kind == message.kind &&
		   got.from == 4 && got.from_inc == 5 && got.to_inc == -7 && got.cluster.high == 1 &&
		   got.entries == NULL && got.text == NULL,
	   "a header");
	ok(!shard_control_decode_header(out.data, 6, &got), "a part of one");
	ok(!shard_control_decode(out.data, out.len - 1, arena, &got) &&
		   shard_control_decode_header(out.data, out.len - 1, &got) && got.from == 4,
	   "of what is no message");
	pfree(out.data);
}

/* A map of two million homes is no larger than what one call brings. */
static void
test_largest_map(void)
{
	const int count = 100000;
	ShardMapEntry *entries = malloc(sizeof(ShardMapEntry) * count);
	ShardControl message = {.kind = SHARD_CONTROL_SYNC, .n_entries = count, .entries = entries};
	StringInfoData out;

	for (int i = 0; i < count; i++)
	{
		ShardHomeRecord home = {.epoch = 1000 + i % 100, .n_nodes = 1, .nodes = {250}, .want = 1};

		home.move_id = 30000000 + i;
		home.reason = 1;
		entries[i] =
			shard_record_put_home(1000, 900000 + i, &home, INT64CONST(30000000000) + i, arena);
	}
	initStringInfo(&out);
	shard_control_encode(&out, &message);
	ok(out.len / count * INT64CONST(2000000) < SHARD_CONTROL_MAX_BYTES,
	   "two million homes have %d bytes each", out.len / count);
	pfree(out.data);
	free(entries);
	shard_arena_reset(arena);
}

static void
test_noise(void)
{
	pg_prng_state random;
	ShardControl message = full_message();
	ShardControl got;
	StringInfoData out;
	int decoded = 0;

	initStringInfo(&out);
	shard_control_encode(&out, &message);
	pg_prng_seed(&random, 99);
	for (int round = 0; round < 30000; round++)
	{
		char noise[512];
		size_t length = pg_prng_uint64_range(&random, 0, sizeof(noise));

		for (size_t i = 0; i < length; i++)
			noise[i] = (char) (pg_prng_bool(&random) ? pg_prng_uint64_range(&random, 0, 9)
													 : pg_prng_uint64_range(&random, 0, 255));
		decoded += decode(noise, length, &got);

		length = out.len;
		memcpy(noise, out.data, length);
		for (int flips = 0; flips < 3; flips++)
			noise[pg_prng_uint64_range(&random, 0, length - 1)] = (char) pg_prng_uint32(&random);
		if (decode(noise, length, &got))
		{
			StringInfoData again;

			decoded++;
			initStringInfo(&again);
			shard_control_encode(&again, &got);
			pfree(again.data);
		}
		shard_arena_reset(arena);
	}
	ok(decoded > 0, "noise does no harm, %d of 60000 happened to be messages", decoded);
	pfree(out.data);
}

int
main(void)
{
	arena = shard_arena_create();
	test_round_trip();
	test_kinds();
	test_bad_lists();
	test_bad_keys();
	test_long_lists();
	test_header();
	test_largest_map();
	test_noise();
	shard_arena_destroy(arena);
	return unit_done();
}
