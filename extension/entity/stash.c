/*
 * entity/stash.c
 *		What waits of entities and is due: from shard.held to its entity.
 *
 * Comes from: process/region_turn.c, before the turn looks at the log: the list of entities that are due (queue.c).
 * Goes to: handle.c or order.c, as a row of the log does; a row that was handled leaves shard.held (queue.c).
 *
 * Each read goes on where the one before has stopped, also in the next turn: as long as any transaction of the database
 * is older, the rows that have left are still there to be passed, and a stash of n rows would be read n * n / 2 times.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "entity/internal.h"

#include "base/compat.h"

/* Rows of one entity's stash that are read at once: few at first, since a turn may not come to many. */
#define FIRST_ROWS 4
#define MOST_ROWS 256

/* The most stash rows of one entity that are handled in a row while others are due. */
#define STASH_ROWS 1000

/* Runs a message of the stash as the entity's type wants it. */
static ShardOutcome
run_held(ShardEntity *entity, const ShardHeld *held)
{
	shard_turn_begin_message(&held->row);
	if (shard_order_applies(entity))
		return shard_order_run(entity, &held->row, held->attempts, true);
	return shard_handle_message(entity, &held->row, held->attempts, true);
}

/* A piece of an entity's stash, that is handled from its front. */
typedef struct StashPiece
{
	MemoryContext context; /* of the rows */
	List *rows;
	int64 upto; /* seq of the last one that is not in the stash any more */
	bool last;	/* nothing comes behind it */
	bool ended; /* messages of the entity stay, or such that it made ready */
} StashPiece;

static void
read_piece(const ShardEntity *entity, StashPiece *piece, int limit)
{
	MemoryContext old;

	shard_execution_end_user_code();
	MemoryContextReset(piece->context);
	old = MemoryContextSwitchTo(piece->context);
	piece->rows = shard_held_load(entity->local->type->type_id, entity->shard, entity->id,
								  entity->id_len, piece->upto, limit, &piece->last);
	MemoryContextSwitchTo(old);
}

/* Whether other types go first (E27). Then the next turn comes back to the entity. */
static bool
is_put_off(ShardEntity *entity)
{
	if (!shard_turn_puts_off(entity->local))
		return false;
	shard_turn_note_put_off(entity->local);
	shard_turn.stash_left = true;
	return true;
}

/* Handles the first messages of a piece, and what waited for their numbers. */
static void
run_piece(ShardEntity *entity, StashPiece *piece)
{
	ListCell *cell;

	foreach (cell, piece->rows)
	{
		ShardHeld *held = lfirst(cell);
		ShardOutcome outcome;

		piece->ended =
			shard_turn_is_over() || is_put_off(entity) || shard_queue_is_early(entity, held);
		if (piece->ended)
			return;
		outcome = run_held(entity, held);
#ifdef SHARD_MUTANT_STASH_KEPT
		if (outcome == SHARD_MESSAGE_DONE)
		{
			shard_turn.count--; /* or no later turn would end before one that failed here */
			outcome = run_held(entity, held);
		}
#endif
		piece->ended = outcome == SHARD_MESSAGE_RESTS;
		if (piece->ended)
			return;
		if (outcome == SHARD_MESSAGE_DONE)
			shard_queue_remove(entity, &held->row);
#ifndef SHARD_MUTANT_STASH_READ_AGAIN
		entity->wait.gone = held->row.seq;
#endif
		piece->upto = held->row.seq;
		shard_order_run_ready(entity, &piece->ended);
		piece->ended |= shard_order_has_ready(entity);
		if (piece->ended)
			return;
	}
}

