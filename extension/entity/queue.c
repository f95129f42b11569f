/*
 * entity/queue.c
 *		What waits in front of an entity: its rows of the stash, why they wait, and until when.
 *
 * Comes from: deliver.c (others go first, or its type cannot run), handle.c (another transaction has the row),
 * failure.c (an attempt has failed), recount.c and residents.c (what the table says). Goes to: shard.held (held.c), and
 * the list of entities that are due, from which stash.c takes them.
 *
 * What changes the field wait of an entity is here. Three others touch it: turn_entity.c at the begin and end of a turn,
 * order.c, which counts what it puts into the place of its number, and stash.c, which says what is gone. If the process dies right here, the turn did not happen: the
 * message is where it was.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "entity/internal.h"
#include "log/buffer.h"
#include "shared/shmem.h"

#include "base/compat.h"

void
shard_queue_count(ShardLocalType *local, int64 delta)
{
	shard_shmem_count_held(&local->type->counter, MyDatabaseId, local->type->type_id, delta);
	if (delta < 0)
		shard_buffer_catch_up(local->type);
}

/* How long a message may wait for its next attempt. */
static int64
longest(const ShardType *type, bool pauses)
{
	return pauses ? Max(type->max_retry_backoff, type->shard_failure_backoff)
				  : type->max_retry_backoff;
}

/* Whether its stash is to be looked at when its time has come. */
static inline bool
is_due(const ShardWait *wait)
{
	return wait->deferred && !wait->suspended;
}

/* Puts an entity into the list of those that wait for a time to come, or takes it out. */
static void
set_due(ShardEntity *entity, bool is)
{
	if (is && !entity->listed)
		dlist_push_tail(&shard_turn.due, &entity->due);
	else if (entity->listed && !is)
		dlist_delete(&entity->due);
	entity->listed = is;
}

/* As of the last commit: whether messages wait for their number. */
static bool
waits_for_number(const ShardEntity *entity)
{
	return entity->ordering != NULL && entity->ordering->saved.queue.waiting > 0;
}

void
shard_queue_follow(ShardEntity *entity)
{
	set_due(entity, is_due(&entity->saved_wait) || waits_for_number(entity));
	shard_pause_follow(entity);
}

void
shard_queue_follow_type(ShardEntity *entity, void *arg)
{
	bool was = is_due(&entity->saved_wait);

	if (!entity->saved_wait.deferred)
		return;
	entity->saved_wait.suspended = !entity->local->runnable;
	if (entity->local->runnable && !was && !entity->saved_wait.pauses)
		entity->saved_wait.not_before = 0;
	entity->wait = entity->saved_wait;
	shard_life_follow(entity);
	entity->saved_life = entity->life;
	entity->saved_stop = entity->stop;
	shard_queue_follow(entity);
}

void
shard_queue_forget(ShardEntity *entity)
{
	set_due(entity, false);
	shard_pause_forget(entity);
	if (entity->saved_wait.waiting != 0)
		shard_queue_count(entity->local, -shard_wait_messages(&entity->saved_wait));
	shard_life_leave(entity);
	shard_cache_remove(entity);
}

void
shard_queue_follow_clock(TimestampTz now)
{
	bool back = now < shard_turn.now;

	shard_turn.now = now;
	if (!back)
		return;
	shard_turn.clock_steps++;
	shard_queue_shorten_waits();
}

/* Messages that wait for their numbers have waited since now at the latest. */
static void
shorten_gap(ShardOrdering *ordering)
{
	ordering->now.queue.since = Min(ordering->now.queue.since, shard_turn.now);
	ordering->saved.queue.since = Min(ordering->saved.queue.since, shard_turn.now);
}

/* When the entity may be looked at again, at the latest. */
static TimestampTz
latest(const ShardEntity *entity)
{
	const ShardWait *wait = &entity->saved_wait;

	if (wait->start)
		return shard_start_latest(entity->local->type, wait->starts, wait->not_before);
	return shard_turn.now + longest(entity->local->type, wait->pauses);
}

void
shard_queue_shorten_waits(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &shard_turn.due)
	{
		ShardEntity *entity = dlist_container(ShardEntity, due, iter.cur);

		/* what a turn does to it would be undone */
		ShardAssert(!entity->in_turn);
		entity->saved_wait.not_before = Min(entity->saved_wait.not_before, latest(entity));
		entity->wait = entity->saved_wait;
		if (entity->ordering != NULL)
			shorten_gap(entity->ordering);
	}
}

bool
shard_queue_retry_is_due(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &shard_turn.due)
	{
		const ShardEntity *entity = dlist_container(ShardEntity, due, iter.cur);
		const ShardWait *wait = &entity->saved_wait;

		if ((wait->attempts > 0 || wait->start) && wait->not_before <= shard_turn.now &&
			shard_pause_until(entity->local, entity->shard) == 0)
			return true;
	}
	return false;
}

/* A clock that was set back holds a message for max_retry_backoff at most (D16). */
static ShardWait
wait_of(const ShardLocalType *local, const ShardHeldCount *held)
{
	TimestampTz latest = GetCurrentTimestamp() + longest(local->type, held->pauses);

	return (ShardWait){.deferred = true,
					   .suspended = !local->runnable,
					   .attempts = held->attempts,
					   .not_before = held->start ? shard_start_not_before(local->type, held)
												 : Min(held->next_at, latest),
					   .pauses = held->pauses && !held->start};
}

/*
 * Messages that came before this process knew of them count as waiting from now on; else since when the oldest of the
 * rest waits. One that came later than now is of a clock that was set back, and says nothing.
 */
