/*
 * entity/executor.h
 *		Runs handlers: entities in memory, a turn's messages, isolation, replies.
 */
#pragma once

#include "entity/presence.h"
#include "lib/stringinfo.h"
#include "utils/jsonb.h"
#include "utils/elog.h"

#include "core/base/wire.h"
#include "entity/entity_cache.h"
#include "log/log.h"
#include "shared/ring.h"

/*
 * Where the messages of a turn come from, in the order in which they are taken. Each has its share of the
 * turn's time, and one message at least: none keeps another one waiting for good.
 */
typedef enum ShardSource
{
	SHARD_SOURCE_HELD,	 /* stashes, and what waited for lower numbers */
	SHARD_SOURCE_PARKED, /* what waited for the home of its shard */
	SHARD_SOURCE_LOG,
	SHARD_SOURCE_ASKS,
	SHARD_SOURCES
} ShardSource;

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

/* Has handlers refused what would harm others; from _PG_init. */
extern void shard_executor_hook_init(void);

/* Start of a worker, with these lanes: memory, timer, what a worker before it got stuck in. presence: kept by reference. */
extern void shard_executor_init(ShardLanes lanes, const ShardPresence *presence);

/* The entities of these lanes with rows in the stash, or waiting for their number; in a transaction. */
extern void shard_executor_load_stash(ShardLanes lanes);

/*
 * A turn. careful: each message runs in a subtransaction and what becomes of a
 * failed one is decided at once; otherwise the first failure raises. Returns
 * whether it is careful: it is so, too, if a message is due that failed before.
 */
extern bool shard_executor_begin(bool careful);

/* Messages that the turn may handle. exactly: it goes that far, however long that takes. */
extern void shard_executor_set_limit(int limit, bool exactly);

/*
 * The turn ends with the first message, or ask, whose code runs, whatever it comes from; or with one that is given up. So who
 * fails at its commit is known.
 */
extern void shard_executor_set_single(bool single);

/*
 * The commit of the turn (executor_commit.c): what handlers have begun at other servers is committed there first, under their
 * handler_timeout. Afterwards: of how many messages code ran.
 */
extern void shard_executor_begin_commit(void);
extern int shard_executor_end_commit(void);

/*
 * Before the abort of a turn that failed: of how many messages code ran, if it failed at its commit by what they did; else 0.
 * *overtaken becomes true if somebody cancelled that.
 */
extern int shard_executor_failed_at_commit(const ErrorData *error, bool *overtaken);

/* There was one: it is given up by the error when it is met next, without being run. Returns where it came from. */
extern ShardSource shard_executor_blame(const ErrorData *error);

/* What follows comes from there. */
extern void shard_executor_begin_source(ShardSource source);

/*
 * Whether no further message of the source may be begun in the turn: it has had its limit, or, but for the
 * source's first one, it is large or long enough.
 */
extern bool shard_executor_is_over(void);

/* The same of the time and memory alone, for the source's first message, too. */
extern bool shard_executor_is_late(void);

/* Whether the turn holds as much as it may. */
extern bool shard_executor_is_large(void);

/*
 * Whether messages that could be handled go to the stash from here on in this turn, to make room in the log (D5). They
 * count against buffer_size of their types, whose senders are refused while it is full. Ends with the turn.
 */
extern void shard_executor_put_aside(bool aside);

/* Everything that could be read at that time was looked at, by turns that have committed. */
extern void shard_executor_has_read(TimestampTz until);

/* Whether any entity's stash is due; and when the next one will be, 0: none. */
extern TimestampTz shard_executor_next_due(void);

/* Handles what is due in stashes or by its number: of one entity after the other, in this turn and the next ones. */
extern void shard_executor_run_held(void);

/* Whether it left some of that for the next turn. */
extern bool shard_executor_left_stash(void);

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

/* In a turn: what waits for a shard that begins anew here becomes dead letters. undone: its home here was. */
extern void shard_executor_bury_left(int32 type_id, int shard, bool undone);

/* A shard begins anew without its state: its entities have none, and nothing waits for them, in this turn. */
extern void shard_executor_discard(int32 type_id, int shard);

/* Whether an ask may run now, or has to wait for what is held of the entity and can run. */
extern bool shard_executor_can_ask(const ShardRequest *request);

/* Why not: a sentence. */
extern const char *shard_executor_why_not(const ShardRequest *request);

/* Runs an ask, in a subtransaction. */
extern void shard_executor_ask(ShardRequest *request);

/* Runs batch handlers and writes the states. */
extern void shard_executor_finish(void);

/* Whether the turn has to be written down: a message was passed. */
extern bool shard_executor_has_passed(void);

/*
 * After commit: copies are kept, replies sent. lsn: of the newest commit that they
 * may tell of, this turn's or one before it.
 */
extern void shard_executor_committed(XLogRecPtr lsn);

/* After an abort: everything is as after the last commit. */
extern void shard_executor_aborted(void);

/* Which entity the turn is at, none ("") if many of a type: of one that failed, before shard_executor_aborted. False: no type, either. */
extern bool shard_executor_at(int32 *type_id, const char **entity, int *entity_len);

/*
 * Messages begun in this turn; of a failed one, the last is to blame if it is blamed. Where that came from,
 * and how many had been begun before the first one from there.
 */
extern int shard_executor_count(void);
extern bool shard_executor_blames_last(void);
extern ShardSource shard_executor_source(int *before);

/* The turn failed because a state row was changed outside: nobody is to blame. */
extern bool shard_executor_was_overtaken(void);

/* An error that ended the turn becomes one about a time-out if it was that. */
extern void shard_executor_explain(ErrorData *error);

/*
 * In a turn: so many messages whose type nobody has became dead letters, or were counted and no more; the log says so once it is
 * committed.
 */
extern void shard_executor_strays(int64 kept, int64 counted);

/* The worker is about to sleep: no ticks of the handlers' timer; what the log has not said yet in its minute. */
extern void shard_executor_sleep(void);

/* Counters of this worker. */
extern uint64 shard_executor_messages(void);
extern uint64 shard_executor_errors(void);
extern uint64 shard_executor_recounts(void);

/*
 * In a turn of a worker of these lanes: compares a piece of what memory counts of shard.held with the table, which is
 * right (executor_recount.c), and adds how many messages there were. False: it was the last one, and the next begins
 * anew. Another count turned out to be wrong: it is counted, and logged after commit.
 */
extern bool shard_executor_recount(ShardLanes lanes, int64 *messages);
extern void shard_executor_counted_wrongly(const char *message, const char *detail);

/*
 * Worker: appends the rows of a report to out. SHARD_REQUEST_ENTITIES: per entity in memory, of the types that are the
 * payload, or of all types without a payload, or the one entity that the request names. SHARD_REQUEST_STATS: per shard
 * with any count.
 */
extern void shard_executor_report(const ShardRequest *request, StringInfo out);

/* Backend: adds a type to the payload of SHARD_REQUEST_ENTITIES. */
extern void shard_executor_put_reported_type(StringInfo payload, int32 type_id);

/*
 * Backend: reads one row of SHARD_REQUEST_ENTITIES, or of SHARD_REQUEST_STATS, and puts it into the result (ReturnSetInfo *)
 * of shard.region_entities(), or of shard.region_shards(). For shard_worker_survey(), which tells whether the reader failed.
 */
extern void shard_executor_read_entity(ShardReader *in, int worker, void *result);
extern void shard_executor_read_shard(ShardReader *in, int worker, void *result);
