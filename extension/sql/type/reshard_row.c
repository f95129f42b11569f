/*
 * sql/type/reshard_row.c
 *		Rows of table shard.reshard: types whose entities are on their way to other shards.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/inval.h"

#include "registry/catalog.h"
#include "registry/statement.h"
#include "shared/board.h"
#include "shared/gate.h"
#include "sql/type/reshard.h"

#include "base/compat.h"

/* A copy that outlives SPI; NULL of NULL. */
static const char *
keep(const char *text)
{
	return text == NULL ? NULL : strcpy(SPI_palloc(strlen(text) + 1), text);
}

bool
shard_reshard_read(int32 type_id, ShardReshard *reshard)
{
	const ShardStatement look = {
		"SELECT number_of_shards, hash, shard_id_extractor, moving::int4, next_shard, entities"
		" FROM shard.reshard WHERE type_id = $1 FOR UPDATE",
		1,
		{INT4OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_once(&look, &arguments, SPI_OK_SELECT);
	if (SPI_processed == 0)
		return false;
	*reshard = (ShardReshard){.type_id = type_id,
							  .number_of_shards = shard_statement_int4(0, 1),
							  .hash = keep(shard_statement_text(0, 2)),
							  .extractor = keep(shard_statement_text(0, 3)),
							  .moving = shard_statement_int4(0, 4) != 0,
							  .next_shard = shard_statement_int4(0, 5),
							  .entities = shard_statement_int8(0, 6)};
	return true;
}

/* The control worker tells the cluster what it has, and what it has no more. */
static void
tell_control_worker(void)
{
	CacheInvalidateRelcacheByRelid(shard_catalog_get()->type);
	shard_board_types_change();
}

void
shard_reshard_write(const ShardReshard *reshard)
{
	const ShardStatement write = {
		"INSERT INTO shard.reshard (type_id, number_of_shards, hash, shard_id_extractor, moving,"
		"  next_shard, entities) VALUES ($1, $2, $3, $4, $5, $6, $7)"
		" ON CONFLICT (type_id) DO UPDATE SET number_of_shards = $2, hash = $3,"
		"  shard_id_extractor = $4, moving = $5, next_shard = $6, entities = $7,"
		"  stepped_at = clock_timestamp()",
		7,
		{INT4OID, INT4OID, TEXTOID, TEXTOID, BOOLOID, INT4OID, INT8OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(reshard->type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(reshard->number_of_shards), false);
	shard_statement_add_string(&arguments, reshard->hash);
	shard_statement_add_string(&arguments, reshard->extractor);
	shard_statement_add(&arguments, BoolGetDatum(reshard->moving), false);
	shard_statement_add(&arguments, Int32GetDatum(reshard->next_shard), false);
	shard_statement_add(&arguments, Int64GetDatum(reshard->entities), false);
	shard_statement_once(&write, &arguments, SPI_OK_INSERT);
	if (!reshard->moving)
		tell_control_worker();
}

void
shard_reshard_delete(int32 type_id)
{
	const ShardStatement delete = {"DELETE FROM shard.reshard WHERE type_id = $1", 1, {INT4OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_once(&delete, &arguments, SPI_OK_DELETE);
	if (SPI_processed > 0)
		tell_control_worker();
}

void
shard_reshard_number_given(int32 number)
{
	const ShardStatement leave_out = {
		"SELECT setval('shard.type_type_id_seq', greatest($1::int8, s.last_value))"
		" FROM shard.type_type_id_seq s",
		1,
		{INT4OID}};
	ShardArguments arguments = {0};
	ShardSecurity security = {0};

	shard_statement_add(&arguments, Int32GetDatum(number), false);
	shard_security_open_system(&security);
	shard_statement_once(&leave_out, &arguments, SPI_OK_SELECT);
	shard_security_close_system(&security);
	XLogFlush(shard_gate_newest());
}

void
shard_reshard_end_or_refuse(const ShardAdminType *type)
{
	ShardReshard reshard;

	if (!shard_reshard_read(type->type_id, &reshard))
		return;
	if (!reshard.moving)
	{
		shard_reshard_delete(type->type_id);
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot start entity type \"%s\" while its entities move to other shards",
					type->name),
			 errdetail("They are on their way to %d shards; see shard_reshardings.",
					   reshard.number_of_shards),
			 errhint("Call shard_reshard() again, which goes on where it was; then start the "
					 "type.")));
}
