/*
 * rotation.h
 *		Segments of the log: taking a new one, emptying those that all passed.
 */
#pragma once

#include "shmem.h"

/*
 * Does what is due; called by the worker of lane 0 outside a transaction. May
 * run one of its own. Returns whether it should be called again soon.
 */
extern bool shard_rotation_run(ShardDatabase *db, Oid extension);

/* Whether this process is emptying a segment right now. */
extern bool shard_rotation_is_emptying(void);
