/*
 * link/receive_reply.c
 *		Replies of another node to asks that are open here (E44).
 *
 * Each becomes a row of the log for the worker that holds the ask, if there is such an ask: whoever speaks in a node's
 * name has to know its key, so a call without one stores nothing (T9).
 *
 * If the process dies right here: before the commit nothing happened, and the node tells again. If it tells again after
 * the commit, the second row finds nobody who waits.
 */
#include "postgres.h"

#include "core/base/message.h"
#include "core/flow/reply.h"
#include "link/callee.h"
#include "link/receive.h"
#include "log/log.h"
#include "log/session.h"
#include "registry/payload.h"
#include "shared/ring.h"

#include "base/compat.h"

/* Whether the ask of a token is open here. */
static bool
is_open(const ShardCallee *callee, const ShardReplyToken *token)
{
	ShardRingLater ask = {token->slot, (uint32) token->generation, token->type_id, token->shard,
						  token->key};

	return token->kind == SHARD_REPLY_ASK && token->node == callee->view.node &&
		   shard_record_uuid_equal(token->cluster, callee->view.cluster) &&
		   shard_ring_is_open(callee->db, &ask);
}

static void
append(const ShardReplyToken *token, const char *bytes, int length)
{
	ShardRow row = {.kind = SHARD_KIND_REPLY,
					.type_id = token->type_id,
					.shard = token->shard,
					.entity = "",
					.payload = bytes,
					.payload_len = length,
					.epoch = -1};

	shard_log_append(&row);
	shard_session_appended(shard_message_lane(token->type_id, token->shard));
}

const char *
shard_receive_replies(const ShardCallee *callee, ShardReader *section)
{
	ShardReplyParcel reply;
	ShardReplyToken token;
	const char *from = section->at;

	while (shard_packet_get_reply(section, &reply))
	{
		if (!shard_reply_get_token(reply.token, reply.token_len, &token))
			return "the token of a reply";
		if (reply.payload_len > 0 && !shard_payload_is_jsonb(reply.payload, reply.payload_len))
			return "a reply";
		if (is_open(callee, &token))
			append(&token, from, section->at - from);
		from = section->at;
	}
	return section->failed ? "a reply" : NULL;
}
