/*
 * registry/catalog.c
 *		OIDs of the extension's own objects, and "is the extension here".
 *
 * Dropping the extension drops its tables, which sends a relcache invalidation
 * for each before their locks go. So a cache that is still valid once the
 * invalidations were read is the proof that the extension is still the same.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "catalog/namespace.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/resowner.h"
#include "utils/syscache.h"

#include "registry/catalog.h"

#include "base/compat.h"

static ShardCatalog cached;
static bool cached_valid = false;

/* Counts invalidations of anything that was or may be in the cache. */
static uint64 invalidations = 0;

/* The transaction that holds the lock of the extension, and of which. */
static LocalTransactionId locked_in = InvalidLocalTransactionId;
static Oid locked_extension = InvalidOid;

static bool look_up(ShardCatalog *catalog);
static Oid extension_schema(Oid extension);
static bool is_ours(Oid relid);
static void relation_changed(Datum arg, Oid relid);
static bool lock_extension(const ShardCatalog *catalog, LOCKMODE mode, bool nowait);

/*
 * Registers the callback that forgets what was cached.
 */
void
shard_catalog_init(void)
{
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
}

/*
 * OIDs of the extension's objects, or NULL if the extension is not in this database, or not whole yet. Absence is not
 * remembered. The result is valid until the next invalidation.
 */
const ShardCatalog *
shard_catalog_find(void)
{
	while (!cached_valid)
	{
		uint64 before = invalidations;
		ShardCatalog catalog;
		bool found = look_up(&catalog);

		/* Look-ups read invalidations, too: what is found may be outdated. */
		if (before != invalidations)
			continue;
		if (!found)
			return NULL;
		cached = catalog;
		cached_valid = true;
	}
	return &cached;
}

/*
 * The same; error if the extension is not here.
 */
const ShardCatalog *
shard_catalog_get(void)
{
	const ShardCatalog *catalog = shard_catalog_find();

	if (catalog == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("extension \"shard\" is not in this database"),
						errhint("Run CREATE EXTENSION shard in this database.")));
	return catalog;
}

/* The function without arguments; InvalidOid: it is not there. */
static Oid
find_function(const char *name, Oid schema)
{
	oidvector *none = buildoidvector(NULL, 0);
	Oid function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
								   PointerGetDatum(none), ObjectIdGetDatum(schema));

	pfree(none);
	return function;
}

/*
 * Reads the catalogs. False if anything is missing.
 */
static bool
look_up(ShardCatalog *catalog)
{
	bool whole = true;

	memset(catalog, 0, sizeof(ShardCatalog));
	catalog->extension = get_extension_oid(SHARD_EXTENSION_NAME, true);
	catalog->schema = get_namespace_oid("shard", true);
	if (!OidIsValid(catalog->extension) || !OidIsValid(catalog->schema))
		return false;

	catalog->public_schema = extension_schema(catalog->extension);
	catalog->node = get_relname_relid("node", catalog->schema);
	catalog->type = get_relname_relid("type", catalog->schema);
	catalog->held = get_relname_relid("held", catalog->schema);
	catalog->dead_letter = get_relname_relid("dead_letter", catalog->schema);
	catalog->timer = get_relname_relid("timer", catalog->schema);
	catalog->timer_pkey = get_relname_relid("timer_pkey", catalog->schema);
	catalog->timer_due = get_relname_relid("timer_due", catalog->schema);
	catalog->touched = find_function("state_touched", catalog->schema);
	for (int i = 0; i < SHARD_SEGMENTS; i++)
	{
		char name[NAMEDATALEN];

		snprintf(name, sizeof(name), "inbox_%d", i);
		catalog->segment[i] = get_relname_relid(name, catalog->schema);
		whole = whole && OidIsValid(catalog->segment[i]);
	}
	return whole && OidIsValid(catalog->public_schema) && OidIsValid(catalog->node) &&
		   OidIsValid(catalog->type) && OidIsValid(catalog->held) &&
		   OidIsValid(catalog->dead_letter) && OidIsValid(catalog->timer) &&
		   OidIsValid(catalog->timer_pkey) && OidIsValid(catalog->timer_due) &&
		   OidIsValid(catalog->touched);
}

/*
 * The schema that holds an extension's relocatable objects; InvalidOid if the
 * extension is gone.
 */
static Oid
extension_schema(Oid extension)
{
	Relation rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	Oid schema = InvalidOid;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(rel, ExtensionOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return schema;
}

/*
 * Whether the cache holds this relation.
 */
static bool
is_ours(Oid relid)
{
	if (relid == cached.node || relid == cached.type || relid == cached.held ||
		relid == cached.dead_letter || relid == cached.timer || relid == cached.timer_pkey ||
		relid == cached.timer_due)
		return true;
	for (int i = 0; i < SHARD_SEGMENTS; i++)
		if (relid == cached.segment[i])
			return true;
	return false;
}

/*
 * Relcache callback. Must not look anything up.
 */
static void
relation_changed(Datum arg, Oid relid)
{
	if (OidIsValid(relid) && cached_valid && !is_ours(relid))
		return;
	invalidations++;
	cached_valid = false;
}

/*
 * Takes the shared lock of the extension, once per transaction, and holds it to the end of it, whatever becomes of
 * subtransactions. With nowait, false if another session is dropping or altering the extension, or has just dropped it.
 */
bool
shard_catalog_lock(bool nowait)
{
	for (;;)
	{
		const ShardCatalog *catalog = shard_catalog_get();
		Oid extension = catalog->extension;

		if (locked_in == ShardMyLxid && locked_extension == extension)
			return true;
		if (!lock_extension(catalog, AccessShareLock, nowait))
			return false;

		/* The session that was waited for may have dropped the extension, or created it again. */
		AcceptInvalidationMessages();
		if (nowait && shard_catalog_find() == NULL)
			return false;
		if (shard_catalog_get()->extension == extension)
		{
			locked_in = ShardMyLxid;
			locked_extension = extension;
			return true;
		}
	}
}

/* No session holds the lock of an extension that is only half there. */
bool
shard_catalog_lock_alone(bool nowait)
{
	const ShardCatalog *catalog = shard_catalog_find();

	return catalog == NULL || lock_extension(catalog, AccessExclusiveLock, nowait);
}

/*
 * Takes the lock on behalf of the top-level transaction. After an error the
 * abort restores the resource owner.
 *
 * The server's own lock on the extension object does not do, since any role can get it, by ALTER FUNCTION ... DEPENDS
 * ON EXTENSION or by a DROP EXTENSION that waits and is refused only then. This one is the lock of an object in a class
 * that is no catalog, the extension's table of types: no statement leads to it.
 */
static bool
lock_extension(const ShardCatalog *catalog, LOCKMODE mode, bool nowait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, catalog->type, catalog->extension, 0);
	CurrentResourceOwner = TopTransactionResourceOwner;
	result = LockAcquire(&tag, mode, false, nowait);
	CurrentResourceOwner = owner;
	return result != LOCKACQUIRE_NOT_AVAIL;
}
