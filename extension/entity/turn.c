/*
 * entity/turn.c
 *		A turn of this worker: its begin, what is written at its end, and what its commit or abort makes of memory.
 *
 * Comes from: process/region_turn.c, whose transaction it is. Between shard_turn_begin() and shard_turn_finish() it has
 * messages delivered: what is due of stashes (stash.c), rows of the log (deliver.c), asks (deliver_ask.c). Goes to:
 * turn_entity.c, which writes the state of each entity in the turn, and later keeps or undoes what it became.
 *
 * In memory an entity has what was true after the last commit (saved) and what is true in this turn (now); an abort
 * just drops the latter. Replies are kept until after the commit. If the process dies right here, nothing of the turn
 * was committed, and no reply has left.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/fault.h"
#include "entity/internal.h"
#include "entity/record.h"
#include "log/buffer.h"
#include "shared/shmem.h"

#include "base/compat.h"

const ShardPresence *shard_presence = NULL;
ShardTurn shard_turn;

static uint64 refreshed_at = 0; /* registry generation the types were looked at */
static bool bury_wanted =
	false; /* a type was dropped, and what joined its stash meanwhile is there */
static bool reread_wanted = false; /* the same, but others may host it; or it came back (D28) */

static void
uncount_entity(ShardEntity *entity, void *arg)
{
	if (entity->saved_wait.waiting != 0)
		shard_queue_count(entity->local, -shard_wait_messages(&entity->saved_wait));
}

/*
 * A worker that ends takes its share off the counters; its successor counts from zero. What the worker has not logged
 * yet it logs now.
 */
static void
at_exit(int code, Datum arg)
{
	shard_turn_log_strays(true);
	shard_cache_each(uncount_entity, NULL);
}

#ifdef SHARD_ASSERTIONS
/* The process has given up all that it had in shared memory. */
static void
when_gone(int code, Datum arg)
{
	shard_fault("worker_gone");
}
#endif

void
shard_turn_init(ShardLanes lanes, const ShardPresence *presence)
{
	shard_presence = presence;
	shard_turn.lanes = lanes;
	shard_execution_init();
	shard_turn.context =
		AllocSetContextCreate(TopMemoryContext, "shard turn", ALLOCSET_DEFAULT_SIZES);
	slist_init(&shard_turn.types);
	dlist_init(&shard_turn.due);
	dlist_init(&shard_turn.pauses);
	shard_cache_init();
	shard_handle_init(lanes);
	shard_timer_due_init(lanes, shard_turn_ready_type);
	before_shmem_exit(at_exit, 0);
	shard_turn_commit_init();
	shard_call_init();
	shard_record_init();
#ifdef SHARD_ASSERTIONS
	on_proc_exit(when_gone, 0);
#endif
}

/*
 * The type was dropped: its entities leave memory. Messages that waited for them are gone from the tables, too, or will
 * be buried.
 */
static void
forget_entities(ShardLocalType *local)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &local->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		shard_queue_forget(entity);
	}
}

/* Whether code or settings of the type have changed since the last look. */
static bool
was_mended(ShardLocalType *local)
{
	uint64 code = shard_local_code(local->type);
	bool was = local->code != code;

	local->code = code;
	return was;
}

static void
refresh_type(ShardLocalType *local, void *arg)
{
	bool *changed = arg;

	if (!local->type->exists)
	{
		forget_entities(local);
		shard_recovery_reset(local);
		shard_local_forget_counts(local);
		shard_passivate_follow(local);
		bury_wanted |= !local->buried;
		return;
	}
	if (shard_local_is_another(local))
	{
		forget_entities(local);
		shard_recovery_reset(local);
		local->reread = reread_wanted = true;
	}
	shard_local_refresh(local);
	shard_passivate_follow(local);
	if (was_mended(local))
	{
		shard_start_follow(local);
		shard_pause_end(local);
	}
	if (local->runnable != local->followed)
		*changed = true;
	local->followed = local->runnable;
}

/*
 * A message may have joined the stash unseen by the session that dropped its type. It becomes a dead letter, as one
 * that was still in the inbox does. If the process dies right here, the next one finds it at its start.
 */
static void
bury_type(ShardLocalType *local, void *arg)
{
	if (local->type->exists || local->buried)
		return;
	local->given_up = shard_held_bury(local->type->type_id);
	local->burying = true;
}

/* The turn that gave the messages up was committed; a type that was dropped meanwhile follows in the next turn. */
static void
note_buried(ShardLocalType *local, void *arg)
{
	if (!local->burying)
		return;
	local->burying = false;
	local->buried = true;
	shard_residents_tell_buried(local->type->type_id, local->given_up);
}

/* The turn was aborted, so the messages were not buried: the next turn buries them. */
static void
forget_burying(ShardLocalType *local, void *arg)
{
	local->burying = false;
}

/* For shard_registry_each: counts the types that may have messages in this worker's log. */
static void
count_type(ShardType *type, void *arg)
{
	int *types = arg;
	ShardLanes lanes = shard_group_lanes(shard_message_group(type->type_id)) & shard_turn.lanes;

	*types += lanes != 0;
}

