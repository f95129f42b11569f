/*
 * entity/pause.c
 *		Shards that wait after an escalation: nothing of them runs for a while (doc/protocol/supervision.md E24).
 *
 * Comes from: queue.c, which sets what an entity waits for. Asked by deliver.c, deliver_ask.c and stash.c.
 *
 * What pauses a shard is a message that waits in front of its entity: a row of shard.held that says so, with the time
 * until which it waits. So a pause is as durable as the message, moves with it, and ends with it, whatever becomes of it;
 * here is only a list of the entities that have such a message, few at any time, and mostly none. If the process dies
 * right here, the next one reads the same rows.
 *
 * A shard with replicas pauses, too, while as much of it waits for its copies as may (Q45): as long as that lasts, in memory.
 */
#include "postgres.h"

#include "entity/internal.h"

#include "base/compat.h"

/* For so long, then it is looked at again. */
#define REST_MS 200

static void
set_pausing(ShardEntity *entity, bool is)
{
	if (is && !entity->pausing)
		dlist_push_tail(&shard_turn.pauses, &entity->pause);
	else if (entity->pausing && !is)
	{
		dlist_delete(&entity->pause);
		entity->local->recovery.not_before = 0; /* it may have waited for this pause */
	}
	entity->pausing = is;
}

/* An entity that pauses its shard no more stays in the list until the turn has ended: an abort may want it back. */
void
shard_pause_note(ShardEntity *entity)
{
	if (entity->wait.pauses)
		set_pausing(entity, true);
}

void
shard_pause_follow(ShardEntity *entity)
{
	set_pausing(entity, entity->saved_wait.pauses);
}

void
shard_pause_forget(ShardEntity *entity)
{
	set_pausing(entity, false);
}

/*
 * The message is due, whatever its row says, and is judged by what is set now. If the process dies right here, the next
 * one waits as long as the row says.
 */
void
shard_pause_end(ShardLocalType *local)
{
	dlist_iter iter;

	dlist_foreach (iter, &shard_turn.pauses)
	{
		ShardEntity *entity = dlist_container(ShardEntity, pause, iter.cur);

		if (entity->local != local)
			continue;
		entity->saved_wait.not_before = Min(entity->saved_wait.not_before, shard_turn.now);
		entity->wait = entity->saved_wait;
		local->recovery.not_before = 0; /* it may have waited for this pause */
	}
}

TimestampTz
shard_pause_search(const ShardLocalType *local, int shard)
{
	TimestampTz until = 0;
	dlist_iter iter;

	dlist_foreach (iter, &shard_turn.pauses)
	{
		const ShardEntity *entity = dlist_container(ShardEntity, pause, iter.cur);

#ifndef SHARD_MUTANT_PAUSE_OF_OTHERS
		if (entity->local != local || entity->shard != shard)
			continue;
#endif
		if (entity->wait.pauses && entity->wait.not_before > shard_turn.now)
			until = Max(until, entity->wait.not_before);
	}
	if (local->type->replicas > 0 && shard_replica_shard_rests(local->type->type_id, shard))
		until = Max(until, TimestampTzPlusMilliseconds(shard_turn.now, REST_MS));
	return until;
}
