/*
 * entity/call.c
 *		Calling handlers: message in, state out, with a timer beside it.
 *
 * Comes from: handle.c, for a message or an ask; turn.c, for a batch at the end of the turn; order.c, for a number.
 * Goes to: handler.c, as the type's owner; what the handler returns is entity->now, which turn_entity.c writes.
 *
 * A repeating timer looks at a message counter instead of being set for each
 * message. When the same message is seen for longer than its type allows, the
 * query is cancelled, and again at each tick, should the handler catch it. If it
 * goes on for much longer, the process ends as by pg_terminate_backend(), which
 * no handler can catch. What it ran is noted in shared memory, so that the next
 * process gives that message up instead of running it again. The same is done when an
 * error of the call ends the process.
 *
 * All else that runs for a type, while states are read and written and functions
 * are planned, is watched in the same way (shard_call_watch): triggers, casts,
 * defaults and what is folded when a query is planned are the owner's code, too.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "core/base/message.h"
#include "core/base/text.h"
#include "entity/crash.h"
#include "entity/internal.h"
#include "entity/request.h"
#include "shared/shmem.h"
#include "shared/worker_cancel.h"
#include "shared/worker_log.h"

#include "base/compat.h"

#define TICK_MS 50

/* A call that takes longer than this is published for other processes. */
#define LONG_MS 1000

/* While a lock is waited for the timer rests until there is something to do, but not for longer than this. */
#define LONGEST_REST_MS (60 * 60 * 1000)

/* The process ends when a handler ran for this many times its handler_timeout, and for OVERDUE_MS at least. */
#define OVERDUE_TIMES 4
#define OVERDUE_MS 10000

/*
 * The call that has not come back yet. A copy: shard_execution is NULL while an extractor runs within the handler, and in
 * ordered_by, and points to data in a frame that is gone after an error. Signal handlers read nothing else.
 */
static struct
{
	ShardHandler *function; /* NULL: there is none */
	const ShardEntity *entity;
	bool is_ask;
	int64 seq; /* of the message; 0: an ask, or a batch */
	const ShardType
		*type; /* when function is NULL: type of which other code than a handler runs; NULL: none */
} called;

/* What messages of the turn did elsewhere is being committed; alone: of one message of that shard, with this seq. */
static struct
{
	bool begun;
	bool alone;
	int64 seq;
	ShardShardKey shard;
	ShardStuckNumber number;
} commit;

/* read by the signal handler */
static volatile sig_atomic_t calls = 0; /* rises with each call */
static volatile sig_atomic_t running = false;
static volatile sig_atomic_t timed_out = false;
static volatile sig_atomic_t overdue = false; /* the process ends */
static bool fatal = false;					  /* so it does, by an error of the call */
static volatile int64 allowed_ms = 0;

static int watching = 0; /* depth of shard_call_watch() */

static bool ticking = false;
static volatile sig_atomic_t resting = false; /* since a lock is waited for, or was */
static volatile int64 tick_ms = TICK_MS;	  /* the time that the next tick stands for, in ms */
static TimeoutId timer;

/* a message as a jsonb datum; kept, because most are not large */
#define LARGE_BYTES (64 * 1024)
static char *buffer = NULL;
static int buffer_size = 0;

/* In the signal handler: the same call has been seen for seen_ms. */
static void
tell_long(int64 seen_ms)
{
	const ShardEntity *entity = called.entity;
	TimestampTz since = GetCurrentTimestamp() - seen_ms * INT64CONST(1000);

	if (called.function != NULL)
		shard_shmem_call_is_long(shard_shmem_my_worker(), since, entity->local->type->type_id,
								 entity->id, entity->id_len);
	else if (called.type != NULL)
		shard_shmem_call_is_long(shard_shmem_my_worker(), since, called.type->type_id, "", 0);
}

/*
 * In the signal handler: the same call has been seen for seen_ms and goes on. Each SIGALRM sets the latch of the
 * process, and with log_lock_waits a process that waits for a lock writes a line when its latch is set: a wait is left
 * alone until its time is over.
 */
