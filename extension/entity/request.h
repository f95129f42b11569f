/*
 * entity/request.h
 *		Requests: an entity asks another one, and the answer comes to it as a message (E48 - E56).
 *
 * An open request is a timer of the entity that made it, whose message says that no answer came in time. The other
 * entity is sent a message of kind REQUEST, and answers by one of kind RESPONSE, which takes the timer's place.
 */
#pragma once

#include "core/base/wire.h"
#include "entity/execution.h"
#include "entity/timer.h"

/* Names of timers that are open requests; behind it follows the request's id. */
#define SHARD_REQUEST_PREFIX "request:"
#define SHARD_REQUEST_ID_LEN 32
#define SHARD_REQUEST_NAME_LEN ((int) strlen(SHARD_REQUEST_PREFIX) + SHARD_REQUEST_ID_LEN)

static inline bool
shard_request_is_name(const char *name, int len)
{
	const int prefix = (int) strlen(SHARD_REQUEST_PREFIX);

	return len >= prefix && memcmp(name, SHARD_REQUEST_PREFIX, prefix) == 0;
}

/* What a REQUEST says. */
typedef struct ShardAsking
{
	ShardUuid key;		 /* with which the request can be answered */
	int32 shard;		 /* of the entity that made it */
	const char *message; /* jsonb without its header */
	int message_len;
} ShardAsking;

/* ---- request_message.c: names, and the contents of REQUEST and RESPONSE --------------------------- */

/*
 * The name of the timer of a request, palloc'd: SHARD_REQUEST_NAME_LEN bytes and a terminator. Whoever knows the key
 * knows the name; the name tells nothing of the key.
 */
extern char *shard_request_name(ShardUuid key);

/* Content of a REQUEST, palloc'd; and reads it, into the current memory context. False: damaged. */
extern Jsonb *shard_request_put(const ShardAsking *asking);
extern bool shard_request_get(const char *payload, int payload_len, ShardAsking *asking);

/* Contents of a RESPONSE, palloc'd: a reply, without its header, body NULL: null; an error. */
extern Jsonb *shard_request_put_reply(ShardUuid key, const char *body, int len);
extern Jsonb *shard_request_put_error(ShardUuid key, const ErrorData *error);

/* Reads the key of a RESPONSE; *content: all of it, for shard_request_put_answer(). False: damaged. */
extern bool
shard_request_get_response(const char *payload, int payload_len, ShardUuid *key, Jsonb **content);

/* What the entity is told when nobody has answered: the message of the timer. with: NULL: none. */
extern Jsonb *shard_request_put_timeout(const char *id, const char *type_name, const text *entity,
										const Jsonb *with);

/* What the entity is told instead when a RESPONSE has come: made of both. */
extern Jsonb *shard_request_put_answer(const ShardTimer *timer, Jsonb *content);

/* ---- request.c: in a turn ------------------------------------------------------------------------- */

/*
 * The handler of this entity makes a request, which is open until that time: its timer is made in the handler's
 * transaction, in whichever subtransaction.
 */
extern void shard_request_open(const ShardEntity *entity, const char *name, TimestampTz until,
							   const Jsonb *timeout);

/* The request with which a handler was given this message; NULL: with none. Until the handler has returned. */
extern const ShardAsking *shard_request_of(const ShardRow *message);

/* Whether an asker waits for the handler's reply, or an entity for the answer to its request. */
static inline bool
shard_request_is_answered(const ShardExecution *execution)
{
	return execution->ask != NULL ||
		   (execution->message != NULL && execution->message->kind == SHARD_KIND_REQUEST);
}

/* The same, and the handler has neither replied nor put its reply off: the new state is the reply. */
static inline bool
shard_request_owes_reply(const ShardExecution *execution)
{
	return shard_request_is_answered(execution) && !execution->replied && execution->token == NULL;
}

/*
 * A REQUEST is met: sets shard_turn.asked, for its message to be handled. Returns why not, an error in the turn's memory;
 * NULL: none.
 */
extern ErrorData *shard_request_begin(const ShardRow *row);

/* The message of the request that has begun, as its handler is given it. */
extern const ShardRow *shard_request_asked(void);

/* Its handler has returned: answers with its reply, or else the state, unless the reply was put off. */
extern void shard_request_answer(const ShardExecution *execution);

/* A RESPONSE is met: sets shard_turn.firing, unless its request is not open any more: then it is void. */
extern void shard_request_meet(ShardEntity *entity, const ShardRow *row);

/* A REQUEST is given up: the error answers it, and the row becomes its message. Not only in a turn. */
extern void shard_request_refuse(ShardRow *row, const ErrorData *error);

/*
 * A REQUEST is given up: the same. Of a RESPONSE the request is over. The dead letter becomes the message,
 * to be told again by shard_redrive(). In the turn's memory. entity: NULL: its type is gone.
 */
extern void
shard_request_give_up(const ShardEntity *entity, ShardRow *dead, const ErrorData *error);

/* ---- request_refuse.c ----------------------------------------------------------------------------- */

/* Tells who has made requests that wait for a type here, in stashes or parked, that it was dropped. Acts as the system. */
extern void shard_request_refuse_kept(int32 type_id, bool parked);
