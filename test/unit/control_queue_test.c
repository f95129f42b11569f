/*
 * control_queue_test.c
 *		What a link that is slow forgets, and what not (C12).
 */
#include "postgres_fe.h"

#include "core/map/control_queue.h"
#include "unit.h"

static ShardControlQueue queue;
static int forgotten;

static bool
put(ShardControlKind kind, int64 token, const char *text)
{
	ShardControl message = {.kind = kind, .from = 1, .from_inc = 1, .to = 2, .token = token};
	StringInfoData buffer;
	bool good;

	message.protocol_version = SHARD_PROTOCOL_VERSION;
	message.text = text;
	initStringInfo(&buffer);
	shard_control_encode(&buffer, &message);
	good = shard_control_queue_put(&queue, buffer.data, buffer.len, &forgotten);
	pfree(buffer.data);
	return good;
}

/* The number of the oldest message, which goes; -1: there is none. *kind: what it is. */
static int64
take(ShardControlKind *kind)
{
	ShardControlQueued *first = shard_control_queue_first(&queue);
	ShardArena *arena = shard_arena_create();
	ShardControl message;
	int64 token = -1;

	if (first != NULL)
	{
		ok(shard_control_decode(first->bytes, first->length, arena, &message), "a whole message");
		token = message.token;
		*kind = message.kind;
		shard_control_queue_pop(&queue);
	}
	shard_arena_destroy(arena);
	return token;
}

static void
test_others(void)
{
	ShardControlKind kind;

	for (int i = 0; i < SHARD_CONTROL_QUEUE_MESSAGES; i++)
		ok(put(SHARD_CONTROL_HEARTBEAT, i, NULL) && forgotten == 0, "there is room");
	ok(put(SHARD_CONTROL_HEARTBEAT, SHARD_CONTROL_QUEUE_MESSAGES, NULL), "one more is taken");
	is_int(forgotten, 1, "and one is forgotten, which is told");
	is_int(queue.count, SHARD_CONTROL_QUEUE_MESSAGES, "no call can have too many");
	is_int(take(&kind), 1, "it was the oldest");
	shard_control_queue_clear(&queue);
	is_int(queue.bytes, 0, "an empty queue has no bytes");
	is_int(take(&kind), -1, "nor messages");
}

static void
test_commands(void)
{
	ShardControlKind kind;
	int64 last = 0;
	int commands = 0;

	(void) put(SHARD_CONTROL_HEARTBEAT, 0, NULL);
	for (int i = 1; i <= 20; i++)
		(void) put(SHARD_CONTROL_COMMAND, i, "eve@1");
	(void) put(SHARD_CONTROL_COMMAND_ANSWER, 7, NULL);
	for (int i = 0; i < 5 * SHARD_CONTROL_QUEUE_MESSAGES; i++)
		(void) put(SHARD_CONTROL_HEARTBEAT, i, NULL);
	for (int i = 1; i <= 20; i++)
		(void) put(SHARD_CONTROL_COMMAND, i, "eve@1");
	is_int(queue.commands, 21, "no command made room, and none waits twice");
	is_int(queue.count, SHARD_CONTROL_QUEUE_MESSAGES, "others did");
	for (int64 token; (token = take(&kind)) >= 0;)
	{
		if (kind != SHARD_CONTROL_COMMAND)
			continue;
		ok(token == last + 1, "they are in the order in which they were given");
		last = token;
		commands++;
	}
	is_int(commands, 20, "all of them");

	/* The oldest of too many must not go: it would be refused when it came again behind the others. */
	for (int i = 1; i <= SHARD_CONTROL_QUEUE_COMMANDS; i++)
		ok(put(SHARD_CONTROL_COMMAND, i, "eve@1"), "there is room for command %d", i);
	ok(!put(SHARD_CONTROL_COMMAND, SHARD_CONTROL_QUEUE_COMMANDS + 1, NULL),
	   "the newest is refused");
	ok(put(SHARD_CONTROL_COMMAND, 3, "eve@2"), "one that waits already is not");
	ok(put(SHARD_CONTROL_HEARTBEAT, 1, NULL) && forgotten == 0, "others have room beside them");
	is_int(take(&kind), 1, "the oldest is there");
	shard_control_queue_clear(&queue);
	is_int(queue.commands, 0, "nothing is left");
}

static void
test_bytes(void)
{
	int length = SHARD_CONTROL_QUEUE_BYTES / 4;
	char *text = palloc(length + 1);
	ShardControlKind kind;

	memset(text, 'x', length);
	text[length] = '\0';
	(void) put(SHARD_CONTROL_COMMAND, 1, "eve@1");
	for (int i = 2; i <= 5; i++)
		(void) put(SHARD_CONTROL_NACK, i, text);
	ok(queue.bytes <= SHARD_CONTROL_QUEUE_BYTES, "long messages make room for one another");
	is_int(take(&kind), 1, "not the command");
	ok(queue.count > 0, "the newest are there");
	shard_control_queue_clear(&queue);
	pfree(text);
}

int
main(void)
{
	dlist_init(&queue.messages);
	test_others();
	test_commands();
	test_bytes();
	return unit_done();
}
