/*
 * entity/internal.h
 *		What the files on the way of a message share: the turn, and what each file does for those above it.
 *
 * In the order of the way. Each file calls those that come after it, and none that comes before (test/lint.pl):
 *		replica_apply replica_pass replica_rows_write replica_rows replica_rows_clear replica_table turn record_write record_key residents recovery report deliver deliver_ask stash order order_position handle start_failure failure
 *		dead_letter_room recount outputs_leave output_address turn_commit stop turn_entity record_image queue pause history decider start call stuck execution
 *		turn_limit turn_log restart stop_row passivate cache remember life local_type handler crash held
 *		state_reshard state_copy state_purge state_orphan state_structure state_walk state state_table state_door state_trigger state_hold
 *		request_refuse request timer timer_due timer_table request_message timer_message content timer_time
 *		replica_home outputs replica_hold replica_inputs record
 */
#pragma once

#include <signal.h>

#include "core/flow/copy.h"
#include "entity/execution.h"
#include "entity/held.h"
#include "entity/replica_home.h"
#include "entity/state.h"
#include "entity/stuck.h"
#include "entity/turn.h"
#include "registry/security.h"

/* The turn of this worker. Fields that keep something of an earlier turn are marked "outlives turns". */
typedef struct ShardTurn
{
	/* turn.c */
	MemoryContext context; /* reset by each turn */
	TimestampTz now;	   /* when the turn began */
	int clock_steps;	   /* how often the clock was set back; outlives turns */
	ShardLanes lanes;	   /* of this worker; outlives turns */
	bool careful;
	bool overtaken;
	TimestampTz read_until;	 /* all that the log had at this time was looked at; outlives turns */
	uint64 messages, errors; /* since start */
	uint64 recounts;		 /* recounts that found a wrong count */

	/* turn_limit.c */
	int count;	  /* messages begun */
	int limit;	  /* of messages */
	bool exactly; /* the turn ends by that limit alone, but for asks and starts */
	bool single;  /* it ends with the first message whose code runs; */
	int ran;	  /* messages whose code ran */
	bool full;	  /* the turn ends here, so that what was done is committed */
	bool passed;  /* a message was handled, stashed or buried */
	bool aside;	  /* messages are put aside, and not handled */
	ShardSource source;
	int before;			  /* messages begun before those of the source */
	bool begun;			  /* a message of the source was begun, too */
	TimestampTz deadline; /* of the source */
	bool look;	   /* at time and memory: user code ran, a message was not small, a new source */
	bool late;	   /* what the last look found */
	int unlooked;  /* messages since then */
	int unread;	   /* looks since the clock was read, */
	int read_each; /* and at this number it is read again */
	bool past;	   /* the deadline, when it was read, */
	TimestampTz read_at;		  /* at this time */
	volatile sig_atomic_t ticked; /* since then; by a signal handler */
	int64 cached;				  /* bytes of entities in memory when the turn began */
	ShardFairShares fair;		  /* the time of types; outlives turns */
	int64 fair_line;			  /* a type whose clock is ahead of it is put off */
	int batched;				  /* messages of batches that ran since the clock was read */
	bool one_type;				  /* there is no other in the worker; outlives turns */

	/* deliver_ask.c */
	List *replies; /* ShardReply *, to be sent after the commit */

	/* order.c, handle.c */
	bool numbered;	  /* the message whose number was expected is running, */
	int64 number;	  /* which is this */
	bool blames_last; /* a handler is running */
	bool fenced;	  /* a message runs in a subtransaction of its own */

	/* turn_entity.c */
	slist_head types;	   /* types that have entities in the turn */
	const ShardEntity *at; /* whose message, state or stash the turn is at; NULL: at none */
	bool reloaded;		   /* the registry was read again, for a type that it did not know */
	ShardSecurity security;

	/* stop.c, passivate.c */
	int stops;	 /* types with a stop message; outlives turns */
	int victims; /* entities over the limits of their types; outlives turns */

	/* handle.c, timer.c */
	struct ShardFiring
		*firing; /* of a timer, whose message is handled; NULL: the message is another one */

	/* request.c */
	struct ShardAsked *asked; /* a request, whose message is handled; NULL: it is none */
	int voids;				  /* answers that found no open request */

	/* handle.c */
	bool late_start; /* an entity starts behind what waited of it, if it is still remembered */

	/* queue.c, stash.c */
	dlist_head due;	   /* entities that wait, but not for their type; outlives turns */
	dlist_head pauses; /* entities that may pause their shard; outlives turns */
	bool stash_left;   /* something due in stashes was not handled */
} ShardTurn;

