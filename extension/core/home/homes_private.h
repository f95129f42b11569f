/*
 * core/home/homes_private.h
 *		What the files of core/homes share.
 *
 * now: microseconds of the clock that the host passes, as in all of core. What is allocated in homes->arena, or the arena of
 * the call, is valid until the next call of shard_homes_begin().
 */
#pragma once

#include "core/home/homes.h"
#include "core/home/move.h"
#include "core/base/shard_key.h"
#include "core/base/timing.h"
#include "core/base/arena.h"

/* What a plan looks at (homes_plan.h). */
typedef struct PlanView PlanView;

#define HOMES_MAX_CLOSED 16

/*
 * Homes that one tick looks at for rebalancing, and for the homes of one member, before it leaves the other types to the
 * next tick: some milliseconds, so that the coordinator does everything else meanwhile.
 */
#define HOMES_AT_A_TIME 10000

/* Pins of which it is remembered which operators wanted them: the last ones. */
#define HOMES_MAX_PIN_NOTES 64

/* Bytes of the text that names an operator to people. */
#define HOMES_WHO 64

/* Bytes of a reason: it comes from a member, and is kept for people. */
#define HOMES_WHY 1000

/*
 * A shard that is given up takes an epoch that no node can know already, not even from decisions
 * that went with lost voters (R13): regions act on newer epochs only (T2).
 */
#define SHARD_EPOCH_LEAP 1024

/* A registered region. */
typedef struct HomesRegion
{
	int32 node;
	bool stopped; /* it registered as one that goes down */
	int64 since;  /* the list of types that it hosts is the same since then */
	int n_hosted;
	int32 *hosted; /* type ids; NULL if none */
	int n_known;
	int32 *known; /* those that it has without hosting them, or may be about to have */
	int64 as_of;  /* it had no other types when it had learned the map up to this n */
	int32 inc_no; /* the incarnation that registered, */
	int64 token;  /* and the number of its registration */
} HomesRegion;

/* How the shards of a member get other homes. */
typedef enum HomesResettlement
{
	HOMES_BY_MOVE, /* the member leaves: by handoff, with their state */
	HOMES_STRAYS,  /* by handoff, of types that the member does not host (any more) */
	HOMES_LOST_DURABLE, /* the member was written off: durable types, whose shards begin without their state */
	HOMES_LOST_LEASED /* the member's lease has ended: leased types */
} HomesResettlement;

#define HOMES_RESETTLEMENTS (HOMES_LOST_LEASED + 1)

/* The sums of homes for one node. */
typedef struct HomesNode
{
	int32 node;
	int32 inc_no; /* as decided */
	int32 status;
	bool evacuated;
	char who[HOMES_WHO]; /* the operator that wants its status changed */
	int n_durable;		 /* homes of types that are not leased */
	int n_leased;
	int n_backups; /* copies of shards whose homes are elsewhere */
	int n_coming;  /* by moves that are not decided */
	int n_copied;  /* of the moves to it, those whose phase is decided, or about to be; */
	int n_slow;	   /* and of n_copied, those for which that has been so for long */
	int32 resettled[HOMES_RESETTLEMENTS]; /* types up to this one had their turn; 0: none */
} HomesNode;

/* The number of homes of a type at a node. */
typedef struct HomesCount
{
	ShardShardKey key; /* type_id, and as shard the node */
	char status;	   /* of the hash */
	int n;
} HomesCount;

/* What the coordinator knows of one home beyond the key itself. */
typedef struct HomesShard
{
	ShardShardKey key;
	char status; /* of the hash */
	int64 n;	 /* of the key's last change seen */
	int32 epoch;
	int32 node;
	int32 to;		 /* while moving */
	bool confirmed;	 /* ShardStarted of that epoch came (M10) */
	bool leased;	 /* it may begin anew elsewhere when its home's lease has ended */
	bool replicated; /* of a type with replicas: it stays where its set is (Q18) */
	int n_backups;	 /* nodes of its set but its home, */
	int32 backups[SHARD_MAX_REPLICAS]; /* and which */
	int64 asked; /* when its home was first asked to start it, in vain so far; 0: not yet */
	ShardMoveState move;
	int64 move_id;
	int64 deadline;	  /* of the move */
	int64 next_send;  /* of its last command */
	int32 target;	  /* of the move that is wished for or under way; 0: none */
	int32 reason;	  /* ShardHomeReason of it */
	bool prepared;	  /* the target is ready (M16), */
	int64 ready;	  /* and has been since then, as far as seen; 0: not yet */
	int64 begun;	  /* under way since then, as far as seen; 0: not yet */
	char *who;		  /* the operator that wants it, NULL: none; owned */
	char *why;		  /* why the move is given up; owned */
	int64 not_before; /* earliest time for a move without an operator: the last move failed */
	int64 pause;	  /* length of that wait */
} HomesShard;

