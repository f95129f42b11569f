/*
 * control/control_dropped.c
 *		What types leave in this database that were dropped here (D28), or that the cluster has no more (C9).
 *
 * If the process dies right here: what a row of a type stands for is found by the next process, which compares with the
 * map. Routes without such a row stay then; no process reads them, since no number is given twice.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/memutils.h"

#include "control/control_private.h"
#include "registry/registry.h"
#include "registry/registry_dropped.h"
#include "registry/statement.h"

#include "base/compat.h"

static List *dropped = NIL;	 /* types of which something is left (D28), by id */
static int64 dropped_n = -1; /* as of that version of the map they are known to it */
static List *known = NIL;	 /* types of the map, by id, */
static int64 known_n = -1;	 /* as of that version */

static void
note_dropped(ShardType *type, void *arg)
{
	dropped = lappend_int(dropped, type->type_id);
}

/*
 * They are those of the registry.
 */
void
shard_control_dropped_read(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	list_free(dropped);
	dropped = NIL;
	dropped_n = -1;
	shard_registry_each_dropped(note_dropped, NULL);
	MemoryContextSwitchTo(old);
}

/*
 * What is left of a type that the cluster does not have any more goes; false if another session changes it just now.
 */
static bool
end_dropped(int32 type_id)
{
	static const char *const tables[] = {"type",		"own",	   "route", "copy",
										 "shard_input", "ordered", "timer", "history"};
	bool done;

	if (!shard_control_try(tables, lengthof(tables)))
		return false;
	SPI_connect();
	done = shard_registry_dropped_end(type_id);
	SPI_finish();
	shard_control_commit();
	if (done)
		ereport(
			LOG,
			(errmsg("what entity type %d had left here was removed: the cluster does not have it "
					"any more",
					type_id)));
	return done;
}

/*
 * True: none of them is gone from the map.
 */
static bool
follow_dropped(void)
{
	ListCell *cell;
	bool done = true;

	foreach (cell, dropped)
		if (!shard_control_types_known(lfirst_int(cell)))
			done &= end_dropped(lfirst_int(cell));
	return done;
}

/*
 * Routes to shards of a type that was never here, or not any more when they were learned, and sets of these.
 */
static void
delete_routes(int32 type_id)
{
	static const ShardStatement commands[] = {
		{"DELETE FROM shard.route r WHERE r.type_id OPERATOR(pg_catalog.=) $1"
		 " AND NOT EXISTS (SELECT FROM shard.type t"
		 " WHERE t.type_id OPERATOR(pg_catalog.=) r.type_id)",
		 1,
		 {INT4OID}},
		{"DELETE FROM shard.copy c WHERE c.type_id OPERATOR(pg_catalog.=) $1"
		 " AND NOT EXISTS (SELECT FROM shard.type t"
		 " WHERE t.type_id OPERATOR(pg_catalog.=) c.type_id)",
		 1,
		 {INT4OID}},
		{"DELETE FROM shard.turn_kept k WHERE k.type_id OPERATOR(pg_catalog.=) $1"
		 " AND NOT EXISTS (SELECT FROM shard.type t"
		 " WHERE t.type_id OPERATOR(pg_catalog.=) k.type_id)",
		 1,
		 {INT4OID}}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	for (int i = 0; i < (int) lengthof(commands); i++)
		shard_statement_once(&commands[i], &arguments, SPI_OK_DELETE);
	shard_control_facts_forget(type_id);
}

/* Ends types that the map had, and has no more. False: another session has a table locked. */
static bool
follow_known(void)
{
	static const char *const tables[] = {"type", "route", "copy", "turn_kept"};
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(shard_control.node), SHARD_MAP_TYPE, arena, &count);
	List *gone = list_copy(known);
	MemoryContext old;
	ListCell *cell;

	for (int i = 0; i < count; i++)
		gone = list_delete_int(gone, types[i].key.a);
	if (gone != NIL && !shard_control_try(tables, lengthof(tables)))
	{
		shard_arena_destroy(arena);
		return false;
	}
	if (gone != NIL)
	{
		SPI_connect();
		foreach (cell, gone)
			delete_routes(lfirst_int(cell));
		SPI_finish();
		shard_control_commit();
	}
	list_free(known);
	known = NIL;
	old = MemoryContextSwitchTo(TopMemoryContext);
	for (int i = 0; i < count; i++)
		known = lappend_int(known, types[i].key.a);
	MemoryContextSwitchTo(old);
	shard_arena_destroy(arena);
	return true;
}

void
shard_control_dropped_follow(void)
{
	int64 n = shard_map_point(shard_node_learned(shard_control.node)).n;

	if (n <= 0 || known_n == n || follow_known())
		known_n = n;
	if (dropped != NIL && n > 0 && dropped_n != n && follow_dropped())
		dropped_n = n;
}