static void
set_next_tick(int64 seen_ms)
{
	bool waits = MyProc->waitStatus == PROC_WAIT_STATUS_WAITING && seen_ms < allowed_ms;
	TimestampTz now;

	if (!waits && !resting)
		return;
	now = GetCurrentTimestamp();
	resting = waits;
	tick_ms = waits ? Min(allowed_ms - seen_ms, LONGEST_REST_MS) : TICK_MS;
	if (waits)
		enable_timeout_at(timer, TimestampTzPlusMilliseconds(now, tick_ms));
	else
		/* the repeating timer is set again after this, a tick later */
		enable_timeout_every(timer, now, TICK_MS);
}

/* In the signal handler: counts how long the same call has been seen, and has the clock read (turn_limit.c). */
static void
on_tick(void)
{
	static sig_atomic_t seen = -1;
	static int64 seen_ms = 0;
	static bool told = false;

	shard_turn.ticked = true;
	if (calls != seen)
		shard_shmem_turn_goes_on(shard_shmem_my_worker());
	if (!running || calls != seen)
	{
		seen = calls;
		seen_ms = 0;
		told = false;
		shard_shmem_call_ended(shard_shmem_my_worker());
	}
	else
		seen_ms += tick_ms;
	if (!running)
		return;
	set_next_tick(seen_ms);
	/* there may be no other tick before its time is over */
	if (!told && (seen_ms >= LONG_MS || resting))
	{
		told = true;
		tell_long(seen_ms);
	}
	if (seen_ms < allowed_ms)
		return;
	timed_out = true;
	InterruptPending = true;
	QueryCancelPending = true;
	if (seen_ms >= Max(OVERDUE_TIMES * allowed_ms, OVERDUE_MS))
	{
		shard_worker_log_why =
			"a handler ran far beyond its handler_timeout and cannot be cancelled";
		overdue = ProcDiePending = true;
	}
	SetLatch(MyLatch);
}

#define STUCK_REASON "cannot be cancelled"
#define FATAL_REASON "raised an error that ends the process"

/*
 * No handler runs, so it may have been the commit of one message alone; if not, the next process searches for the
 * message.
 */
static void
note_commit(void)
{
	if (!commit.begun || !commit.alone)
	{
		pg_atomic_write_u32(&shard_shmem_my_worker()->batch_stuck, 1);
		return;
	}
	shard_stuck_note(commit.shard, commit.seq, fatal, commit.number);
}

/* Notes what ran when the process was told to end for it, before it does or goes back to others. */
static void
note_stuck(void)
{
	const ShardEntity *entity = called.entity;

	fatal = fatal || shard_worker_log_self;
	if ((!overdue && !fatal) || called.type == NULL)
		return;
	shard_stuck_count(called.type);
	if (called.function == NULL)
	{
		note_commit();
		ereport(
			WARNING,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("what runs for the state table of type \"%s\" %s, so the region worker ends",
					called.type->name, fatal ? FATAL_REASON : STUCK_REASON),
			 fatal ? 0 : errhint("Do not catch query_canceled in triggers, casts and defaults.")));
		called.type = NULL;
		return;
	}
	if (called.seq != 0)
		shard_stuck_note((ShardShardKey){entity->local->type->type_id, entity->shard}, called.seq,
						 fatal, (ShardStuckNumber){shard_turn.numbered, shard_turn.number});
	else if (!called.is_ask)
		pg_atomic_write_u32(&shard_shmem_my_worker()->batch_stuck, 1);
	if (shard_stuck_guest() != NULL)
		ereport(
			WARNING,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg(
				 "an extractor of entity type \"%s\", which the handler of entity \"%s\" of type \"%s\" tells, %s, so the "
				 "region worker ends",
				 shard_stuck_guest()->name, shard_text_shown(entity->id), entity->local->type->name,
				 fatal ? FATAL_REASON : STUCK_REASON)));
	else
		ereport(WARNING,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("the handler of entity \"%s\" of type \"%s\" %s, so the region worker ends",
						shard_text_shown(entity->id), entity->local->type->name,
						fatal ? FATAL_REASON : STUCK_REASON),
				 fatal ? 0 : errhint("Do not catch query_canceled in a handler.")));
	called.function = NULL;
	called.type = NULL;
}

/* No tick may come when the process has given up its place in shared memory (MyProc). */
static void
at_exit(int code, Datum arg)
{
	disable_timeout(timer, false);
	note_stuck();
}

/* In the signal handler of a crash: of which type code runs; false: of none (crash.c). */
static bool
tell_running(ShardCrashCode *code)
{
	code->type = called.type;
	code->seq = called.function != NULL ? called.seq : 0;
	return code->type != NULL;
}

