/*
 * core/flow/reply.c
 *		Replies that come later: tokens, and replies on their way to the node that holds the ask (E40 to E44).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/fields.h"
#include "core/flow/reply.h"

#define SUM_BYTES ((int) sizeof(uint32))

/* The sum of these bytes, FNV-1a: against accidents. */
static void
sum(const char *bytes, int length, unsigned char result[SUM_BYTES])
{
	uint32 hash = 2166136261u;

	for (int i = 0; i < length; i++)
		hash = (hash ^ (unsigned char) bytes[i]) * 16777619u;
	for (int i = 0; i < SUM_BYTES; i++)
		result[i] = (unsigned char) (hash >> (8 * i));
}

static bool
good_token(const ShardReplyToken *token)
{
	if (token->entity_len < 0 || token->entity_len > SHARD_PACKET_MAX_ENTITY)
		return false;
	switch (token->kind)
	{
		case SHARD_REPLY_NOBODY:
			return token->type_id == 0 && token->entity_len == 0;
		case SHARD_REPLY_ASK:
			return token->type_id > 0 && token->entity_len > 0 && token->shard >= 0 &&
				   token->node > 0 && token->slot >= 0 && token->generation >= 0 &&
				   token->generation <= PG_UINT32_MAX;
		case SHARD_REPLY_ENTITY:
		case SHARD_REPLY_REQUEST:
			return token->type_id > 0 && token->entity_len > 0;
		default:
			return false;
	}
}

static void
token_fields(ShardFields *fields, ShardReplyToken *token)
{
	shard_fields_int32(fields, &token->kind);
	shard_fields_uuid(fields, &token->cluster);
	shard_fields_int32(fields, &token->type_id);
	shard_fields_piece(fields, &token->entity, &token->entity_len);
	shard_fields_int32(fields, &token->shard);
	shard_fields_int32(fields, &token->node);
	shard_fields_int32(fields, &token->slot);
	shard_fields_int64(fields, &token->generation);
	shard_fields_uuid(fields, &token->key);
}

void
shard_reply_put_token(StringInfo out, const ShardReplyToken *token)
{
	int from = out->len;
	unsigned char result[SUM_BYTES];

	Assert(good_token(token));
	token_fields(&(ShardFields){.out = out}, unconstify(ShardReplyToken *, token));
	sum(out->data + from, out->len - from, result);
	appendBinaryStringInfo(out, (const char *) result, SUM_BYTES);
}

bool
shard_reply_get_token(const char *bytes, int length, ShardReplyToken *token)
{
	ShardReader reader;
	unsigned char result[SUM_BYTES];

	memset(token, 0, sizeof(*token));
	if (length <= SUM_BYTES)
		return false;
	reader = (ShardReader){bytes, bytes + length - SUM_BYTES, false};
	sum(bytes, length - SUM_BYTES, result);
	if (memcmp(result, reader.end, SUM_BYTES) != 0)
		return false;
	token_fields(&(ShardFields){.reader = &reader}, token);
	return shard_wire_taken(&reader, good_token(token) && reader.at == reader.end, token,
							sizeof(*token));
}

/* What is in the token the receiver looks at. */
static bool
good_reply(const ShardReplyParcel *reply)
{
	return reply->token_len > SUM_BYTES && reply->payload_len >= 0;
}

static void
reply_fields(ShardFields *fields, ShardReplyParcel *reply)
{
	shard_fields_piece(fields, &reply->token, &reply->token_len);
	shard_fields_piece(fields, &reply->payload, &reply->payload_len);
}

SHARD_FIELDS_CODEC(shard_packet_put_reply, shard_packet_get_reply, ShardReplyParcel, reply)