extern ShardTurn shard_turn;

/* The presence of shards at this worker; set by routing. */
extern const ShardPresence *shard_presence;

/* ---- residents.c: entities of whole shards ---------------------------------------------------- */

/*
 * In a turn, for shard_local_each: reads what is held of a type again, if memory has forgotten it; and notes that the
 * turn was committed.
 */
extern void shard_residents_reread(ShardLocalType *local, void *arg);
extern void shard_residents_note_reread(ShardLocalType *local, void *arg);

/* Logs how many messages were given up of a type that was dropped. */
extern void shard_residents_tell_buried(int32 type_id, int64 messages);

/* ---- recovery.c: remembered entities start with their shard ----------------------------------- */

/* For shard_registry_each, when the registry has changed: begins to look for remembered entities of a type. */
extern void shard_recovery_follow(ShardType *type, void *arg);

/* The state table of the type is another one, or is gone. */
extern void shard_recovery_reset(ShardLocalType *local);

/* A shard begins to be walked over; is not here any more. Between turns, or in one that may abort. */
extern void shard_recovery_add(ShardLocalType *local, int shard);
extern void shard_recovery_remove(ShardLocalType *local, int shard);

/* After the commit, and after an abort. */
extern void shard_recovery_committed(void);
extern void shard_recovery_aborted(void);

/* ---- deliver_ask.c: asks ---------------------------------------------------------------------- */

/* After the commit: sends what handlers have replied; lsn as of shard_turn_committed(). */
extern void shard_deliver_replies(XLogRecPtr lsn);

/* ---- order.c, order_position.c: messages in the order of their numbers ------------------------ */

/* Whether an entity's messages have numbers. */
static inline bool
shard_order_applies(const ShardEntity *entity)
{
#ifdef SHARD_MUTANT_ORDER_IGNORED
	return false;
#else
	return entity->local->type->ordered_by_name != NULL;
#endif
}

/* What happened to a message that was to be run. */
typedef enum ShardOutcome
{
	SHARD_MESSAGE_DONE, /* handled */
	SHARD_MESSAGE_GONE, /* it is a dead letter, or waits for its number */
	SHARD_MESSAGE_RESTS /* it is held, to be tried again; the entity's other messages wait */
} ShardOutcome;

/* The same as shard_handle_message, if the message's number is due; ..._GONE: the message waits, or came too late. */
extern ShardOutcome
shard_order_run(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held);

/* Runs the messages that waited and are expected now, until the turn is over. *rests: one of them cannot run now. */
extern void shard_order_run_ready(ShardEntity *entity, bool *rests);

/* Whether a message that waits could run now: it goes before anything newer. */
extern bool shard_order_has_ready(ShardEntity *entity);

/* Gives up the gap of missing numbers, if the messages behind it have waited for too long. */
extern void shard_order_time_out(ShardEntity *entity);

/* When the messages of an entity that wait for their number are to be looked at. */
extern TimestampTz shard_order_due_at(const ShardEntity *entity);

/*
 * The message that ran last may have ended the entity (D25, 6): then the next message with a number begins a new order.
 * But if messages wait, they belong to the old order, and that goes on.
 */
extern void shard_order_heed(ShardEntity *entity);

/* Writes the positions that the turn has changed. */
extern void shard_order_write(void);

/*
 * Rows of shard.ordered (order_position.c): reads the entity's row; writes the rows of the turn's entities; deletes the
 * entity's row.
 */
