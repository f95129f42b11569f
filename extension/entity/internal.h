/*
 * entity/internal.h
 *		What the executor's files share: the turn, and running one message.
 */
#pragma once

#include <signal.h>

#include "entity/turn.h"
#include "entity/held.h"
#include "entity/run.h"
#include "registry/security.h"

/* A reply that leaves after commit. */
typedef struct ShardReply
{
	ShardRequest *request;
	char *data; /* NULL: SQL NULL */
	int len;
	ErrorData *error; /* instead of data */
} ShardReply;

typedef struct ShardTurn
{
	MemoryContext context; /* reset by each turn */
	bool careful;
	bool fenced; /* a message runs in a subtransaction of its own */
	TimestampTz now;
	int count;	  /* messages begun */
	int limit;	  /* of these */
	bool exactly; /* it ends by that alone */
	bool single;  /* it ends with the first message whose code runs; */
	int ran;	  /* of so many messages it ran */
	ShardSource source;
	int before;			  /* messages begun before those of the source */
	bool begun;			  /* of the source, too, something was done */
	TimestampTz deadline; /* of the source */
	bool look;	   /* at time and memory: user code ran, a message was not small, a new source */
	bool late;	   /* what the last look found */
	int unlooked;  /* messages since then */
	int unread;	   /* looks since the clock was read, */
	int read_each; /* and with so many it is read again */
	bool past;	   /* the deadline, when it was read, */
	TimestampTz read_at;		  /* at this time */
	volatile sig_atomic_t ticked; /* since then; by a signal handler */
	bool blames_last;			  /* a handler is running */
	bool overtaken;
	bool reloaded;			/* the registry, for a type that it did not know */
	bool passed;			/* a message was handled, stashed or buried */
	bool numbered;			/* what runs is the message whose number was expected */
	bool aside;				/* messages are put aside, and not handled */
	bool full;				/* ends here, so that what was done is committed */
	bool stash_left;		/* something due in stashes was not handled */
	int64 cached;			/* bytes of entities in memory when it began */
	const ShardEntity *at;	/* whose message, state or stash it is about; NULL: nobody's */
	slist_head runs;		/* whose entities are in the turn */
	dlist_head due;			/* entities that wait, but not for their type; outlives turns */
	TimestampTz read_until; /* what the log had then was looked at; outlives turns */
	List *replies;
	ShardSecurity security;
	uint64 messages; /* since start */
	uint64 errors;
	uint64 recounts; /* of what was counted wrongly */
} ShardTurn;

extern ShardTurn shard_turn;

/* At start: reads what workers of these lanes got stuck in (deliver.c). */
extern void shard_handle_init(ShardLanes lanes);

/* The run of a type, ready to be used; NULL if the type was dropped. */
extern ShardRun *shard_turn_ready_run(int32 type_id);

/*
 * The same, with the registry read anew for one that is not known: whoever starts a type and tells in one
 * transaction shows us the message a moment before he lets us know of the type.
 */
extern ShardRun *shard_turn_known_run(int32 type_id);

/* Takes messages onto the counter of what cannot be handled now, or (negative) off it. */
extern void shard_queue_count(ShardRun *run, int64 delta);

/* An entity joins or leaves those whose stash is looked at when its time has come. */
static inline bool
shard_queue_is_due(const ShardWait *wait)
{
	return wait->deferred && !wait->suspended;
}

extern void shard_queue_follow(ShardEntity *entity);

/* An entity leaves memory, with what is known of its stash. Between turns. */
extern void shard_queue_forget(ShardEntity *entity);

/*
 * In a turn, for shard_run_each: reads what is held of a type anew, if memory has forgotten it; and the turn was
 * committed.
 */
extern void shard_residents_reread(ShardRun *run, void *arg);
extern void shard_residents_note_reread(ShardRun *run, void *arg);

/* Tells how much was given up of a type that was dropped. */
extern void shard_residents_tell_buried(int32 type_id, int64 messages);

/* Takes an entity into the turn. */
extern void shard_turn_enlist(ShardEntity *entity);

/* Calls visit for each entity in the turn. */
extern void shard_turn_each(void (*visit)(ShardEntity *entity, void *arg), void *arg);

/* Entity of a message, enlisted. */
extern ShardEntity *shard_turn_entity(ShardRun *run, const ShardRow *row);

/*
 * Holds what the type's states are made of, once per turn and not in a subtransaction; false if another
 * transaction has it locked. Before any copy of a state is used.
 */
extern bool shard_turn_take_hold(ShardRun *run);

static inline bool
shard_turn_hold(ShardRun *run)
{
	return run->parts.held || shard_turn_take_hold(run);
}

/*
 * Makes the entity's copy tell the truth, once per turn; false if another
 * transaction holds its row. May raise for this entity alone: it may have a row that cannot be read.
 */
