/*
 * core/member/roster_private.h
 *		What the files of the roster share: what the coordinator has observed of the members.
 *
 * now: microseconds of the clock that the host passes, as in all of core. Texts of records are in roster->arena, and nothing
 * in it outlives a call from outside.
 */
#pragma once

#include "core/member/detector.h"
#include "core/member/downing.h"
#include "core/member/lease.h"
#include "core/member/membership.h"
#include "core/member/roster.h"
#include "core/base/shard_key.h"
#include "core/base/arena.h"

/* Levels of the host's log. */
#define ROSTER_LOG 15
#define ROSTER_WARNING 19

/* A claim that is not repeated for so long is dropped: its claimant is gone, or admitted. */
#define ROSTER_CLAIM_PATIENCE (3 * SHARD_SECOND)

/* The decided incarnation that was heard within this time is alive; longer than two heartbeats. */
#define ROSTER_ALIVE (5 * SHARD_MEMBER_HEARTBEAT_INTERVAL / 2)

/* A claim waits this long for a sign of the decided incarnation, unless that was silent for ROSTER_ALIVE already. */
#define ROSTER_LISTEN (5 * SHARD_MEMBER_HEARTBEAT_INTERVAL / 4)

/* The most bytes that a joiner or claimant says of itself: all of it is in the map, which has to fit into a call. */
#define ROSTER_MAX_SETTINGS 8192

/* Claims that are looked after at a time. Of more, those go that were not confirmed at the address. */
#define ROSTER_MAX_CLAIMS SHARD_MAX_CLAIMS

/* Joiners that are called back at a time, and for how long before they hear that it was in vain (I17). */
#define ROSTER_MAX_JOINS 8
#define ROSTER_JOIN_PATIENCE (20 * SHARD_SECOND)

/* A claimant is told again after this time why it is refused. */
#define ROSTER_TELL_INTERVAL (5 * SHARD_SECOND)

/* A member that was admitted at some time, as observed. */
typedef struct RosterMember
{
	int32 node;
	bool heard;		 /* in this office */
	int64 heard_at;	 /* or watched since, if it was not */
	bool amnesiac;	 /* its voter says so */
	int32 vouched;	 /* incarnation that said in this office that its voter is well */
	int64 confirmed; /* n that it had learned, as it exits, when it had left nothing undone (M20) */
	bool had_homes;	 /* it had homes that its exit waits for, or the host has not looked; then */
	int64 without_n; /* n that was decided when it had none of them any more */
	bool unsettled;
	int64 unsettled_since; /* joins, and the members do not converge */
	int n_reports;
	int32 reports[SHARD_DOWNING_MAX_MEMBERS]; /* the members that it cannot reach */
	int32 wish_inc; /* the incarnation whose operator wished it to stay, or to leave (N6) */
	int64 stays;	/* number of the last wish to stay, 0: none; lower wishes do not count */
	int64 leaves;	/* the same of the last wish to leave */
	ShardDetector detector;
} RosterMember;

/* A newcomer's claim to be a node. */
typedef struct RosterClaim
{
	int32 node;
	int32 previous;
	ShardUuid uuid;
	int32 kind;
	int64 since;
	int64 seen; /* when it was repeated last */
	ShardCallback callback;
	int64 next_ask;
	char *settings; /* the member value that it would have; owned, NULL: none */
	uint32 settings_length;
	bool forced;
	bool refused;	/* by a rule that an operator may overrule, when it was judged last */
	bool contested; /* the log shows it beside another one */
	bool proposed;
	ShardAdmission verdict; /* the last one that was logged, or GRANT */
	int64 next_tell;
} RosterClaim;

/* The incarnation that was found last at a node's registered address. */
typedef struct RosterFound
{
	int32 node;
	ShardUuid uuid;
	int64 at;
} RosterFound;

/* A joiner that has no number yet. */
typedef struct RosterJoin
{
	ShardUuid token;
	ShardUuid incarnation;
	char *dsn;	  /* the address at which it is called back; owned */
	int64 number; /* of the question, by which the answer finds it */
	int64 since;
	int64 seen; /* when it asked last */
	int64 next_ask;
	ShardCallback callback;
	char error[256]; /* why it was not reached; "": it was, or that is not known */
} RosterJoin;

/* A member that was never admitted, and since when this office knows of it. */
typedef struct RosterNewcomer
{
	int32 node;
	int64 since;
} RosterNewcomer;

