/*
 * core/map/action.c
 *		What a machine wants done: the list that a step leaves to its host.
 *
 * The two arrays belong to the list and are kept from step to step; everything that they point to
 * is in the arena. Writes are copied whole, since the map that they come from may change before the
 * host looks.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/action.h"
#include "core/base/text.h"

#define FIRST_SPACE 16

ShardActions *
shard_action_create(void)
{
	ShardActions *actions = palloc0(sizeof(ShardActions));

	actions->arena = shard_arena_create();
	actions->space = FIRST_SPACE;
	actions->actions = palloc(sizeof(ShardAction) * FIRST_SPACE);
	actions->write_space = FIRST_SPACE;
	actions->writes = palloc(sizeof(ShardWrite) * FIRST_SPACE);
	return actions;
}

void
shard_action_destroy(ShardActions *actions)
{
	shard_arena_destroy(actions->arena);
	pfree(actions->actions);
	pfree(actions->writes);
	pfree(actions);
}

void
shard_action_reset(ShardActions *actions)
{
	actions->n_actions = 0;
	actions->n_writes = 0;
	shard_arena_reset(actions->arena);
}

ShardAction *
shard_action_add(ShardActions *actions, ShardActionKind kind)
{
	ShardAction *action;

	if (actions->n_actions == actions->space)
	{
		actions->space *= 2;
		actions->actions = repalloc(actions->actions, sizeof(ShardAction) * actions->space);
	}
	action = &actions->actions[actions->n_actions++];
	memset(action, 0, sizeof(ShardAction));
	action->kind = kind;
	return action;
}

ShardControl *
shard_action_send(ShardActions *actions, int32 to, ShardControlKind kind)
{
	ShardControl *message = shard_arena_alloc(actions->arena, sizeof(ShardControl));
	ShardAction *action = shard_action_add(actions, SHARD_ACTION_SEND);

	message->kind = kind;
	message->to = to;
	action->node = to;
	action->message = message;
	return message;
}

/*
 * A new, zeroed write at the end of the transaction.
 */
static ShardWrite *
add_write(ShardActions *actions, ShardStore store)
{
	ShardWrite *write;

	if (actions->n_writes == actions->write_space)
	{
		actions->write_space *= 2;
		actions->writes = repalloc(actions->writes, sizeof(ShardWrite) * actions->write_space);
	}
	write = &actions->writes[actions->n_writes++];
	memset(write, 0, sizeof(ShardWrite));
	write->store = store;
	return write;
}

void
shard_action_write(ShardActions *actions, ShardStore store, const ShardMapEntry *entry)
{
	ShardWrite *write = add_write(actions, store);

	write->entry = *entry;
	write->entry.value = shard_arena_copy(actions->arena, entry->value, entry->length);
}

/* The row of a key goes. */
void
shard_action_remove(ShardActions *actions, ShardStore store, ShardMapKey key)
{
	ShardWrite *write = add_write(actions, store);

	write->remove = true;
	write->entry.key = key;
}

/* All rows of a store go; what is gathered behind it stays. */
void
shard_action_clear(ShardActions *actions, ShardStore store)
{
	ShardWrite *write = add_write(actions, store);

	write->clear = true;
	write->entry.key.kind = -1;
}

static ShardAction *add_line(ShardActions *actions, int level, const char *format, va_list args)
	pg_attribute_printf(3, 0);

static ShardAction *
add_line(ShardActions *actions, int level, const char *format, va_list args)
{
	char text[1024];
	ShardAction *action;

	if (vsnprintf(text, sizeof(text), format, args) >= (int) sizeof(text))
		shard_text_mend(text);
	action = shard_action_add(actions, SHARD_ACTION_LOG);
	action->level = level;
	action->text = shard_arena_copy(actions->arena, text, strlen(text) + 1);
	return action;
}

/* Something for the log of the host; the level is the host's own. */
void
shard_action_log(ShardActions *actions, int level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void) add_line(actions, level, format, args);
	va_end(args);
}

void
shard_action_log_peer(ShardActions *actions, int level, int32 node, int which, const char *format,
					  ...)
{
	ShardAction *action;
	va_list args;

	va_start(args, format);
	action = add_line(actions, level, format, args);
	va_end(args);
	action->about = format;
	action->node = node;
	action->to = which;
}
