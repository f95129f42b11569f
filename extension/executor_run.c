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

/* What happened to a message that was to be run. */
typedef enum Outcome
{
	MESSAGE_DONE,	/* handled */
	MESSAGE_BURIED, /* became a dead letter */
	MESSAGE_RESTS	/* is in the stash; the entity's others wait */
} Outcome;

/* The entity cannot run now: its message waits in the stash. */
static Outcome
rest(ShardEntity *entity, const ShardRow *row, bool from_stash)
{
	shard_turn_end_user_code();
	if (from_stash)
		entity->wait.not_before = shard_turn.now + CONTENDED_PAUSE;
	else
		shard_failure_defer(entity, row, shard_turn.now + CONTENDED_PAUSE, false);
	return MESSAGE_RESTS;
}

/* Runs a message in a careful turn. */
static Outcome
run_careful(ShardEntity *entity, const ShardRow *row, int attempts, bool from_stash)
{
	ShardExecution execution;
	bool overtaken;
	ErrorData *error = run_fenced(entity, row, NULL, &execution, &overtaken);

	if (overtaken)
	{
		shard_cache_forget(entity);
		entity->checked = false;
		entity->now = entity->saved;
		return rest(entity, row, from_stash);
	}
	if (error == NULL)
		return MESSAGE_DONE;
	return shard_failure_dispose(entity, row, attempts, from_stash, error) ? MESSAGE_BURIED
																		   : MESSAGE_RESTS;
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

/* Whether a worker before this one got stuck in the message. */
static bool
is_stuck(const ShardRow *row)
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
static Outcome
bury_stuck(ShardEntity *entity, const ShardRow *row, int attempts, bool from_stash)
{
	ErrorData error = {.sqlerrcode = ERRCODE_QUERY_CANCELED,
					   .message = "the handler ran longer than its handler_timeout, and could not "
								  "be cancelled",
					   .hint = "Do not catch query_canceled in a handler."};

	shard_turn.full = true;
	return shard_failure_dispose(entity, row, attempts, from_stash, &error) ? MESSAGE_BURIED
																			: MESSAGE_RESTS;
}

/* Runs a message as the turn's mode wants it. */
static Outcome
run_message(ShardEntity *entity, const ShardRow *row, int attempts, bool from_stash)
{
	ShardExecution execution;

	if (!shard_turn_check(entity))
		return rest(entity, row, from_stash);
	shard_cache_touch(entity, shard_turn.now);
	if (row->kind == SHARD_KIND_START)
		return MESSAGE_DONE;
	if (row->kind == SHARD_KIND_PASSIVATE)
	{
		entity->let_go = true;
		return MESSAGE_DONE;
	}
	if (is_stuck(row))
		return bury_stuck(entity, row, attempts, from_stash);
	if (shard_turn.careful)
	{
		Outcome outcome = run_careful(entity, row, attempts, from_stash);

		if (outcome != MESSAGE_DONE)
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
	return MESSAGE_DONE;
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

void
shard_executor_row(const ShardRow *row)
{
	ShardRun *run = run_of(row);
	ShardEntity *entity;

	shard_turn.count++;
	shard_turn.passed = true;
	if (run == NULL || row->shard < 0 || row->shard >= run->type->number_of_shards)
	{
		ErrorData error = {.sqlerrcode = ERRCODE_UNDEFINED_OBJECT,
						   .message = "the entity type of the message was dropped",
						   .hint = "Start the type again and send the message anew."};

		shard_turn_end_user_code();
		shard_held_dead_letter(row, 0, &error);
		return;
	}
	entity = shard_turn_entity(run, row);
	if (!run->runnable)
		shard_failure_defer(entity, row, 0, true);
#ifndef SHARD_MUTANT_STASH_OVERTAKEN
	else if (entity->wait.deferred)
		shard_failure_defer(entity, row, 0, false);
#endif
	else
		(void) run_message(entity, row, 0, false);
}

/* Handles what is due in one entity's stash; returns how many messages. */
static int
run_stash(ShardEntity *entity, int limit)
{
	List *rows;
	ListCell *cell;
	int done = 0;
	MemoryContext old;

	shard_turn_end_user_code();
	shard_turn_enlist(entity);
	old = MemoryContextSwitchTo(shard_turn.context);
	rows = shard_held_load(entity->run->type->type_id, entity->shard, entity->id, entity->id_len,
						   limit);
	MemoryContextSwitchTo(old);
	foreach (cell, rows)
	{
		ShardHeld *held = lfirst(cell);
		Outcome outcome;

		/*
		 * The time in memory counts, if there is one: it is over, and never was
		 * farther ahead than max_retry_backoff, unlike that in the row, should
		 * the clock have been set back or the limit lowered (D16).
		 */
		if (held->next_at > shard_turn.now && entity->saved_wait.not_before == 0)
		{
			entity->wait.not_before =
				Min(held->next_at, shard_turn.now + entity->run->type->max_retry_backoff);
			entity->wait.attempts = held->attempts;
			break;
		}
		shard_turn.count++;
		shard_turn.passed = true;
		outcome = run_message(entity, &held->row, held->attempts, true);
#ifdef SHARD_MUTANT_STASH_KEPT
		if (outcome == MESSAGE_DONE)
			outcome = run_message(entity, &held->row, held->attempts, true);
#endif
		if (outcome == MESSAGE_RESTS)
			break;
		if (outcome == MESSAGE_DONE)
		{
			shard_turn_end_user_code();
			shard_held_delete(&held->row);
			entity->wait.waiting--;
			entity->wait.attempts = 0;
		}
		done++;
		if (shard_turn.full)
			break;
	}
	if (done == list_length(rows) && done < limit)
		entity->wait = (ShardWait){0};
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
		if (entity->saved_wait.not_before <= shard_turn.now &&
			shard_turn_ready_run(entity->run->type->type_id) &&
			shard_routing_is_active(entity->run->type->type_id, entity->shard))
			done += run_stash(entity, Min(STASH_ROWS, limit - done));
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
