/*
 * core/member/membership.h
 *		Members of the cluster: their status, which nodes may join, which incarnation of a node is the real one,
 *		which members vote.
 *
 * All here is judgement over decided records and what the coordinator has observed; it changes nothing
 * itself. A node is known by its node id, granted once and never again; each start of its workers is an
 * incarnation of its own, known by a random number, and lives when the cluster has decided it.
 */
#pragma once

#include "core/base/machine.h"
#include "core/map/record.h"
#include "core/base/arena.h"

/* ---- status -------------------------------------------------------------------------------------- */

typedef enum ShardMembershipEvent
{
	SHARD_MEMBERSHIP_FOUND,			/* the first node of a cluster */
	SHARD_MEMBERSHIP_JOIN,			/* a node id was allotted (R16) */
	SHARD_MEMBERSHIP_ADMITTED,		/* a new incarnation of the node is decided (I3) */
	SHARD_MEMBERSHIP_CONVERGED,		/* no member is unreachable */
	SHARD_MEMBERSHIP_NOT_CONVERGED, /* for long */
	SHARD_MEMBERSHIP_LEAVE,			/* the node or an operator wants it */
	SHARD_MEMBERSHIP_EMPTIED,		/* it has no homes left, and does not vote */
	SHARD_MEMBERSHIP_CONFIRMED,		/* it knows that it exits, or is not there to hear of it */
	SHARD_MEMBERSHIP_DOWNED,		/* its incarnation was given up (N1) */
	SHARD_MEMBERSHIP_WRITE_OFF,		/* the node was given up, with its state (N1) */
	SHARD_MEMBERSHIP_STAY			/* its operator does not want it to leave any more (N6) */
} ShardMembershipEvent;

#define SHARD_MEMBERSHIP_STATES (SHARD_MEMBER_WRITTEN_OFF + 1)
#define SHARD_MEMBERSHIP_EVENTS (SHARD_MEMBERSHIP_STAY + 1)

extern const ShardMachine shard_member_machine;

/* Take the step in a record; false, and nothing is changed, if it is illegal. */
extern bool shard_membership_step(ShardMemberRecord *record, ShardMembershipEvent event);

/* A constant, as views show it. */
extern const char *shard_membership_status_name(ShardMemberStatus status);

/* Is the node part of the cluster: from joining to exiting? */
extern bool shard_membership_is_member(int32 status);

/* Is it over for good: has it left, or was it written off? */
extern bool shard_membership_is_gone(int32 status);

/* The node of a pin, which may be NULL; 0: there is no pin, or it counts for nothing, as its node is gone for good (C13). */
extern int32 shard_membership_pinned(const ShardMap *map, const ShardMapEntry *pin);

/* Does a member keep others from coming up while it is silent? */
extern bool shard_membership_counts(const ShardMemberRecord *record);

/* ---- joining ------------------------------------------------------------------------------------- */

/* The most members of a cluster; and the most of them that were never admitted (I17). */
#define SHARD_MAX_MEMBERS 256
#define SHARD_MAX_NEWCOMERS 8

/* Parts of refusals, by which hosts know why a join was refused. */
#define SHARD_JOIN_LIMIT_WHY "is as many as there can be"
#define SHARD_JOIN_BUSY_WHY "is as many as there can be at a time"
#define SHARD_JOIN_UNREACHED_WHY "did not reach this node at its own address"
#define SHARD_JOIN_ELSEWHERE_WHY "at this node's own address"
#define SHARD_JOIN_ORPHAN_WHY "states of no entity type"

/*
 * Why a node may not join, with a hint, in the arena; NULL: it may. loaded: it has entities, homes, pending messages or
 * other members.
 */
extern const char *
shard_membership_judge_join(const ShardMap *decided, int32 protocol_version,
							const ShardMemberRecord *joiner, bool loaded, ShardArena *arena);

/* Why a node may not join with the types that it brings along; in the arena, NULL: it may. */
extern const char *shard_membership_judge_types(const ShardMap *decided, const ShardMapEntry *types,
												int n_types, ShardArena *arena);

/* The node to which a join's token was allotted, 0: none yet. */
extern int32
shard_membership_find_token(const ShardMap *decided, ShardUuid token, ShardArena *arena);

/* ---- admission ----------------------------------------------------------------------------------- */