static void
set_queue(ShardEntity *entity, const ShardHeldCount *held)
{
	TimestampTz now = GetCurrentTimestamp();
	ShardOrderedQueue *queue;

	if (entity->ordering == NULL)
		shard_cache_make_ordering(entity);
	queue = &entity->ordering->now.queue;
	if (queue->waiting == 0)
		queue->since = now;
	else if (held->oldest <= now)
		queue->since = Max(queue->since, held->oldest);
	queue->since = Min(queue->since, now);
	queue->waiting = held->ordered;
	queue->lowest = held->lowest;
}

void
shard_queue_set(ShardEntity *entity, const ShardHeldCount *held)
{
	bool defers = held->stash > 0 || held->start;

	if (defers && (!entity->wait.deferred || entity->wait.start != held->start))
		entity->wait = wait_of(entity->local, held);
	else if (!defers && held->ordered == 0)
		entity->wait = (ShardWait){0};
	if (entity->wait.waiting != held->stash + held->ordered)
		entity->wait.gone = 0; /* memory was wrong */
	entity->wait.waiting = held->stash + held->ordered;
	entity->wait.touched = held->touched;
	entity->wait.start = held->start;
	entity->wait.starts = held->starts;
	shard_pause_note(entity);
	if (held->ordered > 0 || entity->ordering != NULL)
		set_queue(entity, held);
	shard_life_follow(entity);
}

/*
 * Puts a row into the stash. It is the only one, or may be before others. Of what SQL has touched there is one: it is
 * read when that is met, as it is by then.
 */
static void
stash(ShardEntity *entity, const ShardRow *row, const ShardHeldWhy *why)
{
	ShardWait *wait = &entity->wait;
	int64 seq;

	if (row->kind == SHARD_KIND_TOUCHED && wait->touched++ > 0)
	{
		wait->touched = 1;
		return;
	}
	seq = shard_held_stash(row, why);
	if (!wait->deferred || (wait->gone != 0 && seq <= wait->gone))
		wait->gone = seq - 1;
	wait->deferred = true;
	wait->waiting++;
}

void
shard_queue_defer(ShardEntity *entity, const ShardRow *row, TimestampTz until, bool suspended)
{
	shard_execution_end_user_code();
	stash(entity, row, &(ShardHeldWhy){0});
	entity->wait.suspended = suspended;
	entity->wait.not_before = Max(entity->wait.not_before, until);
	shard_turn.passed = true;
	shard_life_follow(entity);
}

void
shard_queue_wait_for_room(ShardEntity *entity, const ShardRow *row, const ErrorData *error)
{
	TimestampTz next_at = GetCurrentTimestamp() + entity->local->type->max_retry_backoff;

	stash(entity, row, &(ShardHeldWhy){.next_at = next_at, .error = error});
	entity->wait.not_before = Max(entity->wait.not_before, next_at);
	shard_turn.passed = true;
	shard_life_follow(entity);
}

void
shard_queue_retry(ShardEntity *entity, const ShardRow *row, const ShardHeldWhy *why, bool is_held)
{
	if (is_held)
		shard_held_failed(row, why);
	else
		stash(entity, row, why);
	entity->wait.deferred = true;
	entity->wait.attempts = why->attempts;
	entity->wait.not_before = why->next_at;
	entity->wait.pauses = why->pauses;
	shard_pause_note(entity);
	shard_life_follow(entity);
}

ShardOutcome
shard_queue_rest(ShardEntity *entity, const ShardRow *row, bool is_held)
{
	shard_execution_end_user_code();
	if (is_held)
	{
		entity->wait.deferred = true;
		entity->wait.not_before = shard_turn.now + SHARD_CONTENDED_PAUSE;
		shard_life_follow(entity);
	}
	else
		shard_queue_defer(entity, row, shard_turn.now + SHARD_CONTENDED_PAUSE,
						  !entity->local->runnable);
	return SHARD_MESSAGE_RESTS;
}

void
shard_queue_start(ShardEntity *entity, int starts, TimestampTz not_before)
{
	entity->wait.start = true;
	entity->wait.starts = starts;
	entity->wait.deferred = true;
	entity->wait.suspended = false;
	entity->wait.not_before = not_before;
	entity->wait.pauses = false; /* that was for another time */
	entity->wait.blocked_by = 0;
	shard_life_follow(entity);
}

void
shard_queue_has_started(ShardEntity *entity)
{
	entity->wait.start = false;
	entity->wait.starts = 0;
	entity->wait.not_before = 0;
}

bool
shard_queue_is_early(ShardEntity *entity, const ShardHeld *held)
{
	if (held->next_at <= shard_turn.now || entity->saved_wait.not_before != 0)
		return false;
	entity->wait.deferred = true;
	entity->wait.not_before =
		Min(held->next_at, shard_turn.now + longest(entity->local->type, held->pauses));
	entity->wait.attempts = held->attempts;
	entity->wait.pauses = held->pauses;
	shard_pause_note(entity);
	shard_life_follow(entity);
	return true;
}

void
shard_queue_remove(ShardEntity *entity, const ShardRow *row)
{
	shard_execution_end_user_code();
	shard_held_delete(row);
	entity->wait.waiting--;
	if (row->kind == SHARD_KIND_TOUCHED)
		entity->wait.touched--;
	entity->wait.attempts = 0;
	entity->wait.pauses = false;
}

void
shard_queue_end(ShardEntity *entity)
{
	entity->wait = (ShardWait){.waiting = entity->wait.waiting};
	shard_life_follow(entity);
}

void
shard_queue_discard(ShardEntity *entity)
{
	entity->wait = (ShardWait){0};
	shard_life_leave(entity);
}
