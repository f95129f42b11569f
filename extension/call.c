/*
 * call.c
 *		Calling handlers: message in, state out, with a timer beside it.
 *
 * A repeating timer looks at a message counter instead of being set for each
 * message. When the same message is seen for longer than its type allows, the
 * query is cancelled, and again at each tick, should the handler catch it. If it
 * goes on for much longer, the process ends as by pg_terminate_backend(), which
 * no handler can catch. What it ran is noted in shared memory, so that the next
 * process gives that message up instead of running it again.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "core/message.h"
#include "executor_private.h"
#include "shmem.h"

#include "compat.h"

#define TICK_MS 50

/* The process ends when a handler ran so many times its handler_timeout, but not before so long. */
#define OVERDUE_TIMES 4
#define OVERDUE_MS 10000

static ShardExecution *current = NULL;
static ShardHandler *called = NULL; /* not come back from yet */

/* read by the signal handler */
static volatile sig_atomic_t calls = 0; /* rises with each call */
static volatile sig_atomic_t running = false;
static volatile sig_atomic_t timed_out = false;
static volatile sig_atomic_t overdue = false; /* the process ends */
static volatile int64 allowed_ms = 0;

static bool ticking = false;
static TimeoutId timer;

/* a message as a jsonb datum; kept, because most are small */
static char *buffer = NULL;
static int buffer_size = 0;

ShardExecution *
shard_executor_current(void)
{
	return current;
}

void
shard_executor_set_current(ShardExecution *execution)
{
	current = execution;
}

/* In the signal handler: counts how long the same call has been seen. */
static void
on_tick(void)
{
	static sig_atomic_t seen = -1;
	static int64 seen_ms = 0;

	if (!running || calls != seen)
	{
		seen = calls;
		seen_ms = 0;
		return;
	}
	seen_ms += TICK_MS;
	if (seen_ms < allowed_ms)
		return;
	timed_out = true;
	InterruptPending = true;
	QueryCancelPending = true;
	if (seen_ms >= Max(OVERDUE_TIMES * allowed_ms, OVERDUE_MS))
		overdue = ProcDiePending = true;
	SetLatch(MyLatch);
}

/* Notes what ran when the process was told to end for it, before it does or goes back to others. */
static void
note_stuck(int code, Datum arg)
{
	const ShardEntity *entity;

	if (!overdue || called == NULL)
		return;
	entity = current->entity;
	if (current->message != NULL)
		pg_atomic_write_u64(
			&shard_shmem_database()
				 ->lane[shard_message_lane(entity->run->type->type_id, entity->shard)]
				 .stuck_seq,
			current->message->seq);
	else if (current->ask == NULL)
		pg_atomic_write_u32(&shard_shmem_my_worker()->batch_stuck, 1);
	ereport(WARNING,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("the handler of entity \"%s\" of type \"%s\" cannot be cancelled, so the "
					"region worker ends",
					entity->id, entity->run->type->name),
			 errhint("Do not catch query_canceled in a handler.")));
	called = NULL;
}

void
shard_call_init(void)
{
	timer = RegisterTimeout(USER_TIMEOUT, on_tick);
	before_shmem_exit(note_stuck, (Datum) 0);
}

static void
start_ticking(void)
{
	if (ticking)
		return;
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
}

void
shard_call_aborted(void)
{
	note_stuck(0, (Datum) 0);
	current = NULL;
	running = false;

	/* functions keep private state in a call that they did not leave normally */
	if (called != NULL)
		shard_handler_free(called);
	called = NULL;

	/* an abort may have disabled it */
	ticking = false;
}

