/*
 * held.h
 *		Messages that cannot be handled now, and those that were given up.
 *
 * The exceptional path: SQL on ordinary tables, as the bootstrap superuser. The
 * caller has ended any stretch of user code.
 */
#pragma once

#include "nodes/pg_list.h"
#include "utils/timestamp.h"

#include "log.h"

/* A message that is held; strings in the memory of the load. */
typedef struct ShardHeld
{
	ShardRow row; /* seq: position in the stash */
	int attempts;
	TimestampTz next_at; /* 0: as soon as the entity can run */
	int64 number;		 /* of place ordered */
} ShardHeld;

/* What waits of an entity for lower numbers. */
typedef struct ShardHeldOrdered
{
	int64 waiting; /* messages; 0: the others mean nothing */
	int64 lowest;
	TimestampTz oldest; /* held since */
} ShardHeldOrdered;

/*
 * Puts a message behind the stash rows of its entity. error: its failure, NULL
 * if it was not tried. next_at: 0 for none.
 */
extern void
shard_held_stash(const ShardRow *row, int attempts, TimestampTz next_at, const ErrorData *error);

/* The first rows of an entity's stash, in order, at most limit: ShardHeld *. */
extern List *
shard_held_load(int32 type_id, int shard, const char *entity, int entity_len, int limit);

/* Puts a message in the place of its number; false if there is one already. */
extern bool shard_held_insert_ordered(const ShardRow *row, int64 number);

/* The lowest of these of an entity, at most limit: ShardHeld *. And what there is of them. */
extern List *
shard_held_load_ordered(int32 type_id, int shard, const char *entity, int entity_len, int limit);
extern ShardHeldOrdered
shard_held_count_ordered(int32 type_id, int shard, const char *entity, int entity_len);

/* Calls visit for each entity with any; at start. And for those of a shard that arrived. */
typedef void (*ShardHeldOrderedVisit)(int32 type_id, int shard, const char *entity, int entity_len,
									  const ShardHeldOrdered *ordered, void *arg);
extern void shard_held_each_ordered(ShardHeldOrderedVisit visit, void *arg);
extern void
shard_held_each_ordered_of_shard(int32 type_id, int shard, ShardHeldOrderedVisit visit, void *arg);

/* Removes one that was handled. */
extern void shard_held_delete(const ShardRow *row);

/* Notes another failed attempt. */
extern void
shard_held_failed(const ShardRow *row, int attempts, TimestampTz next_at, const ErrorData *error);

/* Gives a message up. */
extern void shard_held_dead_letter(const ShardRow *row, int attempts, const ErrorData *error);

/* Gives up what is held of a type, if that does not exist any more. Returns how many messages. */
extern int64 shard_held_bury(int32 type_id);

/* Calls visit for each entity with rows in the stash; at start. */
typedef void (*ShardHeldVisit)(int32 type_id, int shard, const char *entity, int entity_len,
							   int64 rows, int attempts, TimestampTz next_at, void *arg);
extern void shard_held_each_entity(ShardHeldVisit visit, void *arg);

/* The same for one shard. */
extern void shard_held_each_of_shard(int32 type_id, int shard, ShardHeldVisit visit, void *arg);
