/*
 * entity/failure.c
 *		What becomes of a message that failed, and the error that answers an ask whose type cannot run.
 *
 * Comes from: handle.c and order.c: a message and its error.
 * Goes to: decider.c, if the type has one; core/entity, which judges (E20); queue.c, if the message is to be tried again,
 * else the dead letters (dead_letter_room.c, held.c); history.c, which keeps what was judged.
 *
 * All of it is the turn's own transaction. If the process dies right here, the turn did not happen and the message is met
 * again; attempts are counted in the stash row, so they survive.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "base/guc.h"
#include "core/entity/entity.h"
#include "entity/internal.h"
#include "entity/record.h"
#include "entity/request.h"
#include "shared/board.h"
#include "shared/shmem.h"

#include "base/compat.h"

static void
report(ShardEntity *entity, const ErrorData *error, int attempts)
{
	if (shard_turn_log_counts(SHARD_TURN_LOG_DEAD_LETTER))
		shard_turn_log(
			SHARD_TURN_LOG_DEAD_LETTER, error->sqlerrcode,
			psprintf("a message of entity \"%s\" of type \"%s\" became a dead letter: %s",
					 entity->id, entity->local->type->name, error->message),
			psprintf("It failed after %d attempt(s);", attempts),
			"See shard_dead_letters; mend the handler, then call shard_redrive().");
}

/* A shard pauses. */
static void
report_pause(const ShardEntity *entity, const ErrorData *error, const ShardEntityFailure *failure,
			 int64 pause)
{
	const ShardType *type = entity->local->type;

	if (shard_turn_log_counts(SHARD_TURN_LOG_PAUSE))
		shard_turn_log(SHARD_TURN_LOG_PAUSE, error->sqlerrcode,
					   psprintf("shard %d of entity type \"%s\" pauses for " INT64_FORMAT
								" ms: entity \"%s\" has failed: %s",
								entity->shard, type->name, pause / 1000, entity->id,
								error->message),
					   failure->decision == SHARD_ENTITY_ESCALATE
						   ? psprintf("Its message has failed in %d attempt(s), and the decision "
									  "was to escalate; all messages of the shard wait.",
									  failure->attempts)
						   : psprintf("It has failed %d times within restart_window, and "
									  "max_restarts is %d; all messages of the shard wait.",
									  failure->failures, type->max_restarts),
					   "See shard_history() of the entity; mend the handler, or choose another "
					   "\"supervision\" with shard_alter().");
}

/*
 * A schedule or a cancel that is refused is a failure of who sent it: no code of the type has run, supervision is not
 * asked, and any role that may send could bring a shard to a stop.
 */
static bool
is_refusal(const ShardRow *row, const ShardEntityFailure *failure)
{
	return (row->kind == SHARD_KIND_SCHEDULE || row->kind == SHARD_KIND_CANCEL) &&
		   failure->hope != SHARD_ENTITY_PASSES;
}

/* Decides what becomes of a message that failed; the pause, if it waits. */
static ShardEntityVerdict
judge(ShardEntity *entity, const ShardRow *row, const ErrorData *error, ShardEntityFailure *failure,
	  int64 *pause)
{
	const ShardType *type = entity->local->type;
	const ShardEntityLimits limits = {.max_attempts = type->max_attempts,
									  .retry_backoff = type->retry_backoff,
									  .max_retry_backoff = type->max_retry_backoff,
									  .max_restarts = type->max_restarts,
									  .failure_backoff = type->shard_failure_backoff};

	failure->hope = shard_entity_hope(unpack_sql_state(error->sqlerrcode));
	if (is_refusal(row, failure))
		return SHARD_ENTITY_BURY;
	failure->decision = type->supervision;
	failure->decided = shard_decider_ask(entity, error, failure->attempts, &failure->decision);
	if (!failure->decided)
		failure->decision = type->supervision;
	failure->failures = 1;
	if (type->max_restarts >= 0 && failure->hope != SHARD_ENTITY_PASSES)
		failure->failures += shard_history_count(entity, type->restart_window);
	failure->random = pg_prng_uint32(&pg_global_prng_state);
	return shard_entity_judge(&limits, failure, pause);
}

/* What was judged is noted, but for what passes by itself: that is no failure of the entity (E21). */
static void
note(ShardEntity *entity, const ErrorData *error, const ShardEntityFailure *failure,
	 ShardEntityVerdict verdict, int64 pause)
{
	if (failure->hope != SHARD_ENTITY_PASSES || verdict != SHARD_ENTITY_RETRY)
		shard_history_note(entity, error, failure, verdict, pause);
	if (verdict == SHARD_ENTITY_PAUSE_SHARD)
		report_pause(entity, error, failure, pause);
}

