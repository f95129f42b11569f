/*
 * packet_test.c
 *		Packets: round trips, truncation at every byte, what no encoder may write, noise.
 */
#include "postgres_fe.h"

#include "common/pg_prng.h"
#include "core/flow/packet.h"
#include "forms.h"

#define BIG (SHARD_PACKET_MAX_SEQ - 1)

static ShardParcel
full_parcel(void)
{
	ShardParcel parcel;

	memset(&parcel, 0, sizeof(parcel));
	parcel.kind = SHARD_KIND_TELL;
	parcel.type_id = 7;
	parcel.shard = 999999;
	parcel.epoch = PG_INT32_MAX;
	parcel.stamp.kind = SHARD_PREFIX_NODE;
	parcel.stamp.a = 3;
	parcel.stamp.b = SHARD_LANES - 1;
	parcel.stamp.seq = BIG;
	parcel.entity = "caf\xC3\xA9";
	parcel.entity_len = 5;
	parcel.src_type = 2;
	parcel.src_entity = "x";
	parcel.src_entity_len = 1;
	parcel.mid_node = 3;
	parcel.mid_seq = BIG;
	parcel.payload = "\0\1\2";
	parcel.payload_len = 3;
	return parcel;
}

static ShardCallHeader
full_header(void)
{
	ShardCallHeader header;

	memset(&header, 0, sizeof(header));
	header.protocol_version = SHARD_PROTOCOL_VERSION;
	header.cluster.high = 1;
	header.cluster.low = PG_UINT64_MAX;
	header.era = 2;
	header.from = SHARD_MAX_NODE_ID;
	header.from_inc = 4;
	header.incarnation.high = 5;
	header.to = 6;
	header.known_n = BIG;
	return header;
}

/* ---- all structs, one way ---------------------------------------------------------------------- */

FORM_FUNCTIONS(shard_packet, parcel, ShardParcel, )
FORM_FUNCTIONS(shard_packet, fact, ShardFact, _fact)
FORM_FUNCTIONS(shard_packet, done, ShardDone, _done)
FORM_FUNCTIONS(shard_packet, header, ShardCallHeader, _header)
FORM_FUNCTIONS(shard_packet, stream, ShardStreamSection, _stream)
FORM_FUNCTIONS(shard_packet, received, ShardReceived, _received)
FORM_FUNCTIONS(shard_packet, position, ShardStreamPositionSection, _position)
FORM_FUNCTIONS(shard_packet, ask, ShardAskCall, _ask)
FORM_FUNCTIONS(shard_packet, answer, ShardAskAnswer, _answer)

static const Form forms[] = {FORM(parcel, ShardParcel),
							 FORM(fact, ShardFact),
							 FORM(done, ShardDone),
							 FORM(header, ShardCallHeader),
							 FORM(stream, ShardStreamSection),
							 FORM(received, ShardReceived),
							 FORM(position, ShardStreamPositionSection),
							 FORM(ask, ShardAskCall),
							 FORM(answer, ShardAskAnswer)};

static const Form *
form_of(const char *name)
{
	return find_form(forms, lengthof(forms), name);
}

static void
check_good(const char *name, const void *record, const char *what)
{
	check_round_trip(form_of(name), record, what);
}

static void
test_round_trips(void)
{
	ShardParcel parcel = full_parcel();
	ShardCallHeader header = full_header();

	check_good("parcel", &parcel, "one with all fields");
	parcel.payload_len = 0;
	parcel.entity_len = 0;
	parcel.src_type = 0;
	parcel.src_entity_len = 0;
	parcel.kind = SHARD_KIND_PASSIVATE;
	check_good("parcel", &parcel, "one with few fields");
	check_good("parcel", &(ShardParcel){.kind = SHARD_KIND_VOID}, "void");
	check_good(
		"fact",
		&(ShardFact){
			.type_id = 1, .shard = 2, .n = BIG, .node = 4, .epoch = 5, .lost = 5, .move_id = 7},
		"one");
	check_good("fact",
			   &(ShardFact){.type_id = 1,
							.n = 3,
							.node = 4,
							.want = 4,
							.n_backups = 3,
							.backups = {1, 2, 3}},
			   "one with a set");
	check_good("fact", &(ShardFact){.type_id = 1, .n = 3, .node = 4, .want = 2},
			   "one whose home is alone in its set");
	check_good("done", &(ShardDone){1, 2, BIG}, "one");
	check_good("header", &header, "one");
	check_good("stream", &(ShardStreamSection){15, 1, 2, BIG, 0, {8, 9}}, "one without rows");
	check_good("received", &(ShardReceived){15, 0, BIG}, "one");
	check_good("position", &(ShardStreamPositionSection){0, 1, 2, 3, BIG, {PG_UINT64_MAX, 1}},
			   "one");
	check_good("ask", &(ShardAskCall){1, 2, 3, 4, BIG, PG_INT64_MAX, "e", 1, "p\0", 2}, "one");
	check_good("answer", &(ShardAskAnswer){SHARD_ASK_REPLY, true, "xyz", 3}, "a reply");
	check_good("answer", &(ShardAskAnswer){SHARD_ASK_REPLY, false, NULL, 0},
			   "a reply that is NULL");
	check_good("answer", &(ShardAskAnswer){SHARD_ASK_ERROR, true, "e", 1}, "an error");
	check_good("answer", &(ShardAskAnswer){SHARD_ASK_NOT_HERE, false, NULL, 0}, "not here");
}

