/*
 * core/flow/reply.h
 *		Replies that come later: tokens, and replies on their way to the node that holds the ask (E40 to E44).
 *
 * A token is bytes that a handler may keep, send or show. It names whom a reply is for, and carries a sum of its bytes:
 * what was cut, changed or made up by accident is recognized anywhere. Who makes a token up on purpose can make the sum,
 * too, but not the key of an ask that is open: the worker that holds the ask knows it, and whoever was given the token.
 */
#pragma once

#include "core/base/wire.h"
#include "core/flow/packet.h"

/* Whom a token answers; a part of tokens, which are stored: never renumbered. */
typedef enum ShardReplyKind
{
	SHARD_REPLY_NOBODY = 1, /* a client told, and does not wait */
	SHARD_REPLY_ASK = 2,	/* an open ask, in a slot of the ring of a node */
	SHARD_REPLY_ENTITY = 3, /* the entity that told */
	SHARD_REPLY_REQUEST = 4 /* a request that is open at the entity that made it */
} ShardReplyKind;

typedef struct ShardReplyToken
{
	int32 kind;		   /* ShardReplyKind */
	ShardUuid cluster; /* in which it was made */
	int32 type_id; /* of the entity that was asked; or that told, or made the request; NOBODY: 0 */
	const char *entity;
	int entity_len;

	/* ASK; else 0 */
	int32 shard;
	int32 node; /* that holds the ask */
	int32 slot;
	int64 generation; /* of the slot */
	ShardUuid
		key; /* random; also of REQUEST, and of NOBODY, by which a trial knows its own token */
} ShardReplyToken;

extern void shard_reply_put_token(StringInfo out, const ShardReplyToken *token);

/* False: the bytes are no token; it is all zero then. Its texts point into the bytes, and may be in any encoding. */
extern bool shard_reply_get_token(const char *bytes, int length, ShardReplyToken *token);

/* A reply to an ask: a row of the log, and a part of a call to the node that holds the ask. */
typedef struct ShardReplyParcel
{
	const char *token;
	int token_len;
	const char *payload; /* jsonb without varlena header */
	int payload_len;	 /* 0: SQL NULL */
} ShardReplyParcel;

extern void shard_packet_put_reply(StringInfo out, const ShardReplyParcel *reply);
extern bool shard_packet_get_reply(ShardReader *reader, ShardReplyParcel *reply);
