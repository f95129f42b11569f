/*
 * core/flow/takeover.h
 *		Another member of the set goes on with a shard that has replicas: what a fact of a newer epoch makes of what a node has (Q17
 *		to Q21).
 *
 * core/flow/replica.h has the two sides of one epoch. Here is how a node comes from one of them to the other, or to none: a step
 * of shard_takeover_machine, taken by the lane's worker in the turn that meets the fact, with all that follows from it in the same
 * transaction. Nothing here is memory: an abort, or a death, leaves the row as it was, and the fact is met again.
 *
 * What a copy may not forget is up to which turn its rows may show what is not released (shows). Who applies what is released
 * alone has nothing to undo, and drops records that a newer home lacks. Who was home, or has taken a copy of a home's rows, has
 * to take them anew before it drops a record up to there.
 */
#pragma once

#include "core/flow/replica.h"
#include "core/map/record.h"

/* What a node has of a shard. Stored, never renumbered. Next states: shard_takeover_machine. */
typedef enum ShardTakeoverState
{
	SHARD_TAKEOVER_NONE = 0, /* nothing */
	SHARD_TAKEOVER_BACKUP =
		1, /* a member of the set; also who was home, and has to take its rows anew */
	SHARD_TAKEOVER_HOME = 2,
	SHARD_TAKEOVER_SEALED = 3, /* home, and nothing of its epoch is handled any more */
	SHARD_TAKEOVER_OUT = 4	   /* not in the set any more: kept until the set is whole (Q17) */
} ShardTakeoverState;

typedef enum ShardTakeoverEvent
{
	SHARD_TAKEOVER_NOTHING = 0, /* no step */
	SHARD_TAKEOVER_CHOSEN,	/* fact: home here; the first record of the epoch is to be made (Q19) */
	SHARD_TAKEOVER_BACK,	/* fact: home here, as in the epoch before: nobody else was */
	SHARD_TAKEOVER_FOLLOWS, /* fact: home elsewhere, this node in the set */
	SHARD_TAKEOVER_PUT_OUT, /* fact: home elsewhere, this node not in the set */
	SHARD_TAKEOVER_SEAL,	/* the last turn of the epoch */
	SHARD_TAKEOVER_DROPPED, /* records and rows are gone */
	SHARD_TAKEOVER_WRONG	/* a fact that cannot be true with what is here: stop, and warn */
} ShardTakeoverEvent;

typedef struct ShardTakeover
{
	int32 state;
	int32 epoch; /* of the newest fact that was met */
} ShardTakeover;

extern const ShardMachine shard_takeover_machine;

#define shard_takeover_is_home(own) \
	((own)->state == SHARD_TAKEOVER_HOME || (own)->state == SHARD_TAKEOVER_SEALED)

/*
 * What a decided home means for the node self. CHOSEN is right for whoever is a member: what was released in an epoch that
 * it missed, it would have had to store, for who has not promised an epoch has acknowledged nothing in it.
 */
extern ShardTakeoverEvent
shard_takeover_read(const ShardTakeover *own, int32 self, const ShardHomeRecord *home);

/* The one transition function. False, and nothing changed, if the step is illegal. */
extern bool shard_takeover_step(ShardTakeover *own, ShardTakeoverEvent event, int32 epoch);

/*
 * Is a row good that was appended under that epoch of the shard (Q25, Q29)? At a newer one its origin sends again, and in
 * order, all that is not done; so an older row is passed over, and is never sent on.
 */
extern bool shard_takeover_takes(const ShardTakeover *own, int32 epoch);

/*
 * What a former home has as a copy, in the turn that meets the fact: copy is what its row said when it became home.
 * Returns what its rows show.
 */
extern int64
shard_takeover_lay_down(const ShardReplicaHome *home, int32 epoch, ShardReplicaCopy *copy);

/* Inputs of turns above the one returned are not known to be released: they are parked, and go to the new home (Q21). */
extern int64 shard_takeover_park_from(const ShardReplicaHome *home);

/*
 * May a copy take a record that was judged, if its rows show turns up to shows? False: it has to take its rows anew first,
 * stores nothing, and says nothing of the shard in its answer (Q7, Q17).
 */
extern bool
shard_takeover_may_store(ShardReplicaVerdict verdict, const ShardTurnRecord *record, int64 shows);

/*
 * What a copy is that has taken a home's rows, with the records that are not released, under that epoch: end is the home's
 * when they were read, and committed and past its gate. Returns what its rows show.
 */
extern int64 shard_takeover_copied(ShardReplicaCopy *copy, const ShardTurnPoint *end, int64 oseq,
								   int64 released);

/*
 * Is the set whole, as its home sees it: has it as many members as are wished, and each of them what was there when the epoch
 * began, at turn first?
 */
extern bool
shard_takeover_is_whole(const ShardReplicaHome *home, const ShardHomeRecord *set, int64 first);

/* May records and rows go? whole: a home of the newest fact that is known here has said so. */
extern bool shard_takeover_may_drop(const ShardTakeover *own, bool whole);
