/*
 * sql/view/history.c
 *		SQL function shard_history: the last failures of an entity, and what was decided (E26).
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"

#include "registry/registry.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "sql/operate/command.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_history);

/* What is left where a shard lived before, or was copied to, does not count (M12). */
static const ShardStatement select_failures = {
	"SELECT h.seq, h.at, h.sqlstate, h.error, h.attempts, h.decision, h.outcome,"
	" h.pause * interval '1 microsecond'"
	" FROM shard.history h JOIN shard.own o ON o.type_id = h.type_id AND o.shard = h.shard"
	" WHERE o.state IN ('active', 'stopping') AND h.type_id = $1 AND h.entity = $2"
	" ORDER BY h.seq DESC",
	2,
	{INT4OID, TEXTOID}};

#define COLUMNS 8

/*
 * shard_history(type_name text, entity_id text, OUT ...) RETURNS SETOF record, the newest first. Members of the type's
 * owner.
 */
Datum
shard_history(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ShardType *type = shard_registry_get_present(shard_command_text(fcinfo, 0, "type name"));
	char *entity = shard_command_text(fcinfo, 1, "entity id");
	ShardSecurity security = {0};
	ShardArguments arguments = {0};

	shard_security_check_owner(type, "see failures of entity type");
	InitMaterializedSRF(fcinfo, 0);
	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_add_string(&arguments, entity);
	SPI_connect();
	shard_security_begin_system(&security);
	shard_statement_once_read(&select_failures, &arguments, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		Datum values[COLUMNS];
		bool nulls[COLUMNS];

		for (int column = 0; column < COLUMNS; column++)
			values[column] = shard_statement_column(i, column + 1, &nulls[column]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	shard_security_end(&security);
	SPI_finish();
	return (Datum) 0;
}