/* The operator that wants a pin, or an end of it. */
typedef struct HomesPinNote
{
	ShardShardKey key;
	bool pinned; /* false: an end of it */
	char who[HOMES_WHO];
} HomesPinNote;

/* A command that waits for its end. */
typedef struct HomesWaiter
{
	ShardAsker asker;
	ShardShardKey key; /* of a round of rebalancing: type_id, 0: all; shard -1 */
	int32 to;
	bool begun;		/* the shard moves by this command */
	int64 deadline; /* to begin */
	int n_pending;	/* questions for strategies that a round waits for */
	int64 number;
	char who[HOMES_WHO];
} HomesWaiter;

/* What a type's own functions are asked for. */
typedef enum HomesQuestion
{
	HOMES_ASK_NOTHING,
	HOMES_ASK_HOMES,  /* homes for shards that have none */
	HOMES_ASK_MOVES,  /* which shards should move */
	HOMES_ASK_TARGETS /* and where to */
} HomesQuestion;

/* Kinds of failures of a type's functions; an error that they raise is of the kind of its SQLSTATE, which is more. */
enum
{
	HOMES_FAILED_NO_ANSWER, /* it cannot be asked, or does not answer */
	HOMES_FAILED_QUESTION,	/* it has answered another question */
	HOMES_FAILED_SHARD,		/* a shard was named that is none of those */
	HOMES_FAILED_NODE,		/* a node was named that cannot have it */
	HOMES_FAILED_NONE,		/* no node was named */
	HOMES_FAILED_RAISED
};

/* The most kinds of failures that are told of a type within TELL_AGAIN. */
#define HOMES_TOLD 8

/* One of them is not told again before that time. */
typedef struct HomesTold
{
	int32 kind;
	int64 until;
} HomesTold;

/* A type whose strategy is its own functions: one question at a time (C11). */
typedef struct HomesStrategy
{
	int32 type_id;
	HomesQuestion question;
	int64 token;
	int64 deadline;
	int64 not_before; /* homes are not asked for again before that */
	int n_shards;
	int32 *shards;		 /* of the question; owned */
	char who[HOMES_WHO]; /* the operator that wants the round; "": none */
	HomesTold told[HOMES_TOLD];
} HomesStrategy;

/* A shard without a home, and the node that asked first. */
typedef struct HomesRequest
{
	ShardShardKey key;
	char status;
	int32 requester;
} HomesRequest;

#define SH_PREFIX homes_shard
#define SH_ELEMENT_TYPE HomesShard
#include "core/base/shard_hash.h"

#define SH_PREFIX homes_request
#define SH_ELEMENT_TYPE HomesRequest
#include "core/base/shard_hash.h"

#define SH_PREFIX homes_count
#define SH_ELEMENT_TYPE HomesCount
#include "core/base/shard_hash.h"

/* A dry run: moves that begin are listed behind the first ones of homes->moves. */
typedef struct HomesDryRun
{
	bool runs; /* moves that begin are taken back at the end of the call */
	int first;
	bool more; /* more moves would begin than fit the answer */
} HomesDryRun;

