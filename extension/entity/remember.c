/*
 * entity/remember.c
 *		Whether an entity is remembered: a column of its row (doc/protocol/remember.md).
 *
 * Comes from: call.c, when a handler has returned; start.c, handle.c: an entity starts, or is passivated; turn_entity.c, at
 * the commit, for the counts of the shard. Goes to: the entity's copy of its row, which the turn writes at its end.
 *
 * If the process dies right here the entity is neither changed nor remembered.
 */
#include "postgres.h"

#include "base/fault.h"
#include "entity/internal.h"

#include "base/compat.h"

void
shard_remember_entity(ShardEntity *entity)
{
#ifdef SHARD_MUTANT_REMEMBERED_LATE
	if (!entity->now.exists)
		return;
#endif
	if (!entity->local->type->remember)
		return;
	entity->now.remembered = true;
	if (!entity->was_remembered)
		shard_fault_step("remembered");
}

void
shard_remember_forget(ShardEntity *entity)
{
	shard_life_passivate(entity, true);
	entity->started = false;
#ifndef SHARD_MUTANT_PASSIVATE_REMEMBERS
	if (entity->now.remembered)
	{
		entity->now.remembered = false;
		entity->dirty = true;
	}
#endif
	shard_fault_step("forgotten");
}

bool
shard_remember_recovers(const ShardLocalType *local, int shard)
{
	return local->recovery.on && bms_is_member(shard, local->recovery.shards);
}

/* Whether the walk over its shard, as of the commit, is still to come to the entity: then it is counted there. */
static bool
is_ahead(const ShardRecovery *recovery, const ShardEntity *entity)
{
	int order;

	if (!recovery->seeks && !bms_is_member(entity->shard, recovery->shards))
		return false;
	if (recovery->now.shard != entity->shard)
		return true;
	order = memcmp(entity->id, recovery->now.id, Min(entity->id_len, recovery->now.id_len));
	return order > 0 || (order == 0 && entity->id_len > recovery->now.id_len);
}

void
shard_remember_count(const ShardEntity *entity, bool remembered)
{
	if (entity->local->recovery.on && !is_ahead(&entity->local->recovery, entity))
		shard_local_count(entity->local, entity->shard)->remembered += remembered ? 1 : -1;
}
