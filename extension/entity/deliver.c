/*
 * entity/deliver.c
 *		Running one message: from the log, from a stash, or an ask.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "log/buffer.h"
#include "entity/dead_letter_room.h"
#include "entity/internal.h"
#include "shared/board.h"
#include "registry/registry.h"
#include "entity/presence.h"
#include "shared/shmem.h"

#include "base/compat.h"

/* How long an entity rests whose row somebody holds. */
#define CONTENDED_PAUSE (100 * INT64CONST(1000))

/* Rows of one entity's stash that are read at once: few at first, since a turn may not come to many. */
#define FIRST_ROWS 4
#define MOST_ROWS 256

/* Messages of more bytes may add to what a turn has in memory, so much that they are looked at one by one. */
#define SMALL_BYTES 1024

/* Of one entity the stash is handled so far at once, if there are others. */
#define STASH_ROWS 1000

/* The reply to an ask, to be sent after commit. */
static void
keep_reply(ShardRequest *request, char *reply, ErrorData *error)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ShardReply *kept = palloc0(sizeof(ShardReply));

	/* what is sent after the commit must not be in the transaction's memory */
	ShardAssert(error == NULL || error->assoc_context == NULL ||
				(error->assoc_context == shard_turn.context &&
				 GetMemoryChunkContext(error->message) == shard_turn.context));
	kept->request = request;
	kept->error = error;
	if (reply != NULL)
	{
		kept->data = VARDATA_ANY(reply);
		kept->len = VARSIZE_ANY_EXHDR(reply);
	}
	shard_turn.replies = lappend(shard_turn.replies, kept);
	MemoryContextSwitchTo(old);
}

ShardOutcome
shard_queue_rest(ShardEntity *entity, const ShardRow *row, bool is_held)
{
	shard_turn_end_user_code();
	if (is_held)
	{
		entity->wait.deferred = true;
		entity->wait.not_before = shard_turn.now + CONTENDED_PAUSE;
	}
	else
		shard_queue_defer(entity, row, shard_turn.now + CONTENDED_PAUSE, false);
	return SHARD_MESSAGE_RESTS;
}

/* Whether an entity's messages have numbers. */
static inline bool
is_ordered(const ShardEntity *entity)
{
#ifdef SHARD_MUTANT_ORDER_IGNORED
	return false;
#else
	return entity->run->type->ordered_by_name != NULL;
#endif
}

/* What becomes of a message that failed. */
static ShardOutcome
judge(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held, ErrorData *error)
{
	if (row->kind == SHARD_KIND_START)
	{
		/* it was only to be in memory; who sends it a message will hear of it */
		error->elevel = LOG;
		ThrowErrorData(error);
		return SHARD_MESSAGE_DONE;
	}
	return shard_failure_dispose(entity, row, attempts, is_held, error) ? SHARD_MESSAGE_GONE
																		: SHARD_MESSAGE_RESTS;
}

/* Runs a message in a careful turn. */
static ShardOutcome
run_careful(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ShardExecution execution = {0};
	bool overtaken;
	ErrorData *error = shard_handle_fenced(entity, row, NULL, &execution, &overtaken);

	if (overtaken)
	{
		shard_cache_forget(entity);
		entity->checked = false;
		entity->now = entity->saved;
		return shard_queue_rest(entity, row, is_held);
	}
	return error == NULL ? SHARD_MESSAGE_DONE : judge(entity, row, attempts, is_held, error);
}

/* Runs a message in an optimistic turn: what raises, also while its state is read, is its fault. */
static bool
run_optimistic(ShardEntity *entity, const ShardRow *row)
{
	ShardExecution execution;
	bool good;

	shard_turn.blames_last = true;
	good = shard_turn_check(entity);
	if (good && shard_kind_is_message(row->kind) && !entity->run->type->batch)
		shard_call_message(entity, row, NULL, &execution);
	shard_turn.blames_last = false;
	return good;
}

/* Messages that workers before this one got stuck in. */
static int64 stuck[SHARD_LANES];
static bool stuck_fatal[SHARD_LANES];
static int stuck_count = 0;

