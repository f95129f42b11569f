/*
 * entity/state_orphan.c
 *		State tables without an entity type: a restored dump has them, and no types.
 *
 * They are in the schema of state tables, where only superusers make tables, and look like state tables. What is in
 * them are states all the same, and their owner is known again when their type is started. Rows are looked for without
 * SQL (state_door.h), whatever role asks.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "nodes/pg_list.h"

#include "entity/state_door.h"
#include "entity/state_orphan.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Tables that are looked at where all of them are told; the first one that has rows is looked for among all. */
#define TABLES 200

static ShardStatement tables = {
	"SELECT c.oid, pg_catalog.format('shard_entity.%I', c.relname)"
	" FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
	"  ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
	" WHERE n.nspname OPERATOR(pg_catalog.=) 'shard_entity'"
	" AND c.relkind OPERATOR(pg_catalog.=) 'r'"
	" AND 2 OPERATOR(pg_catalog.=) (SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a"
	"  WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND NOT a.attisdropped"
	"  AND a.attname OPERATOR(pg_catalog.=) ANY (ARRAY['shard', 'entity_id']::pg_catalog.name[]))"
	" AND NOT EXISTS (SELECT FROM shard.type t"
	"  WHERE t.state_table::pg_catalog.oid OPERATOR(pg_catalog.=) c.oid)"
	" ORDER BY c.relname LIMIT $1",
	1,
	{INT4OID}};

/* The orphans that have rows, or may have; first: only the first of them. */
static List *
look(bool first)
{
	ShardArguments arguments = {0};
	List *orphans = NIL;
	bool isnull;

	shard_statement_add(&arguments, Int32GetDatum(TABLES), first);
	shard_statement_read(&tables, &arguments, 0);
	for (uint64 i = 0; i < SPI_processed && !(first && orphans != NIL); i++)
	{
		Oid table = DatumGetObjectId(shard_statement_column(i, 1, &isnull));
		ShardDoorRows rows = shard_state_door_rows(table);
		ShardStateOrphan *orphan;

		if (rows == SHARD_DOOR_EMPTY)
			continue;
		orphan = palloc(sizeof(ShardStateOrphan));
		orphan->table = shard_statement_text(i, 2);
		orphan->busy = rows == SHARD_DOOR_BUSY;
		orphans = lappend(orphans, orphan);
	}
	return orphans;
}

const ShardStateOrphan *
shard_state_orphan(void)
{
	List *orphans = look(true);

	return orphans != NIL ? linitial(orphans) : NULL;
}

List *
shard_state_orphans(void)
{
	return look(false);
}