static void
test_fields(void)
{
	ShardParcel parcel = full_parcel();
	ShardParcel got;
	ShardFact fact = {.type_id = 1, .shard = 2, .n = 3, .node = 4, .epoch = 5, .move_id = 7};
	ShardHomeRecord home = shard_packet_fact_home(&fact);
	StringInfoData out;
	ShardReader reader;
	char *copy;

	initStringInfo(&out);
	shard_packet_put(&out, &parcel);
	parcel.kind = SHARD_KIND_VOID;
	shard_packet_put(&out, &parcel);
	parcel.kind = SHARD_KIND_START;
	parcel.payload_len = 0;
	shard_packet_put(&out, &parcel);
	reader = reader_of(out.data, out.len, &copy);
	ok(shard_packet_get(&reader, &got) && got.type_id == 7 && got.shard == 999999 &&
		   got.epoch == PG_INT32_MAX && got.stamp.a == 3 && got.stamp.b == SHARD_LANES - 1 &&
		   got.stamp.seq == BIG && got.entity_len == 5 && memcmp(got.entity, "caf", 3) == 0 &&
		   got.src_type == 2 && got.src_entity_len == 1 && got.src_entity[0] == 'x' &&
		   got.mid_node == 3 && got.mid_seq == BIG && got.payload_len == 3 && got.payload[2] == 2,
	   "fields come back");
	ok(got.entity > copy && got.entity < copy + out.len, "texts point into the bytes");
	ok(shard_packet_get(&reader, &got) && got.kind == SHARD_KIND_VOID, "a void follows");
	ok(shard_packet_get(&reader, &got) && got.kind == SHARD_KIND_START && got.payload == NULL,
	   "and a message without payload");
	ok(!shard_packet_get(&reader, &got) && !reader.failed, "and nothing else");
	free(copy);
	pfree(out.data);

	ok(home.epoch == 5 && home.n_nodes == 1 && home.nodes[0] == 4 && home.move_id == 7 &&
		   home.lost == 0 && home.phase == SHARD_HOME_STABLE,
	   "a fact as a home");
}

/* ---- what no encoder may write ----------------------------------------------------------------- */

/* Writes numbers, then so many zero bytes, and says whether the getter takes them. */
static bool
takes(const char *name, const int64 *numbers, int count, int zeros)
{
	const Form *form = form_of(name);
	StringInfoData out;
	ShardReader reader;
	char *got = malloc(form->size);
	char *copy;
	bool took;

	initStringInfo(&out);
	for (int i = 0; i < count; i++)
		shard_wire_put_int(&out, numbers[i]);
	for (int i = 0; i < zeros; i++)
		appendStringInfoChar(&out, '\0');
	reader = reader_of(out.data, out.len, &copy);
	took = form->get(&reader, got);
	if (took == reader.failed)
		ok(false, "%s: failed and the answer agree", name);
	free(copy);
	free(got);
	pfree(out.data);
	return took;
}

/* With each number replaced by bad ones in turn. */
static void
check_bad(const char *name, const int64 *good, int count, int zeros, const int64 (*bad)[3])
{
	ok(takes(name, good, count, zeros), "%s: the good one", name);
	for (int i = 0; i < count; i++)
	{
		for (int j = 0; j < 3; j++)
		{
			int64 numbers[16];

			memcpy(numbers, good, sizeof(int64) * count);
			numbers[i] = bad[i][j];
			if (bad[i][j] != good[i] && takes(name, numbers, count, zeros))
				ok(false, "%s: number %d must not be " INT64_FORMAT, name, i, bad[i][j]);
		}
	}
	ok(true, "%s: bad numbers are refused", name);
}

