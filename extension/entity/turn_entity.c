/*
 * entity/turn_entity.c
 *		An entity in the turn: it joins, its copy is made true, its state is written, and it leaves the turn as
 *		committed or undone.
 *
 * Comes from: all that have something for an entity: deliver.c, deliver_ask.c, stash.c, residents.c, recount.c; and
 * turn.c at the end. Goes to: the cache (cache.c), and the state table (state.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#include "entity/internal.h"
#include "entity/record.h"
#include "registry/registry.h"

#include "base/compat.h"

ShardLocalType *
shard_turn_ready_type(int32 type_id)
{
	ShardLocalType *local = shard_local_get(type_id);

	/* what changes in mid-turn is looked at before the next turn, with the registry read again */
	if (local != NULL && local->looked_at == 0)
	{
		shard_execution_end_user_code();
		shard_local_refresh(local);
		shard_passivate_follow(local);
		local->followed = local->runnable;
	}
	return local;
}

ShardLocalType *
shard_turn_known_type(int32 type_id)
{
	ShardLocalType *local = shard_turn_ready_type(type_id);

	if (local != NULL || shard_turn.reloaded)
		return local;
	shard_turn.reloaded = true;
	shard_execution_end_user_code();
	shard_registry_reload();
	return shard_turn_ready_type(type_id);
}

/* Numbers of its messages: as of the last commit. */
static inline void
begin_ordering(ShardEntity *entity)
{
	ShardOrdering *ordering = entity->ordering;

	if (ordering == NULL)
		return;
	ordering->now = ordering->saved;
	ordering->dirty = ordering->ended = false;
}

void
shard_turn_enlist(ShardEntity *entity)
{
	ShardLocalType *local = entity->local;

	if (entity->in_turn)
		return;
	entity->in_turn = true;
	entity->checked = entity->dirty = entity->stale = entity->spoken = entity->touched = false;
	entity->handled = 0;
	entity->now = entity->saved;
	entity->started = entity->saved_started;
	entity->wait = entity->saved_wait;
	entity->life = entity->saved_life;
	entity->stop = entity->saved_stop;
	entity->reason = SHARD_LEAVES_ITSELF;
	begin_ordering(entity);
	if (!local->in_turn)
	{
		local->in_turn = true;
		shard_turn_join(local);
		slist_init(&local->touched);
		slist_push_head(&shard_turn.types, &local->turn_link);
	}
	slist_push_head(&local->touched, &entity->turn_link);
}

void
shard_turn_each(void (*visit)(ShardEntity *entity, void *arg), void *arg)
{
	slist_iter type_iter;
	slist_iter iter;

	slist_foreach (type_iter, &shard_turn.types)
		slist_foreach (iter, &slist_container(ShardLocalType, turn_link, type_iter.cur)->touched)
			visit(slist_container(ShardEntity, turn_link, iter.cur), arg);
}

ShardEntity *
shard_turn_entity(ShardLocalType *local, const ShardRow *row)
{
	ShardEntity *entity = shard_cache_get(local, row->shard, row->entity, row->entity_len, true);

	shard_turn.at = entity;
	if (!entity->in_turn)
		shard_turn_enlist(entity);
	return entity;
}

/*
 * Forgets all copies of a type's states, so that they are read again: they do not fit the present definition. Compiled
 * code goes, too, since it makes states as they were.
 */
static void
forget_copies(ShardLocalType *local)
{
	dlist_iter iter;

	shard_handler_free(&local->handler);
	dlist_foreach (iter, &local->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		ShardAssert(!entity->in_turn || !entity->checked);
		shard_cache_forget(entity);
		entity->now = entity->saved;
	}
}

