/*
 * shared/copy_set.h
 *		Which shards this node has copies of, as home or backup: their sets and ends, in shared memory (Q4, Q8, Q9, Q36).
 *
 * For processes that are not the lane's worker: the worker itself has the set in the shard's route (ShardRoute.set).
 * The durable form is table shard.copy, which the lane's worker writes in the turn that meets the fact. Here is what was
 * committed. A lane's entries are complete once its stream positions have been read
 * (shard_stream_position_is_ready); before that, and of a fact that the worker has not met yet, an entry lacks or is
 * older: whoever needs a newer one waits for it, as for rows of a newer epoch (X3).
 *
 * With the set stands what a copy has promised, and where it ends (ShardCopyEnd). A process that changes an end holds the
 * lock of the lane's records (shard_turn_lock_records) until the entry is changed, too: a backend that stores a home's
 * records, from judging them to its commit; the lane's worker, when it meets a newer home, until its turn has
 * committed. A worker at its start says what log and tables have, where that is not known since the server's start.
 *
 * Memory is taken when the first copy comes, so a server without types with replicas has none.
 */
#pragma once

#include "core/flow/replica.h"
#include "core/map/set.h"
#include "shared/shmem.h"

/* Which shard: of a database here. Compared as bytes. */
typedef struct ShardCopySetKey
{
	Oid dboid;
	int32 type_id;
	int32 shard;
} ShardCopySetKey;

/* What a copy has promised and stored, as committed, but for the promise, which is raised before the turn commits (Q9). */
typedef struct ShardCopyEnd
{
	ShardReplicaCopy copy;
	int64 kept; /* records of turns below are needed no more, as rotation asks (log/turn_log.h) */
} ShardCopyEnd;

typedef struct ShardCopySetItem
{
	ShardCopySetKey key;
	ShardSet set;
	ShardCopyEnd end;
} ShardCopySetItem;

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

/* The lane's worker: the shard's type is gone. Never fails. */
extern void shard_copy_set_drop(const ShardCopySetKey *key);

/*
 * A worker at its start: begin, before it puts what is durable: the sets of these lanes are forgotten, not the ends; and
 * when all of the log was read, loaded: what has no set by then goes.
 */
extern void shard_copy_set_begin(Oid dboid, ShardLanes lanes);
extern void shard_copy_set_loaded(Oid dboid, ShardLanes lanes);

/*
 * The end of a copy. extension: the OID of table shard.node, of the extension whose ends are asked for. False: there is no
 * copy, or its end is not known since the server's start.
 */
extern bool shard_copy_end_get(const ShardCopySetKey *key, Oid extension, ShardCopyEnd *end);

/*
 * The lane's worker: the end that log and tables have, at its start, or of a copy that is new here. What is known
 * already stays. Never fails, as the next five, which do nothing if there is no entry.
 */
extern void
shard_copy_end_found(const ShardCopySetKey *key, Oid extension, const ShardReplicaCopy *copy);

/*
 * A worker at its start, after put: what table shard.copy says of what is applied, which is released. Nothing happens if the
 * end is known. And a backup's worker, after it has applied turns up to that one; records of turns below it are needed no more.
 */
extern void shard_copy_end_load(const ShardCopySetKey *key, Oid extension, int64 applied);
extern void shard_copy_end_applied(const ShardCopySetKey *key, int64 applied);

/* The lane's worker, in its turn: nothing of an older epoch is stored any more. What an abort leaves does no harm. */
extern void shard_copy_end_promise(const ShardCopySetKey *key, int32 epoch);

/*
 * In the transaction that stores, under the lane's lock, when all else is done: the place of the end, so that put cannot fail. An
 * error, as a rule 53200, if it cannot be had: nothing was stored. It is given back by exactly one put.
 */
typedef struct ShardCopyPlace
{
	struct CopySetEntry *entry; /* NULL: there is none: the type is gone */
	uint32 life;
} ShardCopyPlace;

extern void shard_copy_end_reserve(const ShardCopySetKey *key, ShardCopyPlace *place);

/*
 * At the commit of what was stored, before the lane's lock is released; or, copy NULL, at an abort: nothing was. A type that has gone
 * meanwhile has no end. Never fails.
 */
extern void shard_copy_end_put(const ShardCopyPlace *place, const ShardReplicaCopy *copy);

/* The home's worker, at any time: records of turns below are needed no more. Below the newest turn. */
extern void shard_copy_end_keep(const ShardCopySetKey *key, int64 kept);

/*
 * There is something to be applied to copies in the lane (Q10): its worker does that, at the latest after SHARD_APPLY_MS. It is
 * waked for the first one alone, so that it knows when. That worker: when, by shard_clock_now(), 0: nothing has come; and before it
 * looks what there is: what comes from now on says so again.
 */
#define SHARD_APPLY_MS 200
extern void shard_copy_apply_soon(ShardDatabase *db, int lane);
extern int64 shard_copy_apply_at(void);
extern void shard_copy_apply_begin(void);

/*
 * All copies of a database, palloc'd, in no order; none: *count is 0. A set that is all zero is not known, since the lane's
 * worker is about to read it: there may be a copy.
 */
extern ShardCopySetItem *shard_copy_set_list(Oid dboid, int *count);

/* By type and shard, for qsort() and bsearch() of items. */
extern int shard_copy_set_compare(const void *a, const void *b);

/* The slot of a database is given back, or its cluster is forgotten: so are its copies. */
extern void shard_copy_set_free(ShardDatabase *db, Oid dboid);
