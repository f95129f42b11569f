/*
 * executor_run.c
 *		Running one message: from the log, from a stash, or an ask.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "executor_private.h"
#include "registry.h"
#include "routing.h"
#include "shmem.h"

#include "compat.h"

/* How long an entity rests whose row somebody holds. */
#define CONTENDED_PAUSE (100 * INT64CONST(1000))

/* Rows of one entity's stash that are read at once. */
#define STASH_ROWS 1000

/* An error made up here, in the turn's memory; its strings are constants. */
static ErrorData *
keep_error(const ErrorData *error)
{
	ErrorData *kept = MemoryContextAlloc(shard_turn.context, sizeof(ErrorData));

	*kept = *error;
	return kept;
}

/* What an ask is told whose type cannot run. */
static ErrorData *
type_problem(void)
{
	ErrorData error = {.sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					   .message = "the entity type cannot run now",
					   .hint = "See column problem of shard_types."};

	return keep_error(&error);
}

/* The reply to an ask, to be sent after commit. */
static void
keep_reply(ShardRequest *request, char *reply, ErrorData *error)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ShardReply *kept = palloc0(sizeof(ShardReply));

	kept->request = request;
	kept->error = error;
	if (reply != NULL)
	{
		kept->data = VARDATA_ANY(reply);
		kept->len = VARSIZE_ANY_EXHDR(reply);
	}
	shard_turn.replies = lappend(shard_turn.replies, kept);
	MemoryContextSwitchTo(old);
}

/* Runs a message in a subtransaction. Returns its error, NULL if it went well; *overtaken: try later. */
static ErrorData *
run_fenced(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
		   ShardExecution *execution, bool *overtaken)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ShardCopy before = entity->now;
	bool dirty = entity->dirty;
	bool let_go = entity->let_go;
	ErrorData *volatile error = NULL;
	int sqlstate;

	*overtaken = false;

	/* what is opened in the subtransaction must be closed in it */
	if (shard_turn.careful)
		shard_state_close(&entity->run->table);
	shard_security_begin(&shard_turn.security, entity->run->type);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(shard_turn.context);
	PG_TRY();
	{
		shard_turn.fenced = true;
		shard_call_message(entity, row, ask, execution);
		if (shard_turn.careful)
		{
			*overtaken = !shard_turn_write(entity);
			shard_state_close(&entity->run->table);
		}
		if (*overtaken)
			RollbackAndReleaseCurrentSubTransaction();
		else
			ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(shard_turn.context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (shard_turn.careful)
			shard_state_forget(&entity->run->table);
		shard_call_aborted();
		shard_call_explain(error);
	}
	PG_END_TRY();
	shard_turn.fenced = false;
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;

	/*
	 * The handler was dropped or changed meanwhile: the message is not to blame.
	 * An ask is not tried later: it may run in an optimistic turn, where going
	 * back to the saved state would undo tells that are not written yet.
	 */
	if (error != NULL && shard_handler_problem(entity->run->type, &sqlstate) != NULL)
	{
		error = row == NULL ? type_problem() : NULL;
		*overtaken = row != NULL;
	}
	if (error != NULL || *overtaken)
	{
		entity->now = before;
		entity->dirty = dirty;
		entity->let_go = let_go;
	}
	return error;
}

ShardOutcome
shard_turn_rest(ShardEntity *entity, const ShardRow *row, bool is_held)
{
	shard_turn_end_user_code();
	if (is_held)
	{
		entity->wait.deferred = true;
		entity->wait.not_before = shard_turn.now + CONTENDED_PAUSE;
	}
	else
		shard_failure_defer(entity, row, shard_turn.now + CONTENDED_PAUSE, false);
	return SHARD_MESSAGE_RESTS;
}

/* Whether an entity's messages have numbers. */
static inline bool
is_ordered(const ShardEntity *entity)
{
#ifdef SHARD_MUTANT_ORDER_IGNORED
	return false;
#else
	return entity->run->type->ordered_by_name != NULL;
#endif
}

/* Runs a message in a careful turn. */
static ShardOutcome
run_careful(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ShardExecution execution;
	bool overtaken;
	ErrorData *error = run_fenced(entity, row, NULL, &execution, &overtaken);

	if (overtaken)
	{
		shard_cache_forget(entity);
		entity->checked = false;
		entity->now = entity->saved;
		return shard_turn_rest(entity, row, is_held);
	}
	if (error == NULL)
		return SHARD_MESSAGE_DONE;
	return shard_failure_dispose(entity, row, attempts, is_held, error) ? SHARD_MESSAGE_GONE
																		: SHARD_MESSAGE_RESTS;
}

/* Messages that workers before this one got stuck in. */
static int64 stuck[SHARD_LANES];
static int stuck_count = 0;

void
shard_turn_init(uint32 lanes)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		int64 seq = pg_atomic_read_u64(&shard_shmem_database()->lane[lane].stuck_seq);

		if ((lanes & (1u << lane)) != 0 && seq != 0)
			stuck[stuck_count++] = seq;
	}
}