extern bool shard_turn_check(ShardEntity *entity);

/* Writes a dirty entity; false if it was overtaken. The caller closes the table. */
extern bool shard_turn_write(ShardEntity *entity);

/* From when on an entity of the due list may be looked at, if its type runs and its shard is here. */
extern TimestampTz shard_stash_due_at(const ShardEntity *entity);

/* What happened to a message that was to be run. */
typedef enum ShardOutcome
{
	SHARD_MESSAGE_DONE, /* handled */
	SHARD_MESSAGE_GONE, /* is elsewhere: a dead letter, or it waits for its number */
	SHARD_MESSAGE_RESTS /* is held, to be tried again; the entity's others wait */
} ShardOutcome;

/* Runs a message as the turn's mode wants it. */
extern ShardOutcome
shard_handle_message(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held);

/* The entity cannot run now: its message is held. */
extern ShardOutcome shard_queue_rest(ShardEntity *entity, const ShardRow *row, bool is_held);

/* Whether a held message has to wait for its next attempt: its entity, too, then. */
extern bool shard_queue_is_early(ShardEntity *entity, const ShardHeld *held);

/* A held message was handled, or is put elsewhere. */
extern void shard_queue_remove(ShardEntity *entity, const ShardRow *row);

/* Whether a worker before this one got stuck in the message. */
extern bool shard_handle_is_stuck(const ShardRow *row);

/*
 * What fails at a turn's commit (turn_commit.c).
 */

/* Code of a message, or of an ask if row is NULL, is about to run. Said again of the same one it does not count. */
extern void
shard_turn_note_ran(const ShardEntity *entity, const ShardRow *row, const ShardRequest *ask);

/* The number of the message that runs. */
extern void shard_turn_note_number(bool numbered, int64 number);

/*
 * Whether the message, or ask, was alone in a turn that failed at its commit. Then it is not run again, and the turn
 * ends with it. Its error is in the turn's memory; of a message that has a number, that is known still.
 */
extern bool
shard_turn_is_given_up(const ShardEntity *entity, const ShardRow *row, const ShardRequest *ask);
extern ErrorData *shard_turn_given_up_error(void);
extern bool shard_turn_given_up_number(int64 *number);

/* The turn was committed, or aborted. */
extern void shard_turn_commit_over(bool committed);

/* The shard goes: numbers of its messages mean something else when it comes back. */
extern void shard_turn_commit_forget(int32 type_id, int32 shard);

/* While it is being committed: of the one message whose code ran, its seq and lane; false: there were others, or it has none. */
extern bool shard_turn_commits_alone(int64 *seq, int *lane);

/* The same, of whose type code is said to run; NULL: nobody's, or nothing is being committed. entity: "" if there are several. */
extern const ShardType *shard_turn_commits_for(const char **entity, int *entity_len);

/* What it is called if that takes too long. */
#define SHARD_COMMIT_TIMEOUT_MESSAGE \
	"the commit of what the handler did elsewhere took longer than its handler_timeout"

extern void shard_turn_commit_init(void);

/*
 * Messages in the order of their numbers (order.c).
 */

/* The same as shard_handle_message, if it is the message's turn; ..._GONE: it waits, or came too late. */
extern ShardOutcome
shard_order_run(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held);

/* Runs what waits and is expected now, until the turn is over. *rests: one of them cannot run now. */
extern void shard_order_run_ready(ShardEntity *entity, bool *rests);

/* Whether some of what waits could run now: it goes before anything newer. */
extern bool shard_order_has_ready(ShardEntity *entity);

/* Gives up the gap in front of what waits, if that has waited for too long. */
extern void shard_order_time_out(ShardEntity *entity);

/* As of the last commit: whether messages wait for their number; and when they are to be looked at. */
extern bool shard_order_is_due(const ShardEntity *entity);
extern TimestampTz shard_order_due_at(const ShardEntity *entity);

/* An entity comes into the turn, or the turn was undone; it was committed. */
extern void shard_order_begin(ShardEntity *entity);
extern void shard_order_keep(ShardEntity *entity);

/*
 * The message that ran last may have ended the entity (D25, 6): then the next one with a number begins
 * anew. But what waits belongs to the old order, and it goes on.
 */
extern void shard_order_heed(ShardEntity *entity);

/* Writes the positions that the turn has changed. */
extern void shard_order_write(void);

/* Rows of shard.ordered (order_position.c): reads one; writes and deletes those of the turn. */
extern void shard_order_read_position(const ShardEntity *entity, ShardOrderedPosition *position);
extern void shard_order_write_positions(List *entities);
extern void shard_order_delete_position(const ShardEntity *entity);

