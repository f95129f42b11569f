/*
 * core/map/type_number.c
 *		Numbers of types: which group of lanes an owner's types are in (doc/protocol.md W1, C19).
 *
 * A number says the group for good, since lanes hang on it. So a type stays where it is when its owner changes,
 * and then shares with the others that are there; and whether it has its workers to itself is said when it starts.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/message.h"
#include "core/base/text.h"
#include "core/map/type_number.h"

/* Wishes beyond this are not granted: one of them would use up the ids. */
#define MAX_TYPE_WISH (PG_INT32_MAX / 2)

static bool
is_in(const ShardNumberedType *type, int group)
{
	return shard_message_group(type->type_id) == group;
}

static bool
is_same(const ShardTypeParty *a, const ShardTypeParty *b)
{
	if (strcmp(a->owner, b->owner) != 0 || (a->alone == NULL) != (b->alone == NULL))
		return false;
	return a->alone == NULL || strcmp(a->alone, b->alone) == 0;
}

/* Whether a party has types in a group. */
static bool
has_type(const ShardNumberedType *types, int count, const ShardTypeParty *party, int group)
{
	for (int i = 0; i < count; i++)
		if (is_in(&types[i], group) && is_same(&types[i].party, party))
			return true;
	return false;
}

/* Whether one type has a group to itself. */
static bool
is_taken(const ShardNumberedType *types, int count, int group)
{
	for (int i = 0; i < count; i++)
		if (is_in(&types[i], group) && types[i].party.alone != NULL)
			return true;
	return false;
}

/* Whether types have as many groups to themselves as they may: owners need groups, too. */
static bool
is_own_used_up(const ShardNumberedType *types, int count)
{
	int taken = 0;

	for (int group = 0; group < SHARD_GROUPS; group++)
		taken += is_taken(types, count, group);
	return taken >= SHARD_GROUPS_OF_OWN;
}

ShardTypeParty
shard_type_number_party(const ShardTypeRecord *type)
{
#ifdef SHARD_MUTANT_OWN_IS_SHARED
	return (ShardTypeParty){type->owner ? type->owner : "", NULL};
#endif
	return (ShardTypeParty){type->owner ? type->owner : "", type->own_worker ? type->name : NULL};
}

void
shard_type_number_add(ShardNumberedType *types, int *count, int32 type_id, ShardTypeParty party)
{
	if (!has_type(types, *count, &party, shard_message_group(type_id)))
		types[(*count)++] = (ShardNumberedType){type_id, party};
}

ShardNumberedType *
shard_type_number_list(const ShardMap *map, ShardArena *arena, int *count)
{
	int entries;
	ShardMapEntry *known = shard_map_list(map, SHARD_MAP_TYPE, arena, &entries);
	ShardNumberedType *types =
		shard_arena_alloc(arena, Max(entries, 1) * sizeof(ShardNumberedType));
	ShardTypeRecord record;

	*count = 0;
	for (int i = 0; i < entries; i++)
		if (shard_record_get_type(&known[i], &record, arena))
			shard_type_number_add(types, count, known[i].key.a, shard_type_number_party(&record));
	return types;
}

int
shard_type_number_owners(const ShardNumberedType *types, int count, int group)
{
	int owners = 0;

	for (int i = 0; i < count; i++)
		owners += is_in(&types[i], group);
	return owners;
}

int
shard_type_number_group(const ShardNumberedType *types, int count, ShardTypeParty party, int32 last,
						bool may_share)
{
	bool only_own = party.alone != NULL && is_own_used_up(types, count);
	int own = -1;
	int own_owners = PG_INT32_MAX;
	int other = -1;
	int other_owners = may_share && party.alone == NULL ? PG_INT32_MAX : 1;

	/* the newest type's group first: if that type is gone, the workers of its group may still be there */
	for (int i = 0; i < SHARD_GROUPS; i++)
	{
		int group = (shard_message_group(Max(last, 1)) + i) % SHARD_GROUPS;
		int owners = shard_type_number_owners(types, count, group);

		if (has_type(types, count, &party, group))
		{
			own = owners < own_owners ? group : own;
			own_owners = Min(own_owners, owners);
		}
		else if (!only_own && owners < other_owners && !is_taken(types, count, group))
		{
			other = group;
			other_owners = owners;
		}
	}
#ifdef SHARD_MUTANT_OWNERS_MIXED
	return shard_message_group(last + 1);
#endif
	return own >= 0 ? own : other;
}