bool
shard_failure_dispose(ShardEntity *entity, const ShardRow *row, int attempts, bool from_stash,
					  ErrorData *error)
{
	const ShardType *type = entity->local->type;
	ShardEntityFailure failure = {.attempts = attempts + 1};
	ShardEntityVerdict verdict;
	ShardRow dead;
	int64 pause = 0;
	bool again;

	shard_execution_end_user_code();
	shard_turn.errors++;
	shard_local_count(entity->local, entity->shard)->errors++;
	shard_turn.passed = true;
	verdict = judge(entity, row, error, &failure, &pause);
	again = verdict == SHARD_ENTITY_RETRY || verdict == SHARD_ENTITY_PAUSE_SHARD;
	if (!again && !shard_dead_letter_has_room(entity->local, row, error))
	{
		/* Nothing is lost: the message is tried again, and those behind it wait (D16). */
		again = true;
		verdict = SHARD_ENTITY_RETRY;
		pause = type->max_retry_backoff;
	}
	if (!is_refusal(row, &failure))
		note(entity, error, &failure, verdict, pause);
	shard_fault_step("failure_judged");
	if (again)
	{
		const ShardHeldWhy why = {.attempts = failure.attempts,
								  .next_at = GetCurrentTimestamp() + pause,
								  .error = error,
								  .pauses = verdict == SHARD_ENTITY_PAUSE_SHARD};

		shard_queue_retry(entity, row, &why, from_stash);
		return false;
	}
	dead = *row;
	if (row->kind == SHARD_KIND_TIMER)
		shard_timer_give_up(entity, &dead);
	else if (shard_kind_is_request(row->kind))
		shard_request_give_up(entity, &dead, error);
	if (shard_turn.numbered)
		dead.kind = SHARD_KIND_AGAIN;
	shard_held_dead_letter(&dead, failure.attempts, error, false);
	if (from_stash)
		shard_queue_remove(entity, row);
	(void) shard_life_step(entity, SHARD_ENTITY_ON_BURIED);
	if (verdict == SHARD_ENTITY_BURY_AND_STOP)
	{
		shard_life_passivate(entity, false);
		if (entity->now.remembered && row->kind != SHARD_KIND_PASSIVATE)
			shard_restart_note(entity);
	}
	report(entity, error, failure.attempts);
	return true;
}

void
shard_failure_put_off(ShardEntity *entity, const ShardRow *row, int attempts, bool from_stash,
					  const ErrorData *error)
{
	const ShardType *type = entity->local->type;
	const ShardHeldWhy why = {.attempts = attempts + 1,
							  .next_at = GetCurrentTimestamp() + type->max_retry_backoff,
							  .error = error};

	shard_execution_end_user_code();
	shard_turn.errors++;
	shard_local_count(entity->local, entity->shard)->errors++;
	shard_turn.passed = true;
	if (shard_turn_log_counts(SHARD_TURN_LOG_TOUCHED))
		shard_turn_log(
			SHARD_TURN_LOG_TOUCHED, error->sqlerrcode,
			psprintf("state of entity \"%s\" of type \"%s\" cannot be read for its "
					 "replicas: %s",
					 entity->id, type->name, error->message),
			psprintf("SQL has changed it. It is tried again in " INT64_FORMAT
					 " ms, or with what waits before it; messages behind it wait.",
					 type->max_retry_backoff / 1000),
			"Mend what raises the error, as the output function of a type, or delete the "
			"row.");

	/* what waits already says why, and until when */
	if (!from_stash && (entity->wait.deferred || !entity->local->runnable))
	{
		shard_queue_defer(entity, row, 0, !entity->local->runnable);
		return;
	}
	shard_queue_retry(entity, row, &why, from_stash);
}

/* An error made up here, in the turn's memory; its strings are constants, or there as well. */
ErrorData *
shard_failure_keep(const ErrorData *error)
{
	ErrorData *kept = MemoryContextAlloc(shard_turn.context, sizeof(ErrorData));

	*kept = *error;
	return kept;
}

/* Why a type cannot run, as its users see it; it may be known before they can. */
static char *
why_not(const ShardType *type)
{
	int sqlstate;
	char *problem = type->problem;

	if (problem == NULL)
		problem = shard_local_problem(type, &sqlstate);
	return problem != NULL ? psprintf("%c%s.", pg_toupper((unsigned char) problem[0]), problem + 1)
						   : NULL;
}

/*
 * The asker may be at another node, where it would look for the reason in vain.
 */
ErrorData *
shard_failure_of_type(const ShardType *type)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ErrorData error = {.sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE};
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (type == NULL)
	{
		error.message = psprintf("the entity type does not exist at node %d", view.node);
		error.hint = "Start it there with shard_start().";
	}
	else if (type->mode == SHARD_MODE_HOSTING && shard_local_keeps())
	{
		error.message = psprintf("entity type \"%s\" cannot run at node %d", type->name, view.node);
		error.detail =
			psprintf("Its owner has no region worker there: shard.max_region_workers is %d.",
					 shard_max_region_workers);
		error.hint = "See shard_health() at that node. Messages sent with shard_tell() wait.";
	}
	else if (type->mode == SHARD_MODE_HOSTING)
	{
		error.message = psprintf("entity type \"%s\" cannot run at node %d", type->name, view.node);
		error.detail = why_not(type);
		error.hint = "See column problem of shard_types at that node. Messages sent with "
					 "shard_tell() wait.";
	}
	else
	{
		const char *what = type->mode == SHARD_MODE_STOPPED	  ? "is stopped"
						   : type->mode == SHARD_MODE_DROPPED ? "was dropped"
															  : "is a proxy";

		error.message = psprintf("entity type \"%s\" %s at node %d", type->name, what, view.node);
		error.hint = "Start it there with shard_start(), or ask again if its shards move away. "
					 "Messages sent with shard_tell() wait.";
	}
	MemoryContextSwitchTo(old);
	return shard_failure_keep(&error);
}
