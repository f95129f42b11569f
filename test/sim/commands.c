/*
 * commands.c
 *		What operators were told (G6): a command that was answered as done is in the map that is decided, or was
 *		undone by what was decided later. Whoever was told that nobody knows looks, and repeats it.
 *
 * Everything decided is learned by the coordinator in the same step, at the latest, and before anybody is told of it. So
 * when the answer comes, what the command wanted is among what anybody has learned of its key, and not older than
 * the newest of that when the command was given.
 */
#include "world.h"

#include "core/member/lease.h"
#include "shard.h"

/* A value of a key, as it was learned first. */
typedef struct Value
{
	int32 era;
	ShardMapEntry entry; /* its bytes are owned */
} Value;

typedef struct Command
{
	ShardCommandKind kind;
	ShardMapKey key;
	int32 wanted; /* node, or setting */
	bool flag;
	int64 n;	  /* of the newest value of the key when it was given; 0: there was none, */
	int32 inc_no; /* and the incarnation in it */
} Command;

typedef struct Commands
{
	Value *values;
	int n_values;
	int space;
	Command *commands;
	int n_commands;
	int command_space;
} Commands;

static Commands *
commands_of(World *world)
{
	if (!world->commands)
	{
		world->commands = palloc0(sizeof(Commands));
		world->commands->space = world->commands->command_space = 64;
		world->commands->values = palloc(sizeof(Value) * 64);
		world->commands->commands = palloc(sizeof(Command) * 64);
	}
	return world->commands;
}

void
commands_destroy(World *world)
{
	if (!world->commands)
		return;
	for (int i = 0; i < world->commands->n_values; i++)
	{
		if (world->commands->values[i].entry.value)
			pfree(unconstify(char *, world->commands->values[i].entry.value));
	}
	pfree(world->commands->values);
	pfree(world->commands->commands);
	pfree(world->commands);
}

void
commands_learned(World *world, int32 era, const ShardMapEntry *entry)
{
	Commands *all = commands_of(world);
	Value *value;

	if (entry->key.kind != SHARD_MAP_MEMBER && entry->key.kind != SHARD_MAP_HOME &&
		entry->key.kind != SHARD_MAP_PIN && entry->key.kind != SHARD_MAP_SETTINGS)
		return;
	if (all->n_values == all->space)
	{
		all->space *= 2;
		all->values = repalloc(all->values, sizeof(Value) * all->space);
	}
	value = &all->values[all->n_values++];
	*value = (Value){era, *entry};
	value->entry.value = NULL;
	if (entry->value && entry->length > 0)
	{
		value->entry.value = palloc(entry->length);
		memcpy(unconstify(char *, value->entry.value), entry->value, entry->length);
	}
}

/* The key that a command changes. False: of that kind nothing is decided that could be looked for. */
static bool
key_of(const Instance *instance, const ShardCommand *event, ShardMapKey *key)
{
	switch (event->kind)
	{
		case SHARD_COMMAND_DOWN:
		case SHARD_COMMAND_WRITE_OFF:
		case SHARD_COMMAND_ADMIT:
		case SHARD_COMMAND_EVACUATE:
			*key = (ShardMapKey){SHARD_MAP_MEMBER, event->node, 0};
			return true;
		case SHARD_COMMAND_STAY:
			*key = (ShardMapKey){SHARD_MAP_MEMBER, shard_node_id(instance->node), 0};
			return true;
		case SHARD_COMMAND_LEASE_TTL:
			*key = (ShardMapKey){SHARD_MAP_SETTINGS, 0, 0};
			return true;
		case SHARD_COMMAND_PIN:
			*key = (ShardMapKey){SHARD_MAP_PIN, event->type_id, event->shard};
			return true;
		case SHARD_COMMAND_MOVE:
		case SHARD_COMMAND_GIVE_UP:
			*key = (ShardMapKey){SHARD_MAP_HOME, event->type_id, event->shard};
			return true;
		default:
			return false;
	}
}

/* The newest value of a key in an era or before it. NULL: there is none. */
static const Value *
newest(const Commands *all, int32 era, ShardMapKey key)
{
	const Value *best = NULL;

	for (int i = 0; i < all->n_values; i++)
	{
		const Value *value = &all->values[i];

		if (value->era <= era && memcmp(&value->entry.key, &key, sizeof(key)) == 0 &&
			(!best || value->entry.n > best->entry.n))
			best = value;
	}
	return best;
}

