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

/* A row of the stash; strings in the memory of the load. */
typedef struct ShardHeld
{
	ShardRow row; /* seq: position in the stash */
	int attempts;
	TimestampTz next_at; /* 0: as soon as the entity can run */
} ShardHeld;

/*
 * Puts a message behind the stash rows of its entity. error: its failure, NULL
 * if it was not tried. next_at: 0 for none.
 */
extern void
shard_held_stash(const ShardRow *row, int attempts, TimestampTz next_at, const ErrorData *error);

/* The first rows of an entity's stash, in order, at most limit: ShardHeld *. */
extern List *
shard_held_load(int32 type_id, int shard, const char *entity, int entity_len, int limit);

/* Removes one that was handled. */
extern void shard_held_delete(const ShardRow *row);

/* Notes another failed attempt. */
extern void
shard_held_failed(const ShardRow *row, int attempts, TimestampTz next_at, const ErrorData *error);

/* Gives a message up. */
extern void shard_held_dead_letter(const ShardRow *row, int attempts, const ErrorData *error);

/* Calls visit for each entity with rows in the stash; at start. */
typedef void (*ShardHeldVisit)(int32 type_id, int shard, const char *entity, int entity_len,
							   int64 rows, int attempts, TimestampTz next_at, void *arg);
extern void shard_held_each_entity(ShardHeldVisit visit, void *arg);

/* The same for one shard. */
extern void shard_held_each_of_shard(int32 type_id, int shard, ShardHeldVisit visit, void *arg);
