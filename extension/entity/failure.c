/*
 * entity/failure.c
 *		What becomes of a message that failed, and the error that answers an ask whose type cannot run.
 *
 * Comes from: handle.c and order.c: a message and its error.
 * Goes to: queue.c, if it is to be tried again; else the dead letters (dead_letter_room.c, held.c).
 *
 * All of it is the turn's own transaction. If the process dies right here, the turn did not happen and the message is met
 * again; attempts are counted in the stash row, so they survive.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/guc.h"
#include "core/entity/entity.h"
#include "entity/internal.h"
#include "shared/board.h"
#include "shared/shmem.h"

#include "base/compat.h"

bool
shard_failure_is_transient(int sqlstate)
{
	int category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_TO_CATEGORY(ERRCODE_TRANSACTION_ROLLBACK) ||
		   category == ERRCODE_TO_CATEGORY(ERRCODE_INSUFFICIENT_RESOURCES) ||
		   category == ERRCODE_TO_CATEGORY(ERRCODE_SYSTEM_ERROR) ||
		   sqlstate == ERRCODE_ADMIN_SHUTDOWN || sqlstate == ERRCODE_CRASH_SHUTDOWN ||
		   sqlstate == ERRCODE_CANNOT_CONNECT_NOW || sqlstate == ERRCODE_DATABASE_DROPPED ||
		   sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
}

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

bool
shard_failure_dispose(ShardEntity *entity, const ShardRow *row, int attempts, bool from_stash,
					  ErrorData *error)
{
	const ShardType *type = entity->local->type;
	const ShardEntityLimits limits = {.max_attempts = type->max_attempts,
									  .retry_backoff = type->retry_backoff,
									  .max_retry_backoff = type->max_retry_backoff};
	ShardRow dead;
	int64 pause;
	bool again;

	shard_execution_end_user_code();
	shard_turn.errors++;
	shard_local_count(entity->local, entity->shard)->errors++;
	attempts++;
	shard_turn.passed = true;
	again = shard_entity_judge(&limits, SHARD_ENTITY_RESTART,
							   shard_failure_is_transient(error->sqlerrcode), attempts,
							   &pause) == SHARD_ENTITY_RETRY;
	if (!again && !shard_dead_letter_has_room(entity->local, row, error))
	{
		/* Nothing is lost: the message is tried again, and those behind it wait (D16). */
		again = true;
		pause = type->max_retry_backoff;
	}
	if (again)
	{
		shard_queue_retry(entity, row, attempts, pause, from_stash, error);
		return false;
	}
	dead = *row;
	if (row->kind == SHARD_KIND_TIMER)
		shard_timer_give_up(entity, &dead);
	if (shard_turn.numbered)
		dead.kind = SHARD_KIND_AGAIN;
	shard_held_dead_letter(&dead, attempts, error);
	if (from_stash)
		shard_queue_remove(entity, row);
	(void) shard_life_step(entity, SHARD_ENTITY_ON_BURIED);
	report(entity, error, attempts);
	return true;
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
