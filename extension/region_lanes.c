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

/*
 * The owner's lock of a lane (W2). A session lock of the user method, because
 * an abort releases session locks of the default one. SQL has no name for its
 * last field, but pg_advisory_unlock_all() releases it: see still_owns().
 */
static void
owner_tag(LOCKTAG *tag, int lane)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, shard_catalog_get()->node, lane, 3);
}

/* Takes all lanes, or ends the process: another worker has one still. */
void
shard_region_own_lanes(const ShardRegion *region)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		LOCKTAG tag;

		if ((region->lanes & (1u << lane)) == 0)
			continue;
		owner_tag(&tag, lane);
		if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
			ereport(FATAL, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("lane %d is still owned by another region worker", lane)));
	}
}

/*
 * The turn locks (W3). Their mode conflicts with itself, so turns of two
 * workers, and the reading of a position, can never overlap, whatever became
 * of the owners' locks; and with that of a seal.
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
 * At the start of a turn. A handler of the last one may have released the
 * owners' locks; another worker may have been at work since, so what is known
 * here is void.
 */
void
shard_region_check_lanes(const ShardRegion *region)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		LOCKTAG tag;

		if ((region->lanes & (1u << lane)) == 0)
			continue;
		owner_tag(&tag, lane);
		if (!ShardLockHeldByMe(&tag, ExclusiveLock))
			ereport(FATAL, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("a handler released the region worker's locks"),
							errhint("Do not call pg_advisory_unlock_all() in a handler.")));
	}
}

/*
 * Releases advisory locks that handlers left behind, which survive commit and
 * abort. Ours go with them for a moment, in which the turn locks keep others out.
 */
bool
shard_region_release_locks(ShardRegion *region)
{
	StartTransactionCommand();
	if (shard_catalog_lock(true) && shard_catalog_get()->extension == region->extension &&
		shard_region_lock_turn(region))
	{
		shard_region_check_lanes(region);
		LockReleaseAll(USER_LOCKMETHOD, true);
		shard_region_own_lanes(region);
	}
	CommitTransactionCommand();
	return false;
}
