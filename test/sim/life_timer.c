/*
 * life_timer.c
 *		Durable timers: rows of the shard, of which the home's worker queues messages when they are due.
 *
 * A queued message decides nothing: when it is met, its timer's row does. So it may be queued twice, by two lives of
 * a process or by two homes.
 */
#include "life.h"

/* Messages that a turn queues at most. */
#define BATCH 2

/* Two timers that are due at the same time, of rows of two logs, may have the same number. */
static int64
place_of(StoreKey key, const LifeTimerRow *timer)
{
#ifdef SHARD_MUTANT_PLACES_SHARED
	return timer->generation;
#endif
	return (key.k[0] * LIFE_ENTITIES + key.k[1]) * LIFE_NAMES + key.k[2];
}

static bool
is_passed(StoreKey key, const LifeTimerRow *timer, const LifeMark *mark)
{
	return timer->due < mark->due || (timer->due == mark->due && place_of(key, timer) <= mark->key);
}

static void
queue_timer(LifeNode *node, StoreKey key, const LifeTimerRow *timer)
{
	LifeRow row = {.kind = LIFE_DUE,
				   .shard = (int32) key.k[0],
				   .entity = (int32) key.k[1],
				   .name = (int32) key.k[2],
				   .generation = timer->generation,
				   .queued_at = life_wall(node),
				   .due = timer->due,
				   .deed = timer->deed,
				   .fails = timer->fails,
				   .hope = timer->hope,
				   .decided = timer->decided,
				   .decision = timer->decision};

	node->failed |= !life_append(node, node->tx, &row);
	node->memory.mark.upto = node->seq;
}

/* A timer is stored; one that the mark has passed is not found by the next look at the rows. */
static void
put_timer(LifeNode *node, StoreKey key, const LifeTimerRow *timer)
{
	LifeMark *mark = &node->memory.mark;

	life_put(node, LIFE_TIMER, key, timer);
	if (timer->due > mark->due)
		return;
#ifdef SHARD_MUTANT_TIMER_BELOW_THE_MARK
	return;
#endif
#ifdef SHARD_MUTANT_TIMER_FIRED_EARLY
	queue_timer(node, key, timer);
	return;
#endif
	if (timer->due <= life_wall(node))
		queue_timer(node, key, timer);
	else
	{
		/* The clock was set back. */
		mark->due = timer->due - 1;
		mark->key = LIFE_NEVER;
	}
}

void
life_meet_schedule(LifeNode *node, const LifeRow *row)
{
	StoreKey key = LIFE_KEY(row->shard, row->entity, row->name);
	LifeTimerRow timer = {.generation = row->seq,
						  .first = row->due,
						  .due = row->due,
						  .every = row->every,
						  .missed = row->missed,
						  .fails = row->fails,
						  .hope = row->hope,
						  .decided = row->decided,
						  .decision = row->decision};
	bool used = store_get(node->store, node->tx, LIFE_TIMER, key) != NULL;
	LifeEvent *event =
		life_event(node, used ? LIFE_EVENT_DEAD : LIFE_EVENT_SCHEDULED, row->shard, row->entity);

	event->id = row->id;
	event->attempts = 1;
	event->row = *row;
	if (!used)
		put_timer(node, key, &timer);
}

void
life_meet_cancel(LifeNode *node, const LifeRow *row)
{
	LifeEvent *event = life_event(node, LIFE_EVENT_CANCELLED, row->shard, row->entity);

	event->id = row->id;
	event->row = *row;
	life_remove(node, LIFE_TIMER, LIFE_KEY(row->shard, row->entity, row->name));
}

/* When a period of a timer begins. */
static int64
period_at(const void *context, int64 period)
{
	const LifeTimerRow *timer = context;

	return timer->first + period * timer->every;
}

/* What comes after a firing now. Returns whether it runs. */
static bool
plan(const LifeTimerRow *timer, int64 now, int64 *period)
{
	ShardTimerStep step;

	if (timer->every == 0)
		return true;
	step = shard_timer_step((ShardTimerMissed) timer->missed, timer->period, now, period_at, timer);
	*period = step.period;
	return step.runs;
}

