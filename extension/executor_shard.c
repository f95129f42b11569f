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

/* At start: the run of a type of which something is held. Of one that was dropped nothing stays. */
static ShardRun *
run_of_held(int32 type_id)
{
	ShardRun *run = shard_turn_ready_run(type_id);

	if (run == NULL)
		shard_held_bury(type_id);
	return run;
}

/* At start: one that has rows in the stash. */
static void
load_entity(int32 type_id, int shard, const char *id, int id_len, int64 rows, int attempts,
			TimestampTz next_at, void *arg)
{
	uint32 lanes = *(uint32 *) arg;
	ShardRun *run;
	ShardEntity *entity;

	if ((lanes & (1u << shard_message_lane(type_id, shard))) == 0 ||
		shard_routing_is_moving(type_id, shard))
		return;
	run = run_of_held(type_id);
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
	uint32 lanes = *(uint32 *) arg;
	ShardRun *run;
	ShardEntity *entity;

	if ((lanes & (1u << shard_message_lane(type_id, shard))) == 0 ||
		shard_routing_is_moving(type_id, shard))
		return;
	run = run_of_held(type_id);
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
shard_executor_load_stash(uint32 lanes)
{
	shard_held_each_entity(load_entity, &lanes);
	shard_held_each_ordered(load_ordered, &lanes);
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
		entity->wait = (ShardWait){0};
		shard_ordered_forget(entity);
	}
}