struct ShardHomes
{
	int32 self;
	ShardHomesSettings settings;
	const ShardLiveSettings *live;
	const ShardProposer *proposer; /* while the office is held, */
	const ShardMap *decided;	   /* and what it has decided */
	int64 office_since;
	int64 seen_n; /* changes of homes up to this are in shards */
	homes_shard_hash *shards;
	homes_count_hash *counts;  /* of them, by type and node; */
	homes_count_hash *backups; /* and of their backups */
	homes_request_hash *requests;
	HomesRegion *regions; /* in the order of registration */
	int n_regions;
	HomesNode *nodes;
	int n_nodes;
	int n_moves; /* shards whose move is not NONE, */
	int move_space;
	ShardShardKey *moves; /* and which */
	bool urgent;		  /* a move has something to send: the next step is not left to the tick */
	int several_owners;	  /* have types several owners? In this round; -1: not looked at yet */
	int64 told_n;		  /* decisions up to this n were told by earlier coordinators */
	int n_pin_notes;
	HomesPinNote pin_notes[HOMES_MAX_PIN_NOTES]; /* the last of them */
	int n_waiters;
	HomesWaiter *waiters;
	int n_answers;
	ShardHomesAnswer *answers;
	int n_strategies;
	HomesStrategy *strategies;
	int64 next_token;
	int64 next_host;
	int64 next_rebalance;
	int32 rebalanced; /* types up to this one had their turn in the round under way; 0: none is */
	int64 n_visited;  /* homes that plans have looked at, ever */
	int64 next_pins;
	int64 next_strays;
	HomesDryRun dry;
	int n_closed;
	int32 closed[HOMES_MAX_CLOSED]; /* nodes whose lease is closed for a change of homes */
	ShardArena *arena;				/* of one call */
	ShardActions *out;				/* of the same call */
};

/* ---- homes.c ---------------------------------------------------------------------------------- */

/*
 * Begins a call from outside: empties homes->arena, has actions appended to out, and takes in what was decided since the last
 * call.
 */
extern void shard_homes_begin(ShardHomes *homes, int64 now, ShardActions *out);

/* The registered region of a node; NULL: the node has not registered in this office. Valid until another region registers. */
extern HomesRegion *shard_homes_region(ShardHomes *homes, int32 node);

/* Does the region host the type? And: does it have the type, hosted or not? */
extern bool shard_homes_hosts(const HomesRegion *region, int32 type_id);
extern bool shard_homes_has(const HomesRegion *region, int32 type_id);

/* When the next round of rebalancing is due, in microseconds. */
extern int64 shard_homes_next_rebalance(const ShardHomes *homes, int64 now);

/* What is known of a shard's home; NULL: it has none. Valid until another shard gets one. */
extern HomesShard *shard_homes_shard(ShardHomes *homes, int32 type_id, int32 shard);

/* The decided record of a shard's home, and in *n the number of the decision. False: the map has no such home. */
extern bool shard_homes_record(const ShardHomes *homes, const HomesShard *shard,
							   ShardHomeRecord *record, int64 *n);

/* A member's decided record, with texts in homes->arena. False: there is no such member. */
extern bool shard_homes_member(const ShardHomes *homes, int32 node, ShardMemberRecord *member);

/* A type's decided record without its texts, as it is looked at for each shard. False: there is no such type. */
extern bool shard_homes_type(const ShardHomes *homes, int32 type_id, ShardTypeRecord *type);

/* Notes that the home was asked to start the shard; the first time counts. */
extern void shard_homes_asked(HomesShard *shard, int64 now);

/* ---- homes_follow.c: what was decided --------------------------------------------------------- */

/* Takes in the changes of homes that were decided since the last time; part of shard_homes_begin(). */
extern void shard_homes_follow(ShardHomes *homes, int64 now);

/* The sums of a node, made with zeros if there are none. Valid until another node gets sums. */
extern HomesNode *shard_homes_node(ShardHomes *homes, int32 node);

/* The number of homes at a node, of leased types or of all others. */
extern int shard_homes_number(const ShardHomes *homes, int32 node, bool leased);

/* The number of homes of a type at a node. */
extern int shard_homes_number_of_type(const ShardHomes *homes, int32 type_id, int32 node);

/* Takes an event into the state machine of a shard's move, and the shard into or out of homes->moves. */
extern void shard_homes_set_move(ShardHomes *homes, HomesShard *shard, ShardMoveEvent event);

/*
 * The operator that wanted the pin of a shard, or its end; "": none did in this office, as when the type of the shard was
 * dropped. The text is that of the note, valid until the next pin.
 */
extern const char *shard_homes_pinned_by(const ShardHomes *homes, ShardShardKey key, bool pinned);

/* A new office begins: no move is under way as far as known. Frees the texts of the moves that are forgotten. */
extern void shard_homes_forget_moves(ShardHomes *homes);

/* Adds the action that writes a decision into shard.decision, for people: what was decided, and why. text is copied. */
extern void shard_homes_decision(ShardHomes *homes, ShardDecision decision, ShardShardRef shard,
								 int32 from, int32 to, const char *text);