/* In the signal handler of a crash: the entity for which code runs. */
static void
tell_entity(ShardCrashCode *code)
{
	const ShardEntity *entity = called.function != NULL ? called.entity : shard_turn.at;

	if (entity == NULL || entity->local->type != code->type)
		return;
	code->entity = entity->id;
	code->entity_len = entity->id_len;
}

/* An error ends the process, or with PANIC the server. Who is ended by others, and PANIC, say nothing about what runs. */
static void
note_fatal(const ErrorData *error)
{
	if (error->elevel == PANIC)
		called.type = NULL;
	fatal = shard_worker_log_self || ERRCODE_TO_CATEGORY(error->sqlerrcode) !=
										 ERRCODE_TO_CATEGORY(ERRCODE_OPERATOR_INTERVENTION);
}

void
shard_call_init(void)
{
	timer = RegisterTimeout(USER_TIMEOUT, on_tick);
	shard_worker_log_fatal = note_fatal;
	before_shmem_exit(at_exit, (Datum) 0);
	shard_crash_init(tell_running, tell_entity);
}

static void
start_ticking(void)
{
	if (ticking && !resting)
		return;
	resting = false;
	tick_ms = TICK_MS;
	enable_timeout_every(timer, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), TICK_MS),
						 TICK_MS);
	ticking = true;
}

void
shard_call_sleep(void)
{
	if (ticking)
		disable_timeout(timer, false);
	ticking = false;
	resting = false;
	tick_ms = TICK_MS;
	shard_shmem_call_ended(shard_shmem_my_worker());
}

/* Drops a cancel that the timer raised for the call that is over; it must not hit the next call. */
static void
forget_cancel(void)
{
	if (timed_out)
		QueryCancelPending = false;
}

void
shard_call_aborted(void)
{
	note_stuck();
	shard_execution = NULL;
	running = false;
	forget_cancel();

	/* functions keep private state in a call that they did not leave normally */
	if (called.function != NULL)
		shard_handler_free(called.function);
	called.function = NULL;
	called.type = NULL;
	watching = 0;

	/* the worker may rest now, and must not be woken by it */
	shard_call_sleep();
}

#define TIMEOUT_MESSAGE "the handler ran longer than its handler_timeout"
#define COMMIT_TIMEOUT_MESSAGE \
	"the commit of what the handler did elsewhere took longer than its handler_timeout"
#define TIMEOUT_HINT "Make the handler faster, or raise the limit with shard_alter."

/* The server's error of a lock that is not to be had in time; others that have its SQLSTATE are their makers'. */
#define LOCK_MESSAGE "canceling statement due to lock timeout"
#define LOCK_HINT \
	"Another transaction held a lock that the handler needs for longer than " \
	"shard.handler_lock_timeout: keep such transactions short, and ask before you lock what handlers need."

void
shard_call_explain(ErrorData *error)
{
	/* the texts have to live as long as the error, and the current memory may be that of the transaction */
	MemoryContext context = error->assoc_context;

	if (timed_out && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
	{
		error->message =
			MemoryContextStrdup(context, commit.begun ? COMMIT_TIMEOUT_MESSAGE : TIMEOUT_MESSAGE);
		error->hint = MemoryContextStrdup(context, TIMEOUT_HINT);
	}
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && error->hint == NULL &&
		error->message != NULL && strstr(error->message, _(LOCK_MESSAGE)) != NULL)
		error->hint = MemoryContextStrdup(context, LOCK_HINT);
	forget_cancel();
	timed_out = false;
}

bool
shard_call_was_cancelled(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED && !timed_out && shard_worker_cancel_take();
}

void
shard_call_forget_large(void)
{
	if (buffer_size <= LARGE_BYTES)
		return;
	pfree(buffer);
	buffer = NULL;
	buffer_size = 0;
}

/* A message body as a jsonb datum, in the buffer. */
static Datum
message_datum(const char *payload, int len)
{
	if (buffer_size < len + VARHDRSZ)
	{
		int size = Max(LARGE_BYTES, len + VARHDRSZ);

		if (buffer != NULL)
			pfree(buffer);
		buffer = NULL;
		buffer = MemoryContextAlloc(TopMemoryContext, size);
		buffer_size = size;
	}
	SET_VARSIZE(buffer, len + VARHDRSZ);
	memcpy(VARDATA(buffer), payload, len);
	return PointerGetDatum(buffer);
}

