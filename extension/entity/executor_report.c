/*
 * entity/executor_report.c
 *		What a region worker has in memory, for the views.
 */
#include "postgres.h"

#include "access/xact.h"
#include "libpq/pqformat.h"
#include "utils/timestamp.h"

#include "core/entity/entity.h"
#include "entity/internal.h"

#include "base/compat.h"

/* How old what is said of a lock may be, in microseconds. */
#define LOCKER_INTERVAL USECS_PER_SEC

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

	pq_sendint32(out, entity->run->type->type_id);
	pq_sendint32(out, entity->shard);
	pq_sendint32(out, shard_entity_listing(state_of(wait)));
	pq_sendint64(out, entity->last_message_at);
	pq_sendint64(out, wait->waiting);
	pq_sendint32(out, entity->id_len);
	appendBinaryStringInfo(out, entity->id, entity->id_len);
}

static void
report_run(ShardRun *run, void *arg)
{
	StringInfo out = arg;

	for (int shard = 0; shard < run->type->number_of_shards; shard++)
	{
		const ShardShardCount *count = shard_run_counted(run, shard);

		if (count == NULL)
		{
			/* nor of the others that are counted with it */
			shard |= SHARD_RUN_PAGE - 1;
			continue;
		}
		if (count->entities == 0 && count->handled == 0 && count->errors == 0)
			continue;
		pq_sendint32(out, run->type->type_id);
		pq_sendint32(out, shard);
		pq_sendint64(out, count->entities);
		pq_sendint64(out, count->handled);
		pq_sendint64(out, count->errors);
	}
}

/*
 * Who keeps the type's table locked; 0: nobody. A list of all locks is not made for each ask.
 */
static int
table_locker(const ShardType *type)
{
	static int32 type_id = 0;
	static TimestampTz looked = 0;
	static int pid = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (type_id == type->type_id && now - looked < LOCKER_INTERVAL)
		return pid;
	if (!IsTransactionState())
		return 0;
	type_id = type->type_id;
	looked = now;
	pid = shard_state_table_locker(type);
	return pid;
}

const char *
shard_deliver_why_not(const ShardRequest *request)
{
	ShardRun *run = shard_turn_ready_run(request->type_id);
	const ShardEntity *entity = run == NULL ? NULL
											: shard_cache_get(run, request->shard, request->entity,
															  request->entity_len, false);
	const ShardWait *wait = entity == NULL ? NULL : &entity->wait;

	int pid;

	if (wait == NULL)
		return "";
	if (wait->waiting > 0 && (pid = table_locker(run->type)) != 0)
		return psprintf(
			"Process %d has locked the table of the entity's states, or a type of them.", pid);
	if (wait->blocked_by != 0)
		return psprintf("Process %d holds the entity's state row.", wait->blocked_by);
	if (wait->attempts > 0)
		return psprintf("The entity rests until %s: its first message has failed in %d attempt(s).",
						timestamptz_to_str(wait->not_before), wait->attempts);
	return psprintf("Messages of the entity go first: " INT64_FORMAT " wait.", wait->waiting);
}

static void
report_type(ShardRun *run, StringInfo out)
{
	dlist_iter iter;

	dlist_foreach (iter, &run->lru)
		report_entity(dlist_container(ShardEntity, lru, iter.cur), out);
}

/* The entities that are asked for. */
static void
report_entities(const ShardRequest *request, StringInfo out)
{
	StringInfoData types = {.data = request->payload, .len = request->payload_len};

	if (request->entity_len > 0)
	{
		ShardRun *run = shard_run_known(request->type_id);
		ShardEntity *entity = run == NULL ? NULL
										  : shard_cache_get(run, request->shard, request->entity,
															request->entity_len, false);

		if (entity != NULL)
			report_entity(entity, out);
		return;
	}
	if (types.data == NULL)
		shard_cache_each(report_entity, out);
	while (types.data != NULL && types.cursor < types.len)
	{
		ShardRun *run = shard_run_known((int32) pq_getmsgint(&types, 4));

		if (run != NULL)
			report_type(run, out);
	}
}

void
shard_residents_report(const ShardRequest *request, StringInfo out)
{
	if (request->kind == SHARD_REQUEST_ENTITIES)
		report_entities(request, out);
	else
		shard_run_each(report_run, out);
}