bool
shard_turn_is_stuck(const ShardRow *row)
{
	for (int i = 0; i < stuck_count; i++)
		if (stuck[i] == row->seq)
			return true;
	return false;
}

/*
 * Gives up a message whose handler had to be ended with its worker. The turn ends
 * with it: should another message get stuck in the same turn, this one would be
 * forgotten and run again.
 */
static ShardOutcome
bury_stuck(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ErrorData error = {.sqlerrcode = ERRCODE_QUERY_CANCELED,
					   .message = "the handler ran longer than its handler_timeout, and could not "
								  "be cancelled",
					   .hint = "Do not catch query_canceled in a handler."};

	shard_turn.full = true;
	return shard_failure_dispose(entity, row, attempts, is_held, &error) ? SHARD_MESSAGE_GONE
																		 : SHARD_MESSAGE_RESTS;
}

ShardOutcome
shard_turn_run(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ShardExecution execution;

	if (!shard_turn_check(entity))
		return shard_turn_rest(entity, row, is_held);
	shard_cache_touch(entity, shard_turn.now);
	if (row->kind == SHARD_KIND_START)
		return SHARD_MESSAGE_DONE;
	if (row->kind == SHARD_KIND_PASSIVATE)
	{
		entity->let_go = true;
		return SHARD_MESSAGE_DONE;
	}
	if (shard_turn_is_stuck(row))
		return bury_stuck(entity, row, attempts, is_held);
	if (shard_turn.careful)
	{
		ShardOutcome outcome = run_careful(entity, row, attempts, is_held);

		if (outcome != SHARD_MESSAGE_DONE)
			return outcome;
	}
	else if (entity->run->type->batch)
		shard_call_collect(entity, row);
	else
	{
		shard_turn.blames_last = true;
		shard_call_message(entity, row, NULL, &execution);
		shard_turn.blames_last = false;
	}
	entity->handled++;
	return SHARD_MESSAGE_DONE;
}

/*
 * The run of a message's type. Whoever starts a type and tells in one transaction
 * shows us the message a moment before he lets us know of the type.
 */
static ShardRun *
run_of(const ShardRow *row)
{
	ShardRun *run = shard_turn_ready_run(row->type_id);

	if (run != NULL || shard_turn.reloaded)
		return run;
	shard_turn.reloaded = true;
	shard_turn_end_user_code();
	shard_registry_reload();
	return shard_turn_ready_run(row->type_id);
}

bool
shard_executor_knows(const ShardRow *row)
{
	ShardRun *run = run_of(row);

	return run != NULL && row->shard >= 0 && row->shard < run->type->number_of_shards;
}

void
shard_executor_pass(void)
{
	shard_turn.count++;
	shard_turn.passed = true;
}

/* Runs a message of an entity that can run, and what waited for it. */
static void
run_next(ShardEntity *entity, const ShardRow *row)
{
	bool rests;

	if (is_ordered(entity))
	{
		if (shard_ordered_run(entity, row, 0, false) != SHARD_MESSAGE_RESTS)
			(void) shard_ordered_run_ready(entity, &rests);
	}
	else
		(void) shard_turn_run(entity, row, 0, false);
}

/* The message's entity, in the turn; NULL: its type was dropped, and it is a dead letter. */
static inline ShardEntity *
entity_of(const ShardRow *row)
{
	ShardRun *run = run_of(row);

	shard_turn.count++;
	shard_turn.passed = true;
	if (run == NULL || row->shard < 0 || row->shard >= run->type->number_of_shards)
	{
		ErrorData error = {.sqlerrcode = ERRCODE_UNDEFINED_OBJECT,
						   .message = "the entity type of the message was dropped",
						   .hint = "Start the type again and send the message anew."};

		shard_turn_end_user_code();
		shard_held_dead_letter(row, 0, &error);
		return NULL;
	}
	return shard_turn_entity(run, row);
}

void
shard_executor_row(const ShardRow *row)
{
	ShardEntity *entity = entity_of(row);

	if (entity == NULL)
		return;
	if (!entity->run->runnable)
		shard_failure_defer(entity, row, 0, true);
#ifndef SHARD_MUTANT_STASH_OVERTAKEN
	else if (entity->wait.deferred)
		shard_failure_defer(entity, row, 0, false);
#endif
	else
		run_next(entity, row);
}

void
shard_executor_hold(const ShardRow *row)
{
	ShardEntity *entity = entity_of(row);

	if (entity != NULL)
		shard_failure_defer(entity, row, 0, !entity->run->runnable);
}

/* Runs a message of the stash as the entity's type wants it. */
static ShardOutcome
run_held(ShardEntity *entity, const ShardHeld *held)
{
	shard_turn.count++;
	shard_turn.passed = true;
	if (is_ordered(entity))
		return shard_ordered_run(entity, &held->row, held->attempts, true);
	return shard_turn_run(entity, &held->row, held->attempts, true);
}

/*
 * Whether a message has to wait for its next attempt. The time in memory counts, if there is one: it is
 * over, and never was farther ahead than max_retry_backoff, unlike that in the row, should the clock have
 * been set back or the limit lowered (D16).
 */
