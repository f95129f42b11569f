/*
 * registry/senders.c
 *		Open transactions that keep this node from leaving, or from joining: the holders of the lock that senders
 *		take (W3).
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"

#include "registry/security.h"
#include "registry/senders.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Turns of workers are short and are left out, and so is the session that looks. */
static ShardStatement look = {
	"SELECT CASE WHEN l.pid IS NULL THEN 'a prepared transaction, see pg_prepared_xacts'"
	" ELSE format('process %s%s, whose transaction is open since %s', l.pid,"
	" CASE WHEN $1 THEN format(' of role \"%s\"', a.usename) END, date_trunc('second', a.xact_start)) END"
	" FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid"
	" WHERE l.locktype = 'object' AND l.granted AND l.mode = 'AccessShareLock'"
	" AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"
	" AND l.classid = 'shard.type'::regclass"
	" AND l.objid = (SELECT e.oid FROM pg_extension e WHERE e.extname = 'shard')"
	" AND l.pid IS DISTINCT FROM pg_backend_pid() AND coalesce(a.backend_type, '') NOT LIKE 'shard %'"
	" ORDER BY a.xact_start NULLS FIRST LIMIT 5",
	1,
	{BOOLOID}};

const char *
shard_senders_list(bool roles)
{
	ShardArguments arguments = {0};
	MemoryContext context = CurrentMemoryContext;
	ShardSecurity security = {0};
	StringInfoData list;

	initStringInfo(&list);
	shard_security_begin_system(&security);
	SPI_connect();
	shard_statement_add(&arguments, BoolGetDatum(roles), false);
	shard_statement_read(&look, &arguments, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		const char *text = shard_statement_text(i, 1);
		MemoryContext old = MemoryContextSwitchTo(context);

		appendStringInfo(&list, "%s%s", i > 0 ? "; " : "", text);
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	shard_security_end(&security);
	return list.data;
}
