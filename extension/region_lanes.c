/*
 * region_lanes.c
 *		Locks of a region worker: which lanes are its own (doc/protocol.md W2, W3).
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"

#include "catalog.h"
#include "region_private.h"

#include "compat.h"

/* Takes all lanes, or ends the process: another worker has one still. */
void
shard_region_own_lanes(const ShardRegion *region)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
		if ((region->lanes & (1u << lane)) != 0 && !shard_shmem_own(region->db, lane))
			ereport(FATAL, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("lane %d is still owned by another region worker", lane)));
}

/*
 * The turn locks (W3). Their mode conflicts with itself, so turns of two
 * workers, and the reading of a position, can never overlap; and with that of
 * a seal.
 */
bool
shard_region_lock_turn(const ShardRegion *region)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		LOCKTAG tag;

		if ((region->lanes & (1u << lane)) == 0)
			continue;
		SET_LOCKTAG_OBJECT(tag, MyDatabaseId, shard_catalog_get()->node, lane, 0);
		if (LockAcquire(&tag, ShareUpdateExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
			return false;
	}
	return true;
}

/*
 * Releases advisory locks that handlers left behind, which survive commit and
 * abort. None of ours is among them.
 */
bool
shard_region_release_locks(ShardRegion *region)
{
	StartTransactionCommand();
	LockReleaseAll(USER_LOCKMETHOD, true);
	CommitTransactionCommand();
	return false;
}
