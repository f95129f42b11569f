/*
 * coordinator.c
 *		The coordinator worker: drives the node's control plane, core/node.h.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/memutils.h"

#include "coordinator.h"
#include "plane.h"
#include "ring.h"
#include "worker.h"

#include "compat.h"

PGDLLEXPORT void ShardCoordinatorMain(Datum argument);

void
ShardCoordinatorMain(Datum argument)
{
	uint32 wait_event;
	int number;
	ShardDatabase *db = shard_worker_start(argument, &number);

	wait_event = ShardWaitEvent("ShardCoordinatorMain");
	shard_ring_attach(db, number);
	MemoryContextSwitchTo(TopMemoryContext);
	for (;;)
		shard_worker_wait(-1, wait_event);
}
