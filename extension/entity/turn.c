/*
 * entity/turn.c
 *		A turn's messages: optimistic, or carefully one by one.
 *
 * Normally handlers run without a subtransaction; the first failure raises, the
 * region worker rolls the turn back and comes again with a smaller one, at last
 * a careful one: each message in a subtransaction of its own, its state written
 * in there, and what becomes of a failed message is decided on the spot.
 *
 * In memory an entity has what was true after the last commit (saved) and what
 * is true in this turn (now); an abort just drops the latter. Replies are kept
 * until after the commit. If the process dies right here, nothing of the turn
 * was committed and nobody has been told.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/datum.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "log/buffer.h"
#include "entity/internal.h"
#include "entity/presence.h"
#include "shared/shmem.h"

#include "base/compat.h"

const ShardPresence *shard_presence = NULL;
ShardTurn shard_turn;

static bool is_worker = false;
static uint64 refreshed_at = 0; /* registry generation the runs were looked at */
static bool bury_wanted =
	false; /* a type was dropped, and what joined its stash meanwhile is there */
static bool reread_wanted = false; /* the same, but others may host it; or it came back (D28) */

bool
shard_execution_in_handler(void)
{
	return is_worker || shard_execution_current() != NULL;
}

void
shard_queue_count(ShardRun *run, int64 delta)
{
	shard_shmem_count_held(&run->type->counter, MyDatabaseId, run->type->type_id, delta);
	if (delta < 0)
		shard_buffer_catch_up(run->type);
}

static void
uncount_entity(ShardEntity *entity, void *arg)
{
	if (entity->saved_wait.waiting != 0)
		shard_queue_count(entity->run, -entity->saved_wait.waiting);
}

/* A worker that ends takes its share off the counters; its successor counts anew. What it has not said it says now. */
static void
at_exit(int code, Datum arg)
{
	shard_turn_log_strays(true);
	shard_cache_each(uncount_entity, NULL);
}

void
shard_turn_init(ShardLanes lanes, const ShardPresence *presence)
{
	shard_presence = presence;
	is_worker = true;
	shard_turn.context =
		AllocSetContextCreate(TopMemoryContext, "shard turn", ALLOCSET_DEFAULT_SIZES);
	slist_init(&shard_turn.runs);
	dlist_init(&shard_turn.due);
	shard_cache_init();
	shard_handle_init(lanes);
	before_shmem_exit(at_exit, 0);
	shard_turn_commit_init();
	shard_call_init();
	shard_plans_init();
}

ShardRun *
shard_turn_ready_run(int32 type_id)
{
	ShardRun *run = shard_run_get(type_id);

	/* what changes in mid-turn is looked at before the next one, with the registry read anew */
	if (run != NULL && run->looked_at == 0)
	{
		shard_turn_end_user_code();
		shard_run_refresh(run);
		run->followed = run->runnable;
	}
	return run;
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

void
shard_queue_follow(ShardEntity *entity)
{
	set_due(entity, shard_queue_is_due(&entity->saved_wait) || shard_order_is_due(entity));
}

/* An entity that waited for its type does so no longer, or begins to. */
static void
follow_type(ShardEntity *entity, void *arg)
{
	bool was = shard_queue_is_due(&entity->saved_wait);

	if (!entity->saved_wait.deferred)
		return;
	entity->saved_wait.suspended = !entity->run->runnable;
	if (entity->run->runnable && !was)
		entity->saved_wait.not_before = 0;
	entity->wait = entity->saved_wait;
	shard_queue_follow(entity);
}

void
shard_queue_forget(ShardEntity *entity)
{
	set_due(entity, false);
	if (entity->saved_wait.waiting != 0)
		shard_queue_count(entity->run, -entity->saved_wait.waiting);
	shard_cache_remove(entity);
}

/* Its type was dropped: whatever of it waited is gone from the tables, too, or will be buried. */
static void
forget_entities(ShardRun *run)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &run->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		shard_queue_forget(entity);
	}
}

static void
refresh_run(ShardRun *run, void *arg)
{
	bool *changed = arg;

	if (!run->type->exists)
	{
		forget_entities(run);
		shard_run_forget_counts(run);
		bury_wanted |= !run->buried;
		return;
	}
	if (run->state_table != run->type->state_table ||
		run->dropped != (run->type->mode == SHARD_MODE_DROPPED))
	{
		forget_entities(run);
		run->reread = reread_wanted = true;
	}
	shard_run_refresh(run);
	if (run->runnable != run->followed)
		*changed = true;
	run->followed = run->runnable;
}