bool
shard_turn_is_early(ShardEntity *entity, const ShardHeld *held)
{
	if (held->next_at <= shard_turn.now || entity->saved_wait.not_before != 0)
		return false;
	entity->wait.deferred = true;
	entity->wait.not_before =
		Min(held->next_at, shard_turn.now + entity->run->type->max_retry_backoff);
	entity->wait.attempts = held->attempts;
	return true;
}

void
shard_turn_handled(ShardEntity *entity, const ShardRow *row)
{
	shard_turn_end_user_code();
	shard_held_delete(row);
	entity->wait.waiting--;
	entity->wait.attempts = 0;
}

/* Handles an entity's stash, and what waits for its messages; returns how many. */
static int
run_stash(ShardEntity *entity, int limit)
{
	List *rows;
	ListCell *cell;
	int done = 0;
	int gone = 0;
	bool rests = false;
	MemoryContext old;

	shard_turn_end_user_code();
	old = MemoryContextSwitchTo(shard_turn.context);
	rows = shard_held_load(entity->run->type->type_id, entity->shard, entity->id, entity->id_len,
						   limit);
	MemoryContextSwitchTo(old);
	foreach (cell, rows)
	{
		ShardHeld *held = lfirst(cell);
		ShardOutcome outcome;

		if (shard_turn_is_early(entity, held))
			break;
		outcome = run_held(entity, held);
#ifdef SHARD_MUTANT_STASH_KEPT
		if (outcome == SHARD_MESSAGE_DONE)
		{
			shard_turn.count--; /* or no later turn would end before one that failed here */
			outcome = run_held(entity, held);
		}
#endif
		if (outcome == SHARD_MESSAGE_RESTS)
			break;
		if (outcome == SHARD_MESSAGE_DONE)
			shard_turn_handled(entity, &held->row);
		gone++;
		done += 1 + shard_ordered_run_ready(entity, &rests);
		if (rests || done >= limit || shard_turn.full)
			break;
	}
	if (gone == list_length(rows) && gone < limit && !rests)
		entity->wait = (ShardWait){.waiting = entity->wait.waiting};
	return done;
}

/* Handles what is due of one entity; returns how many messages. */
static int
run_due(ShardEntity *entity, int limit)
{
	bool rests;
	int done;

	shard_turn_enlist(entity);
	if (!entity->wait.deferred)
		shard_ordered_time_out(entity);
	done = shard_ordered_run_ready(entity, &rests);
	if (entity->wait.deferred && !rests && done < limit && !shard_turn.full)
		done += run_stash(entity, limit - done);
	return done;
}

int
shard_executor_stash(int limit)
{
	int done = 0;
	dlist_iter iter;

	dlist_foreach (iter, &shard_turn.due)
	{
		ShardEntity *entity = dlist_container(ShardEntity, due, iter.cur);

		if (done >= limit || shard_turn.full)
			break;
		if (shard_turn_due_at(entity) <= shard_turn.now &&
			shard_turn_ready_run(entity->run->type->type_id) && entity->run->runnable &&
			shard_routing_is_active(entity->run->type->type_id, entity->shard))
			done += run_due(entity, Min(STASH_ROWS, limit - done));
	}
	return done;
}

bool
shard_executor_can_ask(const ShardRequest *request)
{
	ShardRun *run = shard_turn_ready_run(request->type_id);
	ShardEntity *entity;

	if (run == NULL || !run->runnable)
		return true; /* it is told so */
	entity = shard_cache_get(run, request->shard, request->entity, request->entity_len, false);
	return entity == NULL || !entity->wait.deferred;
}

void
shard_executor_ask(ShardRequest *request)
{
	ShardRun *run = shard_turn_ready_run(request->type_id);
	ShardEntity *entity;
	ShardExecution execution = {0};
	ErrorData *error = NULL;
	bool overtaken = false;

	shard_turn.count++;
	if (!shard_ring_begin(request))
		return;
	if (run == NULL || !run->runnable)
	{
		keep_reply(request, NULL, type_problem());
		return;
	}
	entity = shard_cache_get(run, request->shard, request->entity, request->entity_len, true);
	shard_turn_enlist(entity);
	if (shard_turn_check(entity))
	{
		shard_cache_touch(entity, shard_turn.now);
		if (!shard_turn.careful)
			shard_call_batch(entity);
		error = run_fenced(entity, NULL, request, &execution, &overtaken);
	}
	else
		overtaken = true;
	if (overtaken)
	{
		ErrorData locked = {.sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE,
							.message = "another transaction holds the state row of the entity",
							.hint = "Ask again when that transaction has ended."};

		shard_cache_forget(entity);
		entity->checked = false;
		entity->now = entity->saved;
		error = keep_error(&locked);
	}
	if (error != NULL)
	{
		shard_turn.errors++;
		run->count[entity->shard].errors++;
	}
	else
		entity->handled++;
	keep_reply(request, error == NULL ? execution.reply : NULL, error);
}