/* How far a node that is alone is with the homes of its states (C21). */
typedef struct RosterStates
{
	bool going;
	bool done; /* all had homes, at done_at */
	int64 done_at;
	int64 wanted_at; /* when a joiner asked last */
	int64 number;	 /* of the question under way, or the last one */
	int64 next_ask;
	int64 began;		 /* when the pass over all shards began */
	ShardShardKey after; /* the states up to this shard have homes, */
	ShardShardKey last;	 /* once this one has */
	char why[160];		 /* why the pass was put off; "": it was not */
	bool refused;		 /* what is in the way stays until an operator acts */
} RosterStates;

struct ShardRoster
{
	int32 self;
	ShardRosterSettings settings;
	const ShardLiveSettings *live;
	ShardArena *arena; /* of one call: nothing in it outlives the call */

	int n_members;
	RosterMember *members;
	int n_claims;
	RosterClaim claims[ROSTER_MAX_CLAIMS];
	int n_found;
	RosterFound found[ROSTER_MAX_CLAIMS];
	int n_joins;
	RosterJoin joins[ROSTER_MAX_JOINS];
	int64 join_number; /* the newest number of a question; rises over all offices of this process */
	int n_newcomers;
	RosterNewcomer *newcomers;

	ShardLeaseBook *leases;
	int64 ttl_n; /* version of the settings whose former lease time still counts, since ttl_since */
	int64 ttl_since;

	ShardDowningTimer downing;
	bool told_side; /* the log says that this side is the one that should go down */
	int64 next_leave_log;

	/*
	 * A member that has learned caught_up_n has caught up: what was decided until an interval ago,
	 * or earlier.
	 */
	int64 caught_up_n;
	int64 next_caught_up_n;
	int64 next_mark;

	RosterStates states;

	bool journal_heard; /* the journal was heard in this office, and may become the voter (R14) */
};

/* ---- roster.c --------------------------------------------------------------------------------- */

/* What was observed of a member; NULL: it is not watched. Valid until another member is watched. */
extern RosterMember *shard_roster_member(const ShardRoster *roster, int32 node);

/* A member's decided entry, and its record with texts in roster->arena; NULL: there is no such member. */
extern const ShardMapEntry *shard_roster_record(const ShardRoster *roster, const ShardMap *decided,
												int32 node, ShardMemberRecord *record);

/* Is the journal the only voter now (R14)? */
extern bool shard_roster_has_journal(const ShardRoster *roster, const ShardVotersRecord *voters);

/* Is a change of the key (kind, a) under way? */
extern bool shard_roster_pending(const ShardProposer *proposer, ShardMapKind kind, int32 a);

/*
 * Proposes a member's changed record, against the entry that it was read from. False: another change of it is under way, or
 * the office is not held.
 */
extern bool shard_roster_propose(ShardRoster *roster, ShardProposer *proposer,
								 const ShardMapEntry *entry, const ShardMemberRecord *record);

/*
 * Can the cluster still decide when the present incarnations of these members are fenced? A fenced incarnation does not vote
 * until its node is started again.
 */
extern bool shard_roster_may_lose(const ShardRoster *roster, int64 now,
								  const ShardProposer *proposer, const int32 *nodes, int n_nodes);

/* ---- roster_join.c: node ids ------------------------------------------------------------------ */

/* JOIN: welcomes a joiner whose number is decided, refuses it with the reason, or has a number proposed for it. */
extern void shard_roster_join(ShardRoster *roster, int64 now, const ShardControl *message,
							  ShardProposer *proposer, ShardActions *out);

/* ---- roster_claim.c: claims to be a node ------------------------------------------------------ */

/* ADMIT: an incarnation claims to be a node; the claim is kept and judged. */
extern void shard_roster_claim(ShardRoster *roster, int64 now, const ShardControl *message,
							   ShardProposer *proposer, ShardActions *out);

/*
 * I_AM: the incarnation at a node's registered address, uuid2. The newest answer counts. An answer that names the claimant
 * itself is true whenever it was given, since the claimant was not at that address before it began; an answer that names
 * another incarnation may be older than the claim, and the address is asked again.
 */
extern void shard_roster_called_back(ShardRoster *roster, int64 now, const ShardControl *message,
									 ShardProposer *proposer, ShardActions *out);

