/*
 * shared/told.h
 *		Lines of the server's log about what a peer does, which it can do as often as it likes (doc/protocol.md T11).
 */
#pragma once

#include "shared/shmem.h"

/*
 * May a line of that kind about a node be written? One a minute; what they are is seen in the first. Then *more is what to
 * put behind it: "", or how many were left out since the one before.
 */
extern bool
shard_told_may(ShardDatabase *db, int32 node, const char *kind, int number, const char **more);
