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
#include "base/fault.h"
#include "entity/internal.h"
#include "entity/request.h"
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

/*
 * A command to an entity, whose copy is true: to start, or to leave. In a careful turn its row may be one that the message
 * before has written, and there is no handler behind which that becomes visible.
 */
static void
run_command(ShardEntity *entity, const ShardRow *row)
{
#ifndef SHARD_MUTANT_STOP_AGAIN
	shard_call_make_visible();
#endif
	if (row->kind == SHARD_KIND_TOUCHED)
	{
		entity->touched = true;
		return;
	}
	if (row->kind == SHARD_KIND_START)
	{
		if (!shard_turn.late_start || entity->now.remembered)
			shard_start_run(entity);
		return;
	}
	if (entity->local->type->batch)
		shard_call_batch(entity);
	shard_remember_forget(entity);
}

/* Calls the handler with a message; with that of a request, which is answered then; or with that of a timer. */
static void
call(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask, ShardExecution *execution)
{
	const ShardFiring *firing = shard_turn.firing;

	if (unlikely(row != NULL && row->kind == SHARD_KIND_REQUEST))
	{
		shard_call_message(entity, shard_request_asked(), NULL, execution);
		shard_request_answer(execution);
		return;
	}
	if (likely(firing == NULL))
	{
		shard_call_message(entity, row, ask, execution);
		return;
	}
#ifdef SHARD_MUTANT_OWN_FIRING_REPLACED
	shard_call_message(entity, &firing->row, NULL, execution);
	(void) shard_timer_begin(entity);
	return;
#endif
	if (shard_timer_begin(entity))
		shard_call_message(entity, &firing->row, NULL, execution);
}

/* Whether it is a message for the handler, and not a command to the entity to start, or to leave, nor about its row. */
static inline bool
has_code(const ShardRow *row)
{
	return row == NULL || (row->kind != SHARD_KIND_START && row->kind != SHARD_KIND_TOUCHED &&
						   (row->kind != SHARD_KIND_PASSIVATE || row->payload_len > 0));
}

/* Whether a batch handler gets it with others; alone, if it ends the entity or is answered. */
static inline bool
is_collected(const ShardEntity *entity, const ShardRow *row)
{
	return entity->local->type->batch && row->kind != SHARD_KIND_PASSIVATE &&
		   row->kind != SHARD_KIND_REQUEST;
}