extern void shard_order_read_position(const ShardEntity *entity, ShardOrderedPosition *position);
extern void shard_order_write_positions(List *entities);
extern void shard_order_delete_position(const ShardEntity *entity);

/* A shard begins again: its entities have no positions any more. */
extern void shard_order_forget(ShardEntity *entity);

/* ---- handle.c: one message is handled --------------------------------------------------------- */

/* At start: reads in which messages former workers of these lanes got stuck. */
extern void shard_handle_init(ShardLanes lanes);

/* Runs a message in the turn's mode: in a subtransaction of its own in a careful turn. */
extern ShardOutcome
shard_handle_message(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held);

/*
 * Runs a message, or an ask if row is NULL, in a subtransaction. Returns its error, in the turn's memory, NULL if it
 * went well; *overtaken: another transaction has the row locked or changed it, try later.
 */
extern ErrorData *
shard_handle_fenced(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
					ShardExecution *execution, bool *overtaken);

/* Nothing of the entity waits any more: it starts, if it was to start with its shard and no message of it has run. */
extern void shard_handle_late_start(ShardEntity *entity);

/* ---- start_failure.c: an entity cannot start -------------------------------------------------- */

/* It failed to start; is to start later, since another transaction holds its row; at once. */
extern void shard_start_failed(ShardEntity *entity, const ErrorData *error);
extern void shard_start_put_off(ShardEntity *entity);
extern void shard_start_hurry(ShardEntity *entity);

/* It has started, after it failed to, or ends without; code or settings of the type have changed: all try again. */
extern void shard_start_done(ShardEntity *entity);
extern void shard_start_follow(ShardLocalType *local);

/* ---- failure.c: what failed ------------------------------------------------------------------- */

/* A message has failed. True: it became a dead letter; false: it waits in the stash for another attempt. */
extern bool shard_failure_dispose(ShardEntity *entity, const ShardRow *row, int attempts,
								  bool from_stash, ErrorData *error);

/* What SQL has changed cannot be read: a row of kind TOUCHED waits, for max_retry_backoff, however often (Q33). */
extern void shard_failure_put_off(ShardEntity *entity, const ShardRow *row, int attempts,
								  bool from_stash, const ErrorData *error);

/* The error that answers an ask whose type cannot run; NULL: the type is not here. */
extern ErrorData *shard_failure_of_type(const ShardType *type);

/* A copy in the turn's memory of an error made up by the caller, whose strings are constants or there as well. */
extern ErrorData *shard_failure_keep(const ErrorData *error);

/* ---- dead_letter_room.c: how many dead letters there may be ----------------------------------- */

/*
 * Whether a message may become a dead letter of the type, for this error. If the type is set so, the oldest are deleted
 * for it, in the turn's transaction. False: it has to wait. The turn's user code has ended.
 */
extern bool
shard_dead_letter_has_room(ShardLocalType *local, const ShardRow *row, const ErrorData *error);

/*
 * The same of a message whose type neither is here nor left anything here: the oldest dead letters of all such types
 * go, where there are too many. False: room was made just now and is used up; the message is only counted. The turn's
 * user code has ended.
 */
extern bool shard_dead_letter_has_stray_room(const ShardRow *row, const ErrorData *error);

/* ---- recount.c: what memory counts of shard.held ---------------------------------------------- */

/* Counts the entity's messages in the table; logs a warning if memory was wrong. Ends user code. */
extern void shard_recount_entity(ShardEntity *entity);

/* The same for those entities of the turn whose counts contradict each other. */
extern void shard_recount_touched(void);

/* ---- turn_commit.c: what fails at the commit of a turn ---------------------------------------- */

/* At start. */
extern void shard_turn_commit_init(void);

/*
 * Code of a message, or of an ask if row is NULL, is about to run. Counted once, however often it is called in a row
 * for the same message.
 */
extern void
shard_turn_note_ran(const ShardEntity *entity, const ShardRow *row, const ShardRequest *ask);

/* The number of the message that runs. */
extern void shard_turn_note_number(bool numbered, int64 number);

