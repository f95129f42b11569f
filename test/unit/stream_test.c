/*
 * stream_test.c
 *		What a receiver takes, and when a link is quarantined (X3, X4).
 */
#include "postgres_fe.h"

#include "core/flow/stream.h"
#include "unit.h"

static const ShardUuid first = {0, 1};
static const ShardUuid second = {0, 2};
static const ShardUuid third = {0, 3};

/* One section against a position. */
typedef struct ReceiveCase
{
	const char *name;
	ShardStreamPosition position;
	int32 inc;
	int32 gen;
	int64 first_seq;
	int n_rows;
	ShardStreamVerdict verdict;
	int skip;
} ReceiveCase;

static const ReceiveCase receive_cases[] = {
	{"the first rows", {3, 0, 0, {0, 0}}, 3, 0, 1, 4, SHARD_STREAM_TAKE, 0},
	{"the next rows", {3, 0, 10, {0, 1}}, 3, 0, 11, 4, SHARD_STREAM_TAKE, 0},
	{"known rows are skipped", {3, 0, 10, {0, 1}}, 3, 0, 9, 4, SHARD_STREAM_TAKE, 2},
	{"all rows are known", {3, 0, 10, {0, 1}}, 3, 0, 1, 4, SHARD_STREAM_TAKE, 4},
	{"exactly up to the position", {3, 0, 10, {0, 1}}, 3, 0, 7, 4, SHARD_STREAM_TAKE, 4},
	{"a row is missing", {3, 0, 10, {0, 1}}, 3, 0, 12, 4, SHARD_STREAM_GAP, 0},
	{"an old incarnation", {3, 0, 10, {0, 1}}, 2, 0, 11, 4, SHARD_STREAM_FENCED, 0},
	{"a new one without hello", {3, 0, 10, {0, 1}}, 4, 0, 11, 4, SHARD_STREAM_HELLO_FIRST, 0},
	{"an older generation", {3, 2, 10, {0, 1}}, 3, 1, 11, 4, SHARD_STREAM_HELLO_FIRST, 0},
	{"no rows", {3, 0, 10, {0, 1}}, 3, 0, 11, 0, SHARD_STREAM_TAKE, 0},
};

static void
test_receive(void)
{
	for (int i = 0; i < (int) lengthof(receive_cases); i++)
	{
		const ReceiveCase *c = &receive_cases[i];
		int skip;

		is_int(shard_stream_receive(&c->position, c->inc, c->gen, c->first_seq, c->n_rows, &skip),
			   c->verdict, "verdict: %s", c->name);
		is_int(skip, c->skip, "skip: %s", c->name);
	}
}

/* A stream with 100 rows of the first incarnation, 50 of the second, 90 acknowledged. */
static ShardStream
make_stream(void)
{
	ShardStream stream = {0};

	shard_stream_begin(&stream, first);
	while (stream.last < 100)
		shard_stream_next(&stream);
	shard_stream_begin(&stream, second);
	while (stream.last < 150)
		shard_stream_next(&stream);
	shard_stream_acked(&stream, 90);
	return stream;
}

static void
test_lineage(void)
{
	static const struct
	{
		const char *name;
		ShardStreamPosition position;
		ShardStreamState state;
	} cases[] = {
		{"as acknowledged", {2, 0, 90, {0, 1}}, SHARD_STREAM_OPEN},
		{"the last of the first", {2, 0, 100, {0, 1}}, SHARD_STREAM_OPEN},
		{"the first of the second", {2, 0, 101, {0, 2}}, SHARD_STREAM_OPEN},
		{"all", {2, 0, 150, {0, 2}}, SHARD_STREAM_OPEN},
		{"below what was acknowledged", {2, 0, 89, {0, 1}}, SHARD_STREAM_RECEIVER_REGRESSED},
		{"nothing", {2, 0, 0, {0, 0}}, SHARD_STREAM_RECEIVER_REGRESSED},
		{"more than I have", {2, 0, 151, {0, 2}}, SHARD_STREAM_ORIGIN_REGRESSED},
		{"a number of mine that another life wrote",
		 {2, 0, 120, {0, 1}},
		 SHARD_STREAM_ORIGIN_REGRESSED},
		{"a life that I do not know", {2, 0, 120, {0, 3}}, SHARD_STREAM_ORIGIN_REGRESSED},
		{"another generation", {2, 1, 120, {0, 2}}, SHARD_STREAM_ORIGIN_REGRESSED},
	};

	for (int i = 0; i < (int) lengthof(cases); i++)
	{
		ShardStream stream = make_stream();

		is_int(shard_stream_greeted(&stream, &cases[i].position), cases[i].state, "hello: %s",
			   cases[i].name);
		if (cases[i].state == SHARD_STREAM_OPEN)
			is_int(stream.sent, cases[i].position.seq, "goes on: %s", cases[i].name);
		shard_stream_free(&stream);
	}
}

