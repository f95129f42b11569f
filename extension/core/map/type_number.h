/*
 * core/map/type_number.h
 *		Numbers of types: which group of lanes an owner's types are in (doc/protocol.md W1, C19).
 */
#pragma once

#include "core/map/control.h"
#include "core/map/map.h"
#include "core/map/record.h"
#include "core/base/arena.h"

/* The most groups that types have to themselves. */
#define SHARD_GROUPS_OF_OWN (SHARD_GROUPS / 2)

/* Whose types are in a group together: those of an owner, or one type that has its workers to itself. */
typedef struct ShardTypeParty
{
	const char *owner; /* "": not known */
	const char *alone; /* name of that type; NULL: the others of the owner */
} ShardTypeParty;

extern ShardTypeParty shard_type_number_party(const ShardTypeRecord *type);

/* A type that has a number. */
typedef struct ShardNumberedType
{
	int32 type_id;
	ShardTypeParty party;
} ShardNumberedType;

/*
 * Add a type to a list, unless its party has one in its group: one type of each party in each group is enough for all
 * questions.
 */
extern void
shard_type_number_add(ShardNumberedType *types, int *count, int32 type_id, ShardTypeParty party);

/* The list for the types of a map, in the arena. */
extern ShardNumberedType *
shard_type_number_list(const ShardMap *map, ShardArena *arena, int *count);

/* The types of a map in the order of their names, in the arena; and the one of a name, NULL: there is none. */
extern ShardTypeRecord *shard_type_number_names(const ShardMap *map, ShardArena *arena, int *count);
extern const ShardTypeRecord *
shard_type_number_find(const ShardTypeRecord *names, int count, const char *name);

/*
 * The group for another type of a party: that of its other types, else one without types, else, if owners may share, the
 * one with the fewest, which no type has to itself. -1: there is none. Of several such groups the one which comes first
 * from that of last on, the newest number: who drops the newest type and starts another one gets the same workers.
 */
extern int shard_type_number_group(const ShardNumberedType *types, int count, ShardTypeParty party,
								   int32 last, bool may_share);

/* The next number of a group; 0: none is left. group -1: of any. */
extern int32 shard_type_number_next(int32 last, int group);

/*
 * The number for a type of a party. wish: the number that the owner would like, 0: none; it is granted if it cannot
 * have been given before and no other party is in its group, which does not matter if the node is alone in its cluster. 0: there is none; *full: for want of a group, as opposed to numbers.
 */
extern int32
shard_type_number_choose(const ShardNumberedType *types, int count, ShardTypeParty party,
						 int32 last, int32 wish, bool alone, bool may_share, bool *full);

/*
 * Why a node with these types, values of SHARD_MAP_TYPE, may not join the cluster of that map: one would get no number,
 * should they be asked for one after the other as a member does. In the arena; NULL: it may.
 */
extern const char *shard_type_number_judge(const ShardMap *decided, const ShardMapEntry *types,
										   int n_types, bool may_share, ShardArena *arena);

/* What types take up in a cluster. */
typedef struct ShardTypeRoom
{
	int64 types;
	int64 shards;
	int64 bytes; /* of their records */
} ShardTypeRoom;

/* The most that all types of a cluster take up together; the types that one member alone has may take half of each (C20). */
#define SHARD_ROOM_TYPES 2048
#define SHARD_ROOM_SHARDS (2 * SHARD_MAX_SHARDS)
#define SHARD_ROOM_BYTES (4 * 1024 * 1024)

/* Add what a type and its record take up. */
extern void
shard_type_room_add(ShardTypeRoom *room, const ShardMapEntry *entry, const ShardTypeRecord *type);

/* Is there room? all: what all types take up; alone: the part of it that one member alone has. */
extern bool shard_type_room_fits(const ShardTypeRoom *all, const ShardTypeRoom *alone);

/* The most types that a joiner brings, and the bytes of their records: a cluster has no room for more. */
#define SHARD_JOIN_TYPES 1024
#define SHARD_JOIN_TYPE_BYTES SHARD_ROOM_BYTES

/* The bytes of a joiner's JOIN message, at most. */
#define SHARD_JOIN_MAX_BYTES (SHARD_JOIN_TYPE_BYTES + 256 * 1024)

/* Why a node with these types is not even called back: they are too many, or too long. In the arena; NULL: they are not. */
extern const char *
shard_type_number_bounds(const ShardMapEntry *types, int n_types, ShardArena *arena);

/* Why a type gets no number now. */
extern const char *shard_type_number_why(ShardTypeRefusal refusal);

/* How many parties have types in a group. */
extern int shard_type_number_owners(const ShardNumberedType *types, int count, int group);

/* Why an owner gets no number, and what the owner can do. */
#define SHARD_TYPE_NUMBER_WHY "too many owners of entity types"
#define SHARD_TYPE_NUMBER_ERROR "cannot start entity type \"%s\": %s"
#define SHARD_TYPE_NUMBER_DETAIL \
	"%d owners and types with worker \"own\" can have region workers to themselves, four such types among them."
#define SHARD_TYPE_NUMBER_HINT \
	"Start the type as one of these owners and with worker \"shared\"; types with workers of their own apart, owners " \
	"share workers with shard.owners_may_share_workers."
#define SHARD_TYPE_NUMBER_HINT_OWN \
	"Start the type with worker \"shared\", or drop one that has workers of its own: %s."

/* Why there is no room, and what can be done. */
#define SHARD_TYPE_ROOM_WHY "too many entity types or shards"
#define SHARD_TYPE_ROOM_DETAIL \
	"The types of a cluster have %d shards together at most, are %d, and describe themselves in %d bytes; those that one " \
	"member has alone half as many."
#define SHARD_TYPE_ROOM_HINT \
	"Start the type with fewer shards, drop others with shard_drop_type(), or start those of this node at other members, too."
