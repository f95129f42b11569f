/*
 * cluster_alive.h
 *		Whether entities run at members that are not heard (N7).
 *
 * What is not heard is a coordinator worker. It may stand still alone, while the node's region workers go on.
 */
#pragma once

#include "lib/stringinfo.h"

#include "shard.h"

/* A member that is asked, and what its database says. Who does not answer has said neither. */
typedef struct ShardAlive
{
	int32 node;
	bool entities;	  /* its region workers run, and may handle messages */
	bool coordinator; /* its coordinator worker answers there */
} ShardAlive;

/*
 * Asks all of them at the same time, at their registered addresses, and returns when all have answered or failed, or time is
 * up. Serves interrupts, raises nothing else, takes no lock. The directory has been refreshed; must not run in a handler.
 */
extern void shard_cluster_alive(ShardAlive *asked, int count, int timeout_ms);

/* For shard_peer.stats(): what this node answers. */
extern void shard_cluster_alive_put(StringInfo out);