/*
 * A message may have joined the stash behind the back of who dropped its type. As one that was still in
 * the inbox it becomes a dead letter. If the process dies right here, the next one finds it at its start.
 */
static void
bury_run(ShardRun *run, void *arg)
{
	if (run->type->exists || run->buried)
		return;
	run->given_up = shard_held_bury(run->type->type_id);
	run->burying = true;
}

/* The turn that did it was committed; a type that was dropped meanwhile has its turn next. */
static void
note_buried(ShardRun *run, void *arg)
{
	if (!run->burying)
		return;
	run->burying = false;
	run->buried = true;
	shard_residents_tell_buried(run->type->type_id, run->given_up);
}

/* It was not: the next turn does it. */
static void
forget_burying(ShardRun *run, void *arg)
{
	run->burying = false;
}

/* max_retry_backoff may have been lowered: nobody waits longer than that from now on. */
static void
shorten_waits(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &shard_turn.due)
	{
		ShardEntity *entity = dlist_container(ShardEntity, due, iter.cur);

		entity->saved_wait.not_before = Min(entity->saved_wait.not_before,
											shard_turn.now + entity->run->type->max_retry_backoff);
		entity->wait = entity->saved_wait;
	}
}

/* Whether a message is due that failed before. It may well fail again, and need not do so twice. */
static bool
retry_is_due(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &shard_turn.due)
	{
		const ShardWait *wait = &dlist_container(ShardEntity, due, iter.cur)->saved_wait;

		if (wait->attempts > 0 && wait->not_before <= shard_turn.now)
			return true;
	}
	return false;
}

bool
shard_turn_begin(bool careful)
{
	shard_turn.fenced = false;
	shard_turn.now = GetCurrentTimestamp();
	shard_turn.count = shard_turn.ran = 0;
	shard_turn.blames_last = false;
	shard_turn.overtaken = false;
	shard_turn.reloaded = false;
	shard_turn.passed = shard_turn.aside = shard_turn.numbered = false;
	shard_turn.full = shard_turn.exactly = shard_turn.stash_left = false;
	shard_turn.look = true;
	shard_turn.cached = shard_cache_bytes();
	shard_turn.at = NULL;
	shard_turn.replies = NIL;
	if (refreshed_at != shard_registry_generation())
	{
		bool changed = false;

		shard_buffer_free_counters();
		shard_run_each(refresh_run, &changed);
		if (changed)
			shard_cache_each(follow_type, NULL);
		shorten_waits();
		refreshed_at = shard_registry_generation();
	}
	else if (shard_shmem_counters_wanted())
		shard_buffer_free_counters();
	if (bury_wanted)
		shard_run_each(bury_run, NULL);
	if (reread_wanted)
		shard_run_each(shard_residents_reread, NULL);
	shard_turn.careful = careful || retry_is_due();
	return shard_turn.careful;
}

void
shard_turn_has_read(TimestampTz until)
{
	shard_turn.read_until = until;
}

TimestampTz
shard_stash_due_at(const ShardEntity *entity)
{
	if (entity->wait.deferred)
		return Max(entity->wait.not_before, 1);
	return shard_order_due_at(entity);
}

TimestampTz
shard_stash_next_due(void)
{
	TimestampTz result = 0;
	dlist_iter iter;

	dlist_foreach (iter, &shard_turn.due)
	{
		ShardEntity *entity = dlist_container(ShardEntity, due, iter.cur);
		TimestampTz at = shard_stash_due_at(entity);

		if (!entity->run->runnable ||
			!shard_presence->is_active(entity->run->type->type_id, entity->shard))
			continue;
		if (result == 0 || at < result)
			result = at;
	}
	return result;
}

void
shard_turn_enlist(ShardEntity *entity)
{
	ShardRun *run = entity->run;

	if (entity->in_turn)
		return;
	entity->in_turn = true;
	entity->checked = entity->dirty = entity->let_go = entity->stale = false;
	entity->handled = 0;
	entity->now = entity->saved;
	entity->wait = entity->saved_wait;
	shard_order_begin(entity);
	if (!run->in_turn)
	{
		run->in_turn = true;
		slist_init(&run->touched);
		slist_push_head(&shard_turn.runs, &run->turn_link);
	}
	slist_push_head(&run->touched, &entity->turn_link);
}

void
shard_turn_each(void (*visit)(ShardEntity *entity, void *arg), void *arg)
{
	slist_iter run_iter;
	slist_iter iter;

	slist_foreach (run_iter, &shard_turn.runs)
		slist_foreach (iter, &slist_container(ShardRun, turn_link, run_iter.cur)->touched)
			visit(slist_container(ShardEntity, turn_link, iter.cur), arg);
}

