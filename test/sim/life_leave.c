/*
 * life_leave.c
 *		Entities end, and leave memory: by order, by themselves, or since the strategy of their type says so.
 */
#include "life.h"

/* Out of memory, whatever the list says of it. */
static void
clear(LifeEntity *e)
{
	e->state = SHARD_ENTITY_NONE;
	e->incarnation = 0;
	e->restart_at = 0;
	e->wants = false;
}

/* One that did not run. */
void
life_drop(LifeNode *node, int32 shard, int32 entity)
{
	if (node->memory.entities[shard][entity].state != SHARD_ENTITY_NONE)
		life_step(node, shard, entity, SHARD_ENTITY_ON_SHARD_LEFT);
	clear(&node->memory.entities[shard][entity]);
}

static void
ended(LifeNode *node, int32 shard, int32 entity, LifeCause cause)
{
	life_event(node, LIFE_EVENT_ENDED, shard, entity)->cause = cause;
	clear(&node->memory.entities[shard][entity]);
	life_follow(node, shard, entity);
}

/* shard_stop() by its handler, or it ended: without a stop message. */
void
life_end(LifeNode *node, int32 shard, int32 entity, ShardEntityEvent how)
{
	LifeEntity *e = &node->memory.entities[shard][entity];
	const LifeType *type = &node->world->types[life_type_of(shard)];

	if (how == SHARD_ENTITY_ON_STOPPED)
	{
		life_step(node, shard, entity, SHARD_ENTITY_ON_PASSIVATE);
		if (life_step(node, shard, entity, how) == SHARD_ENTITY_DO_STORE_STOP)
		{
			life_forget(node, shard, entity);
			life_step(node, shard, entity, SHARD_ENTITY_ON_STORED);
		}
		ended(node, shard, entity, LIFE_BY_ITSELF);
	}
	else if (life_step(node, shard, entity, how) == SHARD_ENTITY_DO_BACK_OFF)
	{
		ended(node, shard, entity, LIFE_BY_ITSELF);
		e->state = SHARD_ENTITY_WAITING;
		e->restart_at = node->world->now + type->limits.restart_backoff;
	}
	else
		ended(node, shard, entity, LIFE_BY_ITSELF);
}

/*
 * The stop message is handled, or is given up: the entity leaves all the same. False: it is tried again, in front of all
 * that came behind it.
 */
static bool
stop(LifeNode *node, const LifeRow *row, int64 attempts, int64 *pause)
{
	const LifeType *type = &node->world->types[life_type_of(row->shard)];
	bool ordered = row->life == 0;
	ShardEntityFailure failure = {.hope = row->fails < LIFE_FAILS_FOR_GOOD ? SHARD_ENTITY_MAY_PASS
																		   : SHARD_ENTITY_LASTS,
								  .decision = SHARD_ENTITY_RESTART,
								  .attempts = (int) attempts + 1,
								  .random = life_random(node->world, PG_UINT32_MAX)};
	LifeEvent *event;

	life_step(node, row->shard, row->entity, SHARD_ENTITY_ON_PASSIVATE);
	if (type->stop_message && attempts < row->fails &&
		shard_entity_judge(&type->limits, &failure, pause) == SHARD_ENTITY_RETRY)
	{
		life_step(node, row->shard, row->entity, SHARD_ENTITY_ON_FAILED);
		return false;
	}
	if (type->stop_message)
	{
		if (attempts < row->fails)
			life_step(node, row->shard, row->entity, SHARD_ENTITY_ON_BURIED);
		else
			life_effect(node, row->shard, row->entity);
		event = life_event(node, LIFE_EVENT_STOP_MESSAGE, row->shard, row->entity);
		event->row = *row;
		event->row.due = node->memory.entities[row->shard][row->entity].decided_at;
		event->next_at = attempts < row->fails;
		event->attempts = attempts + 1;
	}
	if (life_step(node, row->shard, row->entity,
				  ordered ? SHARD_ENTITY_ON_STOPPED : SHARD_ENTITY_ON_UNLOADED) ==
		SHARD_ENTITY_DO_STORE_STOP)
	{
		life_forget(node, row->shard, row->entity);
		life_step(node, row->shard, row->entity, SHARD_ENTITY_ON_STORED);
	}
	ended(node, row->shard, row->entity, ordered ? LIFE_BY_ORDER : LIFE_BY_WORKER);
	return true;
}

/*
 * Does a row of the worker's own accord hold? Only for whom it was written, if that did nothing since; a stop message that
 * failed is delivered in any case.
 */
static bool
holds(LifeNode *node, const LifeRow *row, int64 attempts)
{
	const LifeEntity *e = &node->memory.entities[row->shard][row->entity];

#ifdef SHARD_MUTANT_PASSIVATED_THOUGH_BUSY
	if (e->incarnation != 0 && row->life == node->memory.shards[row->shard].life)
		return true;
#endif
#ifdef SHARD_MUTANT_PASSIVATED_IN_ANOTHER_LIFE
	if (e->state == SHARD_ENTITY_ACTIVE && row->life != node->memory.shards[row->shard].life)
		return true;
#endif
	return attempts > 0 || (row->life == node->memory.shards[row->shard].life &&
							e->state == SHARD_ENTITY_PASSIVATING);
}

