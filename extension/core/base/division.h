/*
 * core/base/division.h
 *		Which region worker of a node has which lanes (doc/protocol.md W1, W5).
 *
 * Workers belong to owners: a group of lanes, which has the types of one owner, has a place, and a place so many
 * workers of its own. Whoever has a place keeps it, so that nobody else's workers change when an owner comes or goes.
 *
 * With one place in use, and nobody who waits for one, worker 0 has the lanes of all groups without a type, too. Else a
 * worker of its own has them, the keeper, and those of groups that wait: it routes and stores messages, and runs no
 * code of anybody's, so nobody's code holds it up. Each lane is of one worker that is to run.
 */
#pragma once

#include "shard.h"

typedef struct ShardDivision
{
	uint8 groups; /* mask of those that have a type at this node */
	uint8 shared; /* of them, those that share place 0, for want of one of their own */
	uint8 waits;  /* and those that wait for one: the keeper has their lanes */
	int per_owner;
	int8 place[SHARD_GROUPS]; /* -1: no types, or none of its own */
	int8 worker[SHARD_LANES]; /* whose the lane is */
	uint64 workers;			  /* mask of those that have lanes and run */
	uint64 keeper; /* that of them, as a mask, that runs nobody's types; 0: there is none */
} ShardDivision;

/*
 * The division for these groups, given the one of before; all 0: there was none. most: as many workers may run, at least
 * one, and the keeper. may_share: an owner for whom there is none shares those of another one.
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

/* The group whose types a worker runs; -1: it has those of several, or of none. */
extern int shard_division_group(const ShardDivision *division, int worker);
