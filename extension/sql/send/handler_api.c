/*
 * sql/send/handler_api.c
 *		What a handler may call about itself: its entity, the sender, reply, stop.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"

#include "sql/send/api.h"
#include "core/base/message.h"
#include "entity/request.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_self);
PG_FUNCTION_INFO_V1(shard_sender);
PG_FUNCTION_INFO_V1(shard_reply);
PG_FUNCTION_INFO_V1(shard_passivate_self);
PG_FUNCTION_INFO_V1(shard_stop);
PG_FUNCTION_INFO_V1(shard_message_id);

ShardExecution *
shard_api_require_handler(const char *function)
{
	ShardExecution *execution = shard_execution_current();

	if (execution == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("%s can be called in a handler only", function)));
	return execution;
}

ShardExecution *
shard_api_require_message(const char *function)
{
	ShardExecution *execution = shard_api_require_handler(function);

	if (execution->batch)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("%s cannot be called in a batch handler", function),
						errdetail("A batch may have messages of several senders."),
						errhint("Use a handler that takes one message.")));
	return execution;
}

/* A row of two texts, or of two nulls. */
static Datum
address(FunctionCallInfo fcinfo, const char *type_name, const char *entity, int entity_len)
{
	TupleDesc desc;
	Datum values[2] = {0};
	bool nulls[2] = {true, true};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (type_name != NULL)
	{
		values[0] = CStringGetTextDatum(type_name);
		values[1] = PointerGetDatum(cstring_to_text_with_len(entity, entity_len));
		nulls[0] = nulls[1] = false;
	}
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/* shard_self(OUT type_name text, OUT entity_id text) */
Datum
shard_self(PG_FUNCTION_ARGS)
{
	ShardEntity *entity = shard_api_require_handler("shard_self()")->entity;

	return address(fcinfo, entity->local->type->name, entity->id, entity->id_len);
}

/* Whether the message is the one that stops the entity. */
static bool
is_stopped(const ShardExecution *execution)
{
	return execution->message != NULL && execution->message->kind == SHARD_KIND_PASSIVATE;
}

/* The type of the entity that sent the message, NULL if a client did; a stop message comes from nobody. */
static ShardType *
sender_type(const ShardExecution *execution)
{
	/* a stop message of the worker's own may have a type, but nobody has sent it (entity/stop.c) */
	if (execution->message == NULL || is_stopped(execution) || execution->message->src_type == 0 ||
		execution->message->src_entity_len == 0)
		return NULL;
	return shard_registry_by_id(execution->message->src_type);
}

/* shard_sender(OUT type_name text, OUT entity_id text) */
Datum
shard_sender(PG_FUNCTION_ARGS)
{
	ShardExecution *execution = shard_api_require_message("shard_sender()");
	ShardType *type = sender_type(execution);

	if (type == NULL)
		return address(fcinfo, NULL, NULL, 0);
	return address(fcinfo, type->name, execution->message->src_entity,
				   execution->message->src_entity_len);
}

void
shard_api_keep_reply(ShardExecution *execution, Jsonb *reply)
{
	if (execution->replied)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the message has been replied to already")));
	execution->replied = true;
	execution->reply = NULL;
	if (reply == NULL)
		return;
	execution->reply = MemoryContextAlloc(execution->memory, VARSIZE(reply));
	memcpy(execution->reply, reply, VARSIZE(reply));
}

/* Errors if a request cannot be answered by this message, NULL: SQL NULL. */
static void
check_answer(const ShardExecution *execution, const Jsonb *reply)
{
	const ShardType *type =
		shard_request_of(execution->message) == NULL ? NULL : sender_type(execution);

	if (type != NULL && reply != NULL)
		shard_api_check_size(type, VARSIZE(reply) - VARHDRSZ);
}

/*
 * shard_reply(message jsonb) returns void: to the asker, or to the entity whose request it is; to an entity that told,
 * as a tell. A client that told does not wait for a reply.
 */
Datum
shard_reply(PG_FUNCTION_ARGS)
{
	ShardExecution *execution;
	ShardType *type;

	if (shard_execution_current() == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("shard_reply() without a token can be called in a handler only"),
				 errhint("Elsewhere, reply with shard_reply(token, message), with the token that "
						 "shard_defer_reply() has returned in the handler.")));
	execution = shard_api_require_message("shard_reply()");
	if (execution->token != NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the reply to the message has been put off"),
						errhint("Reply with shard_reply(token, message), with the token that "
								"shard_defer_reply() has returned.")));
	check_answer(execution, PG_ARGISNULL(0) ? NULL : PG_GETARG_JSONB_P(0));
	if (shard_request_is_answered(execution) || execution->trial)
	{
		shard_api_keep_reply(execution, PG_ARGISNULL(0) ? NULL : PG_GETARG_JSONB_P(0));
		PG_RETURN_VOID();
	}
	type = sender_type(execution);
	if (type != NULL && type->exists)
	{
		if (PG_ARGISNULL(0))
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("reply to an entity must not be null")));
		shard_api_reply(type->name, execution->message->src_entity,
						execution->message->src_entity_len, PG_GETARG_JSONB_P(0));
	}
	PG_RETURN_VOID();
}

/*
 * shard_passivate(stop_message jsonb) returns void: out of memory after this message, or after the stop message, which
 * is sent when the handler has returned. It is sent once: an entity that is leaving leaves.
 */
Datum
shard_passivate_self(PG_FUNCTION_ARGS)
{
	ShardExecution *execution = shard_api_require_handler("shard_passivate()");
	const ShardEntity *entity = execution->entity;
	const Jsonb *message =
		PG_ARGISNULL(0) ? entity->local->type->stop_message : PG_GETARG_JSONB_P(0);

	if (execution->passivate || is_stopped(execution) || entity->stop == SHARD_STOP_ASKED)
		PG_RETURN_VOID();
	execution->passivate = true;
	if (message == NULL || execution->trial)
		PG_RETURN_VOID();
	shard_api_check_size(entity->local->type, VARSIZE(message) - VARHDRSZ);
	execution->stop_message = MemoryContextAlloc(execution->memory, VARSIZE(message));
	memcpy(execution->stop_message, message, VARSIZE(message));
	PG_RETURN_VOID();
}

/* shard_stop() returns void: the same, and no longer remembered */
Datum
shard_stop(PG_FUNCTION_ARGS)
{
	shard_api_require_handler("shard_stop()")->stop = true;
	PG_RETURN_VOID();
}

/* shard_message_id() returns text: the same at each attempt */
Datum
shard_message_id(PG_FUNCTION_ARGS)
{
	ShardExecution *execution = shard_api_require_message("shard_message_id()");
	char buffer[SHARD_MESSAGE_MID_SIZE];

	if (execution->message == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("an ask has no message id"), errdetail("An ask is never retried.")));
	if (execution->message->kind == SHARD_KIND_START)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("a start message has no message id"),
						errdetail("It is delivered at each start of the entity.")));
	shard_message_format_mid(execution->message->mid_node, execution->message->mid_seq, buffer);
	PG_RETURN_TEXT_P(cstring_to_text(buffer));
}
