/*
 * executor.h
 *		Runs handlers: entities in memory, a turn's messages, isolation, replies.
 */
#pragma once

#include "lib/stringinfo.h"
#include "utils/jsonb.h"
#include "utils/elog.h"

#include "entity_cache.h"
#include "log.h"
#include "ring.h"

/* What the handler that is running may ask about; NULL outside of handlers. */
typedef struct ShardExecution
{
	ShardEntity *entity;
	const ShardRow *message; /* NULL: an ask */
	const ShardRequest *ask; /* NULL: a tell */
	bool batch;				 /* several messages: no sender, id or reply */
	bool replied;
	bool trial;			  /* shard_try: nothing is kept */
	char *reply;		  /* jsonb, palloc'd in the turn's memory; NULL: none */
	List *told;			  /* trial: what it told, instead of sending (trial.c) */
	MemoryContext memory; /* of the reply */
	bool stop;			  /* shard_stop(), shard_passivate() */
	bool passivate;
} ShardExecution;

extern ShardExecution *shard_executor_current(void);

/* A trial begins; NULL: has ended, however it ended. Not in a region worker. */
extern void shard_executor_set_current(ShardExecution *execution);

/* Whether a handler may be running: in a region worker, or in a trial. */
extern bool shard_executor_in_handler(void);

/* Start of a worker, with these lanes: memory, timer, what a worker before it got stuck in. */
extern void shard_executor_init(uint32 lanes);

/* The entities of these lanes with rows in the stash, or waiting for their number; in a transaction. */
extern void shard_executor_load_stash(uint32 lanes);

/*
 * A turn. careful: each message runs in a subtransaction and what becomes of a
 * failed one is decided at once; otherwise the first failure raises. Returns
 * whether it is careful: it is so, too, if a message is due that failed before.
 */
extern bool shard_executor_begin(bool careful);

/* Messages that the turn may handle. */
extern void shard_executor_set_limit(int limit);

/* Everything that could be read at that time was looked at, by turns that have committed. */
extern void shard_executor_has_read(TimestampTz until);

/* Whether any entity's stash is due; and when the next one will be, 0: none. */
extern TimestampTz shard_executor_next_due(void);

/* Handles what is due in stashes or by its number, at most limit messages. Returns how many. */
extern int shard_executor_stash(int limit);

/* Handles a row of the log: runs, stashes or buries it. */
extern void shard_executor_row(const ShardRow *row);

/* Stashes a row of a shard that is clearing: it is taken in, and runs when the shard begins anew. */
extern void shard_executor_hold(const ShardRow *row);

/* Whether the type of a row is known here, and has its shard. In a turn. */
extern bool shard_executor_knows(const ShardRow *row);

/* A row was passed that is not for an entity here: it counts for the turn's length. */
extern void shard_executor_pass(void);

/* Ends user code, so that SQL of ours may follow. */
extern void shard_executor_end_user_code(void);

/* A shard has become active in this turn: entities with rows in its stash are to be known. */
extern void shard_executor_load_shard(int32 type_id, int shard);

/* Between turns: a shard is not here any more. Its entities leave memory. */
extern void shard_executor_forget_shard(int32 type_id, int shard);

/* A shard begins anew without its state: its entities have none, and nothing waits for them, in this turn. */
extern void shard_executor_discard(int32 type_id, int shard);

/* Whether an ask may run now, or has to wait for the entity's stash. */
extern bool shard_executor_can_ask(const ShardRequest *request);

/* Runs an ask, in a subtransaction. */
extern void shard_executor_ask(ShardRequest *request);

/* Runs batch handlers and writes the states. */
extern void shard_executor_finish(void);

/* Whether no further message may be handled in the turn. */
extern bool shard_executor_is_full(void);

/* Whether the turn has to be written down: a message was passed. */
extern bool shard_executor_has_passed(void);

/*
 * After commit: copies are kept, replies sent. lsn: of the commit,
 * InvalidXLogRecPtr if nothing was written.
 */
extern void shard_executor_committed(XLogRecPtr lsn);

/* After an abort: everything is as after the last commit. */
extern void shard_executor_aborted(void);

/* Messages begun in this turn; of a failed one, the last is to blame if it is blamed. */
extern int shard_executor_count(void);
extern bool shard_executor_blames_last(void);

/* The turn failed because a state row was changed outside: nobody is to blame. */
extern bool shard_executor_was_overtaken(void);

/* An error that ended the turn becomes one about a time-out if it was that. */
extern void shard_executor_explain(ErrorData *error);

/* Handlers' timer: no ticks while the worker sleeps. */
extern void shard_executor_sleep(void);

/* Counters of this worker. */
extern uint64 shard_executor_messages(void);
extern uint64 shard_executor_errors(void);

/*
 * Appends the rows of a report to out, in network byte order:
 * SHARD_REQUEST_ENTITIES, per entity in memory: int32 type_id, int32 shard, int32 state
 * (ShardEntityListing), int64 last_message_at (TimestampTz, 0: none), int64 waiting (messages in the
 * stash), int32 length and bytes of the entity id. SHARD_REQUEST_STATS, per shard with any count: int32
 * type_id, int32 shard, int64 entities, int64 messages_handled, int64 errors.
 */
extern void shard_executor_report(ShardRequestKind kind, StringInfo out);
