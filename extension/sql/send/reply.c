/*
 * sql/send/reply.c
 *		Replies that come later: shard_defer_reply() and shard_reply(token, message) (E40, E42).
 *
 * A reply to an ask is a row of the log here, which commits with the transaction that replies; the lane's worker takes
 * it to the node that holds the ask (route/routing_reply.c). A reply to an entity is a message, and so is one to a request
 * of it (E52).
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"

#include "base/argument.h"
#include "core/base/message.h"
#include "core/flow/reply.h"
#include "entity/outputs.h"
#include "entity/request.h"
#include "log/log.h"
#include "log/session.h"
#include "registry/identity.h"
#include "registry/payload.h"
#include "shared/board.h"
#include "sql/send/api.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_defer_reply);
PG_FUNCTION_INFO_V1(shard_reply_later);

#define TOKEN_HINT \
	"Pass the value that shard_defer_reply() has returned, unchanged; decode(text, 'hex') makes it of " \
	"what encode(token, 'hex') has made."

/* The asker, by the slot in which it waits. */
static void
name_ask(const ShardExecution *execution, const ShardBoardView *view, ShardReplyToken *token)
{
	token->kind = SHARD_REPLY_ASK;
	token->type_id = execution->ask->type_id;
	token->shard = execution->ask->shard;
	token->entity = execution->ask->entity;
	token->entity_len = execution->ask->entity_len;
	token->node = view->node;
	token->slot = execution->ask->slot;
	token->generation = execution->ask->generation;
}

/* The entity that sent the message. */
static void
name_sender(const ShardRow *message, ShardReplyToken *token)
{
	token->type_id = message->src_type;
	token->entity = pnstrdup(message->src_entity, message->src_entity_len);
	token->entity_len = message->src_entity_len;
}

/* The token of the message that runs, in the execution's memory. A client that told waits for nothing. */
static ShardReplyToken *
make_token(const ShardExecution *execution)
{
	const ShardRow *message = execution->message;
	const ShardAsking *asking = shard_request_of(message);
	MemoryContext old = MemoryContextSwitchTo(execution->memory);
	ShardReplyToken *token = palloc0(sizeof(ShardReplyToken));
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	token->kind = SHARD_REPLY_NOBODY;
	token->cluster = view.cluster;
	if (execution->ask != NULL)
		name_ask(execution, &view, token);
	else if (asking != NULL)
	{
		name_sender(message, token);
		token->kind = SHARD_REPLY_REQUEST;
		token->key = asking->key;
	}
	else if (!execution->trial && message != NULL && message->src_type != 0 &&
			 message->kind != SHARD_KIND_PASSIVATE)
	{
		name_sender(message, token);
		token->kind = SHARD_REPLY_ENTITY;
	}
	MemoryContextSwitchTo(old);
	if (asking == NULL && !pg_strong_random(&token->key, sizeof(token->key)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
						errmsg("could not generate a random reply token")));
	return token;
}

/* shard_defer_reply() returns bytea */
Datum
shard_defer_reply(PG_FUNCTION_ARGS)
{
	ShardExecution *execution = shard_api_require_message("shard_defer_reply()");
	StringInfoData bytes;

	if (execution->replied)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the message has been replied to already")));
	if (execution->token == NULL)
		execution->token = make_token(execution);
	initStringInfo(&bytes);
	appendStringInfoSpaces(&bytes, VARHDRSZ);
	shard_reply_put_token(&bytes, execution->token);
	SET_VARSIZE(bytes.data, bytes.len);
	PG_RETURN_BYTEA_P(bytes.data);
}

/* What the bytes say; error 22023 if they are no token, or another cluster's. */
static void
read_token(const bytea *bytes, ShardReplyToken *token)
{
	const char *wrong = NULL;

	if (!shard_reply_get_token(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes), token) ||
		(token->kind != SHARD_REPLY_NOBODY &&
		 !shard_payload_is_entity(token->entity, token->entity_len)))
		wrong = psprintf("A value of length %d is none that shard_defer_reply() has returned.",
						 (int) VARSIZE_ANY_EXHDR(bytes));
	else if (!shard_record_uuid_equal(token->cluster, shard_identity_name().cluster))
		wrong = "It was made in another cluster.";
	if (wrong != NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid reply token"),
						errdetail_internal("%s", wrong), errhint(TOKEN_HINT)));
}

