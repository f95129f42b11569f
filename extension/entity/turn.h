/*
 * entity/turn.h
 *		The way of messages to their entities, in a region worker: turns, deliveries, whole shards.
 *
 * A worker calls shard_turn_init(), and then for each turn, in a transaction of its own: shard_turn_begin(), deliveries
 * of what is due, of rows and of asks, shard_turn_finish(); it commits, and calls shard_turn_committed(), or
 * shard_turn_aborted() instead. Errors are raised, unless it is said otherwise; the region worker rolls the turn back
 * then, and comes again.
 */
#pragma once

#include "lib/stringinfo.h"
#include "utils/elog.h"

#include "core/base/wire.h"
#include "log/log.h"
#include "shared/ring.h"

/* ---- what the worker gives -------------------------------------------------------------------- */

/*
 * Which shards are at this worker: routing knows that and tells the code that handles messages. Routing is above this
 * room; a worker gives its answers at the start, and no other process has any.
 */
typedef struct ShardPresence
{
	/* Whether the shard is active here. If it is not, nothing of its stash may run. In a turn. */
	bool (*is_active)(int32 type_id, int32 shard);

	/* Whether the shard is here, but about to leave or to come. Then nothing of its stash is in memory. */
	bool (*is_moving)(int32 type_id, int32 shard);

	/* Whether memory has what is held of the shard. It does if the shard is active here, stops, or is clearing. */
	bool (*is_here)(int32 type_id, int32 shard);

	/*
	 * In a turn: whether the shard's home is here, so that the turn may change what it has; in which epoch, and the newest
	 * epoch that began without the state of the one before.
	 */
	bool (*home_of)(int32 type_id, int32 shard, int32 *epoch, int32 *lost);
} ShardPresence;

/*
 * At the start of a worker with these lanes: makes its memory and timer, and reads in which messages former workers got
 * stuck. presence: kept by reference.
 */
extern void shard_turn_init(ShardLanes lanes, const ShardPresence *presence);

/* ---- a turn (turn.c) -------------------------------------------------------------------------- */

/*
 * Begins a turn. careful: each message runs in a subtransaction and what becomes of a failed one is decided at once;
 * otherwise the first failure raises. Returns whether the turn is careful: it is, too, if a message is due that failed
 * before.
 */
extern bool shard_turn_begin(bool careful);

/* Runs batch handlers and writes the states. */
extern void shard_turn_finish(void);

/*
 * After commit: keeps the copies, sends the replies. lsn: of the newest commit that replies may depend on, this turn's
 * or an earlier one.
 */
extern void shard_turn_committed(XLogRecPtr lsn);

/* After an abort: everything is as after the last commit. */
extern void shard_turn_aborted(void);

/*
 * The entity that the turn is at, or at which it failed; "": several of a type. False: at no type. After a failure,
 * before shard_turn_aborted.
 */
extern bool shard_turn_at(int32 *type_id, const char **entity, int *entity_len);

/* Whether the turn failed because a state row was changed outside, which is no message's fault. */
extern bool shard_turn_was_overtaken(void);

/* Turns the error that ended the turn into one about a time-out, if a time-out was its cause. */
extern void shard_turn_explain(ErrorData *error);

/* Everything that could be read at that time was looked at, by turns that have committed. */
extern void shard_turn_has_read(TimestampTz until);

/* The worker is about to sleep: stops the handlers' timer, and logs lines that were kept back. */
extern void shard_turn_sleep(void);

/* Counters of this worker. */
extern uint64 shard_turn_messages(void);
extern uint64 shard_turn_errors(void);
extern uint64 shard_turn_recounts(void);

/* ---- how much of what it may take (turn_limit.c) ---------------------------------------------- */

/*
 * Where the messages of a turn come from, in the order in which they are taken. Each has its share of the turn's time,
 * and one message at least: no source keeps another one waiting without end.
 */
typedef enum ShardSource
{
	SHARD_SOURCE_HELD,	 /* stashes, and what waited for lower numbers */
	SHARD_SOURCE_PARKED, /* what waited for the home of its shard */
	SHARD_SOURCE_LOG,
	SHARD_SOURCE_ASKS,
	SHARD_SOURCE_RECOVERY, /* remembered entities that are to start */
	SHARD_SOURCES
} ShardSource;

