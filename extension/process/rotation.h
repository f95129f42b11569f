/*
 * process/rotation.h
 *		Segments of the log: taking a new one, emptying those that all lanes have passed.
 */
#pragma once

#include "shared/shmem.h"

/*
 * Does what is due, unless another worker is at it; called by any region worker outside a transaction. May run one of
 * its own. Returns whether it should be called again soon.
 */
extern bool shard_rotation_run(ShardDatabase *db, Oid extension);

/*
 * If the inbox fills up and several owners have types here: the seq up to which each worker is to leave the log behind
 * for the others (D5), which is the end of the last segment that is not current. Otherwise 0.
 */
extern int64 shard_rotation_presses(ShardDatabase *db);

/* Whether this process is emptying a segment right now. */
extern bool shard_rotation_is_emptying(void);
