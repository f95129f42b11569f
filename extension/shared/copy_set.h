/*
 * shared/copy_set.h
 *		Which shards this node has copies of, as home or backup, and their sets, in shared memory (Q4, Q36).
 *
 * For processes that are not the lane's worker: the worker itself has the set in the shard's route (ShardRoute.set).
 * The durable form is table shard.copy, which the lane's worker writes in the turn that meets the fact. Here is what was
 * committed. A lane's entries are complete once its stream positions have been read
 * (shard_stream_position_is_ready); before that, and of a fact that the worker has not met yet, an entry lacks or is
 * older: whoever needs a newer one waits for it, as for rows of a newer epoch (X3).
 *
 * Memory is taken when the first copy comes, so a server without types with replicas has none.
 */
#pragma once

#include "core/map/set.h"
#include "shared/shmem.h"

/* Which shard: of a database here. Compared as bytes. */
typedef struct ShardCopySetKey
{
	Oid dboid;
	int32 type_id;
	int32 shard;
} ShardCopySetKey;

/* The part of shared memory. */
extern const ShardShmemPart shard_copy_set_part;

/*
 * The committed set of a shard. False, and *set all zero: this node has no copy of the shard, as far as its worker has
 * met facts. May raise out of memory when a process attaches for the first time; else never fails.
 */
extern bool shard_copy_set_get(const ShardCopySetKey *key, ShardSet *set);

/* The lane's worker, in a turn: makes room, so that put cannot fail; error 53200 if there is none. */
extern void shard_copy_set_reserve(const ShardCopySetKey *key);

/* The lane's worker, after the commit; the entry was reserved. All zero: there is no copy any more. Never fails. */
extern void shard_copy_set_put(const ShardCopySetKey *key, const ShardSet *set);

/* A worker at its start, before it puts what is durable: entries of these lanes are forgotten. */
extern void shard_copy_set_begin(Oid dboid, ShardLanes lanes);

/* The slot of a database is given back, or its cluster is forgotten: so are its copies. */
extern void shard_copy_set_free(ShardDatabase *db, Oid dboid);
