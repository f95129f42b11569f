/*
 * core/home/homes.h
 *		The shard control's duties towards shards: which node hosts them, and moving them (sections 4, 9).
 *
 * Lives while the office is held. Durable are the keys home/…, type/…, pin/…, formed/… alone; the
 * rest (registrations, requests that wait, drivers of moves, which nodes confirmed a start) is
 * volatile, and the next coordinator asks the members for it again.
 */
#pragma once

#include "core/base/live_settings.h"
#include "core/map/command.h"
#include "core/member/roster.h"

typedef struct ShardHomes ShardHomes;

typedef struct ShardHomesSettings
{
	int64 handoff_timeout; /* of types that have none of their own */
	int64 start_timeout;
	int32
		absolute_limit; /* of least_shard, for types without settings of their own; 0: its default */
	double relative_limit; /* likewise */
} ShardHomesSettings;

/* What becomes of a command. */
typedef enum ShardHomesResult
{
	SHARD_HOMES_DONE,
	SHARD_HOMES_REFUSED, /* *why says the reason */
	SHARD_HOMES_WAITS	 /* its end comes later, by shard_homes_next_answer() */
} ShardHomesResult;

/* The end of a command that waited. */
typedef struct ShardHomesAnswer
{
	ShardAsker asker;
	bool good;
	bool unknown; /* the office was lost meanwhile: perhaps it is carried out */
	int64 number;
	char why[600];
} ShardHomesAnswer;

/* What the functions of a type with the strategy "function" said. */
typedef struct ShardHomesStrategy
{
	int64 token; /* of the question */
	bool rebalance;
	int n_shards;
	const ShardShardRef *shards;
	int n_nodes; /* of an allocation: as many as shards */
	const int32 *nodes;
	const char *error; /* NULL: none */
	int32 sqlstate;	   /* of that; 0: the functions did not raise it */
} ShardHomesStrategy;

/* settings: copied; live: kept by reference. */
extern ShardHomes *
shard_homes_create(int32 self, const ShardHomesSettings *settings, const ShardLiveSettings *live);

/* Frees the homes, and all that they own. */
extern void shard_homes_destroy(ShardHomes *homes);

/* The interval of rebalancing has changed: it starts now. */
extern void shard_homes_new_interval(ShardHomes *homes, int64 now);

/* The office was taken just now. proposer: kept by reference until the office is lost. */
extern void shard_homes_take_office(ShardHomes *homes, int64 now, const ShardProposer *proposer);

/* The office is lost: this node does not end what still waits here. */
extern void shard_homes_lose_office(ShardHomes *homes);

/*
 * REGISTER, START_TYPE, GET_SHARD_HOMES, SHARDS_STARTED, IMPORT_READY, SHARD_STOPPED, STAGED,
 * IMPORT_FAILED. Stale and repeated ones are harmless. With any other message the
 * function only takes in what was decided meanwhile.
 */
extern void
shard_homes_receive(ShardHomes *homes, int64 now, const ShardControl *message,
					ShardProposer *proposer, const ShardRoster *roster, ShardActions *out);

/*
 * Due work: answers that waited for a decision, types that no member has, allocation, HostShard again, drivers of
 * moves, rebalance rounds, pins, evacuation of members, new homes for shards of written-off members and for leased
 * shards of members whose lease ended.
 */
extern void shard_homes_tick(ShardHomes *homes, int64 now, ShardProposer *proposer,
							 ShardRoster *roster, ShardActions *out);

/* The end of a step: what was decided in it is taken in, and moves go on at once. */
extern void shard_homes_settle(ShardHomes *homes, int64 now, ShardProposer *proposer,
							   const ShardRoster *roster, ShardActions *out);

/* The answer to a question for a strategy (SHARD_ACTION_STRATEGY). */
extern void
shard_homes_strategy(ShardHomes *homes, int64 now, const ShardHomesStrategy *answer,
					 ShardProposer *proposer, const ShardRoster *roster, ShardActions *out);

/* The next end of a command that waited; false: there is none. */
extern bool shard_homes_next_answer(ShardHomes *homes, ShardHomesAnswer *answer);

/* ---- operators' commands (core/map/command.h); refused: *why, a constant ---- */

/*
 * MOVE a shard. Waits until the move is decided, or has failed; if the shard is moving already, until that move has ended.
 */
extern ShardHomesResult
shard_homes_move(ShardHomes *homes, int64 now, const ShardCommand *command,
				 const ShardRoster *roster, ShardActions *out, const char **why);

/* REBALANCE a type, or all types, now: a round. *number: how many moves begin. */
extern ShardHomesResult
shard_homes_rebalance(ShardHomes *homes, int64 now, const ShardCommand *command,
					  const ShardRoster *roster, ShardActions *out, int64 *number,
					  const char **why);

/*
 * Moves of one answer to PLAN, of some 25 bytes each: as many answers as may wait for a link (C12) have fewer bytes than a queue
 * has room for.
 */
#define SHARD_PLAN_MOVES 1000

typedef struct ShardHomesPlan
{
	int n_homes;
	ShardMapEntry *homes; /* each as it would be while it moves; in the arena of out */
	bool more;			  /* more moves would begin than those */
	int64 looked_at; /* number of homes that were looked at, for the caller that bounds the work */
} ShardHomesPlan;

/*
 * PLAN: the moves that would begin now, by themselves or in a round of rebalancing of a type, or of all. Nothing changes, and
 * functions of types are not asked. False: refused.
 */
extern bool shard_homes_dry_run(ShardHomes *homes, int64 now, const ShardCommand *command,
								const ShardRoster *roster, ShardActions *out, ShardHomesPlan *plan,
								const char **why);

/* PIN: the node where a shard should be as long as that node may have it; 0: anywhere. */
extern bool shard_homes_pin(ShardHomes *homes, int64 now, const ShardCommand *command,
							ShardProposer *proposer, ShardActions *out, const char **why);

/* OWNER: the name of the role that is to own a type, whose record has that n (C18). */
extern bool shard_homes_set_owner(ShardHomes *homes, int64 now, const ShardCommand *command,
								  ShardProposer *proposer, ShardActions *out, const char **why);

/* Note what or which operator is about to change the status of a member; for people to read. */
extern void shard_homes_note_who(ShardHomes *homes, int32 node, const char *who);

/*
 * GIVE_UP: the shard's state is not where it should be: its home was put back from a copy that is older than
 * the shard's arrival there. By the operator's word the shard begins again, empty, at the same home (N1);
 * not before that home was reached and asked, and has not said for a while that the shard runs.
 */
extern bool shard_homes_give_up(ShardHomes *homes, int64 now, const ShardCommand *command,
								ShardProposer *proposer, const ShardRoster *roster,
								ShardActions *out, const char **why);

/*
 * No member has the type any more: it goes, with all its homes and pins, as one batch. False: a change of it is under way; try
 * again. Its id is not given again.
 */
extern bool shard_homes_drop_type(ShardHomes *homes, int64 now, int32 type_id,
								  ShardProposer *proposer, ShardActions *out);

/* Homes that a member has, moves towards it included. */
extern int shard_homes_count(const ShardHomes *homes, int32 node);

/*
 * The number of homes that have to leave a member before it can leave, and of copies of shards that have their homes
 * elsewhere: homes stay if no other member can host their type (C9).
 */
extern int shard_homes_to_leave(ShardHomes *homes, int32 node);
