/*
 * message_test.c
 *		Known answers for the functions that place a message.
 *
 * The murmur2 vectors are those of Kafka's own tests; the Java ones were
 * printed by a Java virtual machine.
 */
#include "postgres_fe.h"

#include "core/base/message.h"
#include "unit.h"

typedef struct HashVector
{
	const char *id;
	int32 hash;
} HashVector;

static const HashVector murmur2_vectors[] = {
	{"21", -973932308},
	{"foobar", -790332482},
	{"a-little-bit-long-string", -985981536},
	{"a-little-bit-longer-string", -1486304829},
	{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
	{"abc", 479470107},
	{"", 275646681},
	{"na\xC3\xAFve", 452640081}, /* bytes above 0x7f are unsigned */
	{"\xC3\xA9", 186971271},
};

static const HashVector java_vectors[] = {
	{"", 0},
	{"a", 97},
	{"hello", 99162322},
	{"session-4711", -734378822},
	{"polygenelubricants", PG_INT32_MIN},
	{"na\xC3\xAFve", 104710475},
	{"\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E", 25921943}, /* three BMP characters */
	{"\xF0\x9F\x98\x80", 1772899},						/* U+1F600: a surrogate pair */
	{"a\xF0\x9F\x98\x80"
	 "b",
	 57849694},
	{"\xEF\xBF\xBD", 65533}, /* U+FFFD itself */
};

/* Malformed text: each bad byte counts as U+FFFD, nothing is over-read. */
static const HashVector malformed_vectors[] = {
	{"\x80", 65533},
	{"\xC3", 65533},
	{"\xFF", 65533},
	{"a\xC0", 68540},
	{"\xE6\x97", 65533 * 31 + 65533},
	{"\xF0\x9F\x98", (65533 * 31 + 65533) * 31 + 65533},
	{"\xC3"
	 "a",
	 65533 * 31 + 97},
};

/*
 * Hash an id that lies at the very end of its own allocation, so that the
 * address sanitizer sees any read beyond it.
 */
static int32
hash_exact(int32 (*hash)(const char *, size_t), const char *id)
{
	size_t len = strlen(id);
	char *copy = malloc(Max(len, 1));
	int32 result;

	memcpy(copy, id, len);
	result = hash(copy, len);
	free(copy);
	return result;
}

static void
test_hashes(void)
{
	for (size_t i = 0; i < lengthof(murmur2_vectors); i++)
		is_int(hash_exact(shard_message_hash_murmur2, murmur2_vectors[i].id),
			   murmur2_vectors[i].hash, "murmur2 of \"%s\"", murmur2_vectors[i].id);
	for (size_t i = 0; i < lengthof(java_vectors); i++)
		is_int(hash_exact(shard_message_hash_java, java_vectors[i].id), java_vectors[i].hash,
			   "java hash of \"%s\"", java_vectors[i].id);
	for (size_t i = 0; i < lengthof(malformed_vectors); i++)
		is_int(hash_exact(shard_message_hash_java, malformed_vectors[i].id),
			   malformed_vectors[i].hash, "java hash of malformed text %zu", i);
}

static int
shard_of(ShardHashKind kind, const char *id, int number_of_shards)
{
	return shard_message_shard_id(kind, id, strlen(id), number_of_shards);
}

static void
test_shards(void)
{
	bool in_range = true;

	is_int(shard_of(SHARD_HASH_MURMUR2, "21", 1000), 340, "murmur2: sign bit cleared, then modulo");
	is_int(shard_of(SHARD_HASH_MURMUR2, "abc", 1000), 107, "murmur2: positive hash");
	is_int(shard_of(SHARD_HASH_JAVA, "hello", 1000), 322, "java: positive hash");
	is_int(shard_of(SHARD_HASH_JAVA, "session-4711", 1000), 822, "java: negative hash");
	is_int(shard_of(SHARD_HASH_JAVA, "polygenelubricants", 1000), 648,
		   "java: -2^31 has no negative shard");
	is_int(shard_of(SHARD_HASH_JAVA, "polygenelubricants", PG_INT32_MAX), 1,
		   "java: -2^31 and the greatest number of shards");
	is_int(shard_of(SHARD_HASH_JAVA, "polygenelubricants", 1), 0, "java: one shard");

	for (int i = 0; i < 100000 && in_range; i++)
	{
		char id[16];
		int murmur2;
		int java;

		snprintf(id, sizeof(id), "entity-%d", i);
		murmur2 = shard_of(SHARD_HASH_MURMUR2, id, 37);
		java = shard_of(SHARD_HASH_JAVA, id, 37);
		in_range = murmur2 >= 0 && murmur2 < 37 && java >= 0 && java < 37;
	}
	ok(in_range, "every shard is within its range");
}

static void
test_lanes(void)
{
	int count[SHARD_LANES] = {0};
	int least = PG_INT32_MAX;
	int most = 0;

	/* Known answers: a changed mix is a changed protocol. */
	is_int(shard_message_lane(1, 0), 15, "lane of type 1, shard 0");
	is_int(shard_message_lane(1, 1), 15, "lane of type 1, shard 1");
	is_int(shard_message_lane(2, 1), 19, "lane of type 2, shard 1");
	is_int(shard_message_lane(7, 999), 59, "lane of type 7, shard 999");
	is_int(shard_message_lane(PG_INT32_MAX, PG_INT32_MAX), 63, "lane of the greatest numbers");

	for (int shard = 0; shard < 10000; shard++)
		count[shard_message_lane(1, shard)]++;
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		if (lane / SHARD_GROUP_LANES != shard_message_group(1))
		{
			is_int(count[lane], 0, "shards of type 1 in lane %d of another group", lane);
			continue;
		}
		least = Min(least, count[lane]);
		most = Max(most, count[lane]);
	}
	ok(least > 1000 && most < 1500,
	   "10000 shards spread over the lanes of their group: %d to %d each", least, most);
}

static void
test_lane_sets(void)
{
	ShardLanes lanes = shard_lane_bit(0) | shard_lane_bit(17) | shard_lane_bit(63);
	int seen = 0;

	shard_each_lane (lane, lanes)
		seen = seen * 100 + lane;
	is_int(seen, 1763, "lanes of a set come in their order");
	is_int(shard_lane_next(0, 0), SHARD_LANES, "an empty set has none");
	is_int(shard_lane_next(lanes, 64), SHARD_LANES, "nor is there one behind the last");
	ok(shard_group_lanes(7) == UINT64CONST(0xFF00000000000000), "the lanes of the last group");
}

static void
test_mid(int32 node, int64 seq, const char *text)
{
	char buf[SHARD_MESSAGE_MID_SIZE];

	shard_message_format_mid(node, seq, buf);
	ok(strcmp(buf, text) == 0, "message id is written as %s", text);
}

static void
test_mids(void)
{
	test_mid(1, 4711, "1-4711");
	test_mid(0, 0, "0-0");
	test_mid(PG_INT32_MAX, PG_INT64_MAX, "2147483647-9223372036854775807");
}

int
main(void)
{
	test_hashes();
	test_shards();
	test_lanes();
	test_lane_sets();
	test_mids();
	return unit_done();
}