/* ---- homes_type.c: types begin and end -------------------------------------------------------- */

/* START_TYPE: a type that the cluster does not have gets a number; the answer, or the reason against it, goes to out. */
extern void
shard_homes_start_type(ShardHomes *homes, int64 now, const ShardControl *message,
					   ShardProposer *proposer, const ShardRoster *roster, ShardActions *out);

/*
 * Removes types that no member has (C9), with their homes and pins. The first step, a mark, waits only for members that are
 * heard; so a member that is away delays the end of a type, and not the beginning of its end.
 */
extern void shard_homes_retire_types(ShardHomes *homes, int64 now, ShardProposer *proposer,
									 const ShardRoster *roster);

/*
 * The number of shards of type "wanted"; 0: there is no such type. *type_id and *number remember the last answer for the next
 * call, since lists name few types; start with *type_id = 0.
 */
extern int32
shard_homes_number_of_shards(const ShardHomes *homes, int32 wanted, int32 *type_id, int32 *number);

/* ---- homes_move.c: moves ---------------------------------------------------------------------- */

/*
 * Begins a move: the target is asked first (M16), and nothing else changes before the target is ready. who: the operator that
 * wants the move, copied; NULL: none. False: the shard cannot move there now, and *why is a constant text.
 */
extern bool shard_homes_begin_move(ShardHomes *homes, int64 now, HomesShard *shard, int32 to,
								   ShardHomeReason reason, const char *who,
								   const ShardRoster *roster, const char **why);

/*
 * Drives all moves that are under way, in the order in which they began: sends what is due, and proposes what the next phase
 * needs.
 */
extern void
shard_homes_drive(ShardHomes *homes, int64 now, ShardProposer *proposer, const ShardRoster *roster);

/* ImportReady: the target can have the shard (M16). */
extern void shard_homes_ready(ShardHomes *homes, const ShardControl *message);

/* ShardStopped: the old home has sealed the shard durably (M3). */
extern void shard_homes_stopped(ShardHomes *homes, const ShardControl *message);

/* Staged: the new home has all of the shard durably (M4). */
extern void shard_homes_staged(ShardHomes *homes, const ShardControl *message);

/*
 * ImportFailed: the target could not begin the copy, or not end it. The reason that the target gives is shown to people as
 * that node's words.
 */
extern void shard_homes_import_failed(ShardHomes *homes, int64 now, const ShardControl *message);

/* Notes that a move failed: after a pause that grows with each failure, the next move of the shard may begin by itself. */
extern void shard_homes_failed(HomesShard *shard, int64 now);

/* Why a shard moves, for people; a text in the arena. */
extern const char *shard_homes_reason_text(const HomesShard *shard, ShardArena *arena);

/* ---- homes_place.c: turns of moves ------------------------------------------------------------ */

/* May a shard whose target is ready begin to move? Needs the counts of shard_homes_count_copied(). */
extern bool shard_homes_has_place(ShardHomes *homes, int64 now, HomesShard *shard);

/* Counts for each node the shards that it is copying, or is about to. */
extern void shard_homes_count_copied(ShardHomes *homes, int64 now);

/* ---- homes_command.c: operators' acts --------------------------------------------------------- */

/* Begins the moves of waiting commands whose shards are at rest now; answers those whose moves cannot begin. */
extern void shard_homes_serve(ShardHomes *homes, int64 now, const ShardRoster *roster);

/*
 * A move has ended: the operators that wait for it are answered. good: the shard is where it should be; why: the reason else.
 */
extern void
shard_homes_move_ended(ShardHomes *homes, const HomesShard *shard, bool good, const char *why);

/*
 * The functions of a type have answered, and number moves begin by that: commands that wait for the type's round are answered
 * when no other type is missing.
 */
extern void shard_homes_round_ended(ShardHomes *homes, int32 type_id, int64 number);

/* ---- homes_plan.c: first homes, rebalancing --------------------------------------------------- */

/*
 * Gives homes to all shards that are requested and have none, by the strategies of their types; in the order of the map,
 * which takes keys faster in that order.
 */
extern void shard_homes_allocate(ShardHomes *homes, int64 now, ShardProposer *proposer,
								 const ShardRoster *roster);