int32
shard_type_number_next(int32 last, int group)
{
	int64 next = (int64) last + 1;

	if (group >= 0)
		next += (group - (int) (next % SHARD_GROUPS) + SHARD_GROUPS) % SHARD_GROUPS;
	return next <= PG_INT32_MAX ? (int32) next : 0;
}

/* May a party have types in a group: does the group have none, or types of this party? */
static bool
is_fit(const ShardNumberedType *types, int count, const ShardTypeParty *party, int group)
{
	return has_type(types, count, party, group) ||
		   shard_type_number_owners(types, count, group) == 0;
}

int32
shard_type_number_choose(const ShardNumberedType *types, int count, ShardTypeParty party,
						 int32 last, int32 wish, bool alone, bool may_share, bool *full)
{
	int group;

	*full = false;
	if (wish > last && wish <= MAX_TYPE_WISH &&
		(party.alone == NULL || alone || !is_own_used_up(types, count)) &&
		(party.owner[0] == '\0' || alone ||
		 is_fit(types, count, &party, shard_message_group(wish))))
		return wish;
	if (party.owner[0] == '\0')
		return shard_type_number_next(last, -1);
	group = shard_type_number_group(types, count, party, last, may_share);
	*full = group < 0;
	return *full ? 0 : shard_type_number_next(last, group);
}

void
shard_type_room_add(ShardTypeRoom *room, const ShardMapEntry *entry, const ShardTypeRecord *type)
{
	room->types++;
	room->shards += type->number_of_shards;
	room->bytes += entry->length;
}

bool
shard_type_room_fits(const ShardTypeRoom *all, const ShardTypeRoom *alone)
{
#ifdef SHARD_MUTANT_ROOM_FOR_ALL
	return true;
#endif
	return all->types <= SHARD_ROOM_TYPES && all->shards <= SHARD_ROOM_SHARDS &&
		   all->bytes <= SHARD_ROOM_BYTES && alone->types <= SHARD_ROOM_TYPES / 2 &&
		   alone->shards <= SHARD_ROOM_SHARDS / 2 && alone->bytes <= SHARD_ROOM_BYTES / 2;
}

const char *
shard_type_number_why(ShardTypeRefusal refusal)
{
	return refusal == SHARD_TYPE_LACKS_ROOM ? SHARD_TYPE_ROOM_WHY : SHARD_TYPE_NUMBER_WHY;
}

/* In the order in which a member asks: the lowest wish first, types without a wish last. */
static int
compare_wishes(const void *a, const void *b)
{
	uint32 one = (uint32) ((const ShardMapEntry *) a)->key.a - 1;
	uint32 two = (uint32) ((const ShardMapEntry *) b)->key.a - 1;

	return one < two ? -1 : one > two ? 1 : 0;
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(((const ShardTypeRecord *) a)->name, ((const ShardTypeRecord *) b)->name);
}

ShardTypeRecord *
shard_type_number_names(const ShardMap *map, ShardArena *arena, int *count)
{
	int entries;
	ShardMapEntry *known = shard_map_list(map, SHARD_MAP_TYPE, arena, &entries);
	ShardTypeRecord *names = shard_arena_alloc(arena, Max(entries, 1) * sizeof(ShardTypeRecord));

	*count = 0;
	for (int i = 0; i < entries; i++)
		*count += shard_record_get_type(&known[i], &names[*count], arena);
	qsort(names, *count, sizeof(ShardTypeRecord), compare_names);
	return names;
}

const ShardTypeRecord *
shard_type_number_find(const ShardTypeRecord *names, int count, const char *name)
{
	ShardTypeRecord wanted = {.name = name};

	return bsearch(&wanted, names, count, sizeof(ShardTypeRecord), compare_names);
}