/* The timer has fired, or its message was given up, which is all the same to it. */
void
life_fired(LifeNode *node, const LifeRow *row, const LifeTimerRow *timer, int64 attempts,
		   LifeEventKind kind)
{
	StoreKey key = LIFE_KEY(row->shard, row->entity, row->name);
	LifeTimerRow after = *timer;
	LifeEvent *event = life_event(node, kind, row->shard, row->entity);

	(void) plan(timer, life_wall(node), &after.period);
	after.due = timer->every > 0 ? period_at(timer, after.period) : 0;
	after.fired += kind != LIFE_EVENT_SKIPPED;
	event->row = *row;
	event->attempts = attempts;
	event->next_at = after.due;
	if (after.due == 0)
		life_remove(node, LIFE_TIMER, key);
	else
		put_timer(node, key, &after);
}

/*
 * A timer's message is met. False: it is void, for the timer is gone, is another one, or is due at another time; or it was
 * missed, and is not to fire late.
 */
bool
life_firing(LifeNode *node, const LifeRow *row, int64 attempts, LifeTimerRow *timer)
{
	const LifeTimerRow *found =
		store_get(node->store, node->tx, LIFE_TIMER, LIFE_KEY(row->shard, row->entity, row->name));
	int64 period;

#ifdef SHARD_MUTANT_TIMER_FIRED_AT_BOTH_HOMES
	/* What is queued is believed. */
	LifeTimerRow believed = {.generation = row->generation,
							 .due = row->due,
							 .fails = row->fails,
							 .deed = row->deed,
							 .decision = row->decision};
	if (found == NULL)
		found = &believed;
#endif
	if (found == NULL)
		return false;
#ifndef SHARD_MUTANT_FIRING_OF_ANOTHER_TIMER
	if (found->generation != row->generation || found->due != row->due)
		return false;
#endif
	*timer = *found;
	if (!plan(timer, life_wall(node), &period))
	{
		life_fired(node, row, timer, attempts, LIFE_EVENT_SKIPPED);
		return false;
	}
	return true;
}

/* The first timer behind the mark, whether its shard is active here or not; NULL: there is none. */
static const LifeTimerRow *
next_timer(const LifeNode *node, const LifeMark *mark, StoreKey *found)
{
	StoreKey key = {{0}};
	const LifeTimerRow *timer = store_at_or_next(node->store, node->tx, LIFE_TIMER, &key);
	const LifeTimerRow *best = NULL;

	for (; timer != NULL; timer = store_next(node->store, node->tx, LIFE_TIMER, &key))
	{
		LifeMark first = {0};

		if (is_passed(key, timer, mark))
			continue;
		if (best != NULL)
			first = (LifeMark){.due = best->due, .key = place_of(*found, best)};
		if (best == NULL || is_passed(key, timer, &first))
		{
			*found = key;
			best = timer;
		}
	}
	return best;
}

/* Whether some are on their way. */
static bool
is_busy(const LifeNode *node)
{
	const int64 *cursor = store_get(node->store, node->tx, LIFE_CURSOR, LIFE_KEY(0));

	return node->memory.mark.upto >
		   Max(node->tx != NULL ? node->cursor : 0, cursor != NULL ? *cursor : 0);
}

/* Rows of a shard that is not active here are passed once, and again only if one that is active is behind them. */
bool
life_timers_due(const LifeNode *node)
{
	StoreKey key;
	bool again = node->memory.mark.again;
	LifeMark mark = again ? (LifeMark){0} : node->memory.mark;
	const LifeTimerRow *timer;

	if (is_busy(node))
		return false;
	while ((timer = next_timer(node, &mark, &key)) != NULL && timer->due <= life_wall(node))
	{
		if (!again || node->memory.shards[key.k[0]].active)
			return true;
		mark.due = timer->due;
		mark.key = place_of(key, timer);
	}
	return false;
}

/* What is due becomes messages of its entities. Rows of a shard that is not active here are passed. */
void
life_queue_timers(LifeNode *node)
{
	LifeMark *mark = &node->memory.mark;
	StoreKey key;
	const LifeTimerRow *timer;

	if (is_busy(node))
		return;
	if (mark->again)
		*mark = (LifeMark){0};
	for (int queued = 0; queued < BATCH;)
	{
		timer = next_timer(node, mark, &key);
		if (timer == NULL || timer->due > life_wall(node))
			return;
		if (node->memory.shards[key.k[0]].active)
		{
			queue_timer(node, key, timer);
			queued++;
		}
		mark->due = timer->due;
		mark->key = place_of(key, timer);
	}
}