void
shard_handle_init(ShardLanes lanes)
{
	for (int lane = 0; lane < SHARD_LANES; lane++)
	{
		ShardLane *of = &shard_shmem_database()->lane[lane];
		int64 seq = pg_atomic_read_u64(&of->stuck_seq);

		if ((lanes & shard_lane_bit(lane)) == 0 || seq == 0)
			continue;
		stuck_fatal[stuck_count] = pg_atomic_read_u32(&of->stuck_fatal) != 0;
		stuck[stuck_count++] = seq;
	}
}

bool
shard_handle_is_stuck(const ShardRow *row)
{
	for (int i = 0; i < stuck_count; i++)
		if (stuck[i] == row->seq)
			return true;
	return false;
}

/* Whether the worker ended by an error of the handler, and not because that went on for too long. */
static bool
was_fatal(const ShardRow *row)
{
	for (int i = 0; i < stuck_count; i++)
		if (stuck[i] == row->seq)
			return stuck_fatal[i];
	return false;
}

/*
 * Gives up a message whose handler had to be ended with its worker. The turn ends
 * with it: should another message get stuck in the same turn, this one would be
 * forgotten and run again.
 */
static ShardOutcome
bury_stuck(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	ErrorData error = {.sqlerrcode = ERRCODE_QUERY_CANCELED,
					   .message = "the handler ran longer than its handler_timeout, and could not "
								  "be cancelled",
					   .hint = "Do not catch query_canceled in a handler."};

	if (was_fatal(row))
	{
		error.sqlerrcode = ERRCODE_EXTERNAL_ROUTINE_EXCEPTION;
		error.message = "the handler ended its region worker by an error";
		error.hint = "See the server's log for that error.";
	}
	shard_turn.full = true;
	return shard_failure_dispose(entity, row, attempts, is_held, &error) ? SHARD_MESSAGE_GONE
																		 : SHARD_MESSAGE_RESTS;
}

/* Gives up a message that failed at the commit of its turn. */
static ShardOutcome
bury_uncommitted(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	return judge(entity, row, attempts, is_held, shard_turn_given_up_error());
}

ShardOutcome
shard_handle_message(ShardEntity *entity, const ShardRow *row, int attempts, bool is_held)
{
	if (row->kind == SHARD_KIND_PASSIVATE)
	{
		entity->let_go = true;
		return SHARD_MESSAGE_DONE;
	}
	if (shard_handle_is_stuck(row))
		return bury_stuck(entity, row, attempts, is_held);
	if (shard_turn_is_given_up(entity, row, NULL))
		return bury_uncommitted(entity, row, attempts, is_held);
	if (!shard_turn_hold(entity->run))
		return shard_queue_rest(entity, row, is_held);
	shard_turn_note_ran(entity, row, NULL);
	shard_cache_touch(entity, shard_turn.now);
	if (shard_turn.careful)
	{
		ShardOutcome outcome = run_careful(entity, row, attempts, is_held);

		if (outcome != SHARD_MESSAGE_DONE)
			return outcome;
	}
	else if (!run_optimistic(entity, row))
		return shard_queue_rest(entity, row, is_held);
	if (row->kind == SHARD_KIND_START)
		return SHARD_MESSAGE_DONE;
	if (!shard_turn.careful && entity->run->type->batch)
		shard_call_collect(entity, row);
	entity->handled++;
	return SHARD_MESSAGE_DONE;
}

ShardRun *
shard_turn_known_run(int32 type_id)
{
	ShardRun *run = shard_turn_ready_run(type_id);

	if (run != NULL || shard_turn.reloaded)
		return run;
	shard_turn.reloaded = true;
	shard_turn_end_user_code();
	shard_registry_reload();
	return shard_turn_ready_run(type_id);
}

bool
shard_deliver_knows(const ShardRow *row)
{
	ShardRun *run = shard_turn_known_run(row->type_id);

	return run != NULL && row->shard >= 0 && row->shard < run->type->number_of_shards;
}

void
shard_turn_pass(void)
{
	shard_turn.count++;
	shard_turn.passed = true;
}

