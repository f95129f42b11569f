/*
 * turn_lock.c
 *		Locks of lanes for the time of a transaction (doc/protocol.md W3).
 *
 * A worker mostly has all lanes of a group. Then one lock on the group does for a turn, in a mode in which
 * whoever wants a lane of it finds it: he takes the group's lock, too, in a mode that any number of others may
 * have. So a turn takes few locks, though lanes are many.
 *
 * If the process dies right here: the lock manager releases them.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lock.h"

#include "catalog.h"
#include "turn_lock.h"

#include "compat.h"

#define GROUP_MODE RowShareLock	 /* some lanes of it are locked */
#define WHOLE_MODE ExclusiveLock /* all of them; no other mode on it is possible then */
#define LANE_MODE ShareUpdateExclusiveLock

/* Lanes, and groups behind them, are numbered in a tag beside shard.node. SQL has no name for it. */
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
	if (!acquire(SHARD_LANES + group, GROUP_MODE, false))
		return false;
	shard_each_lane (lane, lanes)
		if (!acquire(lane, LANE_MODE, false))
			return false;
	return true;
}

bool
shard_turn_lock(ShardLanes lanes)
{
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
	(void) acquire(SHARD_LANES + lane / SHARD_GROUP_LANES, GROUP_MODE, true);
	(void) acquire(lane, LANE_MODE, true);
}
