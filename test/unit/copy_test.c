/*
 * copy_test.c
 *		Copying a shard: round trips, truncation at every byte, damaged bytes, what no encoder may write.
 */
#include "postgres_fe.h"

#include "common/pg_prng.h"
#include "core/flow/copy.h"
#include "forms.h"

FORM_FUNCTIONS(shard_copy, export, ShardExportCall, _export)
FORM_FUNCTIONS(shard_copy, import, ShardImportCall, _import)
FORM_FUNCTIONS(shard_copy, column, ShardCopyColumn, _column)
FORM_FUNCTIONS(shard_copy, count, ShardCopyCount, _count)
FORM_FUNCTIONS(shard_copy, chunk, ShardCopyChunk, _chunk)
FORM_FUNCTIONS(shard_copy, position, ShardCopyPosition, _position)
FORM_FUNCTIONS(shard_copy, held, ShardCopyHeld, _held)
FORM_FUNCTIONS(shard_copy, ordered, ShardCopyOrdered, _ordered)
FORM_FUNCTIONS(shard_copy, history, ShardCopyHistory, _history)
FORM_FUNCTIONS(shard_copy, mark, ShardStamp, _mark)
FORM_FUNCTIONS(shard_copy, timer, ShardCopyTimer, _timer)

static const Form forms[] = {FORM(export, ShardExportCall),	 FORM(import, ShardImportCall),
							 FORM(column, ShardCopyColumn),	 FORM(count, ShardCopyCount),
							 FORM(chunk, ShardCopyChunk),	 FORM(position, ShardCopyPosition),
							 FORM(held, ShardCopyHeld),		 FORM(ordered, ShardCopyOrdered),
							 FORM(mark, ShardStamp),		 FORM(timer, ShardCopyTimer),
							 FORM(history, ShardCopyHistory)};

static void
check_good(const char *name, const void *record, const char *what)
{
	check_round_trip(find_form(forms, lengthof(forms), name), record, what);
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
	held.pauses = true;
	return held;
}

static void
test_round_trips(void)
{
	ShardExportCall export = {
		SHARD_COPY_ROWS, shard, "counter", 7, 1000, {SHARD_COPY_STATE, "\0a", 2}, "alice", 5};
	ShardCopyHeld held = full_held();

	check_good("export", &export, "one that goes on");
	export.position = (ShardCopyPosition){SHARD_COPY_NONE, "", 0};
	export.kind = SHARD_COPY_PREPARE;
	check_good("export", &export, "a first one");
	check_good("import", &(ShardImportCall){SHARD_COPY_ROWS, shard, 3, PG_UINT64_MAX}, "one");
	check_good("column", &(ShardCopyColumn){"state", 5, "jsonb", 5, SHARD_COPY_COLUMN_TEXT}, "one");
	check_good("count", &(ShardCopyCount){77, SHARD_PACKET_MAX_SEQ - 1},
			   "one of a part that is not known");
	check_good("chunk", &(ShardCopyChunk){SHARD_COPY_MARKS, 2, "abc", 3}, "one");
	check_good("position", &(ShardCopyPosition){SHARD_COPY_ORDERED, "x", 1}, "one");
	check_good("held", &held, "one with all fields");
	held = (ShardCopyHeld){.entity = "e",
						   .entity_len = 1,
						   .kind = SHARD_KIND_PASSIVATE,
						   .epoch = -1,
						   .mid_node = 1,
						   .src_entity = "",
						   .payload = "",
						   .sqlstate = "",
						   .error = ""};
	check_good("held", &held, "one with few fields");
	check_good("ordered", &(ShardCopyOrdered){"e", 1, PG_INT64_MIN, PG_INT64_MAX, 2, 3}, "one");
	check_good("history",
			   &(ShardCopyHistory){"e", 1, 1, -2, "22012", 5, "no", 2, 3, "stop", 4, "retry", 5,
								   -1},
			   "one");
	check_good("mark", &(ShardStamp){SHARD_PREFIX_NODE, 1, 0, 1}, "one");
	check_good("timer",
			   &(ShardCopyTimer){"e", 1, "n", 1, PG_INT64_MIN, PG_INT64_MAX, -1, 5, true, 1, 2, 3,
								 "UTC", 3, 2, 9, 0, "\0{}", 3},
			   "one that repeats");
	check_good("timer",
			   &(ShardCopyTimer){.entity = "e",
								 .entity_len = 1,
								 .name = "",
								 .zone = "",
								 .missed = 1,
								 .idle = 10000,
								 .message = "x",
								 .message_len = 1},
			   "a receive time-out");
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
		{126, 0},	  /* position: of an unknown part */
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

/* The attempts of a message that waits are counted on: the last byte of their number is made greater. */
static void
test_attempts(void)
{
	static const char most[] = "\x80\x80\x80\x80\x08";
	ShardCopyHeld held = full_held();
	ShardCopyHeld got;
	StringInfoData out;
	ShardReader reader;

	held.attempts = 1 << 30;
	initStringInfo(&out);
	shard_copy_put_held(&out, &held);
	reader = (ShardReader){out.data, out.data + out.len, false};
	ok(shard_copy_get_held(&reader, &got) && got.attempts == held.attempts, "most attempts");
	for (int i = 0; i + 5 <= out.len; i++)
		if (memcmp(out.data + i, most, 5) == 0)
			out.data[i + 4] = 0x0f;
	reader = (ShardReader){out.data, out.data + out.len, false};
	ok(!shard_copy_get_held(&reader, &got) && reader.failed, "more are refused");
	pfree(out.data);
}

/*
 * Whether a timer is taken whose period, or time-out, is a little shorter: what differs from the bytes of a longer one is
 * made less.
 */
static bool
takes_shorter(const ShardCopyTimer *timer, const ShardCopyTimer *longer)
{
	ShardCopyTimer got;
	StringInfoData out;
	StringInfoData other;
	ShardReader reader;
	int at = 0;
	bool taken;

	initStringInfo(&out);
	initStringInfo(&other);
	shard_copy_put_timer(&out, timer);
	shard_copy_put_timer(&other, longer);
	while (at < out.len && out.data[at] == other.data[at])
		at++;
	out.data[at] -= 2;
	reader = (ShardReader){out.data, out.data + out.len, false};
	taken = shard_copy_get_timer(&reader, &got) && !reader.failed;
	pfree(out.data);
	pfree(other.data);
	return taken;
}

/* A peer brings no timers that nobody could have made. */
static void
test_timers(void)
{
	ShardCopyTimer timer = {"e", 1,		"n",   1, 1, 1, 1, 5,	true, 0,
							0,	 10010, "UTC", 3, 1, 9, 0, "x", 1};
	ShardCopyTimer longer = timer;

	longer.time++;
	ok(takes_shorter(&timer, &longer), "a timer of a short period is taken");
	timer.time = 10000;
	longer.time = 10001;
	ok(!takes_shorter(&timer, &longer), "none of a shorter one");
	timer.name_len = longer.name_len = 0;
	timer.repeats = longer.repeats = false;
	timer.time = longer.time = 0;
	timer.idle = 10000;
	longer.idle = 10001;
	ok(!takes_shorter(&timer, &longer), "nor a receive time-out of a shorter one");
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
		char *got = malloc(form->size);
		char *copy;

		for (int j = 0; j < length; j++)
			bytes[j] = (char) (pg_prng_uint32(&state) % (i % 2 ? 256 : 6));
		reader = reader_of(bytes, length, &copy);
		while (form->get(&reader, got))
			;
		free(copy);
		free(got);
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
	test_attempts();
	test_timers();
	test_noise();
	return unit_done();
}
