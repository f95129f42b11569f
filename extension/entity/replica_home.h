/*
 * entity/replica_home.h
 *		Shards with replicas that are active at this worker: up to which turn they are released, and who waits for that
 *		(Q4, Q11, Q12, Q37).
 *
 * One ShardReplicaShard for each of them, which stays where it is until a turn begins in which its type is gone. What it says is what has
 * happened for good: it changes with a commit, the gate, an answer of a copy, a learned fact, and never in a turn that may
 * still abort. In it is the ShardReplicaHome of core/flow/replica.h, whose functions whoever ships calls directly; if one of
 * them says that released has risen, shard_replica_shard_follow() is called, so that what waits goes on at once.
 *
 * All of it is memory. A worker that starts begins with what log/turn_chain.h has found.
 */
#pragma once

#include "access/xlogdefs.h"
#include "lib/ilist.h"

#include "core/base/shard_key.h"
#include "core/flow/replica.h"
#include "core/map/set.h"
#include "shard.h"

/* Something that waits until a turn is released. Embedded in what its owner allocates, who has it back when end is called. */
typedef struct ShardReplicaWait
{
	/* released: false: the home has ended before that, and what the turn has done may be discarded */
	void (*end)(struct ShardReplicaWait *wait, bool released);

	Size bytes; /* of memory that it takes */
	dlist_node node;
	int64 turn;
} ShardReplicaWait;

typedef struct ShardReplicaShard
{
	ShardShardKey key;
	bool begun; /* active here; if not, the rest means nothing */
	ShardReplicaHome home;
	int32
		lost; /* the newest epoch that began without its state: records of older ones are nothing to it */

	/* the gate: turns up to these wait for it, by commits that end there; 0: none */
	int64 waiting;
	XLogRecPtr waiting_lsn;
	int64 later;
	XLogRecPtr later_lsn;
	dlist_node ungated_node;
	bool ungated; /* in the list of those with such turns */

	dlist_head waits; /* ShardReplicaWait, by turn */

	/* outputs of its turns (outputs.c) */
	dlist_head outputs; /* those that were not appended yet, by turn */
	dlist_node due_node;
	bool due;	/* in the list of those of which some are released */
	int64 done; /* outputs up to this oseq were appended */
	int64
		unread; /* the record of this turn, which is needed for outputs, cannot be read: none of them leave; 0: none is */

	/* the next output had no place (output_address.c): a turn that looks again, aborted or not, comes at this shard_clock_now(); 0: it has */
	int64 paused;
	bool unplaced; /* since it cannot be found */

	int64 noted; /* shard_drain waits for turns up to this one */

	Size held; /* bytes of what waits: replies, marks, outputs */

	/* what its turns have taken in of this node's messages (replica_inputs.c) */
	dlist_node inputs_node;
	bool has_inputs; /* in the list of those with such rows of the log */
	int n_inputs;
	int inputs_space;
	struct ShardReplicaInput *inputs;
	int64
		parked_from; /* oldest and newest turn that has, or may have, taken in parked rows; 0: none has */
	int64 parked_to;

	uint32
		columns; /* version of the columns that its records have told last; 0: none yet (record_image.c) */
} ShardReplicaShard;

/* Whether the record is of the shard's history, and not of one that was given up, of which the log may have records still. */
static inline bool
shard_replica_shard_owns(const ShardReplicaShard *shard, const ShardTurnRecord *record)
{
#ifdef SHARD_MUTANT_GIVEN_UP_TURNS_READ
	return true;
#else
	return record->epoch >= shard->lost;
#endif
}

/* Whether there is any: a plain look, for what is to cost nothing without replicas. */
extern int shard_replica_shards;

static inline bool
shard_replica_any(void)
{
	return unlikely(shard_replica_shards > 0);
}

/* NULL: it is no shard with replicas that is active here, as of the last commit. */
extern ShardReplicaShard *shard_replica_shard_find(int32 type_id, int32 shard);

/* Visits each that is active here. */
typedef void (*ShardReplicaVisit)(ShardReplicaShard *shard, void *arg);
extern void shard_replica_shard_each(ShardReplicaVisit visit, void *arg);

/*
 * After a commit, or at the start when the log was read: the shard is active here in that epoch; lost: the newest one that
 * began without its state. If that is known already nothing happens; in a newer epoch it begins anew, and whatever waited
 * hears that. Its history goes on from where its chain ends (log/turn_chain.h). Error: out of memory.
 */
extern ShardReplicaShard *
shard_replica_shard_begin(int32 type_id, int32 shard, int32 epoch, int32 lost);

/* How such a shard begins, also for a turn in which it becomes active. */
extern void shard_replica_shard_look(ShardReplicaHome *home, int32 type_id, int32 shard,
									 int32 epoch, int32 lost);

/*
 * In a turn: where a shard stands whose home is here, as of the last commit, or, if it has become active in this turn, at its
 * beginning. Returns the newest epoch that began without its state.
 */
extern int32 shard_replica_shard_stands(ShardReplicaHome *home, int32 type_id, int32 shard);

/* After a commit: a learned set; self is this node. And: the shard is not active here any more. */
extern void shard_replica_shard_require(ShardReplicaShard *shard, int32 self, const ShardSet *set);
extern void shard_replica_shard_end(ShardReplicaShard *shard);

/* At the beginning of a turn: its type is gone. Nothing of the shard is left in memory. */
extern void shard_replica_shard_drop(int32 type_id, int32 shard);

/*
 * After the commit of a turn of the shard, which ends at lsn; its record has been added to the chain. The caller forgets
 * what it can then.
 */
extern void shard_replica_shard_committed(ShardReplicaShard *shard, const ShardTurnRecord *record,
										  XLogRecPtr lsn);

/* Records that nobody needs any more are let go. */
extern void shard_replica_shard_forget(ShardReplicaShard *shard);

/* Released has risen. */
extern void shard_replica_shard_follow(ShardReplicaShard *shard);

/*
 * Whether what the shard's newest committed turn shows has to wait, and having it wait: wait->end, which is set, is called
 * as soon as that is released, or the home has ended.
 */
extern bool shard_replica_shard_has_to_wait(const ShardReplicaShard *shard);
extern void shard_replica_shard_wait(ShardReplicaShard *shard, ShardReplicaWait *wait);

/* What waits already waits for the newest turn from now on. */
extern void shard_replica_shard_wait_on(ShardReplicaShard *shard, ShardReplicaWait *wait);

/* replica_hold.c: what waits of the shard takes so many bytes more, or less; and whether that, or all that waits, is too much. */
extern void shard_replica_shard_hold(ShardReplicaShard *shard, Size bytes);
extern void shard_replica_shard_let_go(ShardReplicaShard *shard, Size bytes);
extern bool shard_replica_shard_holds_much(const ShardReplicaShard *shard);

/* Whether so much of the shard waits that it does nothing more until some of that is released (Q45). */
extern bool shard_replica_shard_rests(int32 type_id, int32 shard);

/*
 * For shard_drain: notes which turns of all of them have committed by now; and whether all that were noted last are released,
 * and what they told was appended. A shard that has ended, or begun anew, is not waited for.
 */
extern void shard_replica_shards_note(void);
extern bool shard_replica_shards_have_shown(void);

/*
 * Between turns: turns that the gate has let pass are released, if nobody else is to be waited for. If something waits for
 * one, WAL is flushed for it. Returns whether any were released.
 */
extern bool shard_replica_shards_pass(void);

/* When to come again for that, in ms; -1: when something happens. */
extern long shard_replica_shards_due(void);