/*
 * Whether the message, or ask, was alone in a turn that failed at its commit. Then it is not run again, and the turn
 * ends with it. Its error is in the turn's memory. The third function: whether it has a number, and which.
 */
extern bool
shard_turn_is_given_up(const ShardEntity *entity, const ShardRow *row, const ShardRequest *ask);
extern ErrorData *shard_turn_given_up_error(void);
extern bool shard_turn_given_up_number(int64 *number);

/* The turn was committed, or aborted. */
extern void shard_turn_commit_over(bool committed);

/* The shard leaves: its messages have other seqs when it comes back, so notes about them are dropped. */
extern void shard_turn_commit_forget(int32 type_id, int32 shard);

/*
 * The type whose code counts as running while the turn is being committed; NULL: none, or no turn is being committed.
 * entity: "" if there are several.
 */
extern const ShardType *shard_turn_commits_for(const char **entity, int *entity_len);

/* ---- stop.c: what an entity handles before it leaves ------------------------------------------- */

/* Whether entities of the type get a stop message before they leave. */
static inline bool
shard_stop_is_due(const ShardLocalType *local)
{
	return local->stops && local->runnable;
}

/* The type may have got a stop message, or have none any more. */
static inline void
shard_stop_follow(ShardLocalType *local)
{
	bool stops = local->type->exists && local->type->stop_message != NULL;

	shard_turn.stops += (int) stops - (int) local->stops;
	local->stops = stops;
}

/* At the end of a turn: entities that are idle, or over the limit, of types with a stop message get it. */
extern void shard_stop_decide(void);

/*
 * Whether such a row is passed over, since it means nothing any more. waits: the row would have to wait, and by that
 * means nothing either; then the entity stays.
 */
extern bool shard_stop_passes_over(ShardEntity *entity, const ShardRow *row, bool waits);

/* What a row of kind PASSIVATE asks of its entity. */
typedef enum ShardStop
{
	SHARD_STOP_VOID,   /* nothing */
	SHARD_STOP_NONE,   /* that it leaves */
	SHARD_STOP_MESSAGE /* that it handles this message, and leaves */
} ShardStop;

/* The same; notes why the entity leaves. */
extern ShardStop shard_stop_read(ShardEntity *entity, const ShardRow *row, ShardRow *message);

/* ---- turn_entity.c: an entity in the turn ----------------------------------------------------- */

/* Held messages of an entity, for buffer_size. */
static inline int64
shard_wait_messages(const ShardWait *wait)
{
	return wait->waiting - wait->touched;
}

/* The type in this worker, ready to be used; NULL if the type was dropped. */
extern ShardLocalType *shard_turn_ready_type(int32 type_id);

/*
 * The same, with the registry read again for a type that is not known: when a transaction starts a type and sends to
 * it, its message is visible to this worker a moment before the news of the type arrives.
 */
extern ShardLocalType *shard_turn_known_type(int32 type_id);

/* The entity of a message, in the turn. */
extern ShardEntity *shard_turn_entity(ShardLocalType *local, const ShardRow *row);

/* Takes an entity into the turn. */
extern void shard_turn_enlist(ShardEntity *entity);

/* Calls visit for each entity in the turn. */
extern void shard_turn_each(void (*visit)(ShardEntity *entity, void *arg), void *arg);

/*
 * Holds what the type's states are made of, once per turn and not in a subtransaction; false if another
 * transaction has it locked. Before any copy of a state is used.
 */
extern bool shard_turn_take_hold(ShardLocalType *local);

static inline bool
shard_turn_hold(ShardLocalType *local)
{
	return local->parts.held || shard_turn_take_hold(local);
}

/*
 * Makes the entity's copy equal to its row, once per turn. False: another transaction holds the row. May raise an error
 * that concerns this entity alone, whose row may be unreadable.
 */
extern bool shard_turn_check(ShardEntity *entity);

/* Writes a dirty entity; false if another transaction has changed or locked its row. The caller closes the table. */
extern bool shard_turn_write(ShardEntity *entity);

