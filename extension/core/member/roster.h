/*
 * core/member/roster.h
 *		The coordinator's duties towards members: joining, admission, reachability, status, leases,
 *		downing, and which members vote.
 *
 * Lives while the office is held; everything in it is volatile (C1). What it decides it proposes as
 * changes of member/…, voters and settings.
 */
#pragma once

#include "core/base/live_settings.h"
#include "core/map/proposer.h"

typedef struct ShardRoster ShardRoster;

/* The most starts that are remembered as claiming to be a node. */
#define SHARD_MAX_CLAIMS 64

/* Settings of the coordinator's node; times in microseconds. */
typedef struct ShardRosterSettings
{
	int voters; /* wished number of voters: 0 = by the number of members (R11), else 1, 3, 5, 7 */
	int32 journal_node;		   /* state_store_mode = persistence: the voter (R14); 0: none */
	int downing;			   /* ShardDowningKind */
	int64 stable_after;		   /* quiet time before a downing decision; 20 s */
	int64 voter_replace_after; /* 0: at once */
	int64 weakly_up_after;	   /* 0: never */
	int32 static_quorum_size;  /* downing STATIC_QUORUM: at least 1 */
	bool leave_confirmed;	   /* hosts tell when a node that exits has left nothing undone (M20) */
	ShardUuid
		incarnation; /* of the coordinator's own process: it is no judge of another one (I16) */
} ShardRosterSettings;

/* settings: copied; live: kept by reference. */
extern ShardRoster *
shard_roster_create(int32 self, const ShardRosterSettings *settings, const ShardLiveSettings *live);

/* Frees the roster, and all that it owns. */
extern void shard_roster_destroy(ShardRoster *roster);

/* The office was taken just now: forget what was known, begin the wait for old leases (L4). */
extern void shard_roster_take_office(ShardRoster *roster, int64 now, const ShardProposer *proposer);

/*
 * A message came from a member's admitted incarnation. answers: the message answers
 * something that the member heard of this node; only that makes it reachable, since a member that can send and
 * not hear is of no use.
 */
extern void shard_roster_heard(ShardRoster *roster, int64 now, int32 node, bool answers);

/*
 * HEARTBEAT_ACK, as the member's own word (T7): the members that it cannot reach, and flag: it exits, and has not left everything
 * yet (M20).
 */
extern void shard_roster_reported(ShardRoster *roster, const ShardControl *message,
								  const ShardProposer *proposer);

/*
 * JOIN, ADMIT, I_AM, RENEW, GRACEFUL_SHUTDOWN_REQ, HEARTBEAT_ACK (voter_state: how the sender's
 * voter is). Proposes and answers; an answer that presupposes a decision is sent when the question
 * comes again after it, a grant also by the tick. JOIN: flag says that the joiner has entities, homes,
 * messages or other members; JOIN_REPLY's uuid is the cluster's id, for the node to put in as in the header. I_AM: node, or else from, is the node at whose address
 * uuid2 answered.
 */
extern void shard_roster_receive(ShardRoster *roster, int64 now, const ShardControl *message,
								 ShardProposer *proposer, ShardActions *out);

/* Shards of which this node has states, as its host says when it is asked (SHARD_ACTION_STATES). */
typedef struct ShardStatesAnswer
{
	int64 token; /* of the question */
	int n_shards;
	const ShardShardRef *shards; /* the next ones, in the order of types and shards */
	bool end;					 /* there are no more */
	const char *why;			 /* why the host cannot tell now; else NULL */
	bool refuse;				 /* nor before an operator has done something about it */
} ShardStatesAnswer;

/* Shards of the answer that have no home get this node as their home. */
extern void shard_roster_states(ShardRoster *roster, int64 now, const ShardStatesAnswer *answer,
								ShardProposer *proposer);

/*
 * Due work: answer what was decided, steps of members' status, grants whose majority heartbeat came
 * (L2), downing, voter changes. homes_of(context, node): number of homes that a member still has, or may get.
 */
extern void shard_roster_tick(ShardRoster *roster, int64 now, ShardProposer *proposer,
							  int (*homes_of)(const void *context, int32 node), const void *context,
							  ShardActions *out);

/*
 * An operator's act: SHARD_MEMBER_DOWN (fence the incarnation), SHARD_MEMBER_LEAVING,
 * SHARD_MEMBER_WRITTEN_OFF (final). False and a reason if it cannot be.
 */
extern bool
shard_roster_set_status(ShardRoster *roster, int64 now, int32 node, ShardMemberStatus status,
						ShardProposer *proposer, const char **why);

/* A member is to have no shards, until it is started again; evacuated false: it may have shards again. */
extern bool shard_roster_evacuate(ShardRoster *roster, int32 node, bool evacuated,
								  ShardProposer *proposer, const char **why);

/*
 * A member does not want to leave any more. number: of that wish; it rises with each wish of an incarnation (N6).
 * False and a reason if it is too late.
 */
extern bool shard_roster_stay(ShardRoster *roster, int64 now, int32 node, int64 number,
							  ShardProposer *proposer, const char **why);

/* Where a caller or an operator says that a member is (I15). */
typedef struct ShardAddress
{
	const char *dsn;
	ShardAddressGround ground;
	bool lapsed; /* the former address leads elsewhere now, or not in the same way */
} ShardAddress;

/* An operator's word becomes the member's address; a guess only if it is better. *taken: the address has changed. */
extern bool
shard_roster_set_address(ShardRoster *roster, int64 now, int32 node, const ShardAddress *address,
						 ShardProposer *proposer, bool *taken, const char **why);

/* shard_admit(): admit a waiting claim of a node although a rule refuses it. */
extern bool shard_roster_admit(ShardRoster *roster, int64 now, int32 node, ShardProposer *proposer,
							   const char **why);

/* Is an incarnation of a node about to be admitted by shard_roster_admit()? *uuid: which one. */
extern bool shard_roster_admitting(const ShardRoster *roster, int32 node, ShardUuid *uuid);

/*
 * The nodes whose place is claimed by an incarnation that is refused until an operator says shard_admit() (I14), each once:
 * there, by an incarnation that was found at the registered address, or by others alone. nodes: room for SHARD_MAX_CLAIMS.
 * Returns how many.
 */
extern int shard_roster_claimed(const ShardRoster *roster, bool there, int32 *nodes);

/* Has this node heard the member lately, by the failure detector? */
extern bool shard_roster_reachable(const ShardRoster *roster, int32 node, int64 now);

/*
 * Leases. close: no more grants to the node until open, because a change of homes that presupposes
 * its end is being decided. ended: no grant to it can be valid any more (L4).
 */
extern void shard_roster_close_lease(ShardRoster *roster, int32 node);
extern void shard_roster_open_lease(ShardRoster *roster, int32 node);
extern bool
shard_roster_lease_ended(const ShardRoster *roster, int32 node, int64 now, const ShardMap *decided);

/*
 * Change the time of leases; the former time stays known while leases of it may run (L3). False: *why, a constant.
 */
extern bool shard_roster_change_ttl(ShardRoster *roster, int64 ttl_ms, ShardProposer *proposer,
									const char **why);
