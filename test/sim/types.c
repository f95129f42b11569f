/*
 * types.c
 *		A type that nodes start, drop, and start again with other settings, as hosts do it (C9): its row, a
 *		transaction that has its id and is not committed, and what a host tells the control plane of them.
 *
 * It has no messages; the checker wants that its record stays as long as anybody has it, and goes when
 * nobody has.
 */
#include "world.h"

#include "core/member/difference.h"
#include "core/member/membership.h"
#include "core/base/timing.h"

#define TYPE_TABLE (STORE_MAX_TABLES - 2)
#define TYPE_NAME "scratch"

/* Who waits for an id for so long gives up. */
#define PATIENCE (5 * SHARD_SECOND)

typedef struct TypeRow
{
	int32 id;
	int32 owner; /* of owners */
	uint64 settings;
} TypeRow;

/* Two users who take the same name (C18). */
static const char *const owners[] = {"alice", "mallory"};

static const StoreKey row_key = {{0, 0, 0, 0}};

static const TypeRow *
row_of(const Instance *instance)
{
	return store_get(instance->store, NULL, TYPE_TABLE, row_key);
}

void
types_define(Instance *instance)
{
	store_define(instance->store, TYPE_TABLE, "types", sizeof(TypeRow));
}

static void
tell(World *world, Instance *instance, const TypeRow *row, bool wish)
{
	ShardTypeRecord type = {.name = TYPE_NAME, .number_of_shards = 8, .role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type, .flag = wish};

	type.settings_hash = row->settings;
	type.owner = owners[row->owner];
	event.number = row->id;
	host_event(world, instance, &event);
}

static void
tell_gone(World *world, Instance *instance)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_DROP_TYPE, .text = TYPE_NAME};

	host_event(world, instance, &event);
}

/* The control process has started: it hears of the row; of a transaction that is open nobody tells it. */
void
types_start(World *world, Instance *instance)
{
	const TypeRow *row = row_of(instance);

	if (row)
		tell(world, instance, row, false);
}

/* The record as an instance has learned it, id 0: none. same: as that row would have it. */
static int32
find_record(Instance *instance, const TypeRow *row, bool *same, bool *dropping)
{
	ShardTypeRecord wanted = {.settings_hash = row->settings, .owner = owners[row->owner]};
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(instance->node), SHARD_MAP_TYPE, arena, &count);
	int32 id = 0;

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (!shard_record_get_type(&types[i], &type, arena) || strcmp(type.name, TYPE_NAME) != 0)
			continue;
		id = types[i].key.a;
		*same = type.settings_hash == wanted.settings_hash &&
				!shard_difference_of_owners(&type, &wanted);
		*dropping = type.dropping;
	}
	shard_arena_destroy(arena);
	return id;
}

/* Nobody's type is another one's at another member (C18). */
static void
check_owners(World *world, const Instance *instance, const TypeRow *row)
{
	for (int i = 0; i < world->n_instances && !world->forced; i++)
	{
		const Instance *other = &world->instances[i];
		const TypeRow *theirs;

		if (other == instance || !other->exists || !other->joined || other->retired ||
			other->shadow || other->journal)
			continue;
		theirs = row_of(other);
		if (theirs && theirs->id == row->id && theirs->owner != row->owner)
			check_fail(world->check, "C18: type %d is %s's at %s, and %s's at %s", row->id,
					   owners[row->owner], instance->dsn, owners[theirs->owner], other->dsn);
	}
}

/* The transaction that starts the type ends. */
static void
end_start(World *world, Instance *instance, int64 commits, int64 id, const char *bytes,
		  size_t length)
{
	TypeRow row = {instance->type_begun, instance->type_owner, instance->type_settings};
	StoreTransaction *transaction;

	if (!instance->up || instance->type_begun == 0 || instance->type_begun != id)
		return;
	transaction = store_begin(instance->store);
	if (!commits || !store_put(transaction, TYPE_TABLE, row_key, &row))
	{
		store_abort(transaction);
		instance->type_begun = 0;
		tell_gone(world, instance);
		return;
	}
	(void) store_commit(transaction);
	instance->type_begun = 0;
	world_trace(world, "%s: has type %d of %s", instance->dsn, row.id, owners[row.owner]);
	check_owners(world, instance, &row);
	tell(world, instance, &row, false);
}

static void
drop(World *world, Instance *instance)
{
	StoreTransaction *transaction = store_begin(instance->store);

	if (!store_remove(transaction, TYPE_TABLE, row_key))
	{
		store_abort(transaction);
		return;
	}
	/* It is seen before it is flushed. */
	(void) store_commit(transaction);
	world_trace(world, "%s: has dropped its type", instance->dsn);
	tell_gone(world, instance);
}