/* A shard begins anew: an entity of it has no position any more. */
extern void shard_order_forget(ShardEntity *entity);

/*
 * What memory counts of shard.held (recount.c).
 */

/* In a turn or at start: sets what is held of an entity. */
extern void shard_queue_set(ShardEntity *entity, const ShardHeldCount *held);

/* Counts it in the table; says so if memory was wrong. Ends user code. */
extern void shard_recount_entity(ShardEntity *entity);

/* The same for those of the turn whose counts contradict each other. */
extern void shard_recount_touched(void);

/*
 * Runs a message, or an ask if row is NULL, in a subtransaction (handle.c). Returns its error, in the turn's memory,
 * NULL if it went well; *overtaken: somebody else has the row or changed it, try later.
 */
extern ErrorData *
shard_handle_fenced(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
					ShardExecution *execution, bool *overtaken);

/* What an ask is told whose type cannot run; NULL: it is not here. */
extern ErrorData *shard_failure_of_type(const ShardType *type);

/* A copy in the turn's memory of an error made up by the caller, whose strings are constants or there as well. */
extern ErrorData *shard_failure_keep(const ErrorData *error);

/*
 * Lines for the server's log, once the turn is committed (turn_log.c).
 */
typedef enum ShardTurnLogKind
{
	SHARD_TURN_LOG_GAP,			/* numbers were skipped */
	SHARD_TURN_LOG_NUMBER,		/* a dead letter, because of its number */
	SHARD_TURN_LOG_DEAD_LETTER, /* because it failed */
	SHARD_TURN_LOG_RECOUNT,
	SHARD_TURN_LOG_BURIED, /* messages of a type that was dropped */
	SHARD_TURN_LOG_LEFT,   /* messages that waited for a shard that begins anew */
	SHARD_TURN_LOG_FULL,   /* there are as many dead letters as may be */
	SHARD_TURN_LOG_KINDS
} ShardTurnLogKind;

/* An event of the kind. True: it is the turn's first one, and the caller gives it a line. */
extern bool shard_turn_log_counts(ShardTurnLogKind kind);
extern void shard_turn_log(ShardTurnLogKind kind, int sqlstate, const char *message,
						   const char *detail, const char *hint);

extern void shard_turn_log_committed(void);

/* Says how many messages became dead letters whose type nobody has, once a minute at most, and when the worker ends. */
extern void shard_turn_log_strays(bool ending);
extern void shard_turn_log_forget(void);

/* Calls the handler with one message (call.c): sets the entity's state, execution's reply. */
extern void shard_call_message(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
							   ShardExecution *execution);

/* The message's number, by the type's ordered_by; false: it has none. */
extern bool shard_call_ordered_by(ShardEntity *entity, const ShardRow *row, int64 *number);

/* Calls a batch handler with the messages kept for the entity. */
extern void shard_call_batch(ShardEntity *entity);

/* Keeps a message for it. */
extern void shard_call_collect(ShardEntity *entity, const ShardRow *row);

/* Handlers' timer (call.c). */
extern void shard_call_init(void);

/*
 * Code of a type's owner that is no handler, as triggers, casts and what planning folds, runs between these two: it is
 * under the type's handler_timeout, too. Nested ones count as one. After an error shard_call_aborted() ends it.
 */
extern void shard_call_watch(const ShardType *type);
extern void shard_call_watched(void);

/* Closes a run's state table, whose after-triggers fire. */
extern void shard_call_close(ShardRun *run);

extern void shard_call_sleep(void);
extern void shard_call_explain(ErrorData *error);
extern void shard_call_aborted(void);

/* Whether somebody cancelled what the worker ran, which is not the handler's fault. Before the above. */
extern bool shard_call_was_cancelled(const ErrorData *error);

/* Between turns: frees what a large message has left. */
extern void shard_call_forget_large(void);

/*
 * Whether user code may have failed because of a plan made before a relation or type was altered (executor_plans.c). Then
 * all plans of this process are made anew when they are next used, and the code deserves another try. True at most once
 * for each change.
 */
extern bool shard_plans_renew(const ErrorData *error);

/* Begins to listen for such changes. */
extern void shard_plans_init(void);

/* What becomes of a message that cannot run now, or failed (failure.c). */
extern void
shard_queue_defer(ShardEntity *entity, const ShardRow *row, TimestampTz until, bool suspended);

/* One that is given up without an attempt waits in the stash until there is room among the dead letters. */
extern void
shard_queue_wait_for_room(ShardEntity *entity, const ShardRow *row, const ErrorData *error);

/* True: it became a dead letter; false: it waits in the stash for another attempt. */
extern bool shard_failure_dispose(ShardEntity *entity, const ShardRow *row, int attempts,
								  bool from_stash, ErrorData *error);
