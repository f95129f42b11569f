/*
 * entity/report.c
 *		What a region worker has in memory, for the views.
 *
 * Comes from: process/region_asks.c: a request of a view.
 */
#include "postgres.h"

#include "libpq/pqformat.h"
#include "utils/timestamp.h"

#include "core/entity/entity.h"
#include "entity/internal.h"

#include "base/compat.h"

/* Where the life of an entity in memory stands; a message that waits for its type holds it up. */
static ShardEntityState
state_of(const ShardWait *wait)
{
	if (!wait->deferred)
		return SHARD_ENTITY_ACTIVE;
	return wait->suspended ? SHARD_ENTITY_QUARANTINED : SHARD_ENTITY_WAITING;
}

static void
report_entity(ShardEntity *entity, void *arg)
{
	StringInfo out = arg;
	const ShardWait *wait = &entity->saved_wait;

	pq_sendint32(out, entity->local->type->type_id);
	pq_sendint32(out, entity->shard);
	pq_sendint32(out, shard_entity_listing(state_of(wait)));
	pq_sendint64(out, entity->last_message_at);
	pq_sendint64(out, wait->waiting);
	pq_sendint32(out, entity->id_len);
	appendBinaryStringInfo(out, entity->id, entity->id_len);
}

static void
report_counts(ShardLocalType *local, void *arg)
{
	StringInfo out = arg;

	for (int shard = 0; shard < local->type->number_of_shards; shard++)
	{
		const ShardShardCount *count = shard_local_counted(local, shard);

		if (count == NULL)
		{
			/* nor of the others that are counted with it */
			shard |= SHARD_LOCAL_PAGE - 1;
			continue;
		}
		if (count->entities == 0 && count->handled == 0 && count->errors == 0)
			continue;
		pq_sendint32(out, local->type->type_id);
		pq_sendint32(out, shard);
		pq_sendint64(out, count->entities);
		pq_sendint64(out, count->handled);
		pq_sendint64(out, count->errors);
	}
}

static void
report_type(ShardLocalType *local, StringInfo out)
{
	dlist_iter iter;

	dlist_foreach (iter, &local->lru)
		report_entity(dlist_container(ShardEntity, lru, iter.cur), out);
}

/* The entities that are asked for. */
static void
report_entities(const ShardRequest *request, StringInfo out)
{
	StringInfoData types = {.data = request->payload, .len = request->payload_len};

	if (request->entity_len > 0)
	{
		ShardLocalType *local = shard_local_known(request->type_id);
		ShardEntity *entity = local == NULL
								  ? NULL
								  : shard_cache_get(local, request->shard, request->entity,
													request->entity_len, false);

		if (entity != NULL)
			report_entity(entity, out);
		return;
	}
	if (types.data == NULL)
		shard_cache_each(report_entity, out);
	while (types.data != NULL && types.cursor < types.len)
	{
		ShardLocalType *local = shard_local_known((int32) pq_getmsgint(&types, 4));

		if (local != NULL)
			report_type(local, out);
	}
}

void
shard_report_append(const ShardRequest *request, StringInfo out)
{
	if (request->kind == SHARD_REQUEST_ENTITIES)
		report_entities(request, out);
	else
		shard_local_each(report_counts, out);
}