bool
shard_turn_take_hold(ShardLocalType *local)
{
	switch (shard_state_hold(&local->parts, local->type))
	{
		case SHARD_STATE_BUSY:
			return false;
		case SHARD_STATE_ALTERED:
			forget_copies(local);
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
	ShardAssert(entity->local->parts.held);
	shard_security_begin(&shard_turn.security, entity->local->type);
	if (!shard_state_open(&entity->local->table, entity->local->type))
		return false;
	old = MemoryContextSwitchTo(shard_turn.context);
	shard_call_watch(entity->local->type);
	status =
		shard_state_check(&entity->local->table, entity, &entity->now, &entity->wait.blocked_by);
	shard_call_watched();
	MemoryContextSwitchTo(old);
	entity->checked = status == SHARD_ROW_OK;
	if (entity->checked && entity->heard_at == 0)
		entity->heard_at = shard_state_written(&entity->local->table, &entity->now);
	entity->was_remembered = entity->now.remembered;
	return entity->checked;
}

/* Whether the row has to be written. */
static bool
differs(const ShardEntity *entity)
{
	const ShardCopy *now = &entity->now;
	const ShardCopy *saved = &entity->saved;

	if (!saved->known || now->exists != shard_copy_wants_row(now, entity->local->type) ||
		now->remembered != saved->remembered || now->state_null != saved->state_null)
		return true;
	if (now->state_null)
		return now->xmin != saved->xmin;
	return now->xmin != saved->xmin ||
		   !datumIsEqual(now->state, saved->state, entity->local->by_value, entity->local->length);
}

/* Writes an entity whose handler has returned. *noted: its row is in the turn's record now. */
static bool
write_dirty(ShardEntity *entity, bool *noted)
{
	bool written;
	MemoryContext old;

	shard_turn.at = entity;
	if (!entity->now.exists && !shard_copy_wants_row(&entity->now, entity->local->type))
		return true;
	if (!shard_turn.careful && !differs(entity))
	{
		/* the handler may have changed the row by SQL, which is an error */
		if (TransactionIdIsValid(GetTopTransactionIdIfAny()) && entity->now.exists &&
			entity->local->table.rel != NULL &&
			!shard_state_is_current(&entity->local->table, entity))
			return false;
		entity->now = entity->saved;
		return true;
	}
	shard_security_begin(&shard_turn.security, entity->local->type);
	old = MemoryContextSwitchTo(shard_turn.context);
	shard_call_watch(entity->local->type);
	written = shard_state_open(&entity->local->table, entity->local->type) &&
			  shard_state_write(&entity->local->table, entity);
	if (written && unlikely(entity->local->type->replicas > 0))
	{
		shard_record_image(entity);
		*noted = true;
	}
	shard_call_watched();
	MemoryContextSwitchTo(old);
	if (written)
		entity->dirty = false;
	return written;
}

/* The row as SQL has left it goes into the turn's record (Q33). False: another transaction has the table locked. */
static bool
note_touched(ShardEntity *entity)
{
	ShardStateTable *table = &entity->local->table;
	MemoryContext old;
	ShardCopy copy;
	bool open;

	shard_turn.at = entity;
	shard_security_begin(&shard_turn.security, entity->local->type);
	old = MemoryContextSwitchTo(shard_turn.context);
	shard_call_watch(entity->local->type);
	open = shard_state_open(table, entity->local->type);
	if (open)
	{
		shard_state_read(table, entity, &copy);
		shard_record_row(entity, copy.exists ? table->row : NULL);
	}
	shard_call_watched();
	MemoryContextSwitchTo(old);
	return open;
}

bool
shard_turn_write(ShardEntity *entity)
{
	bool touched = entity->touched;
	bool noted = false;

	entity->touched = false;
	if (entity->dirty && !write_dirty(entity, &noted))
		return false;
	return likely(!touched) || noted || note_touched(entity);
}

/* An entity that is in no state, and of which nothing waits, leaves memory. */
static inline void
leave_if_over(ShardEntity *entity)
{
	if (entity->saved_life == SHARD_ENTITY_NONE && entity->saved_wait.waiting == 0 &&
		!entity->listed)
		shard_cache_remove(entity);
}

/* Makes an entity's turn its truth. */
static void
keep_entity(ShardEntity *entity)
{
	int64 held = shard_wait_messages(&entity->wait) - shard_wait_messages(&entity->saved_wait);
	ShardLocalType *local = entity->local;

	if (entity->checked && entity->now.remembered != entity->was_remembered)
		shard_remember_count(entity, entity->now.remembered);
	if (entity->checked)
		shard_cache_keep(entity);
	entity->saved_started = entity->started;
	entity->start_wanted &= !entity->started;
	if (held != 0)
		shard_queue_count(local, held);
	if (entity->life == SHARD_ENTITY_NONE && entity->wait.waiting > 0)
		shard_life_follow(entity);
	entity->saved_message_at = entity->last_message_at;
	entity->saved_heard_at = entity->heard_at;
	entity->saved_wait = entity->wait;
	entity->saved_life = entity->life;
	entity->saved_stop = entity->stop;
	if (entity->ordering != NULL)
		entity->ordering->saved = entity->ordering->now;
	shard_queue_follow(entity);
	entity->in_turn = false;
	shard_local_count(local, entity->shard)->handled += entity->handled;
	shard_turn.messages += entity->handled;
	if (entity->life == SHARD_ENTITY_NONE && entity->reason != SHARD_LEAVES_ITSELF)
		shard_local_count(local, entity->shard)->left[entity->reason]++;
	leave_if_over(entity);
}

void
shard_turn_keep_entities(void)
{
	slist_mutable_iter iter;

	while (!slist_is_empty(&shard_turn.types))
	{
		ShardLocalType *local =
			slist_container(ShardLocalType, turn_link, slist_pop_head_node(&shard_turn.types));

		local->in_turn = false;
		slist_foreach_modify (iter, &local->touched)
			keep_entity(slist_container(ShardEntity, turn_link, iter.cur));
	}
}

/* Restores an entity as it was before the turn. */
static void
undo_entity(ShardEntity *entity)
{
	entity->in_turn = false;
	entity->batch_count = 0;
	entity->started = entity->saved_started;
	entity->last_message_at = entity->saved_message_at;
	entity->heard_at = entity->saved_heard_at;
	entity->wait = entity->saved_wait;
	entity->life = entity->saved_life;
#ifdef SHARD_MUTANT_STOP_NOT_UNDONE
	entity->saved_stop = entity->stop;
#endif
	entity->stop = entity->saved_stop;
	shard_pause_follow(entity);
	begin_ordering(entity);
	if (entity->stale)
		shard_cache_forget(entity);
	entity->now = entity->saved;
	leave_if_over(entity);
}

void
shard_turn_undo_entities(void)
{
	slist_mutable_iter iter;

	while (!slist_is_empty(&shard_turn.types))
	{
		ShardLocalType *local =
			slist_container(ShardLocalType, turn_link, slist_pop_head_node(&shard_turn.types));

		local->in_turn = false;
		local->looked_at = 0; /* maybe a change was not seen yet */
		shard_state_forget(&local->table);
		shard_state_release_forget(&local->parts);
		slist_foreach_modify (iter, &local->touched)
			undo_entity(slist_container(ShardEntity, turn_link, iter.cur));
	}
}
