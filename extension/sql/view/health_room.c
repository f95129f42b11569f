/*
 * sql/view/health_room.c
 *		Is the room for entity types nearly used (doc/protocol.md C20)? A part of shard_health.
 *
 * Told before a type is refused, with the owner that has most, so that an administrator can do something for the
 * others.
 */
#include "postgres.h"

#include "sql/cluster/cluster_view.h"
#include "registry/control_store.h"
#include "core/member/membership.h"
#include "core/map/type_number.h"
#include "sql/view/health.h"
#include "registry/security.h"

#include "base/compat.h"

/* What is used up to there, in percent, is no problem. */
#define ENOUGH 80

/* What the types of one owner, or of the member that brought them, come to. */
typedef struct Share
{
	const char *owner; /* NULL: of a member */
	int32 node;
	ShardTypeRoom room;
} Share;

typedef struct Room
{
	ShardTypeRoom all;
	List *owners; /* of Share */
	List *members;
	ShardArena *arena;
} Room;

static void
add_to(List **shares, const char *owner, int32 node, const ShardMapEntry *entry,
	   const ShardTypeRecord *type)
{
	Share *share;
	ListCell *cell;

	foreach (cell, *shares)
	{
		share = lfirst(cell);
		if (owner ? strcmp(share->owner, owner) == 0 : share->node == node)
		{
			shard_type_room_add(&share->room, entry, type);
			return;
		}
	}
	share = palloc0(sizeof(Share));
	share->owner = owner;
	share->node = node;
	shard_type_room_add(&share->room, entry, type);
	*shares = lappend(*shares, share);
}

static void
see_type(const ShardMapEntry *entry, void *arg)
{
	Room *room = arg;
	ShardTypeRecord type;

	if (!shard_record_get_type(entry, &type, room->arena))
		return;
	shard_type_room_add(&room->all, entry, &type);
	add_to(&room->owners, type.owner ? type.owner : "", 0, entry, &type);
	if (type.by != 0)
		add_to(&room->members, NULL, type.by, entry, &type);
}

/* How much of a room is used, in percent; part: those that one member has alone have that part of it. */
static int64
used(const ShardTypeRoom *room, int part)
{
	return Max(Max(room->types * 100 * part / SHARD_ROOM_TYPES,
				   room->shards * 100 * part / SHARD_ROOM_SHARDS),
			   room->bytes * 100 * part / SHARD_ROOM_BYTES);
}

/* The owner that has most of it. */
static const Share *
find_greatest(const List *shares)
{
	const Share *greatest = NULL;
	ListCell *cell;

	foreach (cell, shares)
	{
		const Share *share = lfirst(cell);

		if (!greatest || used(&share->room, 1) > used(&greatest->room, 1))
			greatest = share;
	}
	return greatest;
}

static void
tell(ShardHealth *health, const Room *room)
{
	const Share *owner = find_greatest(room->owners);
	const Share *member = find_greatest(room->members);

	if (used(&room->all, 1) >= ENOUGH)
		shard_health_add(
			health,
			psprintf("the entity types of the cluster, " INT64_FORMAT " with " INT64_FORMAT
					 " shards, take up " INT64_FORMAT
					 " %% of the room that there is; role \"%s\" has most of them, " INT64_FORMAT
					 " with " INT64_FORMAT " shards: beyond 100 %% none is started",
					 room->all.types, room->all.shards, used(&room->all, 1), owner->owner,
					 owner->room.types, owner->room.shards));
	else if (member && used(&member->room, 2) >= ENOUGH)
		shard_health_add(
			health,
			psprintf("the entity types that came from node %d, " INT64_FORMAT " with " INT64_FORMAT
					 " shards, take up " INT64_FORMAT
					 " %% of the room of those that one member has alone; in the cluster role "
					 "\"%s\" has most, " INT64_FORMAT " with " INT64_FORMAT
					 " shards: beyond 100 %% none is started there, unless others host them, too",
					 member->node, member->room.types, member->room.shards, used(&member->room, 2),
					 owner->owner, owner->room.types, owner->room.shards));
}

/* A node that is alone in its cluster has no such bounds. */
void
shard_health_room(ShardHealth *health)
{
	ShardSecurity security = {0};
	const ShardDirectoryMember *members;
	Room room = {0};
	int count;
	int there = 0;

	members = shard_cluster_view_directory(&count);
	for (int i = 0; i < count; i++)
	{
		int32 status = members[i].record.status;

		there +=
			shard_membership_is_member((ShardMemberStatus) status) || status == SHARD_MEMBER_DOWN;
	}
	if (there <= 1)
		return;
	room.arena = shard_arena_create();
	shard_security_begin_system(&security);
	shard_control_store_learned(SHARD_MAP_TYPE, see_type, &room);
	shard_security_end(&security);
	tell(health, &room);
	shard_arena_destroy(room.arena);
}