/*
 * A PASSIVATE row has its turn. False: it waits, for its stop message is tried again, or the entity failed to start. What
 * a handler asked for comes to the entity in any case. What was asked for from outside forgets one that is not in
 * memory; there is nobody to hand a stop message to.
 */
bool
life_meet_passivate(LifeNode *node, const LifeRow *row, int64 *attempts, int64 *pause)
{
	LifeEntity *e = &node->memory.entities[row->shard][row->entity];
	bool insists = row->deed == LIFE_DEED_PASSIVATE || *attempts > 0;

	if (row->life != 0 && !holds(node, row, *attempts))
		return true;
	if (insists && !life_begin(node, row, LIFE_BY_MESSAGE))
		return false;
	if (e->incarnation != 0)
	{
		if (e->state == SHARD_ENTITY_WAITING)
			life_step(node, row->shard, row->entity, SHARD_ENTITY_ON_DUE);
		if (!stop(node, row, *attempts, pause))
		{
			++*attempts;
			return false;
		}
	}
	else
	{
		life_forget(node, row->shard, row->entity);
		if (e->restart_at != 0)
			life_drop(node, row->shard, row->entity);
	}
	if (row->life == 0)
		life_event(node, LIFE_EVENT_DONE, row->shard, row->entity)->id = row->id;
	return true;
}

/* Those whom a strategy has chosen. One that waits, or is busy, is chosen again when it was accessed. */
void
life_leave(LifeNode *node, dlist_head *victims)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, victims)
	{
		ShardPassivationEntity *tracked = dlist_container(ShardPassivationEntity, place, iter.cur);
		int number = (int) (tracked - &node->tracked[0][0]);
		int32 shard = number / LIFE_ENTITIES;
		int32 entity = number % LIFE_ENTITIES;
		LifeEntity *e = &node->memory.entities[shard][entity];

		dlist_delete(iter.cur);
#ifdef SHARD_MUTANT_PASSIVATED_WITH_MESSAGES_WAITING
		if (e->state == SHARD_ENTITY_WAITING && e->incarnation != 0)
		{
			e->waiting = 0;
			life_event(node, LIFE_EVENT_ENDED, shard, entity)->cause = LIFE_BY_ITSELF;
			clear(e);
			continue;
		}
#endif
		if (e->state != SHARD_ENTITY_ACTIVE || e->waiting > 0)
			continue;
		if (node->world->types[life_type_of(shard)].stop_message)
		{
			e->wants = true;
			continue;
		}
		life_step(node, shard, entity, SHARD_ENTITY_ON_PASSIVATE);
		life_step(node, shard, entity, SHARD_ENTITY_ON_UNLOADED);
		ended(node, shard, entity, LIFE_BY_WORKER);
	}
}

/* Between turns: the strategies hear of what the turn accessed, and of the time. */
void
life_after_turn(LifeNode *node)
{
	dlist_head victims;

	dlist_init(&victims);
	for (int shard = 0; shard < LIFE_SHARDS; shard++)
	{
		ShardPassivation *region = node->regions[life_type_of(shard)];

		for (int entity = 0; entity < LIFE_ENTITIES && node->places[shard] != NULL; entity++)
		{
			ShardPassivationEntity *tracked = &node->tracked[shard][entity];

			if (node->memory.entities[shard][entity].incarnation == 0)
				shard_passivation_remove(region, tracked);
			else if (node->accessed[shard][entity])
			{
				shard_passivation_accessed(region, node->places[shard], tracked, node->world->now,
										   &victims);
				life_leave(node, &victims);
			}
			node->accessed[shard][entity] = false;
		}
	}
	for (int type = 0; type < LIFE_TYPES; type++)
	{
		if (shard_passivation_next_idle(node->regions[type]) <= node->world->now)
			shard_passivation_idle(node->regions[type], node->world->now, &victims);
	}
	life_leave(node, &victims);
}

/* Those who want to leave and have not yet got the row that lets them; write: they get it. */
bool
life_leavers(LifeNode *node, bool write)
{
	bool any = false;

	for (int shard = 0; shard < LIFE_SHARDS; shard++)
	{
		for (int entity = 0; entity < LIFE_ENTITIES; entity++)
		{
			LifeEntity *e = &node->memory.entities[shard][entity];
			LifeRow row = {.kind = LIFE_PASSIVATE, .shard = shard, .entity = entity};

			if (!e->wants)
				continue;
			any = true;
			if (!write)
				continue;
			row.life = node->memory.shards[shard].life;
			row.fails = life_percent(node->world, 20) ? 1 + (int) life_random(node->world, 3) : 0;
			node->failed |= !life_append(node, node->tx, &row);
			e->wants = false;
			e->decided_at = node->world->now;
			life_step(node, shard, entity, SHARD_ENTITY_ON_PASSIVATE);
		}
	}
	return any;
}