/* Takes the handler's result as the entity's state. */
static void
set_state(ShardEntity *entity, Datum state, bool isnull)
{
	ShardLocalType *local = entity->local;
	ShardCopy *now = &entity->now;
	Datum old = now->state;
	bool had = !now->state_null;

	if (!isnull && !local->by_value)
	{
		MemoryContext caller = MemoryContextSwitchTo(shard_turn.context);

		/* not a pointer into a table of the users, whose value may go */
		state = local->length == -1 ? PointerGetDatum(PG_DETOAST_DATUM_COPY(state))
									: datumCopy(state, false, local->length);
		MemoryContextSwitchTo(caller);
		shard_state_check_result(&local->parts, state);
	}
	now->state = state;
	now->state_null = isnull;
	entity->dirty = true;

	/* code that runs it in a subtransaction may want it back */
	if (had && !local->by_value && !shard_turn.fenced && old != entity->saved.state)
		pfree(DatumGetPointer(old));
}

/* Comment: internal.h. */
void
shard_call_make_visible(void)
{
	CommandCounterIncrement();
	UpdateActiveSnapshotCommandId();
}

/* Sets the timer from its start, for a type's code. */
static void
set_timer(const ShardType *type)
{
	start_ticking();
	allowed_ms = type->handler_timeout / 1000;
	calls++;
	shard_turn.look = true;
	timed_out = false;
}

/*
 * It has come back. If it took too long it has failed, whether or not it looked at the cancel: this is the last
 * place where that is the fault of this message alone.
 */
static void
check_timer(void)
{
	running = false;
	if (resting)
		start_ticking();
	if (overdue || shard_worker_log_self)
		CHECK_FOR_INTERRUPTS();
	if (!timed_out)
		return;
	QueryCancelPending = false;
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED), errmsg(TIMEOUT_MESSAGE), errhint(TIMEOUT_HINT)));
}

void
shard_call_watch(const ShardType *type)
{
	/* a handler's call is watched already */
	if (called.function != NULL || watching++ > 0)
		return;
	set_timer(type);
	called.type = type;
	running = true;
}

void
shard_call_watched(void)
{
	if (called.function != NULL || --watching > 0)
		return;
	check_timer();
	called.type = NULL;
}

void
shard_call_watch_commit(const ShardType *type, bool alone, int64 seq, ShardShardKey shard,
						ShardStuckNumber number)
{
	commit.begun = true;
	commit.alone = alone;
	commit.seq = seq;
	commit.shard = shard;
	commit.number = number;
	shard_call_watch(type);
}

void
shard_call_commit_over(void)
{
	commit.begun = false;
}

void
shard_call_close(ShardLocalType *local)
{
	shard_call_watch(local->type);
	shard_state_close(&local->table);
	shard_call_watched();
}

/* User code begins to run, under the timer. */
static void
enter(const ShardLocalType *local, ShardHandler *function, ShardExecution *execution)
{
	set_timer(local->type);
	shard_execution = execution;
	called.function = function;
	called.type = local->type;
	called.entity = execution->entity;
	called.is_ask = execution->ask != NULL;
	called.seq = execution->message == NULL ? 0 : execution->message->seq;
	running = true;
}

static void
leave(void)
{
	check_timer();
	called.function = NULL;
	called.type = NULL;
	shard_execution = NULL;
}

/* Carries out what the handler asked for its entity: to stop, or to be passivated. */
static void
heed(ShardEntity *entity, const ShardExecution *execution)
{
	if (execution->stop || (execution->passivate && execution->stop_message == NULL))
		shard_remember_forget(entity);
	else if (execution->passivate)
		shard_stop_ask(entity, execution->stop_message);
	if (execution->stop || execution->passivate)
		shard_timer_end_receive(entity);
	if (entity->ordering == NULL && execution->stop && entity->local->type->ordered_by_name != NULL)
		shard_cache_make_ordering(entity);
	if (entity->ordering != NULL)
		entity->ordering->ended = execution->stop && entity->now.state_null;
}