#define HUGE_SEQ SHARD_PACKET_MAX_SEQ
#define TOO_BIG ((int64) PG_INT32_MAX + 1)

static void
test_bad_numbers(void)
{
	check_bad("fact", (int64[]){1, 2, 3, 4, 5, 1, 7}, 7, 1,
			  (const int64[][3]){{0, -1, TOO_BIG},
								 {-1, -1, TOO_BIG},
								 {0, -1, HUGE_SEQ},
								 {0, -1, TOO_BIG},
								 {-1, 0, TOO_BIG},
								 {-1, 6, TOO_BIG},
								 {-1, PG_INT64_MIN, HUGE_SEQ}});
	ok(takes("fact", (int64[]){1, 2, 3, 4, 5, 1, 7, 3, -1, 6}, 10, 0), "fact: one with a backup");
	ok(!takes("fact", (int64[]){1, 2, 3, 4, 5, 1, 7, 1, -1, 6}, 10, 0),
	   "fact: nobody wants one copy");
	ok(!takes("fact", (int64[]){1, 2, 3, 4, 5, 1, 7, 5, -1, 6}, 10, 0), "fact: nor five");
	ok(!takes("fact", (int64[]){1, 2, 3, 4, 5, 1, 7, 3, -1, 4}, 10, 0),
	   "fact: a home is no backup");
	ok(!takes("fact", (int64[]){1, 2, 3, 4, 5, 1, 7, 3, -1, 0}, 10, 0), "fact: nor is nobody");
	ok(!takes("fact", (int64[]){1, 2, 3, 4, 5, 1, 7, 3, 1, 6, 6}, 11, 0), "fact: nor a node twice");
	check_bad("done", (int64[]){1, 2, 3}, 3, 0,
			  (const int64[][3]){{0, -1, TOO_BIG},
								 {-1, -1, TOO_BIG},
								 {-1, PG_INT64_MAX, HUGE_SEQ}});
	check_bad("received", (int64[]){1, 2, 3}, 3, 0,
			  (const int64[][3]){{SHARD_LANES, -1, TOO_BIG},
								 {-1, -1, TOO_BIG},
								 {-1, PG_INT64_MAX, HUGE_SEQ}});
	check_bad("stream", (int64[]){1, 2, 3, 4, 5}, 5, 7,
			  (const int64[][3]){{SHARD_LANES, -1, TOO_BIG},
								 {-1, -1, TOO_BIG},
								 {-1, -1, TOO_BIG},
								 {-1, HUGE_SEQ, HUGE_SEQ - 1},
								 {-1, 6, PG_INT32_MAX}});
	check_bad("position", (int64[]){1, 2, 3, 4, 5}, 5, 2,
			  (const int64[][3]){{SHARD_LANES, -1, TOO_BIG},
								 {-1, -1, TOO_BIG},
								 {-1, -1, TOO_BIG},
								 {-1, -1, TOO_BIG},
								 {-1, PG_INT64_MIN, HUGE_SEQ}});
	check_bad("ask", (int64[]){1, 2, 3, 4, 5, 6}, 6, 2,
			  (const int64[][3]){{0, -1, TOO_BIG},
								 {-1, -1, TOO_BIG},
								 {-1, -1, TOO_BIG},
								 {SHARD_LANES, -1, TOO_BIG},
								 {-1, PG_INT64_MAX, HUGE_SEQ},
								 {-1, PG_INT64_MIN, -6}});
	check_bad("answer", (int64[]){SHARD_ASK_REPLY}, 1, 1, (const int64[][3]){{0, -1, 4}});
	ok(!takes("answer", (int64[]){SHARD_ASK_ERROR}, 1, 1), "answer: an error says which");
	ok(!takes("answer", (int64[]){SHARD_ASK_NOT_HERE, -1}, 2, 1),
	   "answer: not here has nothing to say");
	ok(!takes("answer", (int64[]){SHARD_ASK_REPLY, 1}, 2, 1), "answer: a flag is 0 or 1");
}