/* The messages that follow come from this source. */
extern void shard_turn_begin_source(ShardSource source);

/* Messages that the turn may handle. exactly: the turn goes that far, however long that takes. */
extern void shard_turn_set_limit(int limit, bool exactly);

/*
 * The turn ends with the first message, or ask, whose code runs, from whichever source; or with one that is given up.
 * So the message that makes the commit fail is known.
 */
extern void shard_turn_set_single(bool single);

/* How many members the cluster has, as far as known; 0: not known. */
extern void shard_turn_set_members(int members);

/*
 * Whether no further message of the source may be begun in the turn: the source has had its limit, or the turn is large
 * or long enough, which does not count against the source's first message.
 */
extern bool shard_turn_is_over(void);

/* The same by time and memory alone, and for the source's first message, too. */
extern bool shard_turn_is_late(void);

/* Whether the turn has as much in memory as it may. */
extern bool shard_turn_is_large(void);

/* The turn ends before its next message: it holds enough of what only its commit sets free. */
extern void shard_turn_end_soon(void);

/*
 * Whether messages that could be handled go to the stash from here on in this turn, to make room in the log (D5). They
 * count against buffer_size of their types, whose senders are refused while it is full. Ends with the turn.
 */
extern void shard_turn_put_aside(bool aside);

/* Whether messages wait for the next turn alone, since their types have used up their share of the time (E27). */
extern bool shard_turn_has_put_off(void);

/* Counts a row that was passed and is not for an entity here towards the turn's length. */
extern void shard_turn_pass(void);

/* Whether the turn has to be written down: a message was passed. */
extern bool shard_turn_has_passed(void);

/*
 * Messages begun in this turn; whether a failure is the fault of the last of them; the source of that message, and how
 * many had been begun before the first one of that source.
 */
extern int shard_turn_count(void);
extern bool shard_turn_blames_last(void);
extern ShardSource shard_turn_source(int *before);

/* ---- its commit (turn_commit.c) --------------------------------------------------------------- */

/*
 * The commit of the turn (turn_commit.c): what handlers have begun at other servers is committed there first, under
 * their handler_timeout. shard_turn_end_commit, afterwards, returns of how many messages code ran.
 */
extern void shard_turn_begin_commit(void);
extern int shard_turn_end_commit(void);

/*
 * Before the abort of a turn that failed: of how many messages code ran, if it failed at its commit by what they did;
 * else 0. *overtaken becomes true if the commit was cancelled.
 */
extern int shard_turn_failed_at_commit(const ErrorData *error, bool *overtaken);

/*
 * If code of one message alone ran: that message is given up with the error when it is met next, without being run.
 * Returns its source.
 */
extern ShardSource shard_turn_blame(const ErrorData *error);

/* ---- deliveries (deliver.c, stash.c, deliver_ask.c) ------------------------------------------- */

/* Handles a row of the log: runs, stashes or buries it. */
extern void shard_deliver_row(const ShardRow *row);

/* A row of kind TOUCHED, of a shard whose home is here (Q33). */
extern void shard_deliver_touched(const ShardRow *row, bool clearing);

/* Stashes a row of a shard that is clearing: it is taken in, and runs when the shard begins again. */
extern void shard_deliver_to_stash(const ShardRow *row);

/* Whether the type of a row is known here, and has its shard. In a turn. */
extern bool shard_deliver_knows(const ShardRow *row);

/* Handles what is due in stashes or by its number: one entity after the other, in this turn and the next ones. */
extern void shard_stash_run_due(void);

/* Whether the stash left some due messages for the next turn. */
extern bool shard_stash_is_left(void);

/* When the next stash of an entity is due; 0: none. */
extern TimestampTz shard_stash_next_due(void);

/* Whether an ask may run now, or has to wait for what is held of the entity and can run. */
extern bool shard_deliver_can_ask(const ShardRequest *request);

/* Why the ask may not run now, as a sentence. */
extern const char *shard_deliver_why_not(const ShardRequest *request);

/* Runs an ask, in a subtransaction. False: it waits, since its type has used up its share by now. */
extern bool shard_deliver_ask(ShardRequest *request);

/*
 * In a turn: of messages whose type is not here, kept ones became dead letters, and counted ones were only counted; the
 * server's log says so once the turn is committed.
 */
