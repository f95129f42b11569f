/*
 * sql/view/health_supervision.c
 *		Shards that pause after an escalation, and messages that fail again and again; a part of shard_health.
 *
 * A message that waits for its next attempt is no problem; one that has waited for that for minutes is: what is in the way
 * does not go away by itself, be it a disk that is full.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"

#include "base/rights.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "sql/view/health.h"

#include "base/compat.h"

/* So many of each are named. */
#define NAMED "10"

/* $1: the reader may see errors. */
#define ERROR_TEXT "CASE WHEN $1 THEN h.error ELSE 'SQLSTATE ' || h.sqlstate END"

static const ShardStatement problems = {
	"(SELECT format('shard %s of entity type \"%s\" pauses until %s: entity \"%s\" has failed, the "
	"last time after %s: %s; see shard_history(); a change of the handler or of the type''s settings ends the pause',"
	" h.shard, t.type_name, date_trunc('milliseconds', h.next_at), h.entity,"
	" CASE h.attempts WHEN 1 THEN 'one attempt' ELSE h.attempts || ' attempts' END, " ERROR_TEXT ")"
	" FROM shard.held_here h JOIN shard.type t USING (type_id)"
	" WHERE h.pauses AND h.next_at > clock_timestamp() AND t.mode = 'hosting'"
	" ORDER BY h.next_at DESC LIMIT " NAMED ")"
	" UNION ALL "
	"(SELECT format('the first message of entity \"%s\" of type \"%s\" waits since %s, and has failed in %s "
	"attempts: %s; see shard_inbox', h.entity, t.type_name, date_trunc('second', h.held_at),"
	" h.attempts, " ERROR_TEXT ")"
	" FROM shard.held_here h JOIN shard.type t USING (type_id)"
	" WHERE h.attempts > 0 AND NOT h.pauses AND h.sqlstate IS NOT NULL AND t.mode = 'hosting'"
	" AND h.held_at < clock_timestamp() - interval '5 minutes'"
	" ORDER BY h.held_at LIMIT " NAMED ")",
	1,
	{BOOLOID}};

void
shard_health_supervision(ShardHealth *health)
{
	ShardSecurity security = {0};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, BoolGetDatum(shard_rights_all_stats()), false);
	SPI_connect();
	shard_security_begin_system(&security);
	shard_statement_once_read(&problems, &arguments, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		shard_health_add(health, shard_statement_text(i, 1));
	shard_security_end(&security);
	SPI_finish();
}
