/*
 * entity/life.c
 *		Where the life of an entity in memory stands: the steps of the core's machine (core/entity/entity.c).
 *
 * Comes from: all that let something happen to an entity: handle.c and deliver_ask.c (a message), queue.c (it waits),
 * failure.c, stash.c (its pause is over), turn_entity.c and cache.c (it leaves). Goes to: nothing but the core.
 *
 * ShardEntity.life is what it is in this turn, saved_life what it was after the last commit. An entity whose life is
 * none after a commit, and of which nothing waits, leaves memory. A message for an entity that is active takes no step.
 *
 * Nothing here is durable, and nothing needs to be: a process that dies leaves rows, of states and of the stash, and its
 * successor finds entities that are in no state, or wait.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "entity/internal.h"

#include "base/compat.h"

ShardEntityAction
shard_life_step(ShardEntity *entity, ShardEntityEvent event)
{
	ShardEntityState next = entity->life;
	ShardEntityAction action = SHARD_ENTITY_DO_NOTHING;
	bool legal pg_attribute_unused() =
		shard_entity_step(entity->life, event, shard_life_remembers(entity->local), &next, &action);

	ShardAssert(legal);
	entity->life = next;

	/* whether it is remembered is stored by the turn's own commit, with the state: there is nothing to wait for */
	if (next == SHARD_ENTITY_REMEMBERING_START || next == SHARD_ENTITY_REMEMBERING_STOP)
		return shard_life_step(entity, SHARD_ENTITY_ON_STORED);
	return action;
}

void
shard_life_start(ShardEntity *entity)
{
	if (entity->life == SHARD_ENTITY_NONE)
		(void) shard_life_step(entity, SHARD_ENTITY_ON_RECOVERED);
	(void) shard_life_step(entity, SHARD_ENTITY_ON_START);
}

/* Whether it cannot run until something is mended. */
static inline bool
is_barred(const ShardWait *wait)
{
	return wait->suspended || (wait->start && wait->not_before == DT_NOEND);
}

/* Its type cannot run, or it has failed to start too often. */
static void
quarantine(ShardEntity *entity)
{
	if (entity->wait.suspended || !shard_life_remembers(entity->local))
	{
		(void) shard_life_step(entity, SHARD_ENTITY_ON_SUSPENDED);
		return;
	}
	if (entity->life != SHARD_ENTITY_WAITING)
		(void) shard_life_step(entity, SHARD_ENTITY_ON_HELD);
	(void) shard_life_step(entity, SHARD_ENTITY_ON_GIVEN_UP);
}

void
shard_life_come(ShardEntity *entity)
{
	if (entity->life != SHARD_ENTITY_PASSIVATING)
		(void) shard_life_step(entity, SHARD_ENTITY_ON_MESSAGE);
	else
	{
		(void) shard_life_step(entity, SHARD_ENTITY_ON_RECALLED);
		entity->stop = 0;
	}
}

void
shard_life_follow(ShardEntity *entity)
{
	const ShardWait *wait = &entity->wait;

	/* a message that waits recalls it: the number that is under way means nothing any more (E6) */
	if (wait->deferred && entity->life == SHARD_ENTITY_PASSIVATING && entity->stop > 0)
		entity->stop = 0;
	if (entity->life == SHARD_ENTITY_QUARANTINED && !is_barred(wait))
		(void) shard_life_step(entity, SHARD_ENTITY_ON_RESUMED);
	if (entity->life == SHARD_ENTITY_WAITING && !wait->deferred)
		(void) shard_life_step(entity, SHARD_ENTITY_ON_DUE);
	if (!wait->deferred)
	{
		if (entity->life == SHARD_ENTITY_NONE && wait->waiting > 0)
			(void) shard_life_step(entity, SHARD_ENTITY_ON_MESSAGE);
	}
	else if (is_barred(wait))
	{
		if (entity->life != SHARD_ENTITY_QUARANTINED)
			quarantine(entity);
	}
	else if (entity->life != SHARD_ENTITY_WAITING)
	{
		bool failed = wait->attempts > 0 && entity->life != SHARD_ENTITY_NONE;

		(void) shard_life_step(entity, failed ? SHARD_ENTITY_ON_FAILED : SHARD_ENTITY_ON_HELD);
	}
}

void
shard_life_passivate(ShardEntity *entity, bool stop)
{
	if (entity->life == SHARD_ENTITY_NONE)
		return;
	(void) shard_life_step(entity, SHARD_ENTITY_ON_PASSIVATE);
	if (entity->life != SHARD_ENTITY_PASSIVATING)
		return;
	(void) shard_life_step(entity, stop ? SHARD_ENTITY_ON_STOPPED : SHARD_ENTITY_ON_UNLOADED);
	/* that it is remembered says its row; in memory it is no more */
	if (entity->life == SHARD_ENTITY_REMEMBERED)
		(void) shard_life_step(entity, SHARD_ENTITY_ON_SHARD_LEFT);
	entity->started = false;
	entity->stop = 0;
	/* what waits is looked at when the turn ends: the message that has stopped it may be one of these still */
}

void
shard_life_leave(ShardEntity *entity)
{
	if (entity->life != SHARD_ENTITY_NONE)
		(void) shard_life_step(entity, SHARD_ENTITY_ON_SHARD_LEFT);
	entity->stop = 0;
}
