/*
 * registry/reshard_lock.c
 *		Senders to a type that is stopped, and the end of its resharding, wait for each other (E64).
 *
 * A resharded type has another number, and what names the former one is of no type. So between the last look for such
 * messages and the commit no sender may commit; whose rows were in the log at that look is seen there, and whose were
 * not waits here, and finds the type gone. The lock is held by senders from the writing of their rows to the end of
 * their commit, and for no longer than the last transaction of a call by the other side, which does not wait for it.
 * Senders to types that run take no lock.
 *
 * If the process dies right here: the lock goes with its transaction.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/resowner.h"

#include "registry/catalog.h"
#include "registry/reshard_lock.h"

#include "base/compat.h"

static bool
take(int32 type_id, LOCKMODE mode, bool nowait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, shard_catalog_get()->type, (Oid) type_id, 2);
	CurrentResourceOwner = TopTransactionResourceOwner;
	result = LockAcquire(&tag, mode, false, nowait);
	CurrentResourceOwner = owner;
	return result != LOCKACQUIRE_NOT_AVAIL;
}

bool
shard_reshard_lock_send(int32 type_id, bool nowait)
{
	return take(type_id, ShareLock, nowait);
}

bool
shard_reshard_lock_senders(int32 type_id)
{
#ifdef SHARD_MUTANT_RESHARD_BESIDE_SENDERS
	return true;
#endif
	return take(type_id, ExclusiveLock, true);
}
