/*
 * core/map/control_queue.c
 *		Messages of the control plane that wait for their link.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/control_queue.h"

/* Which command a message is, or the answer to which; any other one may make room. */
static void
identify(ShardControlQueued *message)
{
	ShardControl control;
	ShardArena *arena;

	message->kind = 0;
	message->token = 0;
#ifdef SHARD_MUTANT_COMMANDS_MAKE_ROOM
	return;
#endif
	if (!shard_control_decode_header(message->bytes, message->length, &control) ||
		(control.kind != SHARD_CONTROL_COMMAND && control.kind != SHARD_CONTROL_COMMAND_ANSWER))
		return;
	arena = shard_arena_create();
	if (shard_control_decode(message->bytes, message->length, arena, &control))
	{
		message->kind = control.kind;
		message->token = control.token;
	}
	shard_arena_destroy(arena);
}

static void
forget(ShardControlQueue *queue, ShardControlQueued *message)
{
	dlist_delete(&message->link);
	queue->count--;
	queue->commands -= message->kind != 0;
	queue->bytes -= message->length;
	pfree(message);
}

static ShardControlQueued *
find(ShardControlQueue *queue, int kind, int64 token)
{
	dlist_iter iter;

	dlist_foreach (iter, &queue->messages)
	{
		ShardControlQueued *message = dlist_container(ShardControlQueued, link, iter.cur);

		if (message->kind == kind && message->token == token)
			return message;
	}
	return NULL;
}

static bool
is_full(const ShardControlQueue *queue, int length)
{
	return queue->count >= SHARD_CONTROL_QUEUE_MESSAGES ||
		   (queue->count > 0 && queue->bytes + length > SHARD_CONTROL_QUEUE_BYTES);
}

/*
 * Forget messages other than commands and answers, the oldest first. A message that is too long for
 * the bounds may wait alone beside the commands.
 */
static void
make_room(ShardControlQueue *queue, int length, int *forgotten)
{
	ShardControlQueued *oldest;

	while (is_full(queue, length) && (oldest = find(queue, 0, 0)) != NULL)
	{
		forget(queue, oldest);
		(*forgotten)++;
	}
}

bool
shard_control_queue_put(ShardControlQueue *queue, const char *bytes, int length, int *forgotten)
{
	ShardControlQueued *message = palloc(offsetof(ShardControlQueued, bytes) + length);
	ShardControlQueued *same = NULL;

	*forgotten = 0;
	message->length = length;
	memcpy(message->bytes, bytes, length);
	identify(message);
	if (message->kind != 0)
		same = find(queue, message->kind, message->token);
	if (message->kind != 0 && same == NULL && queue->commands >= SHARD_CONTROL_QUEUE_COMMANDS)
	{
		pfree(message);
		return false;
	}
	if (same != NULL)
	{
		dlist_insert_after(&same->link, &message->link);
		forget(queue, same);
	}
	else
	{
		make_room(queue, length, forgotten);
		dlist_push_tail(&queue->messages, &message->link);
	}
	queue->count++;
	queue->commands += message->kind != 0;
	queue->bytes += length;
	return true;
}

ShardControlQueued *
shard_control_queue_first(ShardControlQueue *queue)
{
	return queue->count == 0 ? NULL
							 : dlist_head_element(ShardControlQueued, link, &queue->messages);
}

void
shard_control_queue_pop(ShardControlQueue *queue)
{
	forget(queue, shard_control_queue_first(queue));
}

void
shard_control_queue_clear(ShardControlQueue *queue)
{
	while (queue->count > 0)
		shard_control_queue_pop(queue);
}