const char *
shard_type_number_bounds(const ShardMapEntry *types, int n_types, ShardArena *arena)
{
	int64 bytes = 0;
	char text[200];

	for (int i = 0; i < n_types; i++)
		bytes += types[i].length;
#ifdef SHARD_MUTANT_TYPES_WITHOUT_BOUNDS
	return NULL;
#endif
	if (n_types > SHARD_JOIN_TYPES)
		snprintf(text, sizeof(text),
				 SHARD_TYPE_ROOM_WHY ": the node has %d entity types, and can bring %d", n_types,
				 SHARD_JOIN_TYPES);
	else if (bytes > SHARD_JOIN_TYPE_BYTES)
		snprintf(text, sizeof(text),
				 SHARD_TYPE_ROOM_WHY ": those of the node describe themselves in " INT64_FORMAT
									 " bytes, and can in %d",
				 bytes, SHARD_JOIN_TYPE_BYTES);
	else
		return NULL;
	return shard_arena_copy(arena, text, strlen(text) + 1);
}

/* A sentence about a joiner's type, in the arena. */
static const char *
refusal_of(const ShardTypeRecord *type, ShardTypeRefusal refusal, ShardArena *arena)
{
	const char *owner = type->owner ? type->owner : "";
	char text[400];

	snprintf(text, sizeof(text),
			 "the cluster has no number for entity type \"%.*s\" of role \"%.*s\": %s",
			 shard_text_fit(type->name, 100), type->name, shard_text_fit(owner, 100), owner,
			 shard_type_number_why(refusal));
	return shard_arena_copy(arena, text, strlen(text) + 1);
}

/* What the types of a map take up. */
static ShardTypeRoom
room_of(const ShardMap *map, ShardArena *arena)
{
	ShardTypeRoom room = {0, 0, 0};
	int count;
	ShardMapEntry *known = shard_map_list(map, SHARD_MAP_TYPE, arena, &count);
	ShardTypeRecord type;

	for (int i = 0; i < count; i++)
		if (shard_record_get_type(&known[i], &type, arena))
			shard_type_room_add(&room, &known[i], &type);
	return room;
}

const char *
shard_type_number_judge(const ShardMap *decided, const ShardMapEntry *types, int n_types,
						bool may_share, ShardArena *arena)
{
	const ShardMapEntry *entry = shard_map_value(decided, (ShardMapKey){SHARD_MAP_COUNTERS, 0, 0});
	ShardMapEntry *wishes = shard_arena_copy(arena, types, Max(n_types, 0) * sizeof(ShardMapEntry));
	ShardCountersRecord counters = {0};
	ShardTypeRoom room = room_of(decided, arena);
	ShardTypeRoom alone = {0, 0, 0};
	int n_names;
	ShardTypeRecord *names = shard_type_number_names(decided, arena, &n_names);
	int count;
	ShardNumberedType *known = shard_type_number_list(decided, arena, &count);
	ShardNumberedType *all =
		shard_arena_alloc(arena, (count + n_types + 1) * sizeof(ShardNumberedType));

	if (entry)
		(void) shard_record_get_counters(entry, &counters);
	memcpy(all, known, count * sizeof(ShardNumberedType));
	qsort(wishes, n_types, sizeof(ShardMapEntry), compare_wishes);
	for (int i = 0; i < n_types; i++)
	{
		ShardTypeRecord type;
		ShardTypeParty party;
		bool full;
		int32 number;

		if (!shard_record_get_type(&wishes[i], &type, arena) ||
			shard_type_number_find(names, n_names, type.name))
			continue;
		shard_type_room_add(&room, &wishes[i], &type);
		shard_type_room_add(&alone, &wishes[i], &type);
		if (type.number_of_shards <= 0 || type.number_of_shards > SHARD_MAX_SHARDS ||
			!shard_type_room_fits(&room, &alone))
			return refusal_of(&type, SHARD_TYPE_LACKS_ROOM, arena);
		party = shard_type_number_party(&type);
		number = shard_type_number_choose(all, count, party, counters.last_type_id, wishes[i].key.a,
										  false, may_share, &full);
		if (full)
			return refusal_of(&type, SHARD_TYPE_LACKS_GROUP, arena);
		counters.last_type_id = Max(counters.last_type_id, number);
		if (number != 0)
			shard_type_number_add(all, &count, number, party);
	}
	return NULL;
}
