/*
 * entity/report.c
 *		What a region worker has in memory, for the views: written by the worker, read by the backend that asked it.
 *
 * Comes from: process/region_asks.c: a request of a view. A row's writer and its reader stand one below the other; no other
 * file knows the form.
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "core/base/wire.h"
#include "core/entity/entity.h"
#include "entity/internal.h"

#include "base/compat.h"

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

	if (entity->saved_life == SHARD_ENTITY_NONE)
		return;
	shard_wire_put_int(out, entity->local->type->type_id);
	shard_wire_put_int(out, entity->shard);
	shard_wire_put_bytes(out, entity->id, entity->id_len);
	shard_wire_put_int(out, shard_entity_listing(entity->saved_life));
	shard_wire_put_int(out, entity->last_message_at);
	shard_wire_put_int(out, wait->waiting);
}

void
shard_report_read_entity(ShardReader *in, int worker, void *result)
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
report_shard(const ShardLocalType *local, int shard, const ShardShardCount *count, StringInfo out)
{
	shard_wire_put_int(out, local->type->type_id);
	shard_wire_put_int(out, shard);
	shard_wire_put_int(out, count->entities);
	shard_wire_put_int(out, count->handled);
	shard_wire_put_int(out, count->errors);
	for (int reason = 0; reason < SHARD_LEAVES_COUNTED; reason++)
		shard_wire_put_int(out, count->left[reason]);
	shard_wire_put_int(out, count->remembered);
	shard_wire_put_int(out, shard_remember_recovers(local, shard));
}

void
shard_report_read_shard(ShardReader *in, int worker, void *result)
{
	Datum values[7 + SHARD_LEAVES_COUNTED];
	bool nulls[7 + SHARD_LEAVES_COUNTED] = {false};

	const int recovering = lengthof(values) - 1;

	values[0] = Int32GetDatum(shard_wire_get_int32(in));
	values[1] = Int32GetDatum(shard_wire_get_int32(in));
	for (int i = 2; i < recovering; i++)
		values[i] = Int64GetDatum(shard_wire_get_int(in));
	values[recovering] = BoolGetDatum(shard_wire_get_int(in) != 0);
	put_row(result, values, nulls, lengthof(values));
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
		if (count->entities == 0 && count->handled == 0 && count->errors == 0 &&
			count->remembered == 0 && !shard_remember_recovers(local, shard))
			continue;
		report_shard(local, shard, count, out);
	}
}

static void
report_type(ShardLocalType *local, StringInfo out)
{
	dlist_iter iter;

	dlist_foreach (iter, &local->lru)
		report_entity(dlist_container(ShardEntity, lru, iter.cur), out);
}

/* A type about whose entities a report is asked for. */
void
shard_report_put_type(StringInfo payload, int32 type_id)
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
		ShardLocalType *local = shard_local_known(request->type_id);
		ShardEntity *entity = local == NULL
								  ? NULL
								  : shard_cache_get(local, request->shard, request->entity,
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
		ShardLocalType *local = shard_local_known(shard_wire_get_int32(&types));

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
