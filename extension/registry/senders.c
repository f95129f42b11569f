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
	"WITH held AS MATERIALIZED (SELECT l.pid, l.virtualtransaction, a.usename, a.xact_start"
	" FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid"
	" WHERE l.locktype = 'object' AND l.granted AND l.mode = 'AccessShareLock'"
	" AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"
	" AND l.classid = 'shard.type'::regclass"
	" AND l.objid = (SELECT e.oid FROM pg_extension e WHERE e.extname = 'shard')"
	" AND l.pid IS DISTINCT FROM pg_backend_pid() AND coalesce(a.backend_type, '') NOT LIKE 'shard %'"
	"), prepared AS (SELECT p.gid, row_number() OVER (ORDER BY p.prepared, p.gid) AS n, count(*) OVER () AS many"
	" FROM pg_prepared_xacts p JOIN pg_locks x ON x.locktype = 'transactionid' AND x.transactionid = p.transaction"
	" AND x.pid IS NULL WHERE x.virtualtransaction IN (SELECT h.virtualtransaction FROM held h WHERE h.pid IS NULL))"
	"SELECT CASE p.many WHEN 1 THEN 'prepared transaction ' ELSE p.many || ' prepared transactions: ' END"
	" || string_agg(format('\"%s\"', p.gid), ', ' ORDER BY p.n) || CASE WHEN p.many > 3 THEN ', ...' ELSE '' END"
	" || ' (see pg_prepared_xacts)' FROM prepared p WHERE p.n <= 3 GROUP BY p.many"
	" UNION ALL "
	"(SELECT format('process %s%s, whose transaction is open since %s', h.pid,"
	" CASE WHEN $1 THEN format(' of role \"%s\"', h.usename) END, date_trunc('second', h.xact_start))"
	" FROM held h WHERE h.pid IS NOT NULL ORDER BY h.xact_start NULLS FIRST LIMIT 5)",
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
