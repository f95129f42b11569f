/*
 * entity/residents.c
 *		Entities of a whole shard: with the stash that they have when it comes, and when it leaves.
 *
 * Comes from: routing, when a shard becomes active here or is not here any more; process/region.c at the start of a worker.
 * Goes to: queue.c and turn_entity.c, for each entity of which something waits.
 *
 * In memory an entity is known to have messages in the stash as long as its shard is here. When the shard has been
 * sealed all of it is forgotten; when it becomes active, after an import or since it stays after all, its stash is read
 * again. While it is clearing, what comes joins the stash, and nothing of it runs.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/base/message.h"
#include "core/base/text.h"
#include "entity/internal.h"

#include "base/compat.h"

/* The lanes of this worker. */
static ShardLanes own_lanes;

/* Loading the stash at start. */
typedef struct StashLoad
{
	ShardLanes lanes;
	MemoryContext context;
	Bitmapset *dropped; /* types of which something is held, and that are no more */
} StashLoad;

/* The type, of which something is held, in this worker. */
static ShardLocalType *
type_of_held(StashLoad *load, int32 type_id)
{
	ShardLocalType *local = shard_turn_ready_type(type_id);

	if (local == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(load->context);

		load->dropped = bms_add_member(load->dropped, type_id);
		MemoryContextSwitchTo(old);
	}
	return local;
}

/* At start: loads an entity of which something is held. */
static void
load_entity(int32 type_id, int shard, const char *id, int id_len, const ShardHeldCount *held,
			void *arg)
{
	StashLoad *load = arg;
	ShardLocalType *local;
	ShardEntity *entity;

	if ((load->lanes & shard_lane_bit(shard_message_lane(type_id, shard))) == 0 ||
		shard_presence->is_moving(type_id, shard))
		return;
	local = type_of_held(load, type_id);
	if (local == NULL || shard >= local->type->number_of_shards)
		return;
	entity = shard_cache_get(local, shard, id, id_len, true);
	shard_queue_set(entity, held);
	entity->saved_wait = entity->wait;
	entity->saved_life = entity->life;
	if (entity->ordering != NULL)
		entity->ordering->saved = entity->ordering->now;
	shard_queue_count(local, shard_wait_messages(&entity->wait));
	shard_queue_follow(entity);
}

#define BURIED \
	"%lld messages in the stash of entity type %d became dead letters: the type was dropped"
#define BURIED_HINT "See shard_dead_letters."

void
shard_residents_tell_buried(int32 type_id, int64 messages)
{
	if (messages > 0)
		ereport(LOG, (errcode(ERRCODE_UNDEFINED_OBJECT),
					  errmsg(BURIED, (long long) messages, type_id), errhint(BURIED_HINT)));
}

void
shard_residents_load_all(ShardLanes lanes)
{
	StashLoad load = {.lanes = lanes, .context = CurrentMemoryContext};

	own_lanes = lanes;
	shard_held_each(load_entity, &load);
	for (int type_id = -1; (type_id = bms_next_member(load.dropped, type_id)) >= 0;)
		shard_residents_tell_buried(type_id, shard_held_bury(type_id));
	bms_free(load.dropped);
}

/* In a turn: the same, which the turn's commit makes true. */
static void
load_arrived(int32 type_id, int shard, const char *id, int id_len, const ShardHeldCount *held,
			 void *arg)
{
	ShardLocalType *local = arg;
	ShardEntity *entity = shard_cache_get(local, shard, id, id_len, true);

	shard_turn_enlist(entity);
	shard_queue_set(entity, held);
}

static bool
has_entities(const ShardLocalType *local, int shard)
{
	const ShardShardCount *count = shard_local_counted(local, shard);

	return count != NULL && count->entities > 0;
}

/* Entities of the shard that memory still has, as of before: nothing is held of them, unless it is found. */
static void
forget_held(ShardLocalType *local, int shard)
{
	const ShardHeldCount nothing = {0};
	dlist_iter iter;

	if (!has_entities(local, shard))
		return;
	dlist_foreach (iter, &local->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		if (entity->shard != shard)
			continue;
		shard_turn_enlist(entity);
		shard_queue_set(entity, &nothing);
	}
}

/* The same for a type whose shards belong in part to this worker, and in part are on their way. */
static void
load_again(int32 type_id, int shard, const char *id, int id_len, const ShardHeldCount *held,
		   void *arg)
{
	if (shard < ((ShardLocalType *) arg)->type->number_of_shards &&
		(own_lanes & shard_lane_bit(shard_message_lane(type_id, shard))) != 0 &&
		shard_presence->is_here(type_id, shard))
		load_arrived(type_id, shard, id, id_len, held, arg);
}