/* After the commit, and after an abort: each entity leaves the turn as it made it, or as it was before. */
extern void shard_turn_keep_entities(void);
extern void shard_turn_undo_entities(void);

/* ---- queue.c: what waits in front of an entity ------------------------------------------------ */

/*
 * A message cannot run now: it joins the entity's stash, which rests until that time; suspended: until the type runs.
 */
extern void
shard_queue_defer(ShardEntity *entity, const ShardRow *row, TimestampTz until, bool suspended);

/* A message that is given up without an attempt waits in the stash until there is room among the dead letters. */
extern void
shard_queue_wait_for_room(ShardEntity *entity, const ShardRow *row, const ErrorData *error);

/* The entity cannot run now: its message is held. */
extern ShardOutcome shard_queue_rest(ShardEntity *entity, const ShardRow *row, bool is_held);

/* A message has failed, and is tried again. */
extern void
shard_queue_retry(ShardEntity *entity, const ShardRow *row, const ShardHeldWhy *why, bool is_held);

/* Whether a held message has to wait for its next attempt. If so, its entity waits, too. */
extern bool shard_queue_is_early(ShardEntity *entity, const ShardHeld *held);

/* Removes a held message that was handled, or is put elsewhere. */
extern void shard_queue_remove(ShardEntity *entity, const ShardRow *row);

/* All of the entity's stash was handled; messages that wait for their number still wait. */
extern void shard_queue_end(ShardEntity *entity);

/* Drops all that waits: the entity begins again, without its state. */
extern void shard_queue_discard(ShardEntity *entity);

/* In a turn or at start: sets the counts of what is held of an entity. */
extern void shard_queue_set(ShardEntity *entity, const ShardHeldCount *held);

/* Adds to the counter of messages that cannot be handled now; a negative number takes them off. */
extern void shard_queue_count(ShardLocalType *local, int64 delta);

/* An entity joins or leaves the list of those whose stash is looked at when it is due. */
extern void shard_queue_follow(ShardEntity *entity);

/* An entity begins to wait for its type, or no longer waits for it; for shard_cache_each. */
extern void shard_queue_follow_type(ShardEntity *entity, void *arg);

/* max_retry_backoff was lowered, or, between turns, the clock was set back: no entity waits longer from now on (D16). */
extern void shard_queue_shorten_waits(void);
extern void shard_queue_follow_clock(TimestampTz now);

/* Whether a message is due that failed before. It may well fail again, so the turn had better be careful at once. */
extern bool shard_queue_retry_is_due(void);

/* An entity leaves memory, with what is known of its stash. Between turns. */
extern void shard_queue_forget(ShardEntity *entity);

/* How long an entity rests whose row another transaction holds. */
#define SHARD_CONTENDED_PAUSE (100 * INT64CONST(1000))

/* The entity has to start before its messages, not before that time, after failing so often; it has started. */
extern void shard_queue_start(ShardEntity *entity, int starts, TimestampTz not_before);
extern void shard_queue_has_started(ShardEntity *entity);

/* ---- pause.c: shards that wait after an escalation -------------------------------------------- */

/* In a turn, or at start: the entity's wait was set; it may pause its shard. */
extern void shard_pause_note(ShardEntity *entity);

/* After a commit or an abort; before the entity leaves memory; code or settings of the type have changed. */
extern void shard_pause_follow(ShardEntity *entity);
extern void shard_pause_forget(ShardEntity *entity);
extern void shard_pause_end(ShardLocalType *local);

/* Until when a shard waits; 0: it does not. */
extern TimestampTz shard_pause_search(const ShardLocalType *local, int shard);

static inline TimestampTz
shard_pause_until(const ShardLocalType *local, int shard)
{
	return likely(dlist_is_empty(&shard_turn.pauses) && !shard_replica_any())
			   ? 0
			   : shard_pause_search(local, shard);
}

/* ---- history.c: failures of an entity --------------------------------------------------------- */

/* How many of the entity's failures were judged in the last microseconds. */
extern int shard_history_count(const ShardEntity *entity, int64 window);

