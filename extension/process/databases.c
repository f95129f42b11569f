/*
 * process/databases.c
 *		The launcher's view of pg_database.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "process/launcher.h"

#include "base/compat.h"

/* By slot: where a database stood at the last look. A slot may have become another database's since. */
static struct
{
	Oid dboid;
	ShardStanding where;
} standing[SHARD_MAX_DATABASES];

/* Open databases without a slot: still to be probed; known to have no extension. */
static List *unprobed = NIL;
static List *without_extension = NIL;

static List *read_all(const Oid *dboid, int slots);
static void set_standing(const Oid *dboid, int slots, Form_pg_database database);
static bool is_open(Form_pg_database database);

/*
 * Reads pg_database: where the databases of slots stand, and which others are
 * still to be probed.
 */
void
shard_databases_read(void)
{
	Oid dboid[SHARD_MAX_DATABASES];
	int slots;
	List *open;
	List *known;
	MemoryContext caller;

	/* The slots first: of one made later the catalog may have said nothing. */
	LWLockAcquire(shard_shared->lock, LW_SHARED);
	slots = shard_shared->databases;
	for (int i = 0; i < slots; i++)
		dboid[i] = shard_shared->database[i].dboid;
	LWLockRelease(shard_shared->lock);

	caller = MemoryContextSwitchTo(TopMemoryContext);
	open = read_all(dboid, slots);
	list_free(unprobed);
	unprobed = list_difference_oid(open, without_extension);
	known = list_difference_oid(open, unprobed);
	list_free(without_extension);
	without_extension = known;
	list_free(open);
	MemoryContextSwitchTo(caller);
}

/*
 * Sets the standing of the given databases; returns the open ones that are not
 * among them, in the caller's memory context.
 */
static List *
read_all(const Oid *dboid, int slots)
{
	MemoryContext result_context = CurrentMemoryContext;
	List *open = NIL;
	Relation rel;
	TableScanDesc scan;
	HeapTuple tuple;

	for (int i = 0; i < slots; i++)
	{
		standing[i].dboid = dboid[i];
		standing[i].where = SHARD_STANDING_GONE;
	}

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext scan_context;

		set_standing(dboid, slots, database);
		if (!is_open(database))
			continue;
		scan_context = MemoryContextSwitchTo(result_context);
		open = lappend_oid(open, database->oid);
		MemoryContextSwitchTo(scan_context);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();

	for (int i = 0; i < slots; i++)
		open = list_delete_oid(open, dboid[i]);
	return open;
}

/*
 * Notes where a database stands, if it is among the given ones.
 */
static void
set_standing(const Oid *dboid, int slots, Form_pg_database database)
{
	for (int i = 0; i < slots; i++)
		if (dboid[i] == database->oid)
			standing[i].where = is_open(database) ? SHARD_STANDING_OPEN : SHARD_STANDING_CLOSED;
}

/*
 * Whether workers may connect to a database. They stay out of templates, which users copy, and of what an interrupted
 * DROP has left.
 */
static bool
is_open(Form_pg_database database)
{
	return database->datallowconn && !database->datistemplate &&
		   database->datconnlimit != DATCONNLIMIT_INVALID_DB;
}

/*
 * Where the database of a slot stood at the last look.
 */
ShardStanding
shard_databases_standing(const ShardDatabase *db)
{
	int slot = shard_shmem_database_index(db);

	return standing[slot].dboid == db->dboid ? standing[slot].where : SHARD_STANDING_UNKNOWN;
}

/*
 * Takes the next database to be probed.
 */
Oid
shard_databases_next(void)
{
	Oid dboid;

	if (unprobed == NIL)
		return InvalidOid;
	dboid = linitial_oid(unprobed);
	unprobed = list_delete_first(unprobed);
	return dboid;
}

/*
 * A slot was made for a database that the last look found open.
 */
void
shard_databases_slot_made(const ShardDatabase *db)
{
	int slot = shard_shmem_database_index(db);

	standing[slot].dboid = db->dboid;
	standing[slot].where = SHARD_STANDING_OPEN;
}

/*
 * A slot is given back.
 */
void
shard_databases_slot_lost(const ShardDatabase *db)
{
	if (shard_databases_standing(db) != SHARD_STANDING_GONE)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

		without_extension = list_append_unique_oid(without_extension, db->dboid);
		MemoryContextSwitchTo(caller);
	}
	standing[shard_shmem_database_index(db)].dboid = InvalidOid;
}
