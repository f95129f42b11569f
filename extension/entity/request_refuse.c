/*
 * entity/request_refuse.c
 *		Requests that wait for a type that is dropped: who has made them is told (E54).
 *
 * Comes from: shard_drop_type(), before it deletes what waits; held.c and the route's store, before they give up what has
 * joined it meanwhile. Goes to: the log. It is in the transaction that takes the messages away: if the process dies right
 * here, they are there still, and nobody was told.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"

#include "entity/held.h"
#include "entity/request.h"
#include "registry/statement.h"

#include "base/compat.h"

StaticAssertDecl(SHARD_KIND_REQUEST == 27, "the statements below know the kind of a request");

#define SELECT_REQUESTS(table) \
	"SELECT shard, entity, src_type, src_entity, payload FROM shard." table \
	" WHERE type_id OPERATOR(pg_catalog.=) $1 AND kind OPERATOR(pg_catalog.=) 27"

static ShardStatement select_held = {SELECT_REQUESTS("held"), 1, {INT4OID}};
static ShardStatement select_parked = {SELECT_REQUESTS("parked"), 1, {INT4OID}};

void
shard_request_refuse_kept(int32 type_id, bool parked)
{
	const ErrorData error = {.sqlerrcode = ERRCODE_UNDEFINED_OBJECT,
							 .message = SHARD_DROPPED_ERROR};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	SPI_connect();
	shard_statement_run(parked ? &select_parked : &select_held, &arguments, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		ShardRow row = {.type_id = type_id, .kind = SHARD_KIND_REQUEST};

		row.shard = shard_statement_int4(i, 1);
		row.entity = shard_statement_bytes(i, 2, CurrentMemoryContext, &row.entity_len);
		row.src_type = shard_statement_int4(i, 3);
		row.src_entity = shard_statement_bytes(i, 4, CurrentMemoryContext, &row.src_entity_len);
		row.payload = shard_statement_bytes(i, 5, CurrentMemoryContext, &row.payload_len);
		shard_request_refuse(&row, &error);
	}
	SPI_finish();
}