/* Runs a message of an entity that can run, and what waited for it. */
static void
run_next(ShardEntity *entity, const ShardRow *row)
{
	bool rests;

	if (is_ordered(entity))
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

/* A message begins. Memory and clock are looked at behind one that is not small, whatever is done with it. */
static inline void
begin_message(const ShardRow *row)
{
	shard_turn.count++;
	shard_turn.passed = true;
	if (row->payload_len > SMALL_BYTES)
	{
		shard_turn.look = true;
		shard_turn.read_each = 1;
	}
}

/* Nobody has its type any more (D28): a dead letter, if there is room for it (D16). */
static void
bury_stray(const ShardRow *row, bool bounded)
{
	ErrorData error = {.sqlerrcode = ERRCODE_UNDEFINED_OBJECT,
					   .message = SHARD_DROPPED_ERROR,
					   .hint = SHARD_DROPPED_HINT};

	shard_turn_end_user_code();
	if (bounded && !shard_dead_letter_has_stray_room(row, &error))
	{
		shard_turn_count_strays(0, 1);
		return;
	}
	shard_held_dead_letter(row, 0, &error);
	shard_turn_count_strays(1, 0);
}

/* The message's entity, in the turn; NULL: there is none, and it is done with. */
static inline ShardEntity *
entity_of(const ShardRow *row)
{
	ShardRun *run = shard_turn_known_run(row->type_id);

	begin_message(row);
	if (run == NULL || row->shard < 0 || row->shard >= run->type->number_of_shards)
	{
		bury_stray(row, run == NULL);
		return NULL;
	}
	return shard_turn_entity(run, row);
}

void
shard_deliver_row(const ShardRow *row)
{
	ShardEntity *entity = entity_of(row);

	if (entity == NULL)
		return;
	if (!entity->run->runnable)
		shard_queue_defer(entity, row, 0, true);
	else if (shard_turn.aside)
	{
		shard_queue_defer(entity, row, 0, false);
		shard_buffer_put_aside(entity->run->type);
	}
#ifndef SHARD_MUTANT_STASH_OVERTAKEN
	else if (entity->wait.deferred || shard_order_has_ready(entity))
		shard_queue_defer(entity, row, 0, false);
#endif
	else
		run_next(entity, row);
}

void
shard_deliver_to_stash(const ShardRow *row)
{
	ShardEntity *entity = entity_of(row);

	if (entity != NULL)
		shard_queue_defer(entity, row, 0, !entity->run->runnable);
}

/* Runs a message of the stash as the entity's type wants it. */
static ShardOutcome
run_held(ShardEntity *entity, const ShardHeld *held)
{
	begin_message(&held->row);
	if (is_ordered(entity))
		return shard_order_run(entity, &held->row, held->attempts, true);
	return shard_handle_message(entity, &held->row, held->attempts, true);
}

/*
 * Whether a message has to wait for its next attempt. The time in memory counts, if there is one: it is
 * over, and never was farther ahead than max_retry_backoff, unlike that in the row, should the clock have
 * been set back or the limit lowered (D16).
 */
bool
shard_queue_is_early(ShardEntity *entity, const ShardHeld *held)
{
	if (held->next_at <= shard_turn.now || entity->saved_wait.not_before != 0)
		return false;
	entity->wait.deferred = true;
	entity->wait.not_before =
		Min(held->next_at, shard_turn.now + entity->run->type->max_retry_backoff);
	entity->wait.attempts = held->attempts;
	return true;
}

void
shard_queue_remove(ShardEntity *entity, const ShardRow *row)
{
	shard_turn_end_user_code();
	shard_held_delete(row);
	entity->wait.waiting--;
	entity->wait.attempts = 0;
}

/* A piece of an entity's stash, that is handled from its front. */
typedef struct StashPiece
{
	MemoryContext context; /* of the rows */
	List *rows;
	int64 upto; /* seq of the last one that is not in the stash any more */
	bool last;	/* nothing comes behind it */
	bool ended; /* something of it stays, or what it made ready */
} StashPiece;

static void
read_piece(const ShardEntity *entity, StashPiece *piece, int limit)
{
	MemoryContext old;

	shard_turn_end_user_code();
	MemoryContextReset(piece->context);
	old = MemoryContextSwitchTo(piece->context);
	piece->rows = shard_held_load(entity->run->type->type_id, entity->shard, entity->id,
								  entity->id_len, piece->upto, limit, &piece->last);
	MemoryContextSwitchTo(old);
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

		piece->ended = shard_turn_is_over() || shard_queue_is_early(entity, held);
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
	StashPiece piece = {.upto = PG_INT64_MIN};
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
		entity->wait = (ShardWait){.waiting = entity->wait.waiting};
	MemoryContextDelete(piece.context);
}

/* Handles what is due of one entity. */
static void
run_due(ShardEntity *entity)
{
	bool rests;

	shard_turn_enlist(entity);
	shard_turn.at = entity;
	if (!entity->wait.deferred)
		shard_order_time_out(entity);
	shard_order_run_ready(entity, &rests);
	if (entity->wait.deferred && !rests && !shard_order_has_ready(entity))
		run_stash(entity);
	shard_turn.begun = true;
}

static bool
is_due(ShardEntity *entity)
{
	return shard_stash_due_at(entity) <= shard_turn.now &&
		   shard_turn_ready_run(entity->run->type->type_id) && entity->run->runnable &&
		   shard_presence->is_active(entity->run->type->type_id, entity->shard);
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
		shard_turn.stash_left |= shard_turn_is_over();
		if (shard_turn.stash_left)
		{
			next = iter.cur;
			break;
		}
		run_due(entity);
	}

	/* those that had their turn come last in the next one */
	while (next != NULL && dlist_head_node(&shard_turn.due) != next)
		dlist_push_tail(&shard_turn.due, dlist_pop_head_node(&shard_turn.due));
	shard_turn.stash_left |= shard_turn_is_over();
}