void
shard_residents_reread(ShardLocalType *local, void *arg)
{
	MemoryContext old;

	if (!local->reread || !local->type->exists)
		return;
	local->state_table = local->type->state_table;
	local->dropped = local->type->mode == SHARD_MODE_DROPPED;
	old = MemoryContextSwitchTo(shard_turn.context);
	shard_held_each_of_type(local->type->type_id, load_again, local);
	MemoryContextSwitchTo(old);
}

void
shard_residents_note_reread(ShardLocalType *local, void *arg)
{
	local->reread = false;
}

/*
 * In a turn: messages of a type that is being dropped that came with a shard are given up like all that is held of the
 * type.
 */
static void
bury_arrived(int32 type_id)
{
	int64 messages = shard_held_bury(type_id);

	if (messages > 0 && shard_turn_log_counts(SHARD_TURN_LOG_BURIED))
		shard_turn_log(SHARD_TURN_LOG_BURIED, ERRCODE_UNDEFINED_OBJECT,
					   psprintf(BURIED, (long long) messages, type_id), "", BURIED_HINT);
}

void
shard_residents_load(int32 type_id, int shard)
{
	ShardLocalType *local = shard_turn_known_type(type_id);

	if (local == NULL)
		bury_arrived(type_id);
	if (local == NULL || shard >= local->type->number_of_shards)
		return;
	forget_held(local, shard);
	shard_held_each_of_shard(type_id, shard, load_arrived, local);
}

/*
 * Of a type that was resharded something may wait for a shard that has never had a home. It came with the type, in one
 * transaction, so it is looked for once; what comes later is known.
 */
void
shard_residents_begin(int32 type_id, int shard)
{
	ShardLocalType *local = shard_turn_known_type(type_id);

#ifdef SHARD_MUTANT_RESHARD_STASH_UNSEEN
	return;
#endif
	if (local == NULL)
		return;
	if (!local->sought)
		local->brought = shard_held_any(type_id);
	local->sought = true;
	if (local->brought)
		shard_residents_load(type_id, shard);
}

void
shard_residents_arrive(int32 type_id, int shard)
{
	ShardLocalType *local = shard_local_known(type_id);

#ifdef SHARD_MUTANT_ARRIVAL_UNSEEN
	local = NULL;
#endif
	if (local != NULL && shard < local->type->number_of_shards)
		shard_recovery_add(local, shard);
}

void
shard_residents_forget(int32 type_id, int shard)
{
	/* after a commit: a type that this worker has not met yet has nothing to be forgotten */
	ShardLocalType *local = shard_local_known(type_id);
	dlist_mutable_iter iter;

	shard_turn_commit_forget(type_id, shard);
	if (local == NULL || shard >= local->type->number_of_shards)
		return;
	shard_recovery_remove(local, shard);
	if (!has_entities(local, shard))
		return;
	dlist_foreach_modify (iter, &local->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		if (entity->shard == shard)
			shard_queue_forget(entity);
	}
}

void
shard_residents_bury(int32 type_id, int shard, bool undone)
{
	int64 messages = shard_held_bury_left(type_id, shard, undone);

	if (messages > 0 && shard_turn_log_counts(SHARD_TURN_LOG_LEFT))
		shard_turn_log(SHARD_TURN_LOG_LEFT, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					   psprintf(INT64_FORMAT
								" messages for shard %d of entity type %d became dead letters: "
								"the shard starts again, empty",
								messages, shard, type_id),
					   psprintf("Each %s.", undone ? SHARD_UNDONE_ERROR : SHARD_LOST_ERROR),
					   BURIED_HINT);
}

void
shard_residents_discard(int32 type_id, int shard)
{
	ShardLocalType *local = shard_turn_ready_type(type_id);
	dlist_iter iter;

	if (local == NULL)
		return;
	dlist_foreach (iter, &local->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		if (entity->shard != shard)
			continue;
		shard_cache_forget(entity);
		shard_turn_enlist(entity);
		entity->now = entity->saved;
		entity->checked = entity->dirty = entity->started = entity->touched = false;
		if (entity->batch_count > 0)
			ereport(LOG,
					(errmsg("%d messages for entity \"%s\" of type \"%s\" went with the state "
							"that was given up",
							entity->batch_count, shard_text_shown(entity->id), local->type->name),
					 errdetail("The messages were taken in for its batch handler in the "
							   "same turn.")));
		entity->batch_count = 0;
		shard_queue_discard(entity);
		shard_order_forget(entity);
	}
}
