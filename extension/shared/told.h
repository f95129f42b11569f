/*
 * shared/told.h
 *		Lines of the server's log about what a peer does, which it can do as often as it likes (doc/protocol.md T11).
 */
#pragma once

#include "shared/shmem.h"

/*
 * Whether a line of that kind about a node may be written: one a minute; the first shows what the others are. If true,
 * *more is what to put behind it: "", or how many were left out since the line before.
 */
extern bool
shard_told_may(ShardDatabase *db, int32 node, const char *kind, int number, const char **more);
