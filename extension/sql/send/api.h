/*
 * sql/send/api.h
 *		Sending, and what a handler may call.
 */
#pragma once

#include "utils/jsonb.h"

#include "entity/execution.h"
#include "registry/registry.h"

/* From _PG_init. */
extern void shard_api_init(void);

/*
 * What shard_tell(type_name, entity_id, message) does: checks rights and
 * limits, and appends. Errors as documented there.
 */
extern void
shard_api_tell(const char *type_name, const char *entity, int entity_len, Jsonb *message);

/*
 * The same for what replies to an entity: in a handler, a full buffer of another owner's type is error 40000, which has an end, instead
 * of 53400.
 */
extern void
shard_api_reply(const char *type_name, const char *entity, int entity_len, Jsonb *message);

/*
 * The same for a SCHEDULE or CANCEL (timer_api.c), or a REQUEST (request_api.c), in two steps: the type, with the sender's
 * right checked, and the size of what max_message_size is about; and the rest.
 */
extern ShardType *shard_api_open(const char *type_name, int message_len);
extern void shard_api_send(ShardType *type, ShardKind kind, const char *entity, int entity_len,
						   const Jsonb *content);

/*
 * The shard of an entity id, for a caller that may send; also in a handler, whose role is not the one that the type's
 * extractor runs as.
 */
extern int shard_api_shard(ShardType *type, const char *entity, int entity_len);

/* Errors for an entity id, by its length, and for a message that is too large. */
extern void shard_api_check_entity(int len);
extern void shard_api_check_size(const ShardType *type, int payload_len);

/* The same type by its number; error 42704 if it is not known here. Checks all that shard_tell() does first. */
extern ShardType *shard_api_open_number(int32 type_id);

/* Errors when a limit is reached that holds for all: by the size of a message, and the room of the inbox. */
extern void shard_api_check_room(const ShardType *type, int payload_len);

/* handler_api.c: the handler that calls; error outside of handlers. function: with parentheses. */
extern ShardExecution *shard_api_require_handler(const char *function);

/* handler_api.c: the execution of one message; error elsewhere. */
extern ShardExecution *shard_api_require_message(const char *function);

/* handler_api.c: the reply to the ask, or in a trial; NULL: SQL NULL. Error if there is one already. */
extern void shard_api_keep_reply(ShardExecution *execution, Jsonb *reply);

/* trial.c: notes a message that the handler tells in a trial (shard_try), instead of sending it. */
extern void shard_trial_tell(ShardExecution *execution, const ShardType *type, const ShardRow *row);

/* trial.c: the same for a reply to an ask of that entity; message NULL: SQL NULL. */
extern void shard_trial_reply(ShardExecution *execution, const ShardType *type, const char *entity,
							  int entity_len, const Jsonb *message);
