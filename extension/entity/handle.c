/*
 * entity/handle.c
 *		A message is handled: at once, or in a fence; or it is not run any more.
 *
 * Comes from: deliver.c, stash.c, order.c: an entity in the turn, and the message that is next for it.
 * Goes to: turn_entity.c, which makes its copy of the state true; call.c, which runs the handler; failure.c, if that failed;
 * queue.c, if the entity cannot run now.
 *
 * Normally handlers run without a subtransaction; the first failure raises, the region worker rolls the turn back and comes
 * again with a smaller one, at last a careful one: each message in a subtransaction of its own, its state written in there, and
 * what becomes of a failed message is decided on the spot. Whatever goes wrong in this fence is undone with it: the effects of
 * user code and what the turn knew of the entity. So the rest of the turn goes on, and the message can be run again or given
 * up in it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/resowner.h"

#include "base/attempt.h"
#include "entity/internal.h"
#include "registry/owner_session.h"
#include "shared/shmem.h"

#include "base/compat.h"

/* ---- plans of a language that an altered type has made wrong ------------------------------------ */

/*
 * A plan is made again when a relation or function that it names changes. It is kept when the type of a variable
 * changes: a PL/pgSQL function that assigns to a field of its composite argument fails after ALTER TYPE ... ALTER
 * ATTRIBUTE for as long as its session lasts, and here the session is the worker, which does not end.
 *
 * So no message is blamed for such an error before plans were made again. Nothing of this is durable.
 */

/* Rises when a relation changes that this process has heard of; and what it was when plans were last made again. */
static uint64 changes = 0;
static uint64 renewed_at = 0;

/* Relcache callback. */
static void
note_change(Datum arg, Oid relid)
{
	changes++;
}

/* Whether the server raises this SQLSTATE for a plan or a value that does not fit its type any more. */
static bool
is_about_types(int sqlstate)
{
	return sqlstate == ERRCODE_DATATYPE_MISMATCH || sqlstate == ERRCODE_FEATURE_NOT_SUPPORTED ||
		   sqlstate == ERRCODE_INTERNAL_ERROR;
}

/*
 * Whether user code may have failed because of a plan made before a relation or type was altered. Then all plans of
 * this process are made again when they are next used, and the code deserves another try. True at most once for each
 * change.
 */
static bool
renew_plans(const ErrorData *error)
{
	if (changes == renewed_at || !is_about_types(error->sqlerrcode))
		return false;
	renewed_at = changes;
	ResetPlanCache();
	return true;
}

/* ---- in a fence --------------------------------------------------------------------------------- */

/* Whether the type itself cannot run as it is now, so that no message of it is to blame. */
static bool
has_problem(const ShardType *type)
{
	int sqlstate;

	return shard_local_problem(type, &sqlstate) != NULL;
}

/*
 * Whether the state could not be written because another transaction has inserted, changed or locked the row since the
 * copy was found to be true.
 */
static bool
was_overtaken(ShardEntity *entity, ShardCopy *found)
{
	ShardLocalType *local = entity->local;
	bool result;

	shard_security_begin(&shard_turn.security, local->type);
	result = shard_state_open(&local->table, local->type) &&
			 shard_state_is_overtaken(&local->table, entity, found);
	shard_state_close(&local->table);
	return result;
}

/* A command to an entity, whose copy is true: to start, or to leave. */
static void
run_command(ShardEntity *entity, const ShardRow *row)
{
	if (row->kind == SHARD_KIND_START)
	{
		shard_start_run(entity);
		return;
	}
	if (entity->local->type->batch)
		shard_call_batch(entity);
	shard_remember_forget(entity);
}

/*
 * The part that runs in the subtransaction: in a careful turn all steps, from reading the state to writing it. False:
 * another transaction has the row locked, or changed it.
 */
static bool
run_in_fence(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
			 ShardExecution *execution, ShardCopy *found)
{
	bool good = shard_turn_check(entity);

	if (good && (row == NULL || shard_kind_is_message(row->kind)))
	{
		if (shard_start_is_due(entity))
			shard_start_run(entity);
		shard_call_message(entity, row, ask, execution);
	}
	else if (good)
		run_command(entity, row);
	if (!shard_turn.careful)
		return good;
	*found = entity->now;
	good = good && shard_turn_write(entity);
	shard_call_close(entity->local);
	return good;
}

