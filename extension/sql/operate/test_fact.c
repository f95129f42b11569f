/*
 * sql/operate/test_fact.c
 *		For tests, in builds with SHARD_ASSERTIONS alone: this node hears of a home that nobody has decided.
 *
 * The extension has no SQL function of it: a test makes one, as a superuser. It appends a row of kind FACT, as the control
 * worker does with a home that was decided; what the lane's worker makes of it is what it makes of any.
 */
#include "postgres.h"

#ifdef SHARD_ASSERTIONS

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"

#include "core/base/message.h"
#include "core/flow/packet.h"
#include "log/log.h"
#include "log/session.h"
#include "registry/catalog.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_test_fact);

/* shard_test_fact(type_id integer, shard integer, epoch integer, n bigint, nodes integer[], lost integer) returns void */
Datum
shard_test_fact(PG_FUNCTION_ARGS)
{
	ArrayType *nodes = PG_GETARG_ARRAYTYPE_P(4);
	const int32 *node = (const int32 *) ARR_DATA_PTR(nodes);
	int count = ArrayGetNItems(ARR_NDIM(nodes), ARR_DIMS(nodes));
	ShardFact fact = {.type_id = PG_GETARG_INT32(0),
					  .shard = PG_GETARG_INT32(1),
					  .epoch = PG_GETARG_INT32(2),
					  .n = PG_GETARG_INT64(3),
					  .lost = PG_GETARG_INT32(5),
					  .want = count};
	ShardRow row = {.type_id = fact.type_id,
					.shard = fact.shard,
					.kind = SHARD_KIND_FACT,
					.entity = "",
					.epoch = -1};
	StringInfoData payload;

	Assert(count > 0 && count <= SHARD_MAX_HOMES && !ARR_HASNULL(nodes));
	fact.node = node[0];
	fact.n_backups = count - 1;
	memcpy(fact.backups, node + 1, fact.n_backups * sizeof(int32));
	(void) shard_catalog_lock(false);
	initStringInfo(&payload);
	shard_packet_put_fact(&payload, &fact);
	row.payload = payload.data;
	row.payload_len = payload.len;
	shard_log_append(&row);
	shard_session_appended(shard_message_lane(fact.type_id, fact.shard));
	PG_RETURN_VOID();
}

#endif
