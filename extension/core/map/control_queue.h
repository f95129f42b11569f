/*
 * core/map/control_queue.h
 *		Messages of the control plane that wait for their link (C12).
 *
 * The machine that sent a message sends it again while it needs an answer, so a slow link may forget its oldest messages,
 * except commands and their answers: commands are carried out in the order of their numbers, so the oldest must not be lost
 * alone.
 */
#pragma once

#include "lib/ilist.h"

#include "core/map/control.h"

/* Bounds of a queue. A call has no more messages than the first; commands and answers leave room for the others. */
#define SHARD_CONTROL_QUEUE_MESSAGES SHARD_CONTROL_MAX_MESSAGES
#define SHARD_CONTROL_QUEUE_COMMANDS 750
#define SHARD_CONTROL_QUEUE_BYTES (32 * 1024 * 1024)

typedef struct ShardControlQueued
{
	dlist_node link;
	int kind;	 /* COMMAND, COMMAND_ANSWER; 0: any other */
	int64 token; /* of those */
	int length;
	char bytes[FLEXIBLE_ARRAY_MEMBER];
} ShardControlQueued;

/* Begins as all zeroes, and dlist_init(). */
typedef struct ShardControlQueue
{
	dlist_head messages; /* ShardControlQueued, oldest first */
	int count;
	int commands; /* of them, and answers to such */
	int64 bytes;
} ShardControlQueue;

/*
 * Puts a copy at the end, in the current memory context. A command, or answer, that waits already is replaced at its place.
 * False: there are too many commands; the sender has to come again. *forgotten: how many others made room.
 */
extern bool
shard_control_queue_put(ShardControlQueue *queue, const char *bytes, int length, int *forgotten);

/* The oldest, NULL: there is none; and forget it. */
extern ShardControlQueued *shard_control_queue_first(ShardControlQueue *queue);
extern void shard_control_queue_pop(ShardControlQueue *queue);
extern void shard_control_queue_clear(ShardControlQueue *queue);
