/*
 * sql/view/health_timers.c
 *		Timers that are late; a part of shard_health.
 *
 * A timer that is due is a message within a moment, and its row has another time, or is gone, when that was handled. Those
 * of which a message waits for its entity are left to the sentences about the stash, and those of shards that pause, or of
 * types that cannot run, to the sentences about these.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"

#include "core/base/message.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "sql/view/health.h"

#include "base/compat.h"

/* So many of a lane are told, the oldest. */
#define TOLD "1000"

/*
 * A time that an index finds is one of the statement, not of the clock. Only those that are to be told are counted: any
 * number of others may be older.
 */
static const ShardStatement late = {
	"WITH runs AS MATERIALIZED ("
	" SELECT t.type_id, t.type_name FROM shard.type t"
	" WHERE t.mode = 'hosting' AND coalesce(shard.type_problem(t.type_id), t.problem) IS NULL),"
	" late AS MATERIALIZED ("
	" SELECT l.lane, m.* FROM generate_series(0, $1 - 1) l (lane) CROSS JOIN LATERAL ("
	"  SELECT m.type_id, m.entity, m.due FROM shard.timer m"
	"  WHERE m.lane = l.lane::int2 AND m.due < statement_timestamp() - interval '5 minutes'"
	"  AND m.type_id = ANY (ARRAY(SELECT type_id FROM runs))"
	"  AND EXISTS (SELECT FROM shard.own o"
	"   WHERE o.type_id = m.type_id AND o.shard = m.shard AND o.state = 'active')"
	"  AND NOT EXISTS (SELECT FROM shard.held p WHERE p.type_id = m.type_id AND p.shard = m.shard"
	"   AND p.pauses AND p.next_at > clock_timestamp())"
	"  AND NOT EXISTS (SELECT FROM shard.held h WHERE h.type_id = m.type_id AND h.shard = m.shard"
	"   AND h.entity = m.entity AND h.place IN ('start', 'stash'))"
	"  ORDER BY m.due, m.generation LIMIT " TOLD ") m)"
	" SELECT format('%s%s timers of entity type \"%s\" are late, the oldest, of entity \"%s\", is due since %s; see "
	"shard_timers and shard_stat_workers',"
	" CASE WHEN " TOLD " <= ANY (SELECT count(*) FROM late GROUP BY lane) THEN 'at least ' END,"
	" count(*), t.type_name, (array_agg(l.entity ORDER BY l.due))[1], date_trunc('second', min(l.due)))"
	" FROM late l JOIN runs t USING (type_id) GROUP BY t.type_name",
	1,
	{INT4OID}};

void
shard_health_timers(ShardHealth *health)
{
	ShardSecurity security = {0};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(SHARD_LANES), false);
	SPI_connect();
	shard_security_begin_system(&security);
	shard_statement_once_read(&late, &arguments, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		shard_health_add(health, shard_statement_text(i, 1));
	shard_security_end(&security);
	SPI_finish();
}
