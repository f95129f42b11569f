/*
 * executor_shard.c
 *		Entities of a whole shard: with the stash that they have when it comes, and when it leaves.
 *
 * In memory an entity is known to have messages in the stash as long as its shard is here. When the
 * shard has been sealed all of it is forgotten; when it becomes active, after an import or since it stays
 * after all, its stash is looked at anew. While it is clearing, what comes joins the stash, and nothing of
 * it runs.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "core/message.h"
#include "executor_private.h"
#include "routing.h"

#include "compat.h"

/* What the stash says of an entity. A clock that was set back must not hold a message for ever (D16). */
static ShardWait
wait_of(const ShardRun *run, int64 rows, int attempts, TimestampTz next_at)
{
	TimestampTz latest = GetCurrentTimestamp() + run->type->max_retry_backoff;

	return (ShardWait){.deferred = true,
					   .suspended = !run->runnable,
					   .attempts = attempts,
					   .not_before = Min(next_at, latest),
					   .waiting = rows};
}

/* Loading the stash at start. */
typedef struct StashLoad
{
	uint32 lanes;
	MemoryContext context;
	Bitmapset *dropped; /* types of which something is held, and that are no more */
} StashLoad;

/* The run of a type of which something is held. */
static ShardRun *
run_of_held(StashLoad *load, int32 type_id)
{
	ShardRun *run = shard_turn_ready_run(type_id);

	if (run == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(load->context);

		load->dropped = bms_add_member(load->dropped, type_id);
		MemoryContextSwitchTo(old);
	}
	return run;
}

/* At start: one that has rows in the stash. */
static void
load_entity(int32 type_id, int shard, const char *id, int id_len, int64 rows, int attempts,
			TimestampTz next_at, void *arg)
{
	StashLoad *load = arg;
	ShardRun *run;
	ShardEntity *entity;

	if ((load->lanes & (1u << shard_message_lane(type_id, shard))) == 0 ||
		shard_routing_is_moving(type_id, shard))
		return;
	run = run_of_held(load, type_id);
	if (run == NULL || shard >= run->type->number_of_shards)
		return;
	entity = shard_cache_get(run, shard, id, id_len, true);
	entity->wait = entity->saved_wait = wait_of(run, rows, attempts, next_at);
	shard_turn_count_held(run, rows);
	shard_turn_follow_due(entity);
}

/* The same for one of which messages wait for lower numbers; comes after it. */
static void
load_ordered(int32 type_id, int shard, const char *id, int id_len, const ShardHeldOrdered *ordered,
			 void *arg)
{
	StashLoad *load = arg;
	ShardRun *run;
	ShardEntity *entity;

	if ((load->lanes & (1u << shard_message_lane(type_id, shard))) == 0 ||
		shard_routing_is_moving(type_id, shard))
		return;
	run = run_of_held(load, type_id);
	if (run == NULL || shard >= run->type->number_of_shards)
		return;
	entity = shard_cache_get(run, shard, id, id_len, true);
	shard_ordered_load(entity, ordered);
	shard_ordered_keep(entity);
	entity->saved_wait = entity->wait;
	shard_turn_count_held(run, ordered->waiting);
	shard_turn_follow_due(entity);
}

void
shard_turn_tell_buried(int32 type_id, int64 messages)
{
	if (messages > 0)
		ereport(
			LOG,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("%lld messages in the stash of entity type %d became dead letters: the type "
					"was dropped",
					(long long) messages, type_id),
			 errhint("See shard_dead_letters.")));
}

void
shard_executor_load_stash(uint32 lanes)
{
	StashLoad load = {.lanes = lanes, .context = CurrentMemoryContext};

	shard_held_each_entity(load_entity, &load);
	shard_held_each_ordered(load_ordered, &load);
	for (int type_id = -1; (type_id = bms_next_member(load.dropped, type_id)) >= 0;)
		shard_turn_tell_buried(type_id, shard_held_bury(type_id));
	bms_free(load.dropped);
}

/* In a turn: the same, which the turn's commit makes true. */
static void
load_arrived(int32 type_id, int shard, const char *id, int id_len, int64 rows, int attempts,
			 TimestampTz next_at, void *arg)
{
	ShardRun *run = arg;
	ShardEntity *entity = shard_cache_get(run, shard, id, id_len, true);

	shard_turn_enlist(entity);
	if (!entity->wait.deferred)
		entity->wait = wait_of(run, rows, attempts, next_at);
}

static void
load_arrived_ordered(int32 type_id, int shard, const char *id, int id_len,
					 const ShardHeldOrdered *ordered, void *arg)
{
	ShardRun *run = arg;
	ShardEntity *entity = shard_cache_get(run, shard, id, id_len, true);

	shard_turn_enlist(entity);
	shard_ordered_load(entity, ordered);
}

void
shard_executor_load_shard(int32 type_id, int shard)
{
	ShardRun *run = shard_turn_ready_run(type_id);

	if (run == NULL || shard >= run->type->number_of_shards)
		return;
	shard_held_each_of_shard(type_id, shard, load_arrived, run);
	shard_held_each_ordered_of_shard(type_id, shard, load_arrived_ordered, run);
}

void
shard_executor_forget_shard(int32 type_id, int shard)
{
	/* after a commit: a type that this worker has not met yet has nothing to be forgotten */
	ShardRun *run = shard_run_known(type_id);
	dlist_mutable_iter iter;

	if (run == NULL || shard >= run->type->number_of_shards || run->count[shard].entities == 0)
		return;
	dlist_foreach_modify (iter, &run->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		if (entity->shard == shard)
			shard_turn_forget(entity);
	}
}

void
shard_executor_discard(int32 type_id, int shard)
{
	ShardRun *run = shard_turn_ready_run(type_id);
	dlist_iter iter;

	if (run == NULL)
		return;
	dlist_foreach (iter, &run->lru)
	{
		ShardEntity *entity = dlist_container(ShardEntity, lru, iter.cur);

		if (entity->shard != shard)
			continue;
		shard_cache_forget(entity);
		shard_turn_enlist(entity);
		entity->now = entity->saved;
		entity->checked = entity->dirty = false;
		if (entity->batch_count > 0)
			ereport(LOG, (errmsg("%d messages for entity \"%s\" of type \"%s\" went with the state "
								 "that was given up",
								 entity->batch_count, entity->id, run->type->name),
						  errdetail("They were taken in for its batch handler in the same turn.")));
		entity->batch_count = 0;
		entity->wait = (ShardWait){0};
		shard_ordered_forget(entity);
	}
}
