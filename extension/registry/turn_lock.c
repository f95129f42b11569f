/*
 * registry/turn_lock.c
 *		Locks of lanes for the time of a transaction (doc/protocol.md W3).
 *
 * A worker mostly has all lanes of a group, and with one owner all groups. Then one lock on the group, or on all of
 * them, does for a turn, in a mode that a transaction which wants a lane of it meets: that transaction takes the locks
 * of what the lane is in, too, in a mode that any number of others may have. So a turn takes few locks, though lanes
 * are many.
 *
 * Every transaction takes them in this order: all lanes, a group, its lanes, the next group.
 *
 * If the process dies right here: the lock manager releases them.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lock.h"

#include "registry/catalog.h"
#include "registry/turn_lock.h"

#include "base/compat.h"

#define ALL_LANES (SHARD_LANES + SHARD_GROUPS)

#define PART_MODE RowShareLock	 /* some lanes of it are locked */
#define WHOLE_MODE ExclusiveLock /* all of them; no other mode on it is possible then */
#define LANE_MODE ShareUpdateExclusiveLock

/* Lanes, groups behind them, and at last all of them are numbered in a tag beside shard.node. SQL has no name for it. */
static bool
acquire(Oid number, LOCKMODE mode, bool wait)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, shard_catalog_get()->node, number, 0);
	return LockAcquire(&tag, mode, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

static bool
lock_group(int group, ShardLanes lanes)
{
	if (lanes == shard_group_lanes(group))
		return acquire(SHARD_LANES + group, WHOLE_MODE, false);
	if (!acquire(SHARD_LANES + group, PART_MODE, false))
		return false;
	shard_each_lane (lane, lanes)
		if (!acquire(lane, LANE_MODE, false))
			return false;
	return true;
}

bool
shard_turn_lock(ShardLanes lanes)
{
	if (lanes == SHARD_ALL_LANES)
		return acquire(ALL_LANES, WHOLE_MODE, false);
	if (!acquire(ALL_LANES, PART_MODE, false))
		return false;
	for (int group = 0; group < SHARD_GROUPS; group++)
	{
		ShardLanes some = lanes & shard_group_lanes(group);

		if (some != 0 && !lock_group(group, some))
			return false;
	}
	return true;
}

void
shard_turn_lock_wait(int lane)
{
	(void) acquire(ALL_LANES, PART_MODE, true);
	(void) acquire(SHARD_LANES + lane / SHARD_GROUP_LANES, PART_MODE, true);
	(void) acquire(lane, LANE_MODE, true);
}

void
shard_turn_lock_records(int lane)
{
	LOCKTAG tag;

	/* beside the locks of streams (receive.c), whose third field, a node, is not 0 */
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, shard_catalog_get()->node, (Oid) 0, 1 + lane);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

bool
shard_turn_lock_import(int32 type_id, int32 shard)
{
	LOCKTAG tag;

	/* beside the locks of streams (receive.c), whose last field is small */
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, shard_catalog_get()->held, (Oid) type_id,
					   (uint16) ((uint32) shard ^ (uint32) shard >> 16));
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}
