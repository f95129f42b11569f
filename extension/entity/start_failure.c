/*
 * entity/start_failure.c
 *		An entity that cannot start: it tries again later and later, and is quarantined at last.
 *
 * Comes from: handle.c: a start that failed, or whose row another transaction has; deliver.c: shard_start_entity().
 * Goes to: shard.held, place start (held.c), and the entity's wait (queue.c): messages wait behind it, in the stash;
 * history.c, which keeps the failure.
 *
 * All of it is the turn's own transaction. If the process dies right here, the turn did not happen, and the start is
 * tried again; attempts are counted in the row, so they survive, and move with the shard.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "base/fault.h"
#include "core/entity/entity.h"
#include "entity/internal.h"

#include "base/compat.h"

static void
report_failure(const ShardEntity *entity, int attempts, int64 pause, const ErrorData *error)
{
	if (shard_turn_log_counts(SHARD_TURN_LOG_START))
		shard_turn_log(SHARD_TURN_LOG_START, error->sqlerrcode,
					   psprintf("entity \"%s\" of type \"%s\" cannot start: %s", entity->id,
								entity->local->type->name, error->message),
					   psprintf("It failed to in %d attempt(s), and tries again in " INT64_FORMAT
								" ms; its messages wait.",
								attempts, pause / 1000),
					   "If the error lasts, mend the handler or the state; shard_start_entity() "
					   "then has it tried at once.");
}

static void
report_quarantine(const ShardEntity *entity, int attempts, const ErrorData *error)
{
	if (shard_turn_log_counts(SHARD_TURN_LOG_START))
		shard_turn_log(SHARD_TURN_LOG_START, error->sqlerrcode,
					   psprintf("entity \"%s\" of type \"%s\" is quarantined: it cannot start: %s",
								entity->id, entity->local->type->name, error->message),
					   psprintf("It failed to in %d attempt(s); its messages wait.", attempts),
					   "Mend the handler or the state, then call shard_start_entity().");
}

static void
put(ShardEntity *entity, int attempts, TimestampTz next_at, const ErrorData *error)
{
	ShardRow row = shard_start_row(entity);

	shard_execution_end_user_code();
	shard_held_put_start(&row, attempts, next_at, error);
	shard_queue_start(entity, attempts, next_at == 0 ? DT_NOEND : next_at);
	shard_turn.passed = true;
}

void
shard_start_failed(ShardEntity *entity, const ErrorData *error)
{
	const ShardType *type = entity->local->type;
	const ShardEntityLimits limits = {.max_attempts = type->max_attempts,
									  .restart_backoff = type->restart_backoff};
	int attempts = entity->wait.starts + 1;
	int64 pause;
	bool transient = shard_entity_hope(unpack_sql_state(error->sqlerrcode)) != SHARD_ENTITY_LASTS;
	bool again = shard_entity_restarts(&limits, attempts, transient, &pause);

	shard_turn.errors++;
	shard_local_count(entity->local, entity->shard)->errors++;
	put(entity, attempts, again ? GetCurrentTimestamp() + pause : 0, error);
	shard_history_note_start(entity, error, attempts, again ? pause : 0);
	shard_fault_step("start_failed");
	if (again)
	{
		report_failure(entity, attempts, pause, error);
		return;
	}
	report_quarantine(entity, attempts, error);
	shard_fault_step("quarantined");
}

void
shard_start_put_off(ShardEntity *entity)
{
	put(entity, entity->wait.starts, shard_turn.now + SHARD_CONTENDED_PAUSE, NULL);
}

void
shard_start_hurry(ShardEntity *entity)
{
	put(entity, entity->wait.starts, shard_turn.now, NULL);
	shard_fault_step("start_hurried");
}

void
shard_start_done(ShardEntity *entity)
{
	ShardRow row = shard_start_row(entity);

	shard_execution_end_user_code();
	shard_held_delete_start(&row);
	shard_queue_has_started(entity);
	shard_turn.passed = true;
	shard_fault_step("start_done");
}

void
shard_start_follow(ShardLocalType *local)
{
	dlist_iter iter;

	dlist_foreach (iter, &shard_turn.due)
	{
		ShardEntity *entity = dlist_container(ShardEntity, due, iter.cur);

		if (entity->local != local || !entity->saved_wait.start)
			continue;
		entity->saved_wait.not_before = 0;
		entity->wait = entity->saved_wait;
		shard_life_follow(entity);
		entity->saved_life = entity->life;
	}
}
