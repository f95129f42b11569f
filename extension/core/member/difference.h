/*
 * core/member/difference.h
 *		In what a type of a node differs from the cluster's type of that name.
 */
#pragma once

#include "core/map/record.h"
#include "core/base/arena.h"

/* A setting, as text. */
#define SHARD_DIFFERENCE_TEXT 160

/*
 * Does the type belong to another role in the cluster than on the node (C18)? Roles are the same if their names are,
 * letter by letter.
 */
extern bool shard_difference_of_owners(const ShardTypeRecord *cluster, const ShardTypeRecord *node);

/*
 * The first thing that members have to agree on and that differs, with both values, in the arena; NULL:
 * nothing does. state: the structures of the states count, too, where both are known.
 */
extern const char *
shard_difference_of_types(const ShardTypeRecord *cluster, const ShardTypeRecord *node, bool state,
						  ShardArena *arena);