extern void shard_turn_count_strays(int64 kept, int64 counted);

/* ---- timers of entities (timer_due.c) ---------------------------------------------------------- */

/*
 * At the end of a turn: appends a message for each timer of active shards that is due, not more than fit into a turn, and
 * none as long as those of a turn before are not met. Returns whether there were any, so that the turn has to be
 * written down.
 */
extern bool shard_timer_fire(bool met);

/* Up to which seq of the log such messages were appended by turns that have committed; 0: all of them were met. */
extern int64 shard_timer_on_its_way(void);

/* In a turn: a shard has become active here, maybe with timers that are due. */
extern void shard_timer_due_again(int32 type_id, int32 shard);

/* After the commit. last: a seq behind all that the turn has appended so. */
extern void shard_timer_due_committed(int64 last);

/* When the next timer is due; 0: none is known. */
extern TimestampTz shard_timer_next_due(void);
/* ---- remembered entities (recovery.c) --------------------------------------------------------- */

/* Starts some of those that are to start with their shards, at the end of a turn. */
extern void shard_recovery_run(void);

/* Between turns: what is to be started waits no longer where the clock was set back. */
extern void shard_recovery_follow_clock(void);

/* When others are to be started, which may be now; infinity: there are none. */
extern TimestampTz shard_recovery_next_due(void);

/* ---- whole shards (residents.c) --------------------------------------------------------------- */

/*
 * At start: loads the entities of these lanes that have rows in the stash, or messages that wait for their number. In a
 * transaction.
 */
extern void shard_residents_load_all(ShardLanes lanes);

/* A shard has become active in this turn: loads its entities that have rows in the stash. */
extern void shard_residents_load(int32 type_id, int shard);

/* The same for a shard that has its first home. */
extern void shard_residents_begin(int32 type_id, int shard);

/* A shard has become active in this turn: its remembered entities are to start. */
extern void shard_residents_arrive(int32 type_id, int shard);

/* Between turns: a shard is not here any more. Its entities leave memory. */
extern void shard_residents_forget(int32 type_id, int shard);

/* In a turn: what waits for a shard that begins again here becomes dead letters. undone: its home here was undone. */
extern void shard_residents_bury(int32 type_id, int shard, bool undone);

/* A shard begins again without its state: from this turn on its entities have none, and nothing waits for them. */
extern void shard_residents_discard(int32 type_id, int shard);

/* ---- what memory counts (recount.c) ----------------------------------------------------------- */

/*
 * In a turn of a worker of these lanes: compares a piece of what memory counts of shard.held with the table, which is
 * right (recount.c), and adds how many messages there were. False: it was the last piece, and the next call begins
 * again at the first. The second function: another count turned out to be wrong; that is counted, and logged after
 * commit.
 */
extern bool shard_recount_some(ShardLanes lanes, int64 *messages);
extern void shard_recount_differs(const char *message, const char *detail);

/* ---- entities in memory (cache.c) ------------------------------------------------------------- */

extern int64 shard_cache_entities(void);
extern int64 shard_cache_bytes(void);

/* Between turns: removes entities that were idle for too long. Returns when to look again, 0: never. */
extern TimestampTz shard_cache_passivate(TimestampTz now);

/* ---- what is in memory, for views (report.c) ------------------------------------------------- */

/*
 * Worker: appends the rows of a report to out. SHARD_REQUEST_ENTITIES: per entity in memory, of the types that are the
 * payload, or of all types without a payload, or the one entity that the request names. SHARD_REQUEST_STATS: per shard
 * with any count.
 */
extern void shard_report_append(const ShardRequest *request, StringInfo out);

/* Backend: adds a type to the payload of SHARD_REQUEST_ENTITIES. */
extern void shard_report_put_type(StringInfo payload, int32 type_id);

/*
 * Backend: reads one row of SHARD_REQUEST_ENTITIES, or of SHARD_REQUEST_STATS, and puts it into the result (ReturnSetInfo *)
 * of shard.region_entities(), or of shard.region_shards(). For shard_worker_survey(), which tells whether the reader failed.
 */
extern void shard_report_read_entity(ShardReader *in, int worker, void *result);
extern void shard_report_read_shard(ShardReader *in, int worker, void *result);