/* The call itself, as the type's owner, under the timer. */
static void
call(ShardEntity *entity, Datum message, ShardExecution *execution)
{
	ShardLocalType *local = entity->local;
	Datum state;
	bool isnull;

	shard_security_begin(&shard_turn.security, local->type);
	if (!shard_handler_valid(&local->handler))
	{
		shard_call_watch(local->type);
		shard_handler_compile(&local->handler, local->type);
		shard_call_watched();
	}
	enter(local, &local->handler, execution);
	state = shard_handler_call(&local->handler, entity->now.state, entity->now.state_null, message,
							   &isnull);
	leave();
	set_state(entity, state, isnull);
	shard_remember_entity(entity);
	if (shard_request_owes_reply(execution) && !isnull)
	{
		Datum json;

		shard_call_watch(local->type);
		json = shard_handler_state_to_jsonb(&local->handler, entity->now.state);
		shard_call_watched();
		execution->reply =
			MemoryContextAlloc(shard_turn.context, VARSIZE_ANY(DatumGetPointer(json)));
		memcpy(execution->reply, DatumGetPointer(json), VARSIZE_ANY(DatumGetPointer(json)));
	}
	shard_call_make_visible();
}

bool
shard_call_ordered_by(ShardEntity *entity, const ShardRow *row, int64 *number)
{
	ShardLocalType *local = entity->local;
	ShardExecution execution = {.entity = entity, .message = row};
	bool numbered;

	shard_security_begin(&shard_turn.security, local->type);
	if (!shard_handler_valid(&local->ordered_by))
	{
		shard_call_watch(local->type);
		shard_handler_compile_ordered_by(&local->ordered_by, local->type);
		shard_call_watched();
	}
	enter(local, &local->ordered_by, &execution);
	shard_execution =
		NULL; /* the entity handles nothing here: it has no timers to make, and nothing to reply to */
	numbered = shard_handler_call_ordered_by(&local->ordered_by,
											 message_datum(row->payload, row->payload_len), number);
	leave();
	if (numbered && *number == PG_INT64_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("ordered_by of entity type \"%s\" returned a number that has no successor",
						local->type->name),
				 errhint("Number the messages of an entity 1, 2, 3 and so on.")));
	return numbered;
}

void
shard_call_message(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
				   ShardExecution *execution)
{
	Datum message = row != NULL ? message_datum(row->payload, row->payload_len)
								: message_datum(ask->payload, ask->payload_len);

	memset(execution, 0, sizeof(*execution));
	execution->entity = entity;
	execution->message = row;
	execution->ask = ask;
	execution->memory = shard_turn.context;
	if (entity->local->type->batch)
	{
		execution->batch = true;
		message = PointerGetDatum(construct_array(&message, 1, JSONBOID, -1, false, TYPALIGN_INT));
	}
	call(entity, message, execution);
	heed(entity, execution);
}

void
shard_call_collect(ShardEntity *entity, const ShardRow *row)
{
	char *copy;

	if (entity->batch_count == entity->batch_capacity)
	{
		entity->batch_capacity = Max(8, entity->batch_capacity * 2);
		if (entity->batch == NULL)
			entity->batch = MemoryContextAlloc(GetMemoryChunkContext(entity),
											   entity->batch_capacity * sizeof(Datum));
		else
			entity->batch = repalloc_huge(entity->batch, entity->batch_capacity * sizeof(Datum));
	}
	copy = MemoryContextAlloc(shard_turn.context, row->payload_len + VARHDRSZ);
	SET_VARSIZE(copy, row->payload_len + VARHDRSZ);
	memcpy(VARDATA(copy), row->payload, row->payload_len);
	entity->batch[entity->batch_count++] = PointerGetDatum(copy);
}

void
shard_call_batch(ShardEntity *entity)
{
	ShardExecution execution = {.entity = entity, .batch = true, .memory = shard_turn.context};
	MemoryContext old;
	Datum messages;

	if (entity->batch_count == 0)
		return;
	old = MemoryContextSwitchTo(shard_turn.context);
	messages = PointerGetDatum(
		construct_array(entity->batch, entity->batch_count, JSONBOID, -1, false, TYPALIGN_INT));
	shard_turn.batched += entity->batch_count;
	MemoryContextSwitchTo(old);
	call(entity, messages, &execution);
	pfree(DatumGetPointer(messages));
	for (int i = 0; i < entity->batch_count; i++)
		pfree(DatumGetPointer(entity->batch[i]));
	entity->batch_count = 0;
	heed(entity, &execution);
}
