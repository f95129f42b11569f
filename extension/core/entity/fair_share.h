/*
 * core/entity/fair_share.h
 *		The time of one worker, shared fairly by the entity types that have something to do in it.
 *
 * Each type has a clock, which runs while calls of its code run. The worker's own clock runs as much slower as there
 * are types with work: it is the time that each of them would have had. A type whose clock is too far ahead of it has
 * used its share up, and waits until the others have caught up; if they turn out to have nothing to do, the worker's
 * clock is set forward. Nobody knows what stands behind the messages that were read so far, so there is always taken to
 * be another type.
 *
 * Only calls that took long count. Those of ordinary handlers end soon enough for others, and keeping them apart would
 * cost more than they take. Time is in microseconds.
 */
#pragma once

#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

/*
 * A call that takes less does not count: putting its message off would take a noticeable part of that. Nor does one of a
 * batch that takes less for each of its messages: all of them would be put off.
 */
#define SHARD_FAIR_LONG 5000
#define SHARD_FAIR_LONG_MESSAGE 200

/* A type may be so far ahead: so often in a row its messages are not put off. */
#define SHARD_FAIR_AHEAD 20000

/* And no farther: a clock of the machine that was set forward has a type wait for no longer than this. */
#define SHARD_FAIR_MOST 10000000

/* A type's share. */
typedef struct ShardFairShare
{
	int64 clock;
	uint64 turn; /* the last one in which it had something to do */
} ShardFairShare;

/* All of them; begins as zeroes. */
typedef struct ShardFairShares
{
	int64 clock;
	uint64 turn;
	int present; /* types that have had something to do in this turn */
	int before;	 /* and those that had in the one before, but not yet in this one */
	int64 next;	 /* of those that were put off in this turn, the lowest clock */
} ShardFairShares;

/* served: code of some type has run in the turn before. idle: how long the worker has slept since then. */
extern void shard_fair_begin_turn(ShardFairShares *shares, bool served, int64 idle);

/* The type has something to do in this turn; once is enough. What it did not need before is not saved for it. */
extern void shard_fair_join(ShardFairShares *shares, ShardFairShare *share);

/* Calls of the type took so long, and were so many, of batches for so many messages. */
extern void shard_fair_spend(ShardFairShares *shares, ShardFairShare *share, int64 took, int calls,
							 int messages);

/* The same where nobody else is there: it is nobody's time, and is not held against the type later. */
extern void shard_fair_spend_alone(ShardFairShares *shares, ShardFairShare *share, int64 took);

/* Whether the type has to wait for others. */
static inline bool
shard_fair_is_used_up(const ShardFairShares *shares, const ShardFairShare *share)
{
	return share->clock > shares->clock + SHARD_FAIR_AHEAD;
}

/* A message of the type was put off because its share is used up. */
extern void shard_fair_put_off(ShardFairShares *shares, ShardFairShare *share);
