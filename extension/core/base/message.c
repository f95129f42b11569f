/*
 * core/base/message.c
 *		Where a message belongs, entity id -> shard -> lane, and its identity.
 *
 * An entity id is hashed as UTF-8; in a database with another encoding the
 * caller converts it first, so that an id has the same shard on every node.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/message.h"

#define MURMUR2_SEED 0x9747b28cU
#define MURMUR2_M 0x5bd1e995U
#define MURMUR2_R 24

#define REPLACEMENT_CHARACTER 0xFFFDU

/*
 * Mix the last one to three bytes of an id into the hash.  As in Java, bytes
 * are unsigned here; the highest one is mixed first.
 */
static uint32
murmur2_tail(uint32 h, const unsigned char *tail, size_t len)
{
	if (len == 0)
		return h;
	if (len > 2)
		h ^= (uint32) tail[2] << 16;
	if (len > 1)
		h ^= (uint32) tail[1] << 8;
	h ^= (uint32) tail[0];

	return h * MURMUR2_M;
}

/*
 * Austin Appleby's MurmurHash2 with the seed that Kafka's default
 * partitioner uses, over the bytes of an id.  The result has Java's type:
 * signed, any value.
 */
int32
shard_message_hash_murmur2(const char *id, size_t len)
{
	const unsigned char *bytes = (const unsigned char *) id;
	size_t whole = len & ~(size_t) 3;
	uint32 h = MURMUR2_SEED ^ (uint32) len;

	for (size_t i = 0; i < whole; i += 4)
	{
		/* little-endian on every machine */
		uint32 k = (uint32) bytes[i] | (uint32) bytes[i + 1] << 8 | (uint32) bytes[i + 2] << 16 |
				   (uint32) bytes[i + 3] << 24;

		k *= MURMUR2_M;
		k ^= k >> MURMUR2_R;
		k *= MURMUR2_M;
		h *= MURMUR2_M;
		h ^= k;
	}

	h = murmur2_tail(h, bytes + whole, len - whole);
	h ^= h >> 13;
	h *= MURMUR2_M;
	h ^= h >> 15;

	return (int32) h;
}

/*
 * Number of bytes of the UTF-8 sequence that a byte begins, 0 if none can
 * begin with it.
 */
static int
utf8_length(unsigned char first)
{
	if (first < 0x80)
		return 1;
	if (first >= 0xC2 && first <= 0xDF)
		return 2;
	if (first >= 0xE0 && first <= 0xEF)
		return 3;
	if (first >= 0xF0 && first <= 0xF4)
		return 4;
	return 0;
}

/*
 * Decode one code point of at most len (> 0) bytes and advance *pos past it.
 * PostgreSQL has validated the ids that come here.  Should one be malformed
 * nevertheless, each byte that begins no complete sequence counts as U+FFFD:
 * never a read beyond the end, and the same answer everywhere.
 */
static uint32
utf8_decode(const unsigned char **pos, const unsigned char *end)
{
	static const unsigned char payload_mask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
	const unsigned char *p = *pos;
	int length = utf8_length(*p);
	uint32 code = *p & payload_mask[length];

	if (length == 0 || end - p < length)
		length = 0;
	for (int i = 1; i < length; i++)
	{
		if ((p[i] & 0xC0) != 0x80)
		{
			length = 0;
			break;
		}
		code = code << 6 | (p[i] & 0x3F);
	}

	*pos = p + Max(length, 1);
	return length == 0 ? REPLACEMENT_CHARACTER : code;
}

/*
 * Java's String.hashCode(): s[0]*31^(n-1) + ... + s[n-1], modulo 2^32, over
 * the UTF-16 code units that the given UTF-8 text has in Java; a code point
 * beyond U+FFFF counts as its two surrogates.
 */
int32
shard_message_hash_java(const char *utf8, size_t len)
{
	const unsigned char *p = (const unsigned char *) utf8;
	const unsigned char *end = p + len;
	uint32 h = 0;

	while (p < end)
	{
		uint32 code = utf8_decode(&p, end);

		if (code > 0xFFFF)
		{
			code -= 0x10000;
			h = h * 31 + (0xD800 | code >> 10);
			code = 0xDC00 | (code & 0x3FF);
		}
		h = h * 31 + code;
	}

	return (int32) h;
}

/*
 * The shard of an entity id, 0 .. number_of_shards - 1.
 *
 * murmur2 is Kafka's toPositive(hash) mod n.  java is |hash mod n|, which is
 * Akka's abs(hash) mod n for every hash but -2^31: there abs() overflows and
 * Akka gets the negative shard -(2^31 mod n), which no shard number can be;
 * we get 2^31 mod n.
 */
int
shard_message_shard_id(ShardHashKind kind, const char *id, size_t len, int number_of_shards)
{
	Assert(number_of_shards > 0);

	if (kind == SHARD_HASH_JAVA)
	{
		int64 rest = (int64) shard_message_hash_java(id, len) % number_of_shards;

		return (int) (rest < 0 ? -rest : rest);
	}

	Assert(kind == SHARD_HASH_MURMUR2);
	return (shard_message_hash_murmur2(id, len) & 0x7fffffff) % number_of_shards;
}

/*
 * The 32-bit finalizer of MurmurHash3: a bijection in which every bit of the
 * argument touches every bit of the result.
 */
static uint32
mix32(uint32 h)
{
	h ^= h >> 16;
	h *= 0x85ebca6bU;
	h ^= h >> 13;
	h *= 0xc2b2ae35U;
	h ^= h >> 16;
	return h;
}

/*
 * The group of lanes of a type (doc/protocol.md, W1). The cluster gives numbers
 * to types so that those of different owners are in different groups.
 */
int
shard_message_group(int32 type_id)
{
	return (int) ((uint32) type_id % SHARD_GROUPS);
}

/*
 * The lane of a shard (doc/protocol.md, W1), 0 .. SHARD_LANES - 1: one of the
 * group of its type. Cursors and streams are stored by lane, so this may never
 * change under a protocol version.
 */
int
shard_message_lane(int32 type_id, int32 shard)
{
	uint32 hash = mix32(mix32((uint32) type_id) ^ (uint32) shard);

	return shard_message_group(type_id) * SHARD_GROUP_LANES + (int) (hash % SHARD_GROUP_LANES);
}

/*
 * Write the text form of a message id, "node-seq", as shard_message_id()
 * returns it.
 */
void
shard_message_format_mid(int32 node, int64 seq, char buf[SHARD_MESSAGE_MID_SIZE])
{
	Assert(node >= 0 && seq >= 0);

	snprintf(buf, SHARD_MESSAGE_MID_SIZE, "%d-" INT64_FORMAT, node, seq);
}