/* One field of a good parcel made bad; the encoder is kept from noticing by putting it together here. */
static bool
takes_parcel(int kind, int64 stamp_kind, int64 origin, int64 lane, int64 seq, const char *entity,
			 size_t entity_len)
{
	StringInfoData out;
	ShardReader reader;
	ShardParcel got;
	char *copy;
	bool took;

	initStringInfo(&out);
	shard_wire_put_uint(&out, kind);
	for (int i = 0; i < 3; i++)
		shard_wire_put_int(&out, 1);
	shard_wire_put_int(&out, stamp_kind);
	shard_wire_put_int(&out, origin);
	shard_wire_put_int(&out, lane);
	shard_wire_put_int(&out, seq);
	shard_wire_put_bytes(&out, entity, entity_len);
	for (int i = 0; i < 5; i++)
		appendStringInfoChar(&out, '\0');
	reader = reader_of(out.data, out.len, &copy);
	took = shard_packet_get(&reader, &got);
	free(copy);
	pfree(out.data);
	return took;
}

static void
test_bad_parcels(void)
{
	char name[SHARD_PACKET_MAX_ENTITY + 1];

	memset(name, 'n', sizeof(name));
	ok(takes_parcel(SHARD_KIND_TELL, 1, 1, 0, 1, "ab", 2), "the good one");
	ok(takes_parcel(SHARD_KIND_TELL, 1, 1, 0, 1, name, SHARD_PACKET_MAX_ENTITY), "the longest id");
	ok(!takes_parcel(SHARD_KIND_TELL, 1, 1, 0, 1, name, sizeof(name)), "a longer one");
	ok(!takes_parcel(SHARD_KIND_TELL, 1, 1, 0, 1, "a\0b", 3), "an id with a zero byte");
	ok(!takes_parcel(SHARD_KIND_CURSOR, 1, 1, 0, 1, "ab", 2), "a kind that is no message");
	ok(!takes_parcel(SHARD_KIND_TELL, 0, 1, 0, 1, "ab", 2), "no stamp");
	ok(!takes_parcel(SHARD_KIND_TELL, 2, 1, 0, 1, "ab", 2), "a stamp of a kind that is reserved");
	ok(!takes_parcel(SHARD_KIND_TELL, 1, 0, 0, 1, "ab", 2), "an origin that is none");
	ok(!takes_parcel(SHARD_KIND_TELL, 1, 1, SHARD_LANES, 1, "ab", 2), "a lane that is none");
	ok(!takes_parcel(SHARD_KIND_TELL, 1, 1, 0, 0, "ab", 2), "number 0");
	ok(!takes_parcel(SHARD_KIND_TELL, 1, 1, 0, HUGE_SEQ, "ab", 2), "a number beyond all");
}

static void
test_header(void)
{
	ShardCallHeader header = full_header();
	ShardCallHeader got;
	StringInfoData out;
	ShardReader reader;
	char *copy;

	initStringInfo(&out);
	shard_wire_put_int(&out, SHARD_PROTOCOL_VERSION + 1);
	appendBinaryStringInfo(&out, "\xff\xff\xff", 3);
	reader = reader_of(out.data, out.len, &copy);
	ok(shard_packet_get_header(&reader, &got) &&
		   got.protocol_version == SHARD_PROTOCOL_VERSION + 1 && got.from == 0 &&
		   reader.at == reader.end,
	   "of another version only the version is read");
	free(copy);

	resetStringInfo(&out);
	shard_wire_put_int(&out, -1);
	reader = reader_of(out.data, out.len, &copy);
	ok(!shard_packet_get_header(&reader, &got) && reader.failed, "no version");
	free(copy);

	header.from = SHARD_MAX_NODE_ID;
	resetStringInfo(&out);
	shard_packet_put_header(&out, &header);
	appendStringInfoChar(&out, 'x');
	reader = reader_of(out.data, out.len, &copy);
	ok(shard_packet_get_header(&reader, &got) && got.from == SHARD_MAX_NODE_ID && got.to_inc == 0 &&
		   got.known_n == BIG && reader.at == reader.end - 1,
	   "sections follow a header");
	free(copy);
	pfree(out.data);
}

/* ---- sections ---------------------------------------------------------------------------------- */

