/*
 * entity/deliver.c
 *		One message of the log: from its row to its entity.
 *
 * Comes from: the scan, by way of routing (route/routing_host.c): a row whose shard is active here, or is clearing.
 * Goes to: handle.c, if the entity can run and nothing of it goes first; order.c before that, if its type has
 * ordered_by; queue.c, if the message has to wait; the dead letters, if its type is not here.
 */
#include "postgres.h"

#include "entity/internal.h"
#include "entity/request.h"
#include "log/buffer.h"

#include "base/compat.h"

bool
shard_deliver_knows(const ShardRow *row)
{
	ShardLocalType *local = shard_turn_known_type(row->type_id);

	return local != NULL && row->shard >= 0 && row->shard < local->type->number_of_shards;
}

/* Runs a message of an entity that can run, and the messages that waited for it. */
static void
run_next(ShardEntity *entity, const ShardRow *row)
{
	bool rests;

	if (shard_order_applies(entity))
	{
		if (shard_order_run(entity, row, 0, false) != SHARD_MESSAGE_RESTS)
			shard_order_run_ready(entity, &rests);
	}
	else
	{
		(void) shard_handle_message(entity, row, 0, false);
		shard_order_heed(entity);
	}
}

/*
 * The message's type is gone (D28): it becomes a dead letter, if there is room for it (D16). Who has asked by it is told;
 * an answer finds nobody.
 */
static void
bury_stray(const ShardRow *row, bool bounded)
{
	ErrorData error = {.sqlerrcode = ERRCODE_UNDEFINED_OBJECT,
					   .message = SHARD_DROPPED_ERROR,
					   .hint = SHARD_DROPPED_HINT};

	ShardRow dead = *row;

	if (row->kind == SHARD_KIND_RESPONSE)
	{
		shard_turn.voids++;
		return;
	}
	shard_execution_end_user_code();
	shard_turn.at = NULL; /* it is told by no entity */
	if (row->kind == SHARD_KIND_REQUEST)
		shard_request_give_up(NULL, &dead, &error);
	if (bounded && !shard_dead_letter_has_stray_room(&dead, &error))
	{
		shard_turn_count_strays(0, 1);
		return;
	}
	shard_held_dead_letter(&dead, 0, &error, true);
	shard_turn_count_strays(1, 0);
}

/* The message's entity, in the turn; NULL: there is none, and the message is done with. */
static inline ShardEntity *
entity_of(const ShardRow *row)
{
	ShardLocalType *local = shard_turn_known_type(row->type_id);

	shard_turn_begin_message(row);
	if (local == NULL || row->shard < 0 || row->shard >= local->type->number_of_shards)
	{
		if (!shard_stop_is_number(row))
			bury_stray(row, local == NULL);
		return NULL;
	}
	return shard_turn_entity(local, row);
}

/*
 * A command to an entity that cannot start: to start at once, or to end, which it may if no message waits for it. False:
 * it is none, or has to wait.
 */
static bool
hurry_or_end(ShardEntity *entity, const ShardRow *row)
{
	if (row->kind == SHARD_KIND_START)
	{
		shard_start_hurry(entity);
		return true;
	}
	if (row->kind != SHARD_KIND_PASSIVATE || entity->wait.waiting > 0)
		return false;
	if (shard_handle_message(entity, row, 0, false) == SHARD_MESSAGE_DONE)
	{
		shard_start_done(entity);
		shard_queue_end(entity);
		shard_life_passivate(entity, true);
	}
	return true;
}

/* Whether a row of the entity cannot run now. */
static bool
has_to_wait(ShardEntity *entity)
{
	return !entity->local->runnable || shard_turn.aside || entity->wait.deferred ||
		   shard_order_has_ready(entity) || shard_pause_until(entity->local, entity->shard) != 0 ||
		   shard_turn_puts_off(entity->local);
}

void
shard_deliver_row(const ShardRow *row)
{
	ShardEntity *entity = entity_of(row);
	if (entity == NULL)
		return;
	if (unlikely(row->kind == SHARD_KIND_PASSIVATE) &&
		shard_stop_passes_over(entity, row, has_to_wait(entity)))
	{
		if (shard_turn_puts_off(entity->local))
			shard_turn_note_put_off(entity->local);
		return;
	}
#ifdef SHARD_MUTANT_STOP_OVERTAKES
	if (row->kind == SHARD_KIND_PASSIVATE)
		entity->life = SHARD_ENTITY_ACTIVE, entity->wait.deferred = false;
#endif
	if (!entity->local->runnable)
		shard_queue_defer(entity, row, 0, true);
	else if (shard_turn.aside)
	{
		shard_queue_defer(entity, row, 0, false);
		shard_buffer_put_aside(entity->local->type);
	}
	else if (entity->wait.start && hurry_or_end(entity, row))
		return;
#ifndef SHARD_MUTANT_STASH_OVERTAKEN
	else if (entity->wait.deferred || shard_order_has_ready(entity))
		shard_queue_defer(entity, row, 0, false);
#endif
	else if (shard_pause_until(entity->local, entity->shard) != 0)
		shard_queue_defer(entity, row, 0, false);
	else if (shard_turn_puts_off(entity->local))
	{
		shard_queue_defer(entity, row, 0, false);
		shard_turn_note_put_off(entity->local);
	}
	else
		run_next(entity, row);
}

/*
 * It waits for nothing that goes first: it is no message, and nothing of the entity runs. In a shard that is clearing the
 * row may be one of the former life, and is looked at in the next.
 */
void
shard_deliver_touched(const ShardRow *row, bool clearing)
{
	ShardLocalType *local = shard_turn_known_type(row->type_id);
	ShardEntity *entity;

	if (local == NULL || local->type->replicas == 0 || row->shard < 0 ||
		row->shard >= local->type->number_of_shards)
		return;
	shard_turn_begin_message(row);
	entity = shard_turn_entity(local, row);
	if (local->readable && !clearing)
		(void) shard_handle_message(entity, row, 0, false);
#ifndef SHARD_MUTANT_TOUCHED_NOT_HELD
	else
		shard_queue_defer(entity, row, 0, !local->runnable);
#endif
}

void
shard_deliver_to_stash(const ShardRow *row)
{
	ShardEntity *entity = entity_of(row);

	if (entity != NULL && !shard_stop_passes_over(entity, row, true))
		shard_queue_defer(entity, row, 0, !entity->local->runnable);
}
