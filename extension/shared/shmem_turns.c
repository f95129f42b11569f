/*
 * shared/shmem_turns.c
 *		How the turns of a region worker go, as it tells others in shared memory.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

#include "shared/shmem.h"

#include "base/compat.h"

/*
 * Copies a text, cut off between two characters if it is too long.
 */
static void
copy_text(char *to, Size size, const char *from)
{
	int length = strlen(from);

	if (length >= size)
		length = pg_mbcliplen(from, length, size - 1);
	memcpy(to, from, length);
	to[length] = '\0';
}

/*
 * A turn begins, or has ended, by commit or by abort.
 */
void
shard_shmem_turn_began(ShardWorkerSlot *slot, TimestampTz at)
{
	pg_atomic_write_u64(&slot->turn_at, at);
	pg_write_barrier();
	pg_atomic_write_u64(&slot->turn_since, at);
}

void
shard_shmem_turn_ended(ShardWorkerSlot *slot)
{
	pg_atomic_write_u64(&slot->turn_since, 0);
}

/*
 * In a signal handler: the turn is at another call than it was at the last look.
 */
void
shard_shmem_turn_goes_on(ShardWorkerSlot *slot)
{
	if (slot != NULL)
		pg_atomic_write_u64(&slot->turn_at, GetCurrentTimestamp());
}

/*
 * Since when the worker is in a turn, 0: in none, and since when that turn has come no further.
 */
TimestampTz
shard_shmem_turn(ShardWorkerSlot *slot, TimestampTz *at)
{
	TimestampTz since = (TimestampTz) pg_atomic_read_u64(&slot->turn_since);

	pg_read_barrier();
	*at = Max(since, (TimestampTz) pg_atomic_read_u64(&slot->turn_at));
	return since;
}

/*
 * A turn was committed, or there was none to be run.
 */
void
shard_shmem_turn_done(ShardWorkerSlot *slot, bool moved, TimestampTz looked_at)
{
	TimestampTz now = GetCurrentTimestamp();

	SpinLockAcquire(&slot->mutex);
	if (moved)
	{
		slot->turns_now.moved_at = now;
		slot->turns_now.ended = 0;
	}
	if (looked_at != 0)
		slot->turns_now.looked_at = looked_at;
	slot->turns_now.failures = 0;
	SpinLockRelease(&slot->mutex);
}

/*
 * A turn failed; type_id 0: not in an entity.
 */
void
shard_shmem_turn_failed(ShardWorkerSlot *slot, int32 type_id, const char *entity, const char *error)
{
	TimestampTz now = GetCurrentTimestamp();
	ShardWorkerTurns turns;

	shard_shmem_turns(slot, &turns);
	if (turns.failures++ == 0)
		turns.failing_since = now;
	turns.type_id = type_id;
	copy_text(turns.entity, sizeof(turns.entity), entity);
	copy_text(turns.error, sizeof(turns.error), error);

	/* this worker alone writes it */
	SpinLockAcquire(&slot->mutex);
	slot->turns_now = turns;
	SpinLockRelease(&slot->mutex);
}

/*
 * A copy of what the worker told last.
 */
void
shard_shmem_turns(ShardWorkerSlot *slot, ShardWorkerTurns *turns)
{
	SpinLockAcquire(&slot->mutex);
	*turns = slot->turns_now;
	SpinLockRelease(&slot->mutex);
}

/*
 * In a signal handler: one call of a handler has been running for long, since then.
 */
void
shard_shmem_call_is_long(ShardWorkerSlot *slot, TimestampTz since, int32 type_id,
						 const char *entity, int entity_len)
{
	ShardLongCall *call;

	if (slot == NULL)
		return;
	call = &slot->long_call;
	call->type_id = type_id;
	call->entity_len = Min(entity_len, SHARD_MAX_ENTITY_ID);
	memcpy(call->entity, entity, call->entity_len);
	pg_write_barrier();
	pg_atomic_write_u64(&call->since, since);
}

/*
 * It has ended. In a signal handler, too.
 */
void
shard_shmem_call_ended(ShardWorkerSlot *slot)
{
	if (slot == NULL || pg_atomic_read_u64(&slot->long_call.since) == 0)
		return;
	pg_atomic_write_u64(&slot->long_call.since, 0);
	pg_write_barrier();
}

/*
 * Since when a call has been running; 0: none has for long. entity: palloc'd.
 */
TimestampTz
shard_shmem_long_call(ShardWorkerSlot *slot, int32 *type_id, char **entity)
{
	ShardLongCall *call = &slot->long_call;
	uint64 since = pg_atomic_read_u64(&call->since);

	if (since == 0)
		return 0;
	pg_read_barrier();
	*type_id = call->type_id;
	*entity = pnstrdup(call->entity, call->entity_len);
	pg_read_barrier();
	return pg_atomic_read_u64(&call->since) == since ? (TimestampTz) since : 0;
}