/* Runs a message in a subtransaction. Returns its error, NULL if it went well; *overtaken: try later. */
static ErrorData *
run_fenced(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
		   ShardExecution *execution, bool *overtaken)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	static ShardCopy found; /* before it was written; known: it was tried */
	ShardCopy before = entity->now;
	bool checked = entity->checked;
	bool dirty = entity->dirty;
	ShardEntityState life = entity->life;
	bool started = entity->started;
	ErrorData *volatile error = NULL;
	volatile bool cancelled = false;

	*overtaken = false;
	found.known = false;

	/* a table that is opened in the subtransaction must be closed in it */
	shard_security_begin(&shard_turn.security, entity->local->type);
	if (shard_turn.careful)
		shard_state_close(&entity->local->table);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(shard_turn.context);
	PG_TRY();
	{
		shard_turn.fenced = true;
		*overtaken = !run_in_fence(entity, row, ask, execution, &found);
		shard_owner_session_tidy();
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
		shard_attempt_cut_error(error);
		RollbackAndReleaseCurrentSubTransaction();
		if (shard_turn.careful)
			shard_state_forget(&entity->local->table);
		cancelled = shard_call_was_cancelled(error);
		shard_call_aborted();
		shard_call_explain(error);
	}
	PG_END_TRY();
	shard_turn.fenced = false;
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;

	/*
	 * The type was changed meanwhile, or the row, or the worker was cancelled: the message is not to blame. An ask is
	 * not tried later: it may run in an optimistic turn, where going back to the saved state would undo tells that are
	 * not written yet.
	 */
	if (error != NULL && has_problem(entity->local->type))
	{
		error = row == NULL ? shard_failure_of_type(entity->local->type) : NULL;
		*overtaken = row != NULL;
	}
	else if (error != NULL &&
			 ((cancelled && row != NULL) || (found.known && was_overtaken(entity, &found))))
	{
		error = NULL;
		*overtaken = true;
	}
	if (error != NULL || *overtaken)
	{
		entity->now = before;
		entity->checked = checked;
		entity->dirty = dirty;
		entity->life = life;
		entity->started = started;
		if (entity->ordering != NULL)
			entity->ordering->ended = false;
	}
	return error;
}

/*
 * Runs a message or an ask fenced, and once more if the plans it ran with are older than a change that may have made them
 * wrong: nothing is left of the first run.
 */
ErrorData *
shard_handle_fenced(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
					ShardExecution *execution, bool *overtaken)
{
	ErrorData *error = run_fenced(entity, row, ask, execution, overtaken);

	if (error == NULL || *overtaken || !renew_plans(error))
		return error;
	memset(execution, 0, sizeof(*execution));
	return run_fenced(entity, row, ask, execution, overtaken);
}

static ShardOutcome
run_careful(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held);

/* ---- one message -------------------------------------------------------------------------------- */

/* Decides what becomes of a message that failed. */
static ShardOutcome
judge(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held, ErrorData *error)
{
	if (row->kind == SHARD_KIND_START)
	{
		shard_start_failed(entity, error);
		return is_held ? SHARD_MESSAGE_RESTS : SHARD_MESSAGE_GONE;
	}
	return shard_failure_dispose(entity, row, attempts, is_held, error) ? SHARD_MESSAGE_GONE
																		: SHARD_MESSAGE_RESTS;
}

/*
 * The entity's row is another transaction's: the message waits, and so does the entity. Of a start nothing is kept but
 * that the entity has to start.
 */
static ShardOutcome
rest(ShardEntity *entity, const ShardRow *row, bool is_held)
{
	if (row->kind != SHARD_KIND_START)
		return shard_queue_rest(entity, row, is_held);
	shard_start_put_off(entity);
	return is_held ? SHARD_MESSAGE_RESTS : SHARD_MESSAGE_GONE;
}

/*
 * Starts an entity before a message of it, in a fence of its own: if that fails, the message is not to blame, and
 * waits.
 */
static ShardOutcome
start_before(ShardEntity *entity, const ShardRow *row, bool is_held)
{
	const ShardRow start = shard_start_row(entity);
	ShardOutcome outcome = run_careful(entity, &start, 0, false);

	if (outcome == SHARD_MESSAGE_DONE)
		return SHARD_MESSAGE_DONE;
	if (!is_held)
		shard_queue_defer(entity, row, 0, false);
	return SHARD_MESSAGE_RESTS;
}

