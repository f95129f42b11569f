/*
 * core/type_number.h
 *		Numbers of types: which group of lanes an owner's types are in (doc/protocol.md W1, C19).
 */
#pragma once

#include "core/map.h"
#include "core/record.h"

/* A type that has a number. */
typedef struct ShardNumberedType
{
	int32 type_id;
	const char *owner; /* "": not known */
} ShardNumberedType;

/* Those of a map, in the arena. */
extern ShardNumberedType *
shard_type_number_list(const ShardMap *map, ShardArena *arena, int *count);

/*
 * The group for another type of an owner: that of his other types, else one without types, else, if owners may share, the
 * one with the fewest. -1: there is none. Of several that do the one which comes first behind last, the newest number.
 */
extern int shard_type_number_group(const ShardNumberedType *types, int count, const char *owner,
								   int32 last, bool may_share);

/* The next number of a group; 0: none is left. group -1: of any. */
extern int32 shard_type_number_next(int32 last, int group);

/* How many owners have types in a group. */
extern int shard_type_number_owners(const ShardNumberedType *types, int count, int group);

/* Why an owner gets no number, and what he can do. */
#define SHARD_TYPE_NUMBER_ERROR "cannot start entity type \"%s\": too many owners of entity types"
#define SHARD_TYPE_NUMBER_DETAIL \
	"%d owners have types in the cluster, and that is how many can have region workers of their own."
#define SHARD_TYPE_NUMBER_HINT \
	"Start the type as one of them, or let owners share workers with shard.owners_may_share_workers."