bool
shard_turn_begin(bool careful)
{
	shard_turn.fenced = false;
	shard_queue_follow_clock(GetCurrentTimestamp());
	shard_turn_measure_begin();
	shard_turn.count = shard_turn.ran = 0;
	shard_turn.blames_last = false;
	shard_turn.overtaken = false;
	shard_turn.reloaded = false;
	shard_turn.passed = shard_turn.aside = shard_turn.numbered = false;
	shard_turn.full = shard_turn.exactly = shard_turn.stash_left = false;
	shard_turn.look = true;
	shard_turn.cached = shard_cache_bytes();
	shard_turn.at = NULL;
	shard_turn.firing = NULL;
	shard_turn.asked = NULL;
	shard_turn.voids = 0;
	shard_turn.late_start = false;
	shard_turn.replies = NIL;
	if (refreshed_at != shard_registry_generation())
	{
		bool changed = false;
		int types = 0;

		shard_buffer_free_counters();
		shard_local_each(refresh_type, &changed);
		shard_registry_each(shard_recovery_follow, NULL);
		if (changed)
			shard_cache_each(shard_queue_follow_type, NULL);
		shard_registry_each(count_type, &types);
		shard_turn.one_type = types <= 1;
		shard_queue_shorten_waits();
		refreshed_at = shard_registry_generation();
	}
	else if (shard_shmem_counters_wanted())
		shard_buffer_free_counters();
	if (bury_wanted)
		shard_local_each(bury_type, NULL);
	if (reread_wanted)
		shard_local_each(shard_residents_reread, NULL);
	shard_turn.careful = careful || shard_queue_retry_is_due();
	return shard_turn.careful;
}

void
shard_turn_has_read(TimestampTz until)
{
	shard_turn.read_until = until;
}

/* After-triggers fire here, as the owner. */
static void
close_table(ShardLocalType *local)
{
	if (local->table.rel == NULL)
		return;
	shard_security_begin(&shard_turn.security, local->type);
	shard_call_close(local);
}

static void
write_entity(ShardEntity *entity)
{
	if (shard_turn_write(entity))
		return;
	entity->stale = true;
	shard_turn.overtaken = true;
	ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("state row of entity \"%s\" was changed from outside", entity->id)));
}

static int
compare_shards(const ListCell *a, const ListCell *b)
{
	const ShardEntity *x = lfirst(a);
	const ShardEntity *y = lfirst(b);

	return x->shard < y->shard ? -1 : x->shard > y->shard;
}

/*
 * Of a type with replicas: what after-triggers tell is told by the shard whose states were written, so that it is in that
 * shard's record (Q29).
 */
static void
write_by_shard(ShardLocalType *local)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	const ShardEntity *last = NULL;
	List *entities = NIL;
	slist_iter iter;
	ListCell *cell;

	slist_foreach (iter, &local->touched)
		entities = lappend(entities, slist_container(ShardEntity, turn_link, iter.cur));
	list_sort(entities, compare_shards);
	MemoryContextSwitchTo(old);
	foreach (cell, entities)
	{
		ShardEntity *entity = lfirst(cell);

		if (last != NULL && last->shard != entity->shard && local->table.rel != NULL &&
			shard_state_has_triggers(local->table.rel))
		{
			shard_turn.at = last;
			close_table(local);
		}
		write_entity(entity);
		last = entity;
	}
	shard_turn.at = last;
}

/* Runs the batch handlers of a type's entities, then writes their states. */
static void
finish_type(ShardLocalType *local)
{
	slist_iter iter;
	int calls = 0;

	if (local->type->batch)
	{
		slist_foreach (iter, &local->touched)
		{
			ShardEntity *entity = slist_container(ShardEntity, turn_link, iter.cur);

			shard_turn.at = entity; /* who tells, for the record of its shard */
			shard_call_batch(entity);
			shard_order_heed(entity);
			calls++;
		}
		shard_turn_measure(local, calls);
	}
	if (unlikely(local->type->replicas > 0))
		write_by_shard(local);
	else
		slist_foreach (iter, &local->touched)
			write_entity(slist_container(ShardEntity, turn_link, iter.cur));

	close_table(local);
	shard_state_release(&local->parts);
}

void
shard_turn_finish(void)
{
	slist_iter iter;

	slist_foreach (iter, &shard_turn.types)
		finish_type(slist_container(ShardLocalType, turn_link, iter.cur));
	shard_execution_end_user_code();
	shard_recount_touched();
	shard_turn.at = NULL;
	shard_stop_decide();
	shard_order_write();
}

void
shard_turn_committed(XLogRecPtr lsn)
{
	shard_fault_turn_over(true);
	shard_recovery_committed();
	shard_turn_keep_entities();
	if (bury_wanted)
		shard_local_each(note_buried, NULL);
	if (reread_wanted)
		shard_local_each(shard_residents_note_reread, NULL);
	bury_wanted = reread_wanted = false;
	shard_turn.at = NULL;
	shard_turn_commit_over(true);
	shard_deliver_replies(lsn);
	if (shard_turn.voids > 0)
		pg_atomic_fetch_add_u64(&shard_shmem_my_worker()->void_replies, shard_turn.voids);
	shard_turn_log_committed();
	MemoryContextReset(shard_turn.context);
	shard_call_forget_large();
	shard_passivate_between_turns();
}

void
shard_turn_aborted(void)
{
	shard_fault_turn_over(false);
	shard_security_forget(&shard_turn.security);
	shard_call_aborted();
	shard_turn_commit_over(false);
	if (!slist_is_empty(&shard_turn.types))
		refreshed_at = 0; /* maybe a change was not seen yet */
	shard_recovery_aborted();
	shard_turn_undo_entities();
	shard_local_each(forget_burying, NULL);
	shard_timer_due_aborted();
	shard_turn.at = NULL;
	shard_turn.firing = NULL;
	shard_turn.asked = NULL;
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
	*type_id = shard_turn.at->local->type->type_id;
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

uint64
shard_turn_recounts(void)
{
	return shard_turn.recounts;
}