ShardEntity *
shard_turn_entity(ShardRun *run, const ShardRow *row)
{
	ShardEntity *entity = shard_cache_get(run, row->shard, row->entity, row->entity_len, true);

	shard_turn.at = entity;
	shard_turn_enlist(entity);
	return entity;
}

void
shard_turn_end_user_code(void)
{
	shard_security_end(&shard_turn.security);
}

/*
 * All copies of a type's states are read anew: they cannot be read as its states are defined now. What was compiled
 * makes states as they were.
 */
static void
forget_copies(ShardRun *run)
{
	dlist_iter iter;

	shard_handler_free(&run->handler);
	dlist_foreach (iter, &run->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		ShardAssert(!entity->in_turn || !entity->checked);
		shard_cache_forget(entity);
		entity->now = entity->saved;
	}
}

bool
shard_turn_take_hold(ShardRun *run)
{
	switch (shard_state_hold(&run->parts, run->type))
	{
		case SHARD_STATE_BUSY:
			return false;
		case SHARD_STATE_ALTERED:
			forget_copies(run);
			return true;
		default:
			return true;
	}
}

bool
shard_turn_check(ShardEntity *entity)
{
	MemoryContext old;
	ShardRowStatus status;

	if (entity->checked)
		return true;
	ShardAssert(entity->run->parts.held);
	shard_security_begin(&shard_turn.security, entity->run->type);
	if (!shard_state_open(&entity->run->table, entity->run->type))
		return false;
	old = MemoryContextSwitchTo(shard_turn.context);
	shard_call_watch(entity->run->type);
	status = shard_state_check(&entity->run->table, entity, &entity->now, &entity->wait.blocked_by);
	shard_call_watched();
	MemoryContextSwitchTo(old);
	entity->checked = status == SHARD_ROW_OK;
	return entity->checked;
}

/* Whether the row has to be written. */
static bool
differs(const ShardEntity *entity)
{
	const ShardCopy *now = &entity->now;
	const ShardCopy *saved = &entity->saved;

	if (!saved->known || now->exists != !now->state_null || now->remembered != saved->remembered ||
		now->state_null != saved->state_null)
		return true;
	if (now->state_null)
		return false;
	return now->xmin != saved->xmin ||
		   !datumIsEqual(now->state, saved->state, entity->run->by_value, entity->run->length);
}

bool
shard_turn_write(ShardEntity *entity)
{
	bool written;
	MemoryContext old;

	if (!entity->dirty)
		return true;
	shard_turn.at = entity;
	if (!entity->now.exists && entity->now.state_null)
		return true;
	if (!shard_turn.careful && !differs(entity))
	{
		/* the handler may have changed the row by SQL, which is an error */
		if (TransactionIdIsValid(GetTopTransactionIdIfAny()) && entity->now.exists &&
			entity->run->table.rel != NULL && !shard_state_is_current(&entity->run->table, entity))
			return false;
		entity->now = entity->saved;
		return true;
	}
	shard_security_begin(&shard_turn.security, entity->run->type);
	old = MemoryContextSwitchTo(shard_turn.context);
	shard_call_watch(entity->run->type);
	written = shard_state_open(&entity->run->table, entity->run->type) &&
			  shard_state_write(&entity->run->table, entity);
	shard_call_watched();
	MemoryContextSwitchTo(old);
	if (written)
		entity->dirty = false;
	return written;
}

/* Runs the batch handlers of a run's entities, then writes their states. */
static void
finish_run(ShardRun *run)
{
	slist_iter iter;

	if (run->type->batch)
	{
		slist_foreach (iter, &run->touched)
		{
			ShardEntity *entity = slist_container(ShardEntity, turn_link, iter.cur);

			shard_call_batch(entity);
			shard_order_heed(entity);
		}
	}
	slist_foreach (iter, &run->touched)
	{
		ShardEntity *entity = slist_container(ShardEntity, turn_link, iter.cur);

		if (shard_turn_write(entity))
			continue;
		entity->stale = true;
		shard_turn.overtaken = true;
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("state row of entity \"%s\" was changed from outside", entity->id)));
	}

	/* after-triggers fire here, as the owner */
	if (run->table.rel != NULL)
	{
		shard_security_begin(&shard_turn.security, run->type);
		shard_call_close(run);
	}
	shard_state_release(&run->parts);
}