/* Calls the handler, with the start message before, if it is due; or does what the command says. */
static void
run_code(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
		 ShardExecution *execution)
{
	if (!has_code(row))
	{
		run_command(entity, row);
		return;
	}
	if (shard_start_is_due(entity))
		shard_start_run(entity);
	call(entity, row, ask, execution);
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

	if (good)
		run_code(entity, row, ask, execution);
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
	int64 stop = entity->stop;
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
		entity->stop = stop;
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
	if (row->kind == SHARD_KIND_START && !entity->local->type->starts)
	{
		/* the entity was only to be read into memory; the next message to it will meet the error */
		error->elevel = LOG;
		ThrowErrorData(error);
		return SHARD_MESSAGE_DONE;
	}
	if (row->kind == SHARD_KIND_START)
	{
		shard_start_failed(entity, error);
		return is_held ? SHARD_MESSAGE_RESTS : SHARD_MESSAGE_GONE;
	}
	if (row->kind == SHARD_KIND_TOUCHED)
	{
		shard_failure_put_off(entity, row, attempts, is_held, error);
		return SHARD_MESSAGE_RESTS;
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

	if (has_code(row) && shard_start_is_due(entity))
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
	if (good && !has_code(row))
		run_command(entity, row);
	else if (good)
	{
#ifndef SHARD_MUTANT_START_LATE
		if (shard_start_is_due(entity))
			shard_start_run(entity);
#endif
		if (!is_collected(entity, row))
			call(entity, row, NULL, &execution);
#ifdef SHARD_MUTANT_START_LATE
		if (shard_start_is_due(entity))
			shard_start_run(entity);
#endif
	}
	shard_turn.blames_last = false;
	return good;
}

void
shard_handle_init(ShardLanes lanes)
{
	shard_stuck_init(lanes);
	CacheRegisterRelcacheCallback(note_change, (Datum) 0);
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

	if (shard_stuck_was_fatal(row))
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

/* Keeps the message for the batch handler, or that of a timer. */
static void
collect(ShardEntity *entity, const ShardRow *row)
{
	if (shard_turn.firing == NULL)
		shard_call_collect(entity, row);
	else if (shard_timer_begin(entity))
		shard_call_collect(entity, &shard_turn.firing->row);
}

/* An entity is used by all but what makes it leave; it is spoken to by messages of somebody alone (E37). */
static inline void
note_use(ShardEntity *entity, const ShardRow *row)
{
	if (unlikely(row->kind == SHARD_KIND_PASSIVATE || row->kind == SHARD_KIND_TOUCHED))
		return;
	shard_passivate_touch(entity, shard_turn.now);
	if (unlikely(row->kind == SHARD_KIND_START || shard_timer_is_receive()))
		return;
	shard_life_hear(entity);
}

/* A message that is run, or a command. */
static ShardOutcome
run_on(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	if (!shard_turn_hold(entity->local))
		return rest(entity, row, is_held);
	shard_turn_note_ran(entity, row, NULL);
	note_use(entity, row);
	if (shard_turn.careful)
	{
		ShardOutcome outcome = run_careful(entity, row, attempts, is_held);

		if (outcome != SHARD_MESSAGE_DONE)
			return outcome;
	}
	else if (!run_optimistic(entity, row))
		return rest(entity, row, is_held);
	if (!has_code(row))
		return SHARD_MESSAGE_DONE;
	if (!shard_turn.careful && is_collected(entity, row))
		collect(entity, row);
	entity->handled++;
	return SHARD_MESSAGE_DONE;
}

/* A message whose code runs, also one that stops its entity, or that has the entity read into memory. */
static ShardOutcome
run(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	if (shard_stuck_is(row))
		return bury_stuck(entity, row, attempts, is_held);
	if (shard_turn_is_given_up(entity, row, NULL))
		return bury_uncommitted(entity, row, attempts, is_held);
	return run_on(entity, row, attempts, is_held);
}

/* Whether the entity has to be told so in its row when it leaves: that it is not remembered any more. */
static inline bool
forgets(const ShardEntity *entity, bool told)
{
	return told && entity->local->type->remember;
}

/*
 * The entity is to leave. What it has been sent before is handled by now, also by a batch handler; what comes after it
 * is for its next life. It leaves as well if its stop message becomes a dead letter.
 */
static ShardOutcome
stop(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ShardRow message;
	bool told = shard_stop_was_told(row);
	ShardStop what;
	ShardOutcome outcome;

	if (entity->batch_count > 0)
		shard_call_batch(entity);
	what = shard_stop_read(entity, row, &message);
	if (told)
		shard_timer_end_receive(entity);
	if (what == SHARD_STOP_VOID && !told)
		return SHARD_MESSAGE_DONE;
	if (what != SHARD_STOP_MESSAGE && forgets(entity, told))
	{
		ShardRow command = *row;

		shard_stop_make_command(&command);
		shard_life_wake(entity);
		return run(entity, &command, attempts, is_held);
	}
	if (what != SHARD_STOP_MESSAGE)
	{
		shard_life_passivate(entity, false);
		return SHARD_MESSAGE_DONE;
	}
	if (entity->life == SHARD_ENTITY_NONE)
		shard_life_come(entity);
	(void) shard_life_step(entity, SHARD_ENTITY_ON_PASSIVATE);
	shard_fault("stop_met");
	outcome = run(entity, &message, attempts, is_held);
	shard_fault_step("stop_handled");
	if (outcome == SHARD_MESSAGE_RESTS)
		return outcome;
	if (told)
		shard_timer_end_receive(entity);
	if (!forgets(entity, told))
	{
		shard_life_passivate(entity, false);
		return outcome;
	}

	/* the message is over: only the command may wait, in its place */
	if (is_held && outcome == SHARD_MESSAGE_DONE)
		shard_queue_remove(entity, row);
	shard_stop_make_command(&message);
	shard_life_wake(entity);
	return run_on(entity, &message, 0, false) == SHARD_MESSAGE_RESTS ? SHARD_MESSAGE_RESTS
		   : is_held												 ? SHARD_MESSAGE_GONE
																	 : outcome;
}

/* Makes or ends a timer. */
static ShardOutcome
obey(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ErrorData *error;

	/* messages before it, whose handler may make and end timers, too */
	if (entity->batch_count > 0)
		shard_call_batch(entity);
	error = shard_timer_obey(entity, row);
	if (error == NULL)
		return SHARD_MESSAGE_DONE;
	shard_life_wake(entity);
	return judge(entity, row, attempts, is_held, error);
}

/* A timer is due, or a request was answered: its message is handled, unless the timer or the request has ended. */
static ShardOutcome
fire(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ShardOutcome outcome;

	if (row->kind == SHARD_KIND_TIMER)
		shard_timer_meet(entity, row);
	else
		shard_request_meet(entity, row);
	if (shard_turn.firing == NULL)
		return SHARD_MESSAGE_DONE;
	shard_life_wake(entity);
	outcome = run(entity, row, attempts, is_held);
	shard_turn.firing = NULL;
	return outcome;
}

/* A request: its message is handled, and the handler's reply answers it. */
static ShardOutcome
answer(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ErrorData *error = shard_request_begin(row);
	ShardOutcome outcome;

	shard_life_wake(entity);
	if (error != NULL)
		return judge(entity, row, attempts, is_held, error);
	if (entity->batch_count > 0)
		shard_call_batch(entity);
	outcome = run(entity, row, attempts, is_held);
	shard_turn.asked = NULL;
	return outcome;
}

/* SQL has changed the entity's row: it goes into the turn's record, and the entity stays where it is (Q33). */
static ShardOutcome
touch(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	if (shard_turn_is_given_up(entity, row, NULL))
		return bury_uncommitted(entity, row, attempts, is_held);
	return run_on(entity, row, attempts, is_held);
}

ShardOutcome
shard_handle_message(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	switch (row->kind)
	{
		case SHARD_KIND_PASSIVATE:
			return stop(entity, row, attempts, is_held);
		case SHARD_KIND_SCHEDULE:
		case SHARD_KIND_CANCEL:
			return obey(entity, row, attempts, is_held);
		case SHARD_KIND_REQUEST:
			return answer(entity, row, attempts, is_held);
		case SHARD_KIND_TIMER:
		case SHARD_KIND_RESPONSE:
			return fire(entity, row, attempts, is_held);
		case SHARD_KIND_TOUCHED:
			return touch(entity, row, attempts, is_held);
		default:
			shard_life_wake(entity);
			return run(entity, row, attempts, is_held);
	}
}

void
shard_handle_late_start(ShardEntity *entity)
{
	ShardRow row;

	if (likely(!entity->start_wanted) || entity->started)
		return;
	row = shard_start_row(entity);
	shard_turn.late_start = true;
	(void) shard_handle_message(entity, &row, 0, false);
	shard_turn.late_start = false;
}