/* What becomes of a start that waits for an id. */
static void
look_at_start(World *world, Instance *instance)
{
	TypeRow wanted = {0, instance->type_owner, instance->type_settings};
	bool same = false;
	bool dropping = false;
	int32 id = find_record(instance, &wanted, &same, &dropping);

	if (id != 0 && !dropping && !shard_node_asks_for_type(instance->node, TYPE_NAME) && same)
	{
		instance->type_wanted = 0;
		instance->type_begun = id;
		world_later(world, 1 + world_random(world, 4 * SHARD_SECOND), end_start, instance, true,
					world_random(world, 4) > 0, id, NULL, 0);
	}
	else if (world->now - instance->type_wanted > PATIENCE)
	{
		instance->type_wanted = 0;
		tell_gone(world, instance);
	}
}

/* See world.h: a user's turn. */
void
types_change(World *world, Instance *instance, uint32 number)
{
	if (!instance->up || !instance->node || !instance->joined || instance->journal ||
		instance->shadow || instance->type_begun != 0 || instance->type_wanted != 0)
		return;
	world->types = true;
	if (row_of(instance))
		drop(world, instance);
	else
	{
		TypeRow row = {0, number / 2 % 4 == 0, 1 + number % 2};

		instance->type_wanted = world->now;
		instance->type_settings = row.settings;
		instance->type_owner = row.owner;
		tell(world, instance, &row, true);
	}
}

void
types_look(World *world, Instance *instance)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPES_TOLD};

	if (!world->types || instance->journal || !instance->node)
		return;
	if (world->healed && instance->type_begun != 0)
		end_start(world, instance, false, instance->type_begun, NULL, 0);
	else if (world->healed && row_of(instance))
		drop(world, instance);
	if (instance->node && instance->type_wanted != 0)
		look_at_start(world, instance);
	if (!instance->node || instance->type_begun != 0 || !shard_node_asks_for_types(instance->node))
		return;
	/* What was seen has to be durable, at the standby, too: that is told later. */
	store_flush(instance->store);
	if (!store_released(instance->store, store_last_lsn(instance->store)))
	{
		host_after(world, instance);
		return;
	}
	event.number = shard_map_point(shard_node_learned(instance->node)).n;
	host_event(world, instance, &event);
}

/* The server dies, with its transactions. */
void
types_crash(Instance *instance)
{
	instance->type_begun = 0;
	instance->type_wanted = 0;
}

/* Is the instance's node one that counts, as another one has learned? */
static bool
is_member(const Instance *teller, const Instance *instance)
{
	const ShardMapEntry *entry =
		shard_map_value(shard_node_learned(teller->node),
						(ShardMapKey){SHARD_MAP_MEMBER, instance->node_id, 0});
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord member;
	bool is = entry && shard_record_get_member(entry, &member, arena) &&
			  (shard_membership_is_member(member.status) || member.status == SHARD_MEMBER_DOWN);

	shard_arena_destroy(arena);
	return is;
}

void
types_judge(World *world, const Instance *teller, const ShardMapEntry *entry)
{
	if (entry->key.kind != SHARD_MAP_TYPE || !entry->deleted || world->forced)
		return;
	for (int i = 0; i < world->n_instances; i++)
	{
		const Instance *instance = &world->instances[i];
		const TypeRow *row;

		if (!instance->exists || !instance->joined || instance->retired || instance->shadow ||
			instance->journal)
			continue;
		row = row_of(instance);
		if (((row && row->id == entry->key.a) || instance->type_begun == entry->key.a) &&
			is_member(teller, instance))
			check_fail(world->check, "C9: type %d goes, and %s has it", entry->key.a,
					   instance->dsn);
	}
}

/* See world.h. A member that is down may have it, for all the others know. */
bool
types_settled(World *world, Instance *coordinator, char *why, size_t size)
{
	ShardArena *arena = shard_arena_create();
	bool dropping = false;
	bool away = false;
	bool same;
	int count;
	ShardMapEntry *members =
		shard_map_list(shard_node_learned(coordinator->node), SHARD_MAP_MEMBER, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		away |= shard_record_get_member(&members[i], &member, arena) &&
				(member.status == SHARD_MEMBER_DOWN || member.status == SHARD_MEMBER_JOINING);
	}
	shard_arena_destroy(arena);
	if (!world->types || away || find_record(coordinator, &(TypeRow){0}, &same, &dropping) == 0)
		return true;
	snprintf(why, size, "a type that nobody has is still there%s", dropping ? ", marked" : "");
	return false;
}
