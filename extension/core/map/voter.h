/*
 * core/map/voter.h
 *		A voter of the replicated map (R1, R3, R4, R12).
 */
#pragma once

#include "core/map/era.h"
#include "core/map/action.h"

typedef struct ShardVoter ShardVoter;

/*
 * An era leaves out so many ids of nodes and of types, which lost voters may have given: they are never
 * used again (I1).
 */
#define SHARD_ERA_IDS 64

typedef enum ShardVoterState
{
	SHARD_VOTER_OK = 0,
	SHARD_VOTER_AMNESIAC = 1, /* may have forgotten promises: neither promises nor accepts (R12) */
	SHARD_VOTER_UNUSED = 2	  /* a journal that never voted: promises nothing until it has a map */
} ShardVoterState;

extern ShardVoter *shard_voter_create(int32 self);
extern void shard_voter_destroy(ShardVoter *voter);

/*
 * Whose voter it is, where that is known only after the durable records were read. The own node's
 * messages are judged otherwise than those of others (R18).
 */
extern void shard_voter_set_self(ShardVoter *voter, int32 self);

/* Take durable records of SHARD_STORE_VOTER or SHARD_STORE_ACCEPTED, at start. Returns how many: the one behind those is damaged. */
extern int
shard_voter_load(ShardVoter *voter, ShardStore store, const ShardMapEntry *entries, int count);

/* First voter of a new cluster: its map is the given entries, accepted under ballot b as batch 1. */
extern void shard_voter_found(ShardVoter *voter, int64 b, const ShardMapEntry *entries,
							  int n_entries, ShardActions *out);

/*
 * The operator makes new voters out of nodes that have learned the map, since the old ones are lost
 * (R13): what was learned, the given voters and the given later era, as if accepted under ballot b. Done on
 * one of them only, with a ballot above all that were seen.
 */
extern void shard_voter_force(ShardVoter *voter, int64 b, const ShardMap *learned,
							  const int32 *nodes, int n_nodes, int32 era, ShardActions *out);

/*
 * PRE_VOTE, PREPARE, FETCH, SYNC, ACCEPT from a candidate or coordinator; answers go to out.
 * heard: a coordinator was heard within the election time-out (R1).
 */
extern void shard_voter_receive(ShardVoter *voter, int64 now, const ShardControl *message,
								bool heard, ShardActions *out);

/*
 * Remember what another voter has done, so that it can be reminded should it forget (R12): called
 * for every message of the replicated map that arrives. remind: put into a PREPARE or HEARTBEAT what this voter
 * remembers of the node that it goes to (ballot, point, uuid), and into a PREPARE its own seal (uuid2).
 */
extern void shard_voter_observe(ShardVoter *voter, const ShardControl *message);
extern void shard_voter_remind(const ShardVoter *voter, int32 node, ShardControl *message);

/*
 * What another voter remembers of this one (R12), in a PREPARE or HEARTBEAT: this voter turns amnesiac if it knows less, and
 * its own seal is on what the other voter remembers.
 */
extern void shard_voter_reminded(ShardVoter *voter, const ShardControl *message, ShardActions *out);

/*
 * How this voter proves to itself, later, that it has said what others remember: a code over a ballot and a point that this
 * voter alone can make, always the same for the same node of the same cluster and era. Without a seal all reminders are
 * believed.
 */
typedef ShardUuid (*ShardVoterSeal)(const void *arg, int64 promised, ShardMapPoint point);
extern void shard_voter_set_seal(ShardVoter *voter, ShardVoterSeal seal, const void *arg);

/* AMNESIAC back to OK with its map: only for the sole voter, by the operator's will. */
extern void shard_voter_set_state(ShardVoter *voter, ShardVoterState state, ShardActions *out);

/*
 * An amnesiac voter has learned that it was removed from the voters since it forgot: it may be added
 * again, and starts from an empty map.
 */
extern void shard_voter_readmit(ShardVoter *voter, ShardActions *out);

extern ShardVoterState shard_voter_state(const ShardVoter *voter);
extern int64 shard_voter_promised(const ShardVoter *voter);
extern const ShardMap *shard_voter_map(const ShardVoter *voter);
