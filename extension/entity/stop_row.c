/*
 * entity/stop_row.c
 *		Rows of the log by which an entity gets its stop message: what stop.c says of them, as bytes.
 *
 * Comes from: call.c, when a handler has asked for it; stop.c, which decides, and meets the row again. Goes to: the log.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

#include "core/base/message.h"
#include "entity/internal.h"
#include "entity/outputs.h"
#include "log/session.h"

#include "base/compat.h"

/* Appends the row in the turn's transaction. A limit of the inbox does not hold it up: it is one for each entity. */
static void
append(const ShardEntity *entity, const Jsonb *payload, bool own)
{
	const ShardType *type = entity->local->type;
	ShardRow row = {.type_id = type->type_id,
					.shard = entity->shard,
					.kind = SHARD_KIND_PASSIVATE,
					.entity = entity->id,
					.entity_len = entity->id_len,
					.payload = VARDATA(payload),
					.payload_len = VARSIZE(payload) - VARHDRSZ,
					.epoch = -1};
	bool in_log = true;

	if (own)
	{
		row.src_type = type->type_id;
		row.src_entity = entity->id;
		row.src_entity_len = entity->id_len;
	}
	/* a number is the worker's own: whoever needs another one makes it (E6) */
	if (own)
		in_log = shard_outputs_tell(&row);
	else
		shard_log_append(&row);
	if (in_log)
		shard_session_appended(shard_message_lane(row.type_id, row.shard));
}

void
shard_stop_ask(ShardEntity *entity, const Jsonb *message)
{
	append(entity, message, true);
#ifndef SHARD_MUTANT_STOP_TWICE
	entity->stop = SHARD_STOP_ASKED;
#endif
}

void
shard_stop_append_number(const ShardEntity *entity, int64 number)
{
	JsonbValue value = {.type = jbvNumeric};
	Jsonb *payload;

	value.val.numeric = int64_to_numeric(number);
	payload = JsonbValueToJsonb(&value);
	append(entity, payload, false);
	pfree(payload);
}

bool
shard_stop_is_number(const ShardRow *row)
{
	return row->kind == SHARD_KIND_PASSIVATE && row->payload_len > 0 && row->src_type == 0;
}

bool
shard_stop_was_told(const ShardRow *row)
{
	return row->payload_len == 0 || (row->src_type != 0 && row->src_entity_len > 0);
}

int64
shard_stop_number(const ShardRow *row)
{
	Jsonb *payload = palloc(VARHDRSZ + row->payload_len);
	JsonbValue value;
	int64 number = 0;

	SET_VARSIZE(payload, VARHDRSZ + row->payload_len);
	memcpy(VARDATA(payload), row->payload, row->payload_len);
	if (JB_ROOT_IS_SCALAR(payload) && JsonbExtractScalar(&payload->root, &value) &&
		value.type == jbvNumeric)
		number = strtoll(numeric_normalize(value.val.numeric), NULL, 10);
	pfree(payload);
	return number;
}
