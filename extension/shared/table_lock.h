/*
 * shared/table_lock.h
 *		Which process has tables of the extension locked. The functions look at the locks alone and wait for no lock.
 */
#pragma once

#include "storage/lock.h"

/* Locks under which no other process writes to a table, or locks its indexes; and the one under which none reads it. */
#define SHARD_TABLE_NO_WRITES \
	(LOCKBIT_ON(ShareLock) | LOCKBIT_ON(ShareRowExclusiveLock) | LOCKBIT_ON(ExclusiveLock) | \
	 SHARD_TABLE_NO_READS)
#define SHARD_TABLE_NO_READS LOCKBIT_ON(AccessExclusiveLock)

/*
 * Whether another process has one of those locks on a table or an index of the schema, or waits for one, and does not
 * give it up for who waits. In a transaction.
 */
extern bool shard_table_lock_keeps(const LockInstanceData *lock, Oid schema, LOCKMASK strong);

/* The process that has the lock, palloc'd: "process 4711". */
extern char *shard_table_lock_who(const LockInstanceData *lock);

/*
 * The process that keeps others from writing to a table, or will as soon as the present holders of locks are gone;
 * palloc'd. NULL: none. In a transaction.
 */
extern char *shard_table_lock_holder(Oid table);