void
shard_call_explain(ErrorData *error)
{
	if (timed_out && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
	{
		error->message = pstrdup("the handler ran longer than its handler_timeout");
		error->hint = pstrdup("Make the handler faster, or raise the limit with shard_alter.");
	}
	timed_out = false;
}

/* A message body as a jsonb datum, in the buffer. */
static Datum
message_datum(const char *payload, int len)
{
	if (buffer_size < len + VARHDRSZ)
	{
		int size = Max(1024, (len + VARHDRSZ) * 2);

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
	ShardRun *run = entity->run;
	ShardCopy *now = &entity->now;
	Datum old = now->state;
	bool had = !now->state_null;

	if (!isnull && !run->by_value)
	{
		MemoryContext caller = MemoryContextSwitchTo(shard_turn.context);

		/* not a pointer into a table of the users, whose value may go */
		now->state = run->length == -1 ? PointerGetDatum(PG_DETOAST_DATUM_COPY(state))
									   : datumCopy(state, false, run->length);
		MemoryContextSwitchTo(caller);
	}
	else
		now->state = state;
	now->state_null = isnull;
	entity->dirty = true;

	/* who runs it in a subtransaction may want it back */
	if (had && !run->by_value && !shard_turn.fenced && old != entity->saved.state)
		pfree(DatumGetPointer(old));
}

/* What the handler wrote is to be seen by the next one. */
static void
make_visible(void)
{
	CommandCounterIncrement();
	UpdateActiveSnapshotCommandId();
}

/* User code begins to run, under the timer. */
static void
enter(const ShardRun *run, ShardHandler *function, ShardExecution *execution)
{
	start_ticking();
	allowed_ms = run->type->handler_timeout / 1000;
	calls++;
	current = execution;
	called = function;
	running = true;
}

/* It has come back. */
static void
leave(void)
{
	if (overdue)
		CHECK_FOR_INTERRUPTS();
	running = false;
	called = NULL;
	current = NULL;
}

/* What the handler asked for the entity. */
static void
heed(ShardEntity *entity, const ShardExecution *execution)
{
	if (execution->stop || execution->passivate)
		entity->let_go = true;
	if (execution->stop)
		entity->now.remembered = false;
	if (entity->ordering != NULL)
		entity->ordering->ended = execution->stop && entity->now.state_null;
}

/* The call itself, as the type's owner, under the timer. */
static void
call(ShardEntity *entity, Datum message, ShardExecution *execution)
{
	ShardRun *run = entity->run;
	Datum state;
	bool isnull;

	shard_security_begin(&shard_turn.security, run->type);
	if (!shard_handler_valid(&run->handler))
		shard_handler_compile(&run->handler, run->type);
	enter(run, &run->handler, execution);
	state = shard_handler_call(&run->handler, entity->now.state, entity->now.state_null, message,
							   &isnull);
	leave();
	set_state(entity, state, isnull);
	if (execution->ask != NULL && !execution->replied && !isnull)
	{
		Datum json = shard_handler_state_to_jsonb(&run->handler, entity->now.state);

		execution->reply =
			MemoryContextAlloc(shard_turn.context, VARSIZE_ANY(DatumGetPointer(json)));
		memcpy(execution->reply, DatumGetPointer(json), VARSIZE_ANY(DatumGetPointer(json)));
	}
	make_visible();
}

bool
shard_call_ordered_by(ShardEntity *entity, const ShardRow *row, int64 *number)
{
	ShardRun *run = entity->run;
	ShardExecution execution = {.entity = entity,
								.message = row,
								.batch = true,
								.memory = shard_turn.context};
	bool numbered;

	shard_security_begin(&shard_turn.security, run->type);
	if (!shard_handler_valid(&run->ordered_by))
		shard_handler_compile_ordered_by(&run->ordered_by, run->type);
	enter(run, &run->ordered_by, &execution);
	numbered = shard_handler_call_ordered_by(&run->ordered_by,
											 message_datum(row->payload, row->payload_len), number);
	leave();
	if (numbered && *number == PG_INT64_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("ordered_by of entity type \"%s\" returned a number that has no successor",
						run->type->name),
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
	if (entity->run->type->batch)
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
	ShardExecution execution = {.entity = entity, .batch = true};
	MemoryContext old;
	Datum messages;

	if (entity->batch_count == 0)
		return;
	old = MemoryContextSwitchTo(shard_turn.context);
	messages = PointerGetDatum(
		construct_array(entity->batch, entity->batch_count, JSONBOID, -1, false, TYPALIGN_INT));
	MemoryContextSwitchTo(old);
	call(entity, messages, &execution);
	pfree(DatumGetPointer(messages));
	for (int i = 0; i < entity->batch_count; i++)
		pfree(DatumGetPointer(entity->batch[i]));
	entity->batch_count = 0;
	heed(entity, &execution);
}