static void
test_sections(void)
{
	StringInfoData out;
	ShardReader reader;
	ShardReader section;
	int32 kind;
	int32 flags;
	char *copy;

	initStringInfo(&out);
	shard_packet_put_section(&out, SHARD_SECTION_STREAM, SHARD_SECTION_MANDATORY, "abc", 3);
	shard_packet_put_section(&out, (ShardSectionKind) 1000, 0, "", 0);
	reader = reader_of(out.data, out.len, &copy);
	ok(shard_packet_get_section(&reader, &kind, &flags, &section) && kind == SHARD_SECTION_STREAM &&
		   flags == SHARD_SECTION_MANDATORY && section.end - section.at == 3 &&
		   memcmp(section.at, "abc", 3) == 0 && !section.failed,
	   "a section");
	ok(shard_packet_get_section(&reader, &kind, &flags, &section) && kind == 1000 && flags == 0 &&
		   section.at == section.end,
	   "one that nobody knows");
	ok(!shard_packet_get_section(&reader, &kind, &flags, &section) && !reader.failed && kind == 0,
	   "the end");
	free(copy);

	for (int length = 1; length < 5; length++)
	{
		reader = reader_of(out.data, length, &copy);
		if (shard_packet_get_section(&reader, &kind, &flags, &section) || !reader.failed)
			ok(false, "%d bytes of a section", length);
		free(copy);
	}

	reader = reader_of("\1\2\0", 3, &copy);
	ok(!shard_packet_get_section(&reader, &kind, &flags, &section) && reader.failed,
	   "a flag that is none");
	free(copy);
	reader = reader_of("\0\0\0", 3, &copy);
	ok(!shard_packet_get_section(&reader, &kind, &flags, &section) && reader.failed, "kind 0");
	free(copy);
	pfree(out.data);
}

/* ---- noise ------------------------------------------------------------------------------------- */

/* Everything that can be read from these bytes; what was taken can be encoded again. */
static int
read_all(const Form *form, const char *bytes, size_t length)
{
	ShardReader reader;
	void *got = calloc(1, form->size);
	char *copy;
	int taken = 0;

	reader = reader_of(bytes, length, &copy);
	for (;;)
	{
		const char *from = reader.at;

		if (!form->get(&reader, got))
			break;
		if (form->get == get_header &&
			((ShardCallHeader *) got)->protocol_version != SHARD_PROTOCOL_VERSION)
			break;
		taken++;
		if (!same_again(form, got, from, reader.at - from))
			ok(false, "%s: bytes and values are the same thing", form->name);
	}
	free(copy);
	free(got);
	return taken;
}

static void
test_noise(void)
{
	pg_prng_state random;
	ShardParcel parcel = full_parcel();
	StringInfoData out;
	int taken = 0;

	initStringInfo(&out);
	shard_packet_put(&out, &parcel);
	pg_prng_seed(&random, 17);
	for (int round = 0; round < 20000; round++)
	{
		char noise[256];
		size_t length = pg_prng_uint64_range(&random, 0, sizeof(noise));

		for (size_t i = 0; i < length; i++)
			noise[i] = (char) (pg_prng_bool(&random) ? pg_prng_uint64_range(&random, 0, 9)
													 : pg_prng_uint64_range(&random, 0, 255));
		for (size_t i = 0; i < lengthof(forms); i++)
			taken += read_all(&forms[i], noise, length);

		memcpy(noise, out.data, out.len);
		noise[pg_prng_uint64_range(&random, 0, out.len - 1)] = (char) pg_prng_uint32(&random);
		taken += read_all(form_of("parcel"), noise, out.len);
	}
	ok(taken > 0, "noise does no harm; %d times it happened to be good", taken);
	pfree(out.data);
}

/* P78: what a map says of a home may be anything. */
static void
test_facts_of_homes(void)
{
	ShardHomeRecord home = {.epoch = 3, .n_nodes = 1, .nodes = {2}, .want = 1};
	ShardFact fact = shard_packet_fact(1, 2, 9, &home);

	ok(shard_packet_fact_is_good(&fact), "a home is a fact");
	fact = shard_packet_fact(1, -2, 9, &home);
	ok(!shard_packet_fact_is_good(&fact), "one of no shard is none");
	fact = shard_packet_fact(0, 2, 9, &home);
	ok(!shard_packet_fact_is_good(&fact), "one of no type is none");
	home.lost = 4;
	fact = shard_packet_fact(1, 2, 9, &home);
	ok(!shard_packet_fact_is_good(&fact), "one that has lost an epoch to come is none");
}

int
main(void)
{
	test_round_trips();
	test_fields();
	test_bad_numbers();
	test_facts_of_homes();
	test_bad_parcels();
	test_header();
	test_sections();
	test_noise();
	return unit_done();
}