/* Judges all claims again: answers those that were decided, drops those that are not repeated. */
extern void
shard_roster_judge(ShardRoster *roster, int64 now, ShardProposer *proposer, ShardActions *out);

/* An office begins or ends: forgets all claims, which claimants repeat. */
extern void shard_roster_forget_claims(ShardRoster *roster);

/* Is the node the only one of its cluster that ever began (R12)? */
extern bool shard_roster_is_alone(const ShardRoster *roster, const ShardMap *decided, int32 node);

/* A node gets another address: what was found at the former one says nothing of the new one. */
extern void shard_roster_forget_found(ShardRoster *roster, int64 now, int32 node);

/* Is a claimant about to take a node's place while the incarnation before it may still run? */
extern bool shard_roster_displaces(const ShardRoster *roster, int32 node);

/* ---- roster_newcomer.c: joiners, and members that were not admitted yet ----------------------- */

/*
 * Is the joiner at its address, as this node's host has found? If that is not known yet the host is asked. *why: why the
 * joiner gets no number, else NULL.
 */
extern bool shard_roster_is_found(ShardRoster *roster, int64 now, const ShardControl *message,
								  const char *dsn, const char **why, ShardActions *out);

/* The answer at a joiner's address, by the number of the question. */
extern void shard_roster_joiner_answered(ShardRoster *roster, const ShardControl *message);

/* Forget a joiner without a number, by its token. */
extern void shard_roster_forget_join(ShardRoster *roster, ShardUuid token);

/* Why no more nodes get numbers now; NULL: they do. */
extern const char *shard_roster_why_full(const ShardRoster *roster, const ShardMap *decided);

/* Writes off members that have joined and were not admitted in time, and forgets joiners that are not there any more. */
extern void
shard_roster_expire(ShardRoster *roster, int64 now, ShardProposer *proposer, ShardActions *out);

/*
 * An office begins or ends: forgets joiners and members that were not admitted yet, so that all waits for them start again.
 */
extern void shard_roster_forget_newcomers(ShardRoster *roster);

/* ---- roster_states.c: homes of the states of a node that is alone ----------------------------- */

/* Have all states of this node homes, so that another node may join (C21)? If not, the pass that gives them homes begins. */
extern bool shard_roster_states_have_homes(ShardRoster *roster, int64 now, const ShardMap *decided);

/* Due work of that pass: asks the host for the next shards with states. */
extern void shard_roster_states_tick(ShardRoster *roster, int64 now, const ShardProposer *proposer,
									 ShardActions *out);

/* What the pass waits for, for people; a constant, or a text of the roster. */
extern const char *shard_roster_states_why(const ShardRoster *roster);

/*
 * Does what is in the way stay until an operator acts? A joiner is refused then, and with the next joiner the pass
 * starts over.
 */
extern bool shard_roster_states_refuse(ShardRoster *roster);

/* ---- roster_lease.c: grants, and the time that they are given --------------------------------- */

/*
 * Sends the grants whose majority heartbeat has come. There are none while a change of the member is being decided, none for
 * an incarnation whose place another one is about to take, and none for a node that does not answer: that node would not hear
 * of the grant, and yet the coordinator would have to wait for its end.
 */
extern void shard_roster_send_grants(ShardRoster *roster, int64 now, const ShardProposer *proposer,
									 ShardActions *out);

/* Forgets the former, longer lease time when the last grant under it has ended (L3). */
extern void shard_roster_settle_ttl(ShardRoster *roster, int64 now, ShardProposer *proposer);

/* ---- roster_status.c: steps of status, downing, voters ---------------------------------------- */

/* Takes the steps of members' status that are due. homes_of: as for shard_roster_tick(). */
extern void
shard_roster_steps(ShardRoster *roster, int64 now, ShardProposer *proposer,
				   int (*homes_of)(const void *context, int32 node), const void *context);

/*
 * Downs the members that the strategy gives up, once the membership is at rest. A coordinator never downs its own side, nor
 * its majority: that side is the only one that can decide, and the cluster would stop with it.
 */
extern void
shard_roster_down(ShardRoster *roster, int64 now, ShardProposer *proposer, ShardActions *out);

/* Finishes a change of voters, or begins the one that is due (R9, R11, R12). */
extern void shard_roster_voters(ShardRoster *roster, int64 now, ShardProposer *proposer);