/*
 * A round of rebalancing of a type, or of all types (0). who: the operator that wants it; NULL: none. Returns how many moves
 * begin; *n_pending: the number of types whose own functions are asked, and may begin more.
 */
extern int shard_homes_round(ShardHomes *homes, int64 now, int32 type_id, const char *who,
							 const ShardRoster *roster, int *n_pending);

/* Plans that are due: shards move to where they are pinned, and a round of rebalancing begins or goes on. */
extern void
shard_homes_plan(ShardHomes *homes, int64 now, ShardProposer *proposer, const ShardRoster *roster);

/* ---- homes_dry.c, homes_plan.c, homes_resettle.c: the dry run --------------------------------- */

/* Is there room for one more move in the answer of the dry run that is under way? */
extern bool shard_homes_dry_has_room(ShardHomes *homes);

/* Part of a dry run for one type: its pins, however many moves may begin at a time, and a round of rebalancing. */
extern void
shard_homes_plan_dry(ShardHomes *homes, int64 now, int32 type_id, const ShardRoster *roster);

/* Part of a dry run for one type: its shards that leave their members, however many moves may begin at a time. */
extern void
shard_homes_evacuate_dry(ShardHomes *homes, int64 now, int32 type_id, const ShardRoster *roster);

/* ---- homes_number.c: room for types, and their numbers ---------------------------------------- */

/*
 * Is there room for a type of a member, and for its record? type_id: the type's present record does not count; 0: the type is
 * new.
 */
extern bool shard_homes_has_room(ShardHomes *homes, int32 member, int32 type_id,
								 const ShardMapEntry *entry, const ShardTypeRecord *type);

/* The number of a new type, of those above last; 0: it gets none; *full: for want of a group. */
extern int32 shard_homes_type_number(const ShardHomes *homes, const ShardTypeRecord *type,
									 int32 last, int32 wish, bool *full);

/* ---- homes_resettle.c: members that go or are lost -------------------------------------------- */

/*
 * Proposes a new home at which the shard begins without its state: an epoch that is newer by leap, marked as lost (N1).
 * plan: for the set of a shard that begins at another node; NULL: it begins where it was, and its set stays. False: the home
 * has gone, or another change of it is under way.
 */
extern bool shard_homes_replace(ShardHomes *homes, HomesShard *shard, int32 to, int32 leap,
								const PlanView *plan, ShardProposer *proposer);

/* Does a member give its shards away: does it leave, or is it being emptied? */
extern bool shard_homes_gives_away(const ShardMemberRecord *member);

/*
 * Begins moves away from members that give their shards away, and of shards at members that do not host their type any more.
 */
extern void shard_homes_evacuate(ShardHomes *homes, int64 now, ShardProposer *proposer,
								 const ShardRoster *roster);

/* Gives new homes to shards whose home cannot hand them off any more (HomesResettlement). */
extern void shard_homes_replace_lost(ShardHomes *homes, int64 now, ShardProposer *proposer,
									 ShardRoster *roster);

/* ---- homes_set.c: who keeps copies of a shard ------------------------------------------------- */

/* Is nobody left of a shard's set that could ever come back with its state: home and backups were written off, or left? */
extern bool shard_homes_set_is_gone(const ShardHomes *homes, const HomesShard *shard);

/* ---- homes_strategy.c: types with functions of their own -------------------------------------- */

/*
 * Asks a type's own functions for homes of shards that have none; the answer comes by shard_homes_strategy(). True also while
 * they may not be asked yet. False: they have no choice to make.
 */
extern bool
shard_homes_ask_homes(ShardHomes *homes, int64 now, int32 type_id, const HomesRequest *requests,
					  int n_requests, const ShardRoster *roster);

/*
 * Asks a type's own functions which of its shards should move. who: the operator that wants the round; NULL: none. True also
 * while an earlier round is under way, how that ends counts for this one. False: they were asked something else, or have no
 * choice to make.
 */
extern bool shard_homes_ask_moves(ShardHomes *homes, int64 now, int32 type_id, const char *who,
								  const ShardRoster *roster);

/* Ends the questions whose time is over, as if the functions had failed. */
extern void shard_homes_strategy_late(ShardHomes *homes, int64 now, ShardProposer *proposer,
									  const ShardRoster *roster);

/* Forgets all questions: answers to what was asked in an earlier office are ignored. */
extern void shard_homes_forget_strategies(ShardHomes *homes);
