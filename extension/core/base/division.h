/*
 * core/base/division.h
 *		Which region worker of a node has which lanes (doc/protocol.md W1, W5).
 *
 * Workers belong to owners: a group of lanes, which has the types of one owner, has a place, and each place has
 * per_owner workers of its own. An owner keeps its place, so that the workers of the other owners stay as they are when
 * an owner comes or goes.
 *
 * With one place in use, and no group that waits for a place, worker 0 also has the lanes of all groups without a type.
 * Otherwise the keeper, a worker of its own, has those lanes and the lanes of the groups that wait: the keeper routes
 * and stores messages and runs no handlers, so no owner's code holds it up. Each lane belongs to one worker that is to
 * run.
 */
#pragma once

#include "shard.h"

typedef struct ShardDivision
{
	uint8 groups; /* mask of the groups that have a type at this node */
	uint8 shared; /* mask of the groups that share place 0, because no place is left for them */
	uint8 waits;  /* mask of the groups that wait for a place: the keeper has their lanes */
	int per_owner;
	int8 place[SHARD_GROUPS]; /* -1: no types, or none of its own */
	int8 worker[SHARD_LANES]; /* whose the lane is */
	uint64 workers;			  /* mask of those that have lanes and run */
	uint64 keeper; /* the keeper, the worker that runs no types, as a mask; 0: there is none */
} ShardDivision;

/*
 * Divide the lanes between workers. before: the division so far; all 0: there was none. groups: mask of the groups that
 * have types. per_owner: workers of one place. most: so many workers may run, at least one, besides the keeper.
 * may_share: an owner for whom no place is left shares place 0.
 */
extern ShardDivision shard_division_make(const ShardDivision *before, uint8 groups, int per_owner,
										 int most, bool may_share);

extern bool shard_division_equal(const ShardDivision *a, const ShardDivision *b);

/* The lanes of a worker; none: it is not to run. */
extern ShardLanes shard_division_lanes(const ShardDivision *division, int worker);

static inline bool
shard_division_is_keeper(const ShardDivision *division, int worker)
{
	return worker < SHARD_MAX_WORKERS && (division->keeper & shard_worker_bit(worker)) != 0;
}
