/*
 * reply_test.c
 *		Tokens of replies that come later say what they were made of, or nothing; so do replies on their way.
 */
#include "postgres_fe.h"

#include "core/flow/reply.h"
#include "unit.h"

static const ShardReplyToken ask = {.kind = SHARD_REPLY_ASK,
									.cluster = {1, 2},
									.type_id = 7,
									.entity = "cart 1",
									.entity_len = 6,
									.shard = 11,
									.node = 3,
									.slot = 99,
									.generation = PG_UINT32_MAX,
									.key = {PG_UINT64_MAX, 5}};

static bool
reads(const StringInfoData *bytes)
{
	ShardReplyToken token;

	return shard_reply_get_token(bytes->data, bytes->len, &token);
}

/* What is put, read again. */
static ShardReplyToken
again(const ShardReplyToken *token, StringInfo bytes)
{
	ShardReplyToken result;

	resetStringInfo(bytes);
	shard_reply_put_token(bytes, token);
	ok(shard_reply_get_token(bytes->data, bytes->len, &result), "a token of kind %d is read",
	   token->kind);
	return result;
}

static void
test_tokens(void)
{
	ShardReplyToken entity = {.kind = SHARD_REPLY_ENTITY,
							  .cluster = {1, 2},
							  .type_id = 7,
							  .entity = "x",
							  .entity_len = 1};
	ShardReplyToken nobody = {.kind = SHARD_REPLY_NOBODY, .key = {3, 4}};
	StringInfoData bytes;
	ShardReplyToken token;

	initStringInfo(&bytes);
	token = again(&nobody, &bytes);
	is_int(token.key.low, 4, "its key");
	token = again(&entity, &bytes);
	ok(token.entity_len == 1 && token.entity[0] == 'x' && token.type_id == 7, "its entity");
	entity.kind = SHARD_REPLY_REQUEST;
	entity.key = (ShardUuid){8, 9};
	token = again(&entity, &bytes);
	ok(token.entity_len == 1 && token.type_id == 7 && token.key.high == 8 && token.key.low == 9,
	   "its entity, and its key");
	token = again(&ask, &bytes);
	ok(token.entity_len == 6 && memcmp(token.entity, "cart 1", 6) == 0, "its entity");
	ok(token.shard == 11 && token.node == 3 && token.slot == 99, "where it is");
	ok(token.generation == PG_UINT32_MAX && token.key.high == PG_UINT64_MAX && token.key.low == 5,
	   "and which it is");
	ok(token.cluster.high == 1 && token.cluster.low == 2, "in which cluster");
	pfree(bytes.data);
}

static void
test_damage(void)
{
	StringInfoData bytes;
	ShardReplyToken token;
	int read = 0;

	initStringInfo(&bytes);
	shard_reply_put_token(&bytes, &ask);
	for (int length = 0; length < bytes.len; length++)
		read += shard_reply_get_token(bytes.data, length, &token);
	is_int(read, 0, "a token that was cut is none");
	is_int(token.type_id, 0, "and says nothing");
	for (int bit = 0; bit < 8 * bytes.len; bit++)
	{
		bytes.data[bit / 8] ^= (char) (1 << bit % 8);
		read += reads(&bytes);
		bytes.data[bit / 8] ^= (char) (1 << bit % 8);
	}
	is_int(read, 0, "nor is one of which a bit was changed");
	appendStringInfoChar(&bytes, '\0');
	ok(!reads(&bytes), "nor a longer one");
	pfree(bytes.data);
}

static void
test_replies(void)
{
	StringInfoData token;
	StringInfoData bytes;
	ShardReader reader;
	ShardReplyParcel reply;

	initStringInfo(&token);
	initStringInfo(&bytes);
	shard_reply_put_token(&token, &ask);
	shard_packet_put_reply(&bytes, &(ShardReplyParcel){token.data, token.len, "jsonb", 5});
	shard_packet_put_reply(&bytes, &(ShardReplyParcel){token.data, token.len, "", 0});
	reader = (ShardReader){bytes.data, bytes.data + bytes.len, false};
	ok(shard_packet_get_reply(&reader, &reply) && reply.payload_len == 5 &&
		   memcmp(reply.payload, "jsonb", 5) == 0,
	   "a reply");
	ok(shard_packet_get_reply(&reader, &reply) && reply.payload_len == 0 &&
		   reply.token_len == token.len,
	   "a reply of SQL NULL");
	ok(!shard_packet_get_reply(&reader, &reply) && !reader.failed, "and no other one");
	for (int length = 0; length < bytes.len; length++)
	{
		int count = 0;

		reader = (ShardReader){bytes.data, bytes.data + length, false};
		while (shard_packet_get_reply(&reader, &reply))
			count++;
		if (count > 1 || (length > 0 && count == 0 && !reader.failed))
			ok(false, "%d bytes of replies are %d", length, count);
	}
	pfree(token.data);
	pfree(bytes.data);
}

int
main(void)
{
	test_tokens();
	test_damage();
	test_replies();
	return unit_done();
}
