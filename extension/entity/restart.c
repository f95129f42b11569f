/*
 * entity/restart.c
 *		Who is to start again: remembered entities that supervision has stopped (doc/protocol/supervision.md E20).
 *
 * Comes from: failure.c, which has stopped one. Goes to: recovery.c, which starts it when its time has come, unless a
 * message has done so before.
 *
 * The list is in memory alone. If the process dies right here, or the shard moves, the entity starts with its shard, as
 * all that are remembered: sooner than it would have here.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "entity/internal.h"

#include "base/compat.h"

static dlist_head stopped = DLIST_STATIC_INIT(stopped); /* by this turn */
static dlist_head waiting = DLIST_STATIC_INIT(waiting);
static TimestampTz next = DT_NOEND; /* the first of those that wait is due */
static bool tried = false;			/* some of them are over, if the turn commits */

void
shard_restart_note(const ShardEntity *entity)
{
	ShardRestart *restart =
		MemoryContextAlloc(TopMemoryContext, offsetof(ShardRestart, id) + entity->id_len);

	restart->pause = entity->local->type->restart_backoff;
	restart->at = GetCurrentTimestamp() + restart->pause;
	restart->type_id = entity->local->type->type_id;
	restart->shard = entity->shard;
	restart->tried = false;
	restart->id_len = entity->id_len;
	memcpy(restart->id, entity->id, entity->id_len);
	dlist_push_tail(&stopped, &restart->node);
}

TimestampTz
shard_restart_next_due(void)
{
	return next;
}

static void
find_next(void)
{
	dlist_iter iter;

	next = DT_NOEND;
	dlist_foreach (iter, &waiting)
		next = Min(next, dlist_container(ShardRestart, node, iter.cur)->at);
}

void
shard_restart_each_due(TimestampTz (*start)(const ShardRestart *restart))
{
	dlist_iter iter;

	dlist_foreach (iter, &waiting)
	{
		ShardRestart *restart = dlist_container(ShardRestart, node, iter.cur);
		TimestampTz again;

		if (restart->tried || restart->at > shard_turn.now)
			continue;
		again = start(restart);
		restart->tried = again == 0;
		tried |= restart->tried;
		restart->at = Max(restart->at, again);
	}
	find_next();
}

void
shard_restart_follow_clock(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &waiting)
	{
		ShardRestart *restart = dlist_container(ShardRestart, node, iter.cur);

		restart->at = Min(restart->at, shard_turn.now + restart->pause);
	}
	find_next();
}

void
shard_restart_committed(void)
{
	dlist_mutable_iter iter;

	if (likely(!tried && dlist_is_empty(&stopped)))
		return;
	dlist_foreach_modify (iter, &waiting)
	{
		ShardRestart *restart = dlist_container(ShardRestart, node, iter.cur);

		if (!restart->tried)
			continue;
		dlist_delete(&restart->node);
		pfree(restart);
	}
	while (!dlist_is_empty(&stopped))
		dlist_push_tail(&waiting, dlist_pop_head_node(&stopped));
	tried = false;
	find_next();
}

void
shard_restart_aborted(void)
{
	dlist_iter iter;

	while (!dlist_is_empty(&stopped))
		pfree(dlist_container(ShardRestart, node, dlist_pop_head_node(&stopped)));
	if (tried)
		dlist_foreach (iter, &waiting)
			dlist_container(ShardRestart, node, iter.cur)->tried = false;
	tried = false;
	find_next();
}