/* Notes one; pause: in microseconds, with a retry or a pause of the shard. And a start; pause 0: it was the last. */
extern void
shard_history_note(ShardEntity *entity, const ErrorData *error, const ShardEntityFailure *failure,
				   ShardEntityVerdict verdict, int64 pause);
extern void
shard_history_note_start(ShardEntity *entity, const ErrorData *error, int attempts, int64 pause);

/* At a backup: stores one that the shard's home has noted; ago_us is a time of the calendar, as in records. */
extern void
shard_history_store(const ShardType *type, int32 shard, const ShardCopyHistory *history);

/* ---- decider.c: the type's own word on a failure ---------------------------------------------- */

/* Asks the decider. False: there is none, or it has left the decision to the setting, or could not be asked. */
extern bool shard_decider_ask(ShardEntity *entity, const ErrorData *error, int attempts,
							  ShardEntityDecision *decision);

/* ---- call.c: the handler is called, under a timer --------------------------------------------- */

/* Calls the handler with one message: sets the entity's state, execution's reply. */
extern void shard_call_message(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
							   ShardExecution *execution);

/* The message's number, by the type's ordered_by; false: it has none. */
extern bool shard_call_ordered_by(ShardEntity *entity, const ShardRow *row, int64 *number);

/* Calls a batch handler with the messages kept for the entity. */
extern void shard_call_batch(ShardEntity *entity);

/* Makes rows that the turn wrote, a handler or the entity's own, visible to what comes next. */
extern void shard_call_make_visible(void);

/* Keeps a message for the batch handler. */
extern void shard_call_collect(ShardEntity *entity, const ShardRow *row);

/* At start: handlers' timer. */
extern void shard_call_init(void);

/*
 * Code of a type's owner that is no handler, as triggers, casts and what planning folds, runs between these two: it is
 * under the type's handler_timeout, too. Nested calls count as one. After an error shard_call_aborted() ends it.
 */
extern void shard_call_watch(const ShardType *type);
extern void shard_call_watched(void);

/*
 * What messages of the turn did elsewhere is committed, until shard_call_commit_over(), under the limit of the type;
 * the watch also ends with shard_call_watched(). alone: code of one message alone ran, of that shard, with that seq.
 */
extern void shard_call_watch_commit(const ShardType *type, bool alone, int64 seq,
									ShardShardKey shard, ShardStuckNumber number);
extern void shard_call_commit_over(void);

/* Closes a type's state table, whose after-triggers fire. */
extern void shard_call_close(ShardLocalType *local);

/* The timer's part of shard_turn_sleep(), shard_turn_explain() and shard_turn_aborted(). */
extern void shard_call_sleep(void);
extern void shard_call_explain(ErrorData *error);
extern void shard_call_aborted(void);

/*
 * Whether an administrator or a backend cancelled what the worker ran, which is not the handler's fault. To be asked
 * before the function above.
 */
extern bool shard_call_was_cancelled(const ErrorData *error);

/* Between turns: frees what a large message has left. */
extern void shard_call_forget_large(void);

/* ---- execution.c: the handler that runs ------------------------------------------------------- */

/* The value of shard_execution_current(). */
extern ShardExecution *shard_execution;

/* Start of a region worker: a handler may be running in it at any time. */
extern void shard_execution_init(void);

/* ---- turn_limit.c: how much of what the turn may take ----------------------------------------- */

/* Messages of more bytes may add so much to the memory of a turn that each is looked at. */
#define SHARD_TURN_SMALL_BYTES 1024

/* A message begins. After one that is not small, memory and clock are looked at, whatever becomes of the message. */
static inline void
shard_turn_begin_message(const ShardRow *row)
{
	shard_turn.count++;
	shard_turn.passed = true;
	if (row->payload_len > SHARD_TURN_SMALL_BYTES)
	{
		shard_turn.look = true;
		shard_turn.read_each = 1;
	}
}

/* Whether the type's messages wait for a later turn, since it has used up its share of the worker's time (E27). */
static inline bool
shard_turn_puts_off(const ShardLocalType *local)
{
	return unlikely(local->share.clock > shard_turn.fair_line);
}