typedef enum ShardCallback
{
	SHARD_CALLBACK_NONE,	/* no answer from the registered address */
	SHARD_CALLBACK_SAME,	/* the claimant sits there */
	SHARD_CALLBACK_OTHER,	/* another incarnation does */
	SHARD_CALLBACK_NEEDLESS /* the coordinator itself, alone in its cluster (I16) */
} ShardCallback;

/* How the node's database came up, as its host found out (I2). */
typedef enum ShardStartKind
{
	SHARD_START_RESTART = 0,
	SHARD_START_PROMOTED = 1, /* a standby that took over: another timeline */
	SHARD_START_COPY = 2	  /* restored, cloned, or nothing to compare with */
} ShardStartKind;

/* What a newcomer says of itself, and what the coordinator has found out about it. */
typedef struct ShardClaim
{
	int32 node;
	int32 previous; /* the inc_no that it follows */
	ShardUuid uuid;
	int32 kind;		   /* ShardStartKind */
	bool old_heard;	   /* the decided incarnation was heard since the claim was made */
	bool listening;	   /* the coordinator has not listened for long enough to say so */
	bool leases_ended; /* no lease of the decided incarnation can run any more */
	bool alone;		   /* no other member is alive (R12) */
	bool forced;	   /* by the operator */
	ShardCallback callback;
} ShardClaim;

typedef enum ShardAdmission
{
	SHARD_ADMISSION_GRANT,
	SHARD_ADMISSION_GRANTED,   /* it is the decided incarnation already */
	SHARD_ADMISSION_ASK,	   /* call back at the registered address first */
	SHARD_ADMISSION_LISTEN,	   /* whether the decided incarnation still sends */
	SHARD_ADMISSION_WAIT,	   /* for the end of the old incarnation's leases (L4, L7) */
	SHARD_ADMISSION_UNKNOWN,   /* there is no such member */
	SHARD_ADMISSION_GONE,	   /* removed, or written off: for good */
	SHARD_ADMISSION_DOWNED,	   /* this very incarnation was downed */
	SHARD_ADMISSION_OLD_LIVES, /* the decided incarnation still sends */
	SHARD_ADMISSION_STALE,	   /* follows an incarnation that is not the decided one */
	SHARD_ADMISSION_COPY,	   /* restored or cloned */
	SHARD_ADMISSION_PROMOTED,  /* what it had shown to others may be lost (G3) */
	SHARD_ADMISSION_ELSEWHERE  /* another incarnation sits at the registered address */
} ShardAdmission;

/* May the claimant take the place of its node (I3)? record: NULL if there is no such member. */
extern ShardAdmission
shard_membership_judge(const ShardMemberRecord *record, const ShardClaim *claim);

/* Is a verdict a refusal that an operator may overrule, by shard_admit()? */
extern bool shard_membership_may_force(ShardAdmission admission);

/* A sentence for each verdict that is no grant, with a hint, in the arena. */
extern const char *
shard_membership_reason(ShardAdmission admission, const ShardMemberRecord *record,
						const ShardClaim *claim, ShardArena *arena);

/* ---- age ----------------------------------------------------------------------------------------- */

/* Does a member have a role? Each member has the role "". */
extern bool shard_membership_has_role(const ShardMemberRecord *record, const char *role);

/* A member's weight in thousandths, 1 .. SHARD_ALLOCATION_MAX_WEIGHT. */
extern int32 shard_membership_weight(const ShardMemberRecord *record);

/* How many members that are up go before a node as candidates (R15). */
extern int shard_membership_rank(const ShardMap *map, int32 node, ShardArena *arena);

/* ---- voters -------------------------------------------------------------------------------------- */

/* A member as the planning of voters sees it. */
typedef struct ShardVoterCandidate
{
	int32 node;
	int64 age;
	bool up;		/* status */
	bool leaving;	/* status, and it has homes still */
	bool amnesiac;	/* says so (R12) */
	bool caught_up; /* has learned what was decided until lately */
	int64 silent;	/* for how long it has been unreachable; 0: it is not */
} ShardVoterCandidate;

/* How many voters a number of members should have (R11). wish: 0 = by the number of members. */
extern int shard_membership_voter_count(int members, int wish);

/*
 * The next voters, in rising order of their nodes; returns their number, 0: nothing is to be changed.
 * Sorts the candidates.
 */
extern int shard_membership_plan_voters(ShardVoterCandidate *candidates, int n_candidates,
										int32 self, const ShardVotersRecord *voters, int wish,
										int64 replace_after, int32 next[SHARD_MAX_VOTERS]);