/* Runs a message in a careful turn. */
static ShardOutcome
run_careful(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ShardExecution execution = {0};
	bool overtaken;
	ErrorData *error;

	if (shard_kind_is_message(row->kind) && shard_start_is_due(entity))
	{
		ShardOutcome outcome = start_before(entity, row, is_held);

		if (outcome != SHARD_MESSAGE_DONE)
			return outcome;
	}
	error = shard_handle_fenced(entity, row, NULL, &execution, &overtaken);
	if (overtaken)
	{
		shard_cache_forget(entity);
		entity->checked = false;
		entity->now = entity->saved;
		return rest(entity, row, is_held);
	}
	return error == NULL ? SHARD_MESSAGE_DONE : judge(entity, row, attempts, is_held, error);
}

/* Runs a message in an optimistic turn: what raises, also while its state is read, is its fault. */
static bool
run_optimistic(ShardEntity *entity, const ShardRow *row)
{
	ShardExecution execution;
	bool good;

	shard_turn.blames_last = true;
	good = shard_turn_check(entity);
	if (good && !shard_kind_is_message(row->kind))
		run_command(entity, row);
	else if (good)
	{
#ifndef SHARD_MUTANT_START_LATE
		if (shard_start_is_due(entity))
			shard_start_run(entity);
#endif
		if (!entity->local->type->batch)
			shard_call_message(entity, row, NULL, &execution);
#ifdef SHARD_MUTANT_START_LATE
		if (shard_start_is_due(entity))
			shard_start_run(entity);
#endif
	}
	shard_turn.blames_last = false;
	return good;
}

/* Messages that workers before this one got stuck in. */
static int64 stuck[SHARD_LANES];
static bool stuck_fatal[SHARD_LANES];
static int stuck_count = 0;

void
shard_handle_init(ShardLanes lanes)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		ShardLane *of = &shard_shmem_database()->lane[lane];
		int64 seq = pg_atomic_read_u64(&of->stuck_seq);

		if ((lanes & shard_lane_bit(lane)) == 0 || seq == 0)
			continue;
		stuck_fatal[stuck_count] = pg_atomic_read_u32(&of->stuck_fatal) != 0;
		stuck[stuck_count++] = seq;
	}
	CacheRegisterRelcacheCallback(note_change, (Datum) 0);
}

bool
shard_handle_is_stuck(const ShardRow *row)
{
	for (int i = 0; i < stuck_count; i++)
		if (stuck[i] == row->seq)
			return true;
	return false;
}

/* Whether the worker ended by an error of the handler, and not because that went on for too long. */
static bool
was_fatal(const ShardRow *row)
{
	for (int i = 0; i < stuck_count; i++)
		if (stuck[i] == row->seq)
			return stuck_fatal[i];
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

	if (was_fatal(row))
	{
		error.sqlerrcode = ERRCODE_EXTERNAL_ROUTINE_EXCEPTION;
		error.message = "the handler ended its region worker by an error";
		error.hint = "See the server's log for that error.";
	}
	shard_turn.full = true;
	return shard_failure_dispose(entity, row, attempts, is_held, &error) ? SHARD_MESSAGE_GONE
																		 : SHARD_MESSAGE_RESTS;
}

/* Gives up a message that failed at the commit of its turn. */
static ShardOutcome
bury_uncommitted(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	return judge(entity, row, attempts, is_held, shard_turn_given_up_error());
}

ShardOutcome
shard_handle_message(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	if (row->kind == SHARD_KIND_PASSIVATE && !entity->local->type->remember)
	{
		shard_life_passivate(entity, false);
		entity->started = false;
		return SHARD_MESSAGE_DONE;
	}
	shard_life_wake(entity);
	if (shard_handle_is_stuck(row))
		return bury_stuck(entity, row, attempts, is_held);
	if (shard_turn_is_given_up(entity, row, NULL))
		return bury_uncommitted(entity, row, attempts, is_held);
	if (!shard_turn_hold(entity->local))
		return rest(entity, row, is_held);
	shard_turn_note_ran(entity, row, NULL);
	shard_cache_touch(entity, shard_turn.now);
	if (shard_turn.careful)
	{
		ShardOutcome outcome = run_careful(entity, row, attempts, is_held);

		if (outcome != SHARD_MESSAGE_DONE)
			return outcome;
	}
	else if (!run_optimistic(entity, row))
		return rest(entity, row, is_held);
	if (!shard_kind_is_message(row->kind))
		return SHARD_MESSAGE_DONE;
	if (!shard_turn.careful && entity->local->type->batch)
		shard_call_collect(entity, row);
	entity->handled++;
	return SHARD_MESSAGE_DONE;
}