/* Handles an entity's stash, as far as the turn goes. What stays is due, and goes before anything newer. */
static void
run_stash(ShardEntity *entity)
{
	StashPiece piece = {.upto = entity->wait.gone != 0 ? entity->wait.gone : PG_INT64_MIN};
	int before = shard_turn.count;
	int limit = FIRST_ROWS;

	piece.context =
		AllocSetContextCreate(shard_turn.context, "shard stash", ALLOCSET_DEFAULT_SIZES);
	while (!piece.last && !piece.ended && shard_turn.count - before < STASH_ROWS)
	{
		read_piece(entity, &piece, limit);
		run_piece(entity, &piece);
		limit = Min(limit * 4, MOST_ROWS);
	}
	if (piece.last && !piece.ended)
	{
		shard_queue_end(entity);
		shard_handle_late_start(entity);
	}
	MemoryContextDelete(piece.context);
}

/*
 * Starts an entity that has to start first, since it failed to or its row was locked. False: it has not, and its
 * messages wait.
 */
static bool
run_start(ShardEntity *entity)
{
	ShardRow row = shard_start_row(entity);

	shard_turn_begin_message(&row);
	if (shard_handle_message(entity, &row, entity->wait.starts, false) != SHARD_MESSAGE_DONE)
		return false;
	shard_start_done(entity);
	return true;
}

/* Handles the due messages of one entity. */
static void
run_due(ShardEntity *entity)
{
	bool rests;

	shard_turn_enlist(entity);
	shard_turn.at = entity;
	if (entity->life == SHARD_ENTITY_WAITING)
		(void) shard_life_step(entity, SHARD_ENTITY_ON_DUE);
	if (entity->wait.start && !run_start(entity))
	{
		shard_turn.begun = true;
		return;
	}
	if (!entity->wait.deferred)
		shard_order_time_out(entity);
	shard_order_run_ready(entity, &rests);
	if (entity->wait.deferred && !rests && !shard_order_has_ready(entity))
		run_stash(entity);
	shard_life_follow(entity);
	shard_turn.begun = true;
}

/* From when on an entity of the due list may be looked at, if its type runs and its shard is here. */
static TimestampTz
due_at(const ShardEntity *entity)
{
	TimestampTz at =
		entity->wait.deferred ? Max(entity->wait.not_before, 1) : shard_order_due_at(entity);

	return Max(at, shard_pause_until(entity->local, entity->shard));
}

static bool
is_due(ShardEntity *entity)
{
	return due_at(entity) <= shard_turn.now &&
		   shard_turn_ready_type(entity->local->type->type_id) && entity->local->runnable &&
		   shard_presence->is_active(entity->local->type->type_id, entity->shard);
}

TimestampTz
shard_stash_next_due(void)
{
	TimestampTz result = 0;
	dlist_iter iter;

	if (dlist_is_empty(&shard_turn.due))
		return 0;
	/* between turns: a worker that sleeps for an hour would not notice that the hour began anew */
	shard_queue_follow_clock(GetCurrentTimestamp());
	dlist_foreach (iter, &shard_turn.due)
	{
		ShardEntity *entity = dlist_container(ShardEntity, due, iter.cur);
		TimestampTz at = due_at(entity);

		if (!entity->local->runnable ||
			!shard_presence->is_active(entity->local->type->type_id, entity->shard))
			continue;
		if (result == 0 || at < result)
			result = at;
	}
	return result;
}

void
shard_stash_run_due(void)
{
	dlist_node *next = NULL;
	dlist_iter iter;

	shard_turn_begin_source(SHARD_SOURCE_HELD);
	dlist_foreach (iter, &shard_turn.due)
	{
		ShardEntity *entity = dlist_container(ShardEntity, due, iter.cur);

		if (!is_due(entity))
			continue;
		if (shard_turn_is_over())
		{
			next = iter.cur;
			shard_turn.stash_left = true;
			break;
		}
		if (is_put_off(entity))
			continue;
		run_due(entity);
	}

	/* entities that were handled come last in the next turn */
	while (next != NULL && dlist_head_node(&shard_turn.due) != next)
		dlist_push_tail(&shard_turn.due, dlist_pop_head_node(&shard_turn.due));
	shard_turn.stash_left |= shard_turn_is_over();
}

bool
shard_stash_is_left(void)
{
	return shard_turn.stash_left;
}