/* Generations: which hello begins one, and that an accepted link is always taken back. */
static void
test_generations(void)
{
	static const struct
	{
		const char *name;
		int32 known;
		int32 hello;
		bool taken;
	} cases[] = {
		{"the same", 5, 5, false},
		{"the next", 5, 6, true},
		{"an older one", 5, 4, false},
		{"the last in reach", 5, 5 + SHARD_STREAM_REACH, true},
		{"beyond reach", 5, 6 + SHARD_STREAM_REACH, false},
		{"the last there is", 0, PG_INT32_MAX, false},
		{"behind the last there is", PG_INT32_MAX, 0, true},
		{"in reach behind the last there is", PG_INT32_MAX - 1, SHARD_STREAM_REACH - 2, true},
		{"beyond reach behind it", PG_INT32_MAX - 1, SHARD_STREAM_REACH - 1, false},
	};
	static const int32 gens[] = {
		0,			 1, 7, 1023, 1024, 1025, 5000, 1 << 30, PG_INT32_MAX - 1024, PG_INT32_MAX - 1,
		PG_INT32_MAX};

	for (int i = 0; i < (int) lengthof(cases); i++)
	{
		ShardStreamPosition position = {1, cases[i].known, 10, {0, 1}};

		is_int(shard_stream_greet(&position, 1, cases[i].hello, 20), SHARD_STREAM_TAKE,
			   "hello with a generation: %s", cases[i].name);
		is_int(position.gen, cases[i].taken ? cases[i].hello : cases[i].known, "known then: %s",
			   cases[i].name);
		is_int(position.seq, cases[i].taken ? 20 : 10, "goes on at: %s", cases[i].name);
	}

	for (int own = 0; own < (int) lengthof(gens); own++)
		for (int known = 0; known < (int) lengthof(gens); known++)
		{
			ShardStream stream = {.gen = gens[own], .last = 20};
			ShardStreamPosition position = {1, gens[known], 10, {0, 1}};

			shard_stream_accept(&stream, &position);
			ok(stream.gen >= 0 && stream.gen % SHARD_STREAM_REACH ==
									  (gens[own] % SHARD_STREAM_REACH + 1) % SHARD_STREAM_REACH,
			   "accepted with %d, known %d: counted", gens[own], gens[known]);
			is_int(shard_stream_greet(&position, 1, stream.gen, stream.truncated),
				   SHARD_STREAM_TAKE, "accepted with %d, known %d: hello", gens[own], gens[known]);
			is_int(shard_stream_greeted(&stream, &position), SHARD_STREAM_OPEN,
				   "accepted with %d, known %d: open", gens[own], gens[known]);
		}
}

static void
test_origin(void)
{
	ShardStream stream = make_stream();
	ShardStreamPosition position = {2, 0, 150, {0, 2}};

	ok(shard_stream_possibly_sent(&stream, 100), "rows of an earlier incarnation may be sent");
	ok(!shard_stream_possibly_sent(&stream, 101), "own rows are not sent yet");
	shard_stream_sent(&stream, 120);
	shard_stream_close(&stream);
	ok(shard_stream_possibly_sent(&stream, 120), "a lost connection forgets nothing");
	ok(!shard_stream_acked(&stream, 80), "positions only rise");
	ok(!shard_stream_acked(&stream, 151), "nobody has what was not written");
	ok(shard_stream_acked(&stream, 120), "a new position");

	/* A backend of a former connection committed after hello: the peer has what this one never sent. */
	stream.state = SHARD_STREAM_OPEN;
	ok(shard_stream_acked(&stream, 130), "more than was sent on this connection");
	is_int(stream.sent, 130, "is not sent again");
	stream.state = SHARD_STREAM_CLOSED;

	shard_stream_begin(&stream, third);
	is_int(stream.n_begins, 2, "who wrote acknowledged rows is forgotten");
	shard_stream_begin(&stream, first);
	is_int(stream.n_begins, 2, "who wrote nothing is forgotten");

	/* A receiver that knows more: the operator lets both go on. */
	position.seq = 170;
	is_int(shard_stream_greeted(&stream, &position), SHARD_STREAM_ORIGIN_REGRESSED, "regressed");
	shard_stream_close(&stream);
	is_int(stream.state, SHARD_STREAM_ORIGIN_REGRESSED, "a quarantine stays");
	stream.truncated = 100;
	shard_stream_accept(&stream, &position);
	is_int(shard_stream_greet(&position, 1, stream.gen, stream.acked), SHARD_STREAM_FENCED,
		   "an old incarnation says hello");
	is_int(shard_stream_greet(&position, 3, stream.gen, stream.acked), SHARD_STREAM_TAKE,
		   "a new generation");
	is_int(position.seq, stream.last, "begins empty, behind the last row");
	is_int(stream.truncated, stream.last, "nothing is stored of the old one");
	ok(shard_stream_possibly_sent(&stream, stream.last), "and all of it may have been sent");
	is_int(shard_stream_greeted(&stream, &position), SHARD_STREAM_OPEN, "and is open");
	shard_stream_free(&stream);
}

int
main(void)
{
	test_receive();
	test_lineage();
	test_generations();
	test_origin();
	return unit_done();
}