/* To an ask: a row for the worker of the lane, wherever the ask is. */
static void
reply_to_ask(const bytea *bytes, const ShardReplyToken *token, const Jsonb *message)
{
	ShardExecution *execution = shard_execution_current();
	ShardType *type = shard_api_open_number(token->type_id);
	int length = message == NULL ? 0 : VARSIZE(message) - VARHDRSZ;
	ShardReplyParcel reply = {.token = VARDATA_ANY(bytes),
							  .token_len = VARSIZE_ANY_EXHDR(bytes),
							  .payload = message == NULL ? "" : VARDATA(message),
							  .payload_len = length};
	ShardRow row = {.kind = SHARD_KIND_REPLY,
					.type_id = token->type_id,
					.shard = token->shard,
					.entity = token->entity,
					.entity_len = token->entity_len,
					.epoch = -1};
	StringInfoData payload;

	shard_api_check_room(type, length);
	if (execution != NULL && execution->trial)
	{
		shard_trial_reply(execution, type, token->entity, token->entity_len, message);
		return;
	}
	initStringInfo(&payload);
	shard_packet_put_reply(&payload, &reply);
	row.payload = payload.data;
	row.payload_len = payload.len;
	if (shard_outputs_tell(&row))
		shard_session_appended(shard_message_lane(token->type_id, token->shard));
	pfree(payload.data);
}

/* To an entity: a message. */
static void
reply_to_entity(const ShardReplyToken *token, Jsonb *message)
{
	if (message == NULL)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("reply to an entity must not be null")));
	shard_api_reply(shard_api_open_number(token->type_id)->name, token->entity, token->entity_len,
					message);
}

/* To a request: a message to the entity that made it, which knows whether it is open still. */
static void
reply_to_request(const ShardReplyToken *token, const Jsonb *message)
{
	ShardExecution *execution = shard_execution_current();
	ShardType *type = shard_api_open_number(token->type_id);
	int length = message == NULL ? 0 : VARSIZE(message) - VARHDRSZ;
	ShardRow row = {.kind = SHARD_KIND_RESPONSE,
					.type_id = token->type_id,
					.entity = token->entity,
					.entity_len = token->entity_len,
					.epoch = -1};
	Jsonb *content;

	shard_api_check_room(type, length);
	row.shard = shard_api_shard(type, token->entity, token->entity_len);
	if (execution != NULL && execution->trial)
	{
		shard_trial_reply(execution, type, token->entity, token->entity_len, message);
		return;
	}
	if (execution != NULL)
	{
		row.src_type = execution->entity->local->type->type_id;
		row.src_entity = execution->entity->id;
		row.src_entity_len = execution->entity->id_len;
	}
	content =
		shard_request_put_reply(token->key, message == NULL ? NULL : VARDATA(message), length);
	row.payload = VARDATA(content);
	row.payload_len = VARSIZE(content) - VARHDRSZ;
	if (shard_outputs_tell(&row))
		shard_session_answered(row.type_id, row.shard);
	pfree(content);
}

/* Whether it is the token of the trial that runs. */
static bool
is_own(const ShardExecution *execution, const ShardReplyToken *token)
{
	return execution != NULL && execution->trial && execution->token != NULL &&
		   execution->token->key.high == token->key.high &&
		   execution->token->key.low == token->key.low;
}

/* shard_reply(token bytea, message jsonb) returns void */
Datum
shard_reply_later(PG_FUNCTION_ARGS)
{
	ShardExecution *execution = shard_execution_current();
	Jsonb *message = PG_ARGISNULL(1) ? NULL : PG_GETARG_JSONB_P(1);
	ShardReplyToken token;
	bytea *bytes;

	shard_argument_check(fcinfo, 0, "reply token must not be null");
	shard_shmem_require();
	bytes = PG_GETARG_BYTEA_PP(0);
	read_token(bytes, &token);
	if (is_own(execution, &token))
		shard_api_keep_reply(execution, message);
	else if (token.kind == SHARD_REPLY_ASK)
		reply_to_ask(bytes, &token, message);
	else if (token.kind == SHARD_REPLY_ENTITY)
		reply_to_entity(&token, message);
	else if (token.kind == SHARD_REPLY_REQUEST)
		reply_to_request(&token, message);
	PG_RETURN_VOID();
}
