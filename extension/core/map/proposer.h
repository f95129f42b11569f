/*
 * core/map/proposer.h
 *		Candidate and coordinator of the replicated map: taking office, batches, voter changes.
 */
#pragma once

#include "core/map/action.h"
#include "core/base/machine.h"
#include "core/base/arena.h"

typedef struct ShardProposer ShardProposer;

typedef enum ShardOffice
{
	SHARD_OFFICE_NONE,
	SHARD_OFFICE_PRE_VOTE, /* asks whether a campaign is welcome (R1) */
	SHARD_OFFICE_PREPARE,  /* gathers promises (R1, R2) */
	SHARD_OFFICE_FETCH,	   /* reads the greatest state from its holder (R2) */
	SHARD_OFFICE_TERM,	   /* its first batch is on the way (R5) */
	SHARD_OFFICE_HELD	   /* coordinator */
} ShardOffice;

/* Makes a proposer without office for that node; the caller ends it with shard_proposer_destroy(). */
extern ShardProposer *shard_proposer_create(int32 self);

/* Frees the proposer, and all that it owns. */
extern void shard_proposer_destroy(ShardProposer *proposer);

/* Drop everything volatile (R10): back to SHARD_OFFICE_NONE. */
extern void shard_proposer_step_down(ShardProposer *proposer);

/*
 * Begin a campaign with the voters that the learned map names. A message to the own node must reach
 * its own voter like any other, even if that one does not vote: its durable promise guards the
 * ballot.
 */
extern void shard_proposer_campaign(ShardProposer *proposer, int64 now, const ShardMap *learned,
									ShardActions *out);

/*
 * PRE_VOTE_REPLY, PROMISE, STATE, SYNCED, ACCEPTED, NEED_SYNC, NACK, HEARTBEAT_ACK, GET_DELTA of a
 * voter or member. A higher ballot or a refusal may end the office.
 */
extern void shard_proposer_receive(ShardProposer *proposer, int64 now, const ShardControl *message,
								   ShardActions *out);

/*
 * Re-send what is unanswered, send heartbeats to voters and the given members, give up a campaign or
 * the office whose time is over (R10). members: all that are not removed, reachable or not, since
 * tombstones are kept until each of them has learned them (R8).
 */
extern void shard_proposer_tick(ShardProposer *proposer, int64 now, const int32 *members,
								int n_members, ShardActions *out);

/* Greatest ballot met anywhere, so that the next campaign outbids it. */
extern void shard_proposer_saw_ballot(ShardProposer *proposer, int64 ballot);
extern int64 shard_proposer_seen(const ShardProposer *proposer);

/* Another era begins, whose voters have promised nothing. */
extern void shard_proposer_forget_ballots(ShardProposer *proposer);

/*
 * Put changes into the next batch: compare-and-set, each entry's n is the n that its key must still
 * have (0: absent or deleted). All or nothing: false, and nothing is changed, if one of them does not match the
 * decided state, or its key has a change under way, or the office is not held.
 */
extern bool
shard_proposer_propose(ShardProposer *proposer, const ShardMapEntry *entries, int n_entries);

/*
 * *n: the number of the map at which all that was proposed up to now is decided, in this office. True: some of that
 * was not sent to any voter yet.
 */
extern bool shard_proposer_proposed(const ShardProposer *proposer, int64 *n);

/* Send the gathered changes as a batch if none is outstanding; called at the end of each step. */
extern void shard_proposer_flush(ShardProposer *proposer, int64 now, ShardActions *out);

/* Is a change of the key gathered or outstanding (C2)? */
extern bool shard_proposer_pending(const ShardProposer *proposer, ShardMapKey key);

/* That change, NULL: none. */
extern const ShardMapEntry *
shard_proposer_undecided(const ShardProposer *proposer, ShardMapKey key);

/* The changes of one a, such as the homes of a type: what is outstanding, and what is gathered. */
extern void shard_proposer_undecided_range(const ShardProposer *proposer, ShardMapKind kind,
										   int32 a, ShardMapRange ranges[2]);

/* Is any change of a type, its homes or its pins under way, removals but for the type's aside? */
extern bool shard_proposer_pending_type(const ShardProposer *proposer, int32 type_id);

/* Is a home gathered or outstanding that is at the node, comes to it, or has a backup there? */
extern bool
shard_proposer_pending_home(const ShardProposer *proposer, int32 node, ShardArena *arena);

extern ShardOffice shard_proposer_office(const ShardProposer *proposer);
extern int64 shard_proposer_ballot(const ShardProposer *proposer);

/* The decided state; NULL unless the office is held. */
extern const ShardMap *shard_proposer_decided(const ShardProposer *proposer);

/* When the last promise of the quorum arrived (L4); when it took office. */
extern int64 shard_proposer_last_promise(const ShardProposer *proposer);

/*
 * When the newest heartbeat began that a majority of the voters has acknowledged (L2, R10);
 * PG_INT64_MIN: none yet.
 */
extern int64 shard_proposer_majority_heartbeat(const ShardProposer *proposer);

/* What a member acknowledged to have learned; -1: never heard in this office. */
extern int64 shard_proposer_learned_by(const ShardProposer *proposer, int32 member);

/* Have voters that are a quorum (R9) acknowledged to have learned so much? */
extern bool shard_proposer_quorum_learned(const ShardProposer *proposer, int64 n);

/* The legal steps of an office. */
extern const ShardMachine shard_proposer_machine;
