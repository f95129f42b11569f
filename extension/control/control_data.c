/*
 * control/control_data.c
 *		Whether this database has entities or messages: then it cannot join a cluster (R16).
 *
 * Asked under an exclusive lock on the extension, so nothing is in the making. Messages of the log that
 * were handled do not count: only their type's shards, which go with the type. Dead letters count: by their
 * type's number they would be another type's in a cluster.
 */
#include "postgres.h"

#include "executor/spi.h"

#include "control/control_private.h"
#include "core/member/membership.h"
#include "entity/state_door.h"
#include "entity/state_orphan.h"
#include "registry/statement.h"

#include "base/compat.h"

static bool
finds(const char *query)
{
	ShardStatement look = {query};

	shard_statement_once_read(&look, NULL, 1);
	return SPI_processed > 0;
}

bool
shard_control_data_in_log(int32 type_id)
{
	for (int i = 0; i < SHARD_SEGMENTS; i++)
	{
		char *query = psprintf("SELECT 1 FROM shard.inbox_%d WHERE kind OPERATOR(pg_catalog.=) "
							   "ANY (ARRAY[%d, %d, %d, %d, %d, %d, %d, %d, %d]::int2[])",
							   i, SHARD_KIND_TELL, SHARD_KIND_AGAIN, SHARD_KIND_START,
							   SHARD_KIND_PASSIVATE, SHARD_KIND_SCHEDULE, SHARD_KIND_CANCEL,
							   SHARD_KIND_TIMER, SHARD_KIND_REQUEST, SHARD_KIND_RESPONSE);

		if (type_id != 0)
			query = psprintf("%s AND type_id OPERATOR(pg_catalog.=) %d", query, type_id);
		if (finds(psprintf("%s LIMIT 1", query)))
			return true;
	}
	return false;
}

/*
 * What is wrong with a state table, palloc'd: it has rows, or that cannot be told; NULL: no table has. Rows are looked
 * for without SQL (state_door.h), since this process is a superuser and the tables' owners are not.
 */
static char *
entities(void)
{
	const ShardStatement tables = {
		"SELECT c.oid, t.type_name FROM shard.type t "
		"JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) t.state_table::oid"};
	const ShardStateOrphan *orphan = shard_state_orphan();
	bool isnull;

	if (orphan != NULL && orphan->busy)
		return psprintf("table %s is locked", orphan->table);
	if (orphan != NULL)
		return psprintf("the database has " SHARD_JOIN_ORPHAN_WHY ", in table %s", orphan->table);

	shard_statement_once_read(&tables, NULL, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		const char *type = shard_statement_text(i, 2);

		switch (shard_state_door_rows(DatumGetObjectId(shard_statement_column(i, 1, &isnull))))
		{
			case SHARD_DOOR_FILLED:
				return psprintf("the database has entities of type \"%s\"", type);
			case SHARD_DOOR_BUSY:
				return psprintf("the state table of entity type \"%s\" is locked", type);
			default:
				break;
		}
	}
	return NULL;
}

/*
 * What is here beside entities; each finds a row or none.
 */
static const struct
{
	const char *query;
	const char *what;
} remains[] = {
	{"SELECT 1 FROM shard.inbox_rows() LIMIT 1", "the database has messages that are not handled"},
	{"SELECT 1 FROM shard.held LIMIT 1", "the database has messages in the stash"},
	{"SELECT 1 FROM shard.parked LIMIT 1", "the database has messages that wait for a home"},
	{"SELECT 1 FROM shard.outbox_kept LIMIT 1", "the database has messages for other nodes"},
	{"SELECT 1 FROM shard.timer LIMIT 1", "the database has timers of entities"},
	{"SELECT 1 FROM shard.dead_letter LIMIT 1", "the database has dead letters"},
	{"SELECT 1 FROM shard.reshard LIMIT 1", "an entity type of the database is being resharded"},
	{"SELECT 1 FROM shard.own UNION ALL SELECT 1 FROM shard.shard_input "
	 "UNION ALL SELECT 1 FROM shard.ordered UNION ALL SELECT 1 FROM shard.history LIMIT 1",
	 "the database has shards of entity types: messages of theirs were handled here"}};

const char *
shard_control_data(void)
{
	static const char *const tables[] = {"type",		"held",	   "parked",	  "outbox_kept",
										 "dead_letter", "own",	   "shard_input", "ordered",
										 "timer",		"history", "reshard"};
	char *what;

	if (!shard_control_lock(tables, lengthof(tables)) || !shard_control_lock_all())
		return "a table of the extension is locked";
	what = entities();
	if (what != NULL)
		return MemoryContextStrdup(shard_control.step_context, what);
	for (int i = 0; i < (int) lengthof(remains); i++)
		if (finds(remains[i].query))
			return remains[i].what;
	return NULL;
}