bool
shard_deliver_can_ask(const ShardRequest *request)
{
	ShardRun *run = shard_turn_ready_run(request->type_id);
	ShardEntity *entity;

	if (run == NULL || !run->runnable)
		return run == NULL || !shard_run_awaits_worker(run); /* it is told so */
	entity = shard_cache_get(run, request->shard, request->entity, request->entity_len, false);
	return entity == NULL || !(entity->wait.deferred || shard_order_has_ready(entity));
}

void
shard_deliver_ask(ShardRequest *request)
{
	ShardRun *run = shard_turn_ready_run(request->type_id);
	ShardEntity *entity;
	ShardExecution execution = {0};
	ErrorData *error = NULL;
	bool overtaken = false;

	shard_turn.count++;
	if (!shard_ring_begin(request))
		return;
	if (run == NULL || !run->runnable)
	{
		keep_reply(request, NULL, shard_failure_of_type(run != NULL ? run->type : NULL));
		return;
	}
	entity = shard_cache_get(run, request->shard, request->entity, request->entity_len, true);
	shard_turn_enlist(entity);
	shard_turn.at = entity;
	if (shard_turn_is_given_up(entity, NULL, request))
		error = shard_turn_given_up_error();
	else
		overtaken = !shard_turn_hold(run) || (!shard_turn.careful && !shard_turn_check(entity));
	if (error == NULL && !overtaken)
	{
		shard_turn_note_ran(entity, NULL, request);
		shard_cache_touch(entity, shard_turn.now);
		if (!shard_turn.careful)
			shard_call_batch(entity);
		shard_order_heed(entity);
		error = shard_handle_fenced(entity, NULL, request, &execution, &overtaken);
		shard_order_heed(entity);
	}
	if (overtaken)
	{
		ErrorData locked = {.sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE,
							.message = "another transaction holds the state row of the entity",
							.hint = "Ask again when that transaction has ended."};

		shard_cache_forget(entity);
		entity->checked = false;
		entity->now = entity->saved;
		error = shard_failure_keep(&locked);
	}
	if (error != NULL)
	{
		shard_turn.errors++;
		shard_run_count(run, entity->shard)->errors++;
	}
	else
		entity->handled++;
	keep_reply(request, error == NULL ? execution.reply : NULL, error);
}
