/*
 * life_start.c
 *		Entities begin: by a message, by order, and without either when their shard comes up, if they are
 *		remembered.
 */
#include "life.h"

bool
life_is_remembered(const LifeNode *node, int32 shard, int32 entity)
{
	const LifeStateRow *row = store_get(node->store, node->tx, LIFE_STATE, LIFE_KEY(shard, entity));

	return row != NULL && row->remembered != 0;
}

static void
put_remembered(LifeNode *node, int32 shard, int32 entity, bool remembered)
{
	StoreKey key = LIFE_KEY(shard, entity);
	const LifeStateRow *row = store_get(node->store, node->tx, LIFE_STATE, key);
	LifeStateRow state = {0};

	if (row != NULL)
		state = *row;
	state.remembered = remembered;
#ifdef SHARD_MUTANT_REMEMBERED_OUTSIDE_COMMIT
	if (remembered)
	{
		StoreTransaction *own = store_begin(node->store);

		store_put(own, LIFE_STATE, key, &state);
		store_commit(own);
		return;
	}
#endif
	life_put(node, LIFE_STATE, key, &state);
}

/* The entity comes onto the list of its shard, with whatever else the turn does. */
void
life_remember(LifeNode *node, int32 shard, int32 entity, LifeCause cause)
{
	if (life_is_remembered(node, shard, entity))
		return;
	life_event(node, LIFE_EVENT_REMEMBERED, shard, entity)->cause = cause;
	put_remembered(node, shard, entity, true);
}

/* And off it. */
void
life_forget(LifeNode *node, int32 shard, int32 entity)
{
	if (!life_is_remembered(node, shard, entity))
		return;
	life_event(node, LIFE_EVENT_FORGOTTEN, shard, entity);
#ifndef SHARD_MUTANT_PASSIVATE_FORGETS_NOTHING
	put_remembered(node, shard, entity, false);
#endif
}

/* The attempts at a start that is held, 0 if none is. */
static int64
attempts_at_start(const LifeNode *node, int32 shard, int32 entity)
{
	const LifeHeldRow *held =
		store_get(node->store, node->tx, LIFE_HELD, LIFE_KEY(shard, entity, LIFE_PLACE_START, 0));

	return held != NULL ? held->attempts : 0;
}

/* The start message failed: all that comes for the entity waits behind the next attempt. */
static void
start_failed(LifeNode *node, int32 shard, int32 entity, LifeCause cause)
{
	const LifeType *type = &node->world->types[life_type_of(shard)];
	LifeHeldRow held = {.attempts = attempts_at_start(node, shard, entity) + 1,
						.row = {.shard = shard, .entity = entity}};
	LifeEvent *event;
	int64 pause;

	life_step(node, shard, entity, SHARD_ENTITY_ON_FAILED);
	if (shard_entity_restarts(&type->limits, (int) held.attempts, false, &pause))
		held.next_at = life_wall(node) + pause;
	else
	{
		held.next_at = LIFE_NEVER;
		life_step(node, shard, entity,
				  type->remembers ? SHARD_ENTITY_ON_GIVEN_UP : SHARD_ENTITY_ON_SUSPENDED);
	}
	life_put(node, LIFE_HELD, LIFE_KEY(shard, entity, LIFE_PLACE_START, 0), &held);
	life_load_held(node, shard, entity);
	event = life_event(node, LIFE_EVENT_START_FAILED, shard, entity);
	event->cause = cause;
	event->attempts = held.attempts;
	event->next_at = held.next_at;
}

/* The machine comes to active, and what it says is stored is. */
static void
step_to_active(LifeNode *node, int32 shard, int32 entity, LifeCause cause)
{
	LifeEntity *e = &node->memory.entities[shard][entity];
	ShardEntityEvent event =
		cause == LIFE_BY_MESSAGE ? SHARD_ENTITY_ON_MESSAGE : SHARD_ENTITY_ON_START;
	bool remembers = node->world->types[life_type_of(shard)].remembers;

	if (e->state == SHARD_ENTITY_NONE && remembers && life_is_remembered(node, shard, entity))
		life_step(node, shard, entity, SHARD_ENTITY_ON_RECOVERED);
	if (e->state == SHARD_ENTITY_PASSIVATING)
		event = SHARD_ENTITY_ON_RECALLED;
	else if (e->state == SHARD_ENTITY_QUARANTINED)
		event = SHARD_ENTITY_ON_RESUMED;
	else if (e->state == SHARD_ENTITY_WAITING)
		event = cause == LIFE_BY_RECOVERY || (cause == LIFE_BY_MESSAGE && e->restart_at == 0)
					? SHARD_ENTITY_ON_DUE
					: SHARD_ENTITY_ON_START;
	if (life_step(node, shard, entity, event) == SHARD_ENTITY_DO_STORE_START)
		life_step(node, shard, entity, SHARD_ENTITY_ON_STORED);
	/* Whatever led here: one whose first message waited was never told to be stored. */
	if (remembers)
		life_remember(node, shard, entity, cause);
}

