/*
 * shared/table_lock.h
 *		Who has tables of the extension locked. Looks at the locks alone, and waits for nobody.
 */
#pragma once

#include "storage/lock.h"

/* Nobody else writes, and indexes may be locked; nobody reads. */
#define SHARD_TABLE_NO_WRITES \
	(LOCKBIT_ON(ShareLock) | LOCKBIT_ON(ShareRowExclusiveLock) | LOCKBIT_ON(ExclusiveLock) | \
	 SHARD_TABLE_NO_READS)
#define SHARD_TABLE_NO_READS LOCKBIT_ON(AccessExclusiveLock)

/* Has somebody else one of those locks on a table or an index of the schema, or does he wait for one? In a transaction. */
extern bool shard_table_lock_keeps(const LockInstanceData *lock, Oid schema, LOCKMASK strong);

/* Whose it is, palloc'd: "process 4711". */
extern char *shard_table_lock_who(const LockInstanceData *lock);

/*
 * Who keeps others from writing to a table, or will as soon as those who have it now are gone; palloc'd. NULL: nobody. In a
 * transaction.
 */
extern char *shard_table_lock_holder(Oid table);
