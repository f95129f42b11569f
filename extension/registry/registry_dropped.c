/*
 * registry/registry_dropped.c
 *		What a type that was dropped here leaves where others may host it (D28).
 *
 * If the process dies right here: each is part of its caller's transaction. What should have gone is found
 * by the next control worker, which compares with the map.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/inval.h"

#include "registry/catalog.h"
#include "shared/board.h"
#include "registry/registry_dropped.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Runs a command about one type; returns how many rows it was about. */
static uint64
run(const char *command, int expected, int32 type_id)
{
	ShardStatement statement = {command, 1, {INT4OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_once(&statement, &arguments, expected);
	return SPI_processed;
}

/* Tells all processes, this one too, that a type has changed. */
static void
tell_everybody(void)
{
	CacheInvalidateRelcacheByRelid(shard_catalog_get()->type);
	shard_board_types_change();
}

void
shard_registry_dropped_leave(int32 type_id)
{
	(void) run("UPDATE shard.type SET mode = 'dropped', handler = '', handler_oid = 0,"
			   "  state_type = 'pg_catalog.jsonb', state_table = 0, extractors = '',"
			   "  problem = NULL, problem_code = NULL"
			   " WHERE type_id OPERATOR(pg_catalog.=) $1",
			   SPI_OK_UPDATE, type_id);
	tell_everybody();
}

bool
shard_registry_dropped_end(int32 type_id)
{
	static const char *const commands[] = {
		"DELETE FROM shard.own WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.route WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.copy WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.turn_kept WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.output WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.letter WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.shard_input WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.ordered WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.timer WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.history WHERE type_id OPERATOR(pg_catalog.=) $1"};

	if (run("DELETE FROM shard.type WHERE type_id OPERATOR(pg_catalog.=)"
			" (SELECT t.type_id FROM shard.type t WHERE t.type_id OPERATOR(pg_catalog.=) $1"
			"  AND t.mode OPERATOR(pg_catalog.=) 'dropped' FOR UPDATE SKIP LOCKED)",
			SPI_OK_DELETE, type_id) == 0)
		return false;
	for (int i = 0; i < lengthof(commands); i++)
		(void) run(commands[i], SPI_OK_DELETE, type_id);
	tell_everybody();
	return true;
}

void
shard_registry_dropped_take(const char *name, int32 type_id)
{
	const ShardStatement look = {
		"SELECT type_id FROM shard.type WHERE type_name OPERATOR(pg_catalog.=) $1"
		" AND mode OPERATOR(pg_catalog.=) 'dropped' FOR UPDATE",
		1,
		{TEXTOID}};
	ShardArguments arguments = {0};
	int32 left;

	shard_statement_add_string(&arguments, name);
	shard_statement_once(&look, &arguments, SPI_OK_SELECT);
	if (SPI_processed == 0)
		return;
	left = shard_statement_int4(0, 1);
	if (left == type_id)
		(void) run("DELETE FROM shard.type WHERE type_id OPERATOR(pg_catalog.=) $1", SPI_OK_DELETE,
				   type_id);
	else
		(void) shard_registry_dropped_end(left);
}