/*
 * The entity of a row is to run. False: its start failed. A start message runs whenever the entity comes into memory,
 * before anything else of it does.
 */
bool
life_begin(LifeNode *node, const LifeRow *row, LifeCause cause)
{
	int32 shard = row->shard;
	int32 entity = row->entity;
	LifeEntity *e = &node->memory.entities[shard][entity];
	const LifeType *type = &node->world->types[life_type_of(shard)];
	LifeEvent *event;

	if (e->state != SHARD_ENTITY_ACTIVE)
		step_to_active(node, shard, entity, cause);
	e->restart_at = 0;
	if (e->incarnation != 0)
		return true;
	node->accessed[shard][entity] = true;
	if (type->start_message && node->world->sick[shard][entity])
	{
		start_failed(node, shard, entity, cause);
		return false;
	}
	e->incarnation = ++node->world->number;
	event = life_event(node, LIFE_EVENT_BEGAN, shard, entity);
	event->cause = cause;
	event->attempts = attempts_at_start(node, shard, entity) + 1;
#ifdef SHARD_MUTANT_FIRST_MESSAGE_BEFORE_START
	if (cause == LIFE_BY_MESSAGE)
		return true;
#endif
	if (type->start_message)
	{
		life_effect(node, shard, entity);
		life_event(node, LIFE_EVENT_START_MESSAGE, shard, entity);
	}
	return true;
}

/* shard_start_entity(): a start that is held is tried now, whatever its pause. */
void
life_start_ordered(LifeNode *node, const LifeRow *row)
{
	LifeEvent *event;

	life_begin(node, row, LIFE_BY_ORDER);
	event = life_event(node, LIFE_EVENT_DONE, row->shard, row->entity);
	event->id = row->id;
	event->row = *row;
}

/* A START row is met. False: it goes the way of any message. A start that is held is what the others wait for. */
bool
life_meet_start(LifeNode *node, const LifeRow *row)
{
	StoreKey key = LIFE_KEY(row->shard, row->entity, LIFE_PLACE_START, 0);

	if (store_get(node->store, node->tx, LIFE_HELD, key) == NULL ||
		life_is_aside(node, row->shard, row->entity))
		return false;
	life_start_ordered(node, row);
	if (node->memory.entities[row->shard][row->entity].state == SHARD_ENTITY_ACTIVE)
	{
		life_remove(node, LIFE_HELD, key);
		life_load_held(node, row->shard, row->entity);
		life_follow(node, row->shard, row->entity);
	}
	return true;
}

/* A remembered entity starts without a message. One that waits starts with what it waits for, or when that is gone. */
void
life_recover(LifeNode *node, int32 shard, int32 entity)
{
	const LifeEntity *e = &node->memory.entities[shard][entity];
	LifeRow row = {.shard = shard, .entity = entity};

#ifndef SHARD_MUTANT_STARTED_THOUGH_FORGOTTEN
	if (!life_is_remembered(node, shard, entity))
		return;
#endif
	if (e->state == SHARD_ENTITY_NONE && e->waiting == 0)
		life_begin(node, &row, LIFE_BY_RECOVERY);
}

bool
life_walk_due(const LifeNode *node, int32 shard)
{
	const LifeShard *s = &node->memory.shards[shard];

	return s->active && s->walking && s->paused_until <= life_wall(node) &&
		   node->memory.walk_at[life_type_of(shard)] <= node->world->now;
}

/*
 * The walk over what is remembered goes on, as the last thing in a turn. How far it is, is in memory: an aborted turn has
 * walked nowhere.
 */
void
life_walk(LifeNode *node, int32 shard)
{
	LifeShard *s = &node->memory.shards[shard];
	const ShardRecoveryRate *rate = &node->world->types[life_type_of(shard)].recovery;
	ShardRecoveryPace *pace = &node->memory.paces[life_type_of(shard)];
	int64 again = 0;
	int64 number =
		rate->period > 0 ? shard_recovery_allows(rate, pace, node->world->now, &again) : 2;

	if (number == 0)
		node->memory.walk_at[life_type_of(shard)] = again;
	for (; s->walked < LIFE_ENTITIES && number > 0; s->walked++, number--)
	{
		life_recover(node, shard, s->walked);
		shard_recovery_started(pace, 1);
	}
	s->walking = s->walked < LIFE_ENTITIES;
}
