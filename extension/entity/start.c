/*
 * entity/start.c
 *		An entity starts: what is done when it comes into memory (doc/protocol/remember.md).
 *
 * Comes from: handle.c: the start of an entity (recovery.c, shard_start_entity(), one that failed before), or a message
 * of one that has not started yet. Goes to: call.c, with the start message.
 *
 * If the process dies right here the turn did not happen, and the entity has not started.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "core/entity/entity.h"
#include "entity/internal.h"

#include "base/compat.h"

ShardRow
shard_start_row(const ShardEntity *entity)
{
	const Jsonb *message = entity->local->type->start_message;

	return (ShardRow){.type_id = entity->local->type->type_id,
					  .shard = entity->shard,
					  .kind = SHARD_KIND_START,
					  .entity = entity->id,
					  .entity_len = entity->id_len,
					  .payload = message == NULL ? "" : VARDATA(message),
					  .payload_len = message == NULL ? 0 : (int) (VARSIZE(message) - VARHDRSZ),
					  .epoch = -1};
}

/* Who asks or sends did not send this message. */
static void
explain(void *arg)
{
	const ShardEntity *entity = arg;

	errcontext("start message of entity \"%s\" of type \"%s\"", entity->id,
			   entity->local->type->name);
}

/* The handler may end the entity again, as soon as it has the start message. */
void
shard_start_run(ShardEntity *entity)
{
	ShardRow row = shard_start_row(entity);
	ShardExecution execution;

	if (entity->started)
		return;
	entity->started = true;
	if (entity->local->type->start_message != NULL)
	{
		ErrorContextCallback context = {error_context_stack, explain, entity};

		error_context_stack = &context;
		shard_call_message(entity, &row, NULL, &execution);
		error_context_stack = context.previous;
	}
	else if (entity->local->type->remember && !entity->now.remembered)
	{
		shard_remember_entity(entity);
		entity->dirty = true;
	}
}

TimestampTz
shard_start_latest(const ShardType *type, int attempts, TimestampTz at)
{
	const ShardEntityLimits limits = {.restart_backoff = type->restart_backoff};
	int64 pause;

	if (at == DT_NOEND)
		return DT_NOEND;
	(void) shard_entity_restarts(&limits, Max(attempts, 1), true, &pause);
	return Min(at, GetCurrentTimestamp() + pause);
}

TimestampTz
shard_start_not_before(const ShardType *type, const ShardHeldCount *held)
{
	return shard_start_latest(type, held->starts, held->start_at == 0 ? DT_NOEND : held->start_at);
}
