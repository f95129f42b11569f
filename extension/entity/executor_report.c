/*
 * entity/executor_report.c
 *		What a region worker has in memory, for the views: written by the worker, read by the backend that asked it.
 *
 * A row's writer and its reader stand one below the other; no other file knows the form.
 */
#include "postgres.h"

#include "access/xact.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "core/base/wire.h"
#include "core/entity/entity.h"
#include "entity/executor_private.h"

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

/* A row is put into a function's result. The function has as many columns as the reader has written. */
static void
put_row(ReturnSetInfo *result, Datum *values, bool *nulls, int columns)
{
	if (result->setDesc->natts != columns)
		elog(ERROR, "a region worker reports %d columns, the function has %d", columns,
			 result->setDesc->natts);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* A row of shard.region_entities(). */
static void
report_entity(ShardEntity *entity, void *arg)
{
	StringInfo out = arg;
	const ShardWait *wait = &entity->saved_wait;

	shard_wire_put_int(out, entity->run->type->type_id);
	shard_wire_put_int(out, entity->shard);
	shard_wire_put_bytes(out, entity->id, entity->id_len);
	shard_wire_put_int(out, shard_entity_listing(state_of(wait)));
	shard_wire_put_int(out, entity->last_message_at);
	shard_wire_put_int(out, wait->waiting);
}

void
shard_executor_read_entity(ShardReader *in, int worker, void *result)
{
	Datum values[6];
	bool nulls[6] = {false};
	const char *text;
	int length;

	values[0] = Int32GetDatum(shard_wire_get_int32(in));
	values[1] = Int32GetDatum(shard_wire_get_int32(in));
	text = shard_wire_get_piece(in, &length);
	values[2] = PointerGetDatum(cstring_to_text_with_len(text, length));
	text = shard_entity_listing_name(shard_wire_get_int32(in));
	values[3] = CStringGetTextDatum(text != NULL ? text : "unknown");
	values[4] = TimestampTzGetDatum(shard_wire_get_int(in));
	nulls[4] = DatumGetTimestampTz(values[4]) == 0;
	values[5] = Int64GetDatum(shard_wire_get_int(in));
	put_row(result, values, nulls, lengthof(values));
}

/* A row of shard.region_shards(). */
static void
report_shard(const ShardRun *run, int shard, const ShardShardCount *count, StringInfo out)
{
	shard_wire_put_int(out, run->type->type_id);
	shard_wire_put_int(out, shard);
	shard_wire_put_int(out, count->entities);
	shard_wire_put_int(out, count->handled);
	shard_wire_put_int(out, count->errors);
}

void
shard_executor_read_shard(ShardReader *in, int worker, void *result)
{
	Datum values[5];
	bool nulls[5] = {false};

	values[0] = Int32GetDatum(shard_wire_get_int32(in));
	values[1] = Int32GetDatum(shard_wire_get_int32(in));
	for (int i = 2; i < lengthof(values); i++)
		values[i] = Int64GetDatum(shard_wire_get_int(in));
	put_row(result, values, nulls, lengthof(values));
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
		report_shard(run, shard, count, out);
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
shard_executor_why_not(const ShardRequest *request)
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

/* A type whose entities are asked for. */
void
shard_executor_put_reported_type(StringInfo payload, int32 type_id)
{
	shard_wire_put_int(payload, type_id);
}

/* The entities that are asked for. */
static void
report_entities(const ShardRequest *request, StringInfo out)
{
	ShardReader types = {0};

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
	if (request->payload == NULL)
	{
		shard_cache_each(report_entity, out);
		return;
	}
	types.at = request->payload;
	types.end = request->payload + request->payload_len;
	while (types.at < types.end)
	{
		ShardRun *run = shard_run_known(shard_wire_get_int32(&types));

		if (run != NULL)
			report_type(run, out);
	}
}

void
shard_executor_report(const ShardRequest *request, StringInfo out)
{
	if (request->kind == SHARD_REQUEST_ENTITIES)
		report_entities(request, out);
	else
		shard_run_each(report_run, out);
}
