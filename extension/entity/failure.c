/*
 * entity/failure.c
 *		What becomes of a message that cannot run now, or that failed.
 *
 * It goes to the stash or to the dead letters, in the turn's own transaction.
 * If the process dies right here, the turn did not happen and the message is
 * met again; attempts are counted in the stash row, so they survive.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "core/entity/entity.h"
#include "entity/dead_letter_room.h"
#include "entity/internal.h"

#include "base/compat.h"

void
shard_queue_defer(ShardEntity *entity, const ShardRow *row, TimestampTz until, bool suspended)
{
	shard_turn_end_user_code();
	shard_held_stash(row, 0, 0, NULL);
	entity->wait.deferred = true;
	entity->wait.suspended = suspended;
	entity->wait.not_before = Max(entity->wait.not_before, until);
	entity->wait.waiting++;
	shard_turn.passed = true;
}

/* Whether trying again may help. */
static bool
is_transient(int sqlstate)
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
					 entity->id, entity->run->type->name, error->message),
			psprintf("It failed after %d attempt(s);", attempts),
			"See shard_dead_letters; mend the handler, then call shard_redrive().");
}

void
shard_queue_wait_for_room(ShardEntity *entity, const ShardRow *row, const ErrorData *error)
{
	TimestampTz next_at = GetCurrentTimestamp() + entity->run->type->max_retry_backoff;

	shard_held_stash(row, 0, next_at, error);
	entity->wait.waiting++;
	entity->wait.deferred = true;
	entity->wait.not_before = Max(entity->wait.not_before, next_at);
	shard_turn.passed = true;
}

bool
shard_failure_dispose(ShardEntity *entity, const ShardRow *row, int attempts, bool from_stash,
					  ErrorData *error)
{
	const ShardType *type = entity->run->type;
	const ShardEntityLimits limits = {.max_attempts = type->max_attempts,
									  .retry_backoff = type->retry_backoff,
									  .max_retry_backoff = type->max_retry_backoff};
	ShardRow dead;
	int64 pause;
	bool again;

	shard_turn_end_user_code();
	shard_turn.errors++;
	shard_run_count(entity->run, entity->shard)->errors++;
	attempts++;
	shard_turn.passed = true;
	again = shard_entity_judge(&limits, SHARD_ENTITY_RESTART, is_transient(error->sqlerrcode),
							   attempts, &pause) == SHARD_ENTITY_RETRY;
	if (!again && !shard_dead_letter_has_room(entity->run, row, error))
	{
		/* Nothing is lost: it is tried again, and those behind it wait (D16). */
		again = true;
		pause = type->max_retry_backoff;
	}
	if (again)
	{
		TimestampTz next_at = GetCurrentTimestamp() + pause;

		if (from_stash)
			shard_held_failed(row, attempts, next_at, error);
		else
		{
			shard_held_stash(row, attempts, next_at, error);
			entity->wait.waiting++;
		}
		entity->wait.deferred = true;
		entity->wait.attempts = attempts;
		entity->wait.not_before = next_at;
		return false;
	}
	dead = *row;
	if (shard_turn.numbered)
		dead.kind = SHARD_KIND_AGAIN;
	shard_held_dead_letter(&dead, attempts, error);
	if (from_stash)
	{
		shard_held_delete(row);
		entity->wait.waiting--;
		entity->wait.attempts = 0;
	}
	report(entity, error, attempts);
	return true;
}
