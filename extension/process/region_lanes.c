/*
 * process/region_lanes.c
 *		Locks of a region worker: which lanes are its own (doc/protocol.md W2, W3).
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"

#include "process/region_private.h"
#include "registry/turn_lock.h"

#include "base/compat.h"

/* Takes all lanes, or ends the process if another worker still has one. */
void
shard_region_own_lanes(const ShardRegion *region)
{
	shard_each_lane (lane, region->lanes)
		if (!shard_shmem_own(region->db, lane))
			ereport(FATAL, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("lane %d is still owned by another region worker", lane)));
}

/*
 * The turn locks (W3). Their mode conflicts with itself and with that of a seal. So turns of two workers, the reading
 * of a position, and a seal never overlap.
 */
bool
shard_region_lock_turn(const ShardRegion *region)
{
	return shard_turn_lock(region->lanes);
}

/*
 * Releases advisory locks that handlers left behind, which survive commit and abort. The extension itself has no such
 * locks.
 */
bool
shard_region_release_locks(ShardRegion *region)
{
	StartTransactionCommand();
	LockReleaseAll(USER_LOCKMETHOD, true);
	CommitTransactionCommand();
	return false;
}