void
shard_turn_finish(void)
{
	slist_iter iter;

	slist_foreach (iter, &shard_turn.runs)
		finish_run(slist_container(ShardRun, turn_link, iter.cur));
	shard_turn_end_user_code();
	shard_recount_touched();
	shard_turn.at = NULL;
	shard_order_write();
}

bool
shard_turn_has_passed(void)
{
	return shard_turn.passed;
}

/* Makes an entity's turn its truth. */
static void
keep_entity(ShardEntity *entity)
{
	int64 held = entity->wait.waiting - entity->saved_wait.waiting;
	ShardRun *run = entity->run;

	if (entity->checked)
		shard_cache_keep(entity);
	if (held != 0)
		shard_queue_count(run, held);
	entity->saved_wait = entity->wait;
	shard_order_keep(entity);
	shard_queue_follow(entity);
	entity->in_turn = false;
	shard_run_count(run, entity->shard)->handled += entity->handled;
	shard_turn.messages += entity->handled;
	if (entity->let_go && !entity->wait.deferred && entity->wait.waiting == 0)
		shard_cache_remove(entity);
}

static void
send_replies(XLogRecPtr lsn)
{
	ListCell *cell;

	foreach (cell, shard_turn.replies)
	{
		ShardReply *reply = lfirst(cell);

		if (reply->error != NULL)
			shard_ring_reply_error(reply->request, reply->error, lsn);
		else
			shard_ring_reply(reply->request, reply->data, reply->len, lsn);
	}
	shard_turn.replies = NIL;
}

void
shard_turn_committed(XLogRecPtr lsn)
{
	slist_mutable_iter iter;

	while (!slist_is_empty(&shard_turn.runs))
	{
		ShardRun *run = slist_container(ShardRun, turn_link, slist_pop_head_node(&shard_turn.runs));

		run->in_turn = false;
		slist_foreach_modify (iter, &run->touched)
			keep_entity(slist_container(ShardEntity, turn_link, iter.cur));
	}
	if (bury_wanted)
		shard_run_each(note_buried, NULL);
	if (reread_wanted)
		shard_run_each(shard_residents_note_reread, NULL);
	bury_wanted = reread_wanted = false;
	shard_turn.at = NULL;
	shard_turn_commit_over(true);
	send_replies(lsn);
	shard_turn_log_committed();
	MemoryContextReset(shard_turn.context);
	shard_call_forget_large();
	shard_cache_evict();
}

void
shard_turn_aborted(void)
{
	slist_iter iter;

	shard_security_forget(&shard_turn.security);
	shard_call_aborted();
	shard_turn_commit_over(false);
	while (!slist_is_empty(&shard_turn.runs))
	{
		ShardRun *run = slist_container(ShardRun, turn_link, slist_pop_head_node(&shard_turn.runs));

		run->in_turn = false;
		run->looked_at = refreshed_at = 0; /* maybe a change was not seen yet */
		shard_state_forget(&run->table);
		shard_state_release_forget(&run->parts);
		slist_foreach (iter, &run->touched)
		{
			ShardEntity *entity = slist_container(ShardEntity, turn_link, iter.cur);

			entity->in_turn = false;
			entity->batch_count = 0;
			entity->wait = entity->saved_wait;
			shard_order_begin(entity);
			if (entity->stale)
				shard_cache_forget(entity);
			entity->now = entity->saved;
		}
	}
	shard_run_each(forget_burying, NULL);
	shard_turn.at = NULL;
	shard_turn.replies = NIL;
	shard_turn_log_forget();
	MemoryContextReset(shard_turn.context);
	shard_call_forget_large();
}

bool
shard_turn_at(int32 *type_id, const char **entity, int *entity_len)
{
	const ShardType *type = shard_turn_commits_for(entity, entity_len);

	if (type != NULL)
	{
		*type_id = type->type_id;
		return true;
	}
	if (shard_turn.at == NULL)
		return false;
	*type_id = shard_turn.at->run->type->type_id;
	*entity = shard_turn.at->id;
	*entity_len = shard_turn.at->id_len;
	return true;
}

bool
shard_turn_blames_last(void)
{
	return shard_turn.blames_last;
}

bool
shard_turn_was_overtaken(void)
{
	return shard_turn.overtaken;
}

void
shard_turn_explain(ErrorData *error)
{
	shard_call_explain(error);
}

void
shard_turn_sleep(void)
{
	shard_call_sleep();
	shard_turn_log_strays(false);
}

uint64
shard_turn_messages(void)
{
	return shard_turn.messages;
}

uint64
shard_turn_errors(void)
{
	return shard_turn.errors;
}
