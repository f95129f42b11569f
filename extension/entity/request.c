/*
 * entity/request.c
 *		Requests in a turn: opened, answered, and met with their answer (E48 - E54).
 *
 * Comes from: shard_request(), which a handler calls; handle.c, a REQUEST or RESPONSE that is next for its entity;
 * failure.c and deliver.c, one that is given up. Goes to: timer_table.c, the row that is the open request; timer.c, which
 * ends it when the answer was handled; the log, in which answers come up like any message.
 *
 * The row of shard.timer decides: its message, that nobody has answered in time, or the answer is what the entity is
 * told, in the transaction that deletes the row. It is written in the transaction of the handler that asks. If the process
 * dies right here, or the turn or the handler's subtransaction is undone, there is neither request nor row, or both.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "core/base/message.h"
#include "entity/internal.h"
#include "entity/outputs.h"
#include "entity/request.h"
#include "log/session.h"

#include "base/compat.h"

/* ---- the entity that asks ------------------------------------------------------------------------ */

static ShardTimerOwner
owner_of(const ShardEntity *entity)
{
	return (ShardTimerOwner){.type_id = entity->local->type->type_id,
							 .shard = entity->shard,
							 .entity = entity->id,
							 .entity_len = entity->id_len};
}

/* Names differ, so any number does; it keeps apart, in the order of the times, what is due at the same time. */
static int64
generation_of(const char *name)
{
	int64 generation = 1;

	for (int i = 0; i < SHARD_REQUEST_NAME_LEN; i++)
		generation = (generation * 31 + name[i]) & PG_INT64_MAX;
	return generation;
}

void
shard_request_open(const ShardEntity *entity, const char *name, TimestampTz until,
				   const Jsonb *timeout)
{
	ShardTimerOwner owner = owner_of(entity);
	ShardTimer timer = {.name = name,
						.name_len = SHARD_REQUEST_NAME_LEN,
						.due = until,
						.first = until,
						.generation = generation_of(name),
						.missed = SHARD_TIMER_ONCE,
						.message = VARDATA(timeout),
						.message_len = VARSIZE(timeout) - VARHDRSZ};

	shard_timer_insert(&owner, &timer);
	shard_timer_note_due(&owner, &timer);
}

/* The open request that a RESPONSE is for; *content: what that says. */
static bool
find_open(const ShardEntity *entity, const ShardRow *row, ShardTimer *timer, Jsonb **content)
{
	ShardTimerOwner owner = owner_of(entity);
	ShardUuid key;

	return shard_request_get_response(row->payload, row->payload_len, &key, content) &&
		   shard_timer_find(&owner, shard_request_name(key), SHARD_REQUEST_NAME_LEN, timer);
}

void
shard_request_meet(ShardEntity *entity, const ShardRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ShardFiring *firing = palloc0(sizeof(ShardFiring));
	Jsonb *content;

	if (find_open(entity, row, &firing->timer, &content))
	{
		Jsonb *answer = shard_request_put_answer(&firing->timer, content);

		firing->row = *row;
		firing->row.kind = SHARD_KIND_TELL;
		firing->row.payload = VARDATA(answer);
		firing->row.payload_len = VARSIZE(answer) - VARHDRSZ;
		shard_turn.firing = firing;
	}
	else
		shard_turn.voids++;
	MemoryContextSwitchTo(old);
}

/* ---- the entity that is asked -------------------------------------------------------------------- */

/* A request whose message runs. */
typedef struct ShardAsked
{
	ShardAsking asking;
	ShardRow row; /* the message that the handler is given, instead of the one that was met */
} ShardAsked;

ErrorData *
shard_request_begin(const ShardRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ErrorData *error = NULL;
	ShardAsked *asked = palloc(sizeof(ShardAsked));

	if (shard_request_get(row->payload, row->payload_len, &asked->asking))
	{
		asked->row = *row;
		asked->row.payload = asked->asking.message;
		asked->row.payload_len = asked->asking.message_len;
		shard_turn.asked = asked;
	}
	else
	{
		error = palloc0(sizeof(ErrorData));
		error->sqlerrcode = ERRCODE_DATA_CORRUPTED;
		error->message = pstrdup("what is said of a request is damaged");
	}
	MemoryContextSwitchTo(old);
	return error;
}

const ShardRow *
shard_request_asked(void)
{
	return &shard_turn.asked->row;
}

const ShardAsking *
shard_request_of(const ShardRow *message)
{
	return message != NULL && message->kind == SHARD_KIND_REQUEST ? &shard_turn.asked->asking
																  : NULL;
}

/*
 * Sends an answer to who has asked by this row. It takes the room in the log that its request had, and is not refused
 * for any limit. Where nobody knows the type of who has asked, there is no way to it.
 */
static void
send(const ShardRow *row, int32 shard, const Jsonb *content)
{
	const ShardType *type = row->src_type == 0 ? NULL : shard_registry_by_id(row->src_type);
	ShardRow response = {.type_id = row->src_type,
						 .shard = shard,
						 .kind = SHARD_KIND_RESPONSE,
						 .entity = row->src_entity,
						 .entity_len = row->src_entity_len,
						 .payload = VARDATA(content),
						 .payload_len = VARSIZE(content) - VARHDRSZ,
						 .epoch = -1,
						 .src_type = row->type_id,
						 .src_entity = row->entity,
						 .src_entity_len = row->entity_len};

	if (type == NULL || shard < 0 || shard >= type->number_of_shards || row->src_entity_len == 0)
	{
		shard_turn.voids++;
		return;
	}
	if (shard_outputs_tell(&response))
		shard_session_answered(response.type_id, response.shard);
}

void
shard_request_answer(const ShardExecution *execution)
{
	const ShardAsked *asked = shard_turn.asked;
	MemoryContext old;
	const char *reply = execution->reply;

	if (execution->token != NULL)
		return;
	old = MemoryContextSwitchTo(shard_turn.context);
	send(&asked->row, asked->asking.shard,
		 shard_request_put_reply(asked->asking.key, reply == NULL ? NULL : VARDATA_ANY(reply),
								 reply == NULL ? 0 : VARSIZE_ANY_EXHDR(reply)));
	MemoryContextSwitchTo(old);
}

/* ---- given up ------------------------------------------------------------------------------------ */

/* The dead letter is this message. */
static void
become(ShardRow *dead, const char *message, int len)
{
	dead->kind = SHARD_KIND_TELL;
	dead->payload = message;
	dead->payload_len = len;
}

void
shard_request_refuse(ShardRow *row, const ErrorData *error)
{
	ShardAsking asking;

	if (!shard_request_get(row->payload, row->payload_len, &asking))
		return;
#ifndef SHARD_MUTANT_REQUEST_UNANSWERED
	send(row, asking.shard, shard_request_put_error(asking.key, error));
#endif
	become(row, asking.message, asking.message_len);
}

static void
end_open(const ShardEntity *entity, ShardRow *dead)
{
	ShardTimerOwner owner;
	ShardTimer timer;
	Jsonb *content;
	Jsonb *answer;

	if (!find_open(entity, dead, &timer, &content))
		return;
	answer = shard_request_put_answer(&timer, content);
	become(dead, VARDATA(answer), VARSIZE(answer) - VARHDRSZ);
	owner = owner_of(entity);
	shard_timer_delete(&owner, &timer);
}

void
shard_request_give_up(const ShardEntity *entity, ShardRow *dead, const ErrorData *error)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);

	if (dead->kind == SHARD_KIND_REQUEST)
		shard_request_refuse(dead, error);
	else if (entity != NULL)
		end_open(entity, dead);
	MemoryContextSwitchTo(old);
}
