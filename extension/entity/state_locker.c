/*
 * entity/state_locker.c
 *		Who has a type's state table locked, or a type of its states. Nothing is kept here.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"

#include "entity/state.h"

#include "base/compat.h"

/*
 * The process that has one of those locks on a relation, or waits for it; 0 if there is none.
 */
static int
find_relation_locker(Oid relid, LOCKMASK strong)
{
	LockData *locks;
	LOCKTAG tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (memcmp(&lock->locktag, &tag, sizeof(tag)) == 0 &&
			((lock->holdMask | LOCKBIT_ON(lock->waitLockMode)) & strong) != 0)
			return lock->pid;
	}
	return 0;
}

int
shard_state_table_locker(const ShardType *type)
{
	LOCKMASK strong = LOCKBIT_ON(ShareLock) | LOCKBIT_ON(ShareRowExclusiveLock) |
					  LOCKBIT_ON(ExclusiveLock) | LOCKBIT_ON(AccessExclusiveLock);
	Oid part;

	if (RecoveryInProgress() || !ConditionalLockRelationOid(type->state_table, RowExclusiveLock))
		return find_relation_locker(type->state_table, strong);
	UnlockRelationOid(type->state_table, RowExclusiveLock);
	part = shard_state_locked_type(type);
	return OidIsValid(part) ? find_relation_locker(part, LOCKBIT_ON(AccessExclusiveLock)) : 0;
}
