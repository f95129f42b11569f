/*
 * entity/replica_apply.h
 *		A backup applies what it has stored: the states of its copies, in shard_replica.<type>, and their other rows (Q10).
 *
 * The lane's worker does that between its turns, of one type at a time, in a transaction of its own: the newest image of each
 * row, and up to which turn the copy has them. Nothing that is not released is applied, and nothing is ever undone. The
 * records of what is applied are let go, but for the newest.
 */
#pragma once

#include "shared/shmem.h"

/* At the worker's start, and when copies have come or gone here: looks at all of them at once. */
extern void shard_replica_apply_look(void);

/*
 * Between turns: applies what is due. self: this node. Returns whether to come again at once. Raises nothing that would not end
 * the process: what fails is said, and tried again later.
 */
extern bool shard_replica_apply(ShardLanes lanes, int32 self, Oid extension);

/* When to come again, in ms; -1: when something comes. */
extern long shard_replica_apply_due(void);