/* Something of the type was put off for that; and the type has something in the turn. */
extern void shard_turn_note_put_off(ShardLocalType *local);
extern void shard_turn_join(ShardLocalType *local);

/* The turn begins to be measured; and code of the type has run since then, in so many calls. */
extern void shard_turn_measure_begin(void);
extern void shard_turn_measure(ShardLocalType *local, int calls);

/* ---- cache.c: entities in memory -------------------------------------------------------------- */

/* Creates the cache. */
extern void shard_cache_init(void);

/* Finds an entity. If there is none: makes one if make is set, else returns NULL. */
extern ShardEntity *
shard_cache_get(struct ShardLocalType *local, int shard, const char *id, int id_len, bool make);

/* Takes over the turn's copy of an entity: its state moves into cache memory. */
extern void shard_cache_keep(ShardEntity *entity);

/* Drops the saved copy, so that the state is read again. */
extern void shard_cache_forget(ShardEntity *entity);

/* Gives an entity its ordering. */
extern void shard_cache_make_ordering(ShardEntity *entity);

/* Gives an entity a place for its type's strategy of passivation; takes it away. */
extern void shard_cache_make_place(ShardEntity *entity);
extern void shard_cache_drop_place(ShardEntity *entity);

/* Removes an entity, of which nothing may wait. */
extern void shard_cache_remove(ShardEntity *entity);

/* Bytes that one turn may add, not counting those of its last message. */
extern Size shard_cache_turn_limit(void);

/* Calls visit for each entity; it may not remove any. */
extern void shard_cache_each(void (*visit)(ShardEntity *entity, void *arg), void *arg);

/* How far a walk over all entities has come; all 0: it begins. It begins again when the cache has grown. */
typedef struct ShardCacheWalk
{
	uint64 size;
	uint64 left;
} ShardCacheWalk;

/* The same for the entities in this number of places of the cache. False: all were visited. */
extern bool shard_cache_some(ShardCacheWalk *walk, int places,
							 void (*visit)(ShardEntity *entity, void *arg), void *arg);

/* ---- local_type.c: types in memory ------------------------------------------------------------ */

/* Shards whose counts are allocated together: a type may have many that this worker never meets. */
#define SHARD_LOCAL_PAGE 256

/* The counts of a shard, made at first use; NULL if nothing was counted; and their end, with a type that has gone. */
extern ShardShardCount *shard_local_count(ShardLocalType *local, int shard);
extern const ShardShardCount *shard_local_counted(const ShardLocalType *local, int shard);
extern void shard_local_forget_counts(ShardLocalType *local);

/* The type in this worker, NULL: it knows none. The first makes it on first use; the second needs no transaction. */
extern ShardLocalType *shard_local_get(int32 type_id);
extern ShardLocalType *shard_local_known(int32 type_id);

/* Whether the type has been dropped, or started again, since the worker last read what is held of it. */
extern bool shard_local_is_another(const ShardLocalType *local);

/* Calls visit for each type in this worker. */
extern void shard_local_each(void (*visit)(ShardLocalType *local, void *arg), void *arg);

/* Whether this process is the keeper, in which no type runs, so that no user code does (W5). */
extern bool shard_local_keeps(void);

/* Whether the keeper has the type only until a worker of the type's owner has started, for which there is a place. */
extern bool shard_local_awaits_worker(const ShardLocalType *local);

/* What bars the type's code from running at all, whatever the message; palloc'd, NULL: nothing. */
extern char *shard_local_problem(const ShardType *type, int *sqlstate);

/* The same; or that it could not be stopped, or crashed the server, again and again. */
extern char *shard_local_suspends(const ShardType *type, int *sqlstate);

/* Looks whether the type can run, once per registry generation; stores a changed problem. Needs a snapshot. */
extern void shard_local_refresh(ShardLocalType *local);

#include "entity/life.h"
#include "entity/timer_turn.h"
#include "entity/turn_log.h"