void
commands_give(World *world, Instance *instance, ShardCommand *event)
{
	Commands *all = commands_of(world);
	ShardMemberRecord member;
	const Value *value;
	ShardArena *arena;
	Command *command;
	ShardMapKey key;

	if (instance->joined && !instance->shadow && !instance->retired &&
		key_of(instance, event, &key))
	{
		if (all->n_commands == all->command_space)
		{
			all->command_space *= 2;
			all->commands = repalloc(all->commands, sizeof(Command) * all->command_space);
		}
		command = &all->commands[all->n_commands++];
		*command =
			(Command){.kind = event->kind,
					  .key = key,
					  .wanted = event->kind == SHARD_COMMAND_LEASE_TTL ? (int32) event->number
																	   : event->node,
					  .flag = event->flag};
		value = newest(all, shard_node_era(instance->node), key);
		arena = shard_arena_create();
		if (value)
			command->n = value->entry.n;
		if (value && key.kind == SHARD_MAP_MEMBER &&
			shard_record_get_member(&value->entry, &member, arena))
			command->inc_no = member.inc_no;
		shard_arena_destroy(arena);
		event->asker.token = WORLD_COMMAND + all->n_commands;
	}
	host_command(world, instance, event);
}

/* Is it the incarnation of an instance that is up? An operator may admit one that is admitted, and has not heard of it yet. */
static bool
is_up(const World *world, ShardUuid incarnation)
{
	for (int i = 0; i < world->n_instances; i++)
	{
		if (world->instances[i].up &&
			shard_record_uuid_equal(world->instances[i].incarnation, incarnation))
			return true;
	}
	return false;
}

static bool
member_is_so(const World *world, const Command *command, const ShardMemberRecord *member)
{
	switch (command->kind)
	{
		case SHARD_COMMAND_DOWN:
			return member->status == SHARD_MEMBER_DOWN;
		case SHARD_COMMAND_WRITE_OFF:
			return member->status == SHARD_MEMBER_WRITTEN_OFF;
		case SHARD_COMMAND_ADMIT:
			return member->inc_no > command->inc_no || is_up(world, member->inc_uuid);
		case SHARD_COMMAND_STAY:
			return member->status < SHARD_MEMBER_LEAVING;
		default:
			return member->evacuated == command->flag;
	}
}

static bool
home_is_so(const Command *command, const ShardMapEntry *entry)
{
	ShardHomeRecord home;

	if (!shard_record_get_home(entry, &home))
		return false;
	if (command->kind == SHARD_COMMAND_MOVE)
		return home.phase == SHARD_HOME_STABLE && shard_record_home_node(&home) == command->wanted;
	return entry->n > command->n && home.lost == home.epoch;
}

/* Is a value what the command wanted? */
static bool
is_so(const World *world, const Command *command, const ShardMapEntry *entry)
{
	ShardSettingsRecord settings;
	ShardMemberRecord member;
	ShardArena *arena;
	bool so;

	switch (command->key.kind)
	{
		case SHARD_MAP_PIN:
			return command->wanted == 0
					   ? entry->deleted
					   : !entry->deleted && shard_record_get_pin(entry) == command->wanted;
		case SHARD_MAP_SETTINGS:
			return shard_record_get_settings(entry, &settings) &&
				   settings.lease_ttl_ms == command->wanted;
		case SHARD_MAP_HOME:
			return home_is_so(command, entry);
		default:
			arena = shard_arena_create();
			so = shard_record_get_member(entry, &member, arena) &&
				 member_is_so(world, command, &member);
			shard_arena_destroy(arena);
			return so;
	}
}

void
commands_done(World *world, const Instance *instance, int64 token)
{
	const Commands *all = commands_of(world);
	const Command *command;
	bool none = true;

	if (token <= WORLD_COMMAND || token > WORLD_COMMAND + all->n_commands)
		return;
	command = &all->commands[token - WORLD_COMMAND - 1];
	for (int i = 0; i < all->n_values; i++)
	{
		const ShardMapEntry *entry = &all->values[i].entry;

		if (memcmp(&entry->key, &command->key, sizeof(entry->key)) != 0 || entry->n < command->n)
			continue;
		none = false;
		if (is_so(world, command, entry))
			return;
	}
	if (none && command->kind == SHARD_COMMAND_PIN && command->wanted == 0)
		return;
	check_fail(world->check,
			   "G6: %s answers that command %d of key (%d, %d, %d) is done, which is not decided",
			   instance->dsn, (int) command->kind, command->key.kind, command->key.a,
			   command->key.b);
}
