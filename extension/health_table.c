/*
 * health_table.c
 *		Tables of the extension that somebody has locked; a part of shard_health.
 *
 * Workers and senders wait for them, and so would health: it looks at the locks alone.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "admin_command.h"
#include "catalog.h"
#include "health.h"

#include "compat.h"

/* What is over by then, as a segment that is emptied, is no trouble. */
#define PATIENCE_MS 1000

/* Nobody else writes, and indexes may be locked; nobody reads. */
#define NO_WRITES \
	(LOCKBIT_ON(ShareLock) | LOCKBIT_ON(ShareRowExclusiveLock) | LOCKBIT_ON(ExclusiveLock) | \
	 NO_READS)
#define NO_READS LOCKBIT_ON(AccessExclusiveLock)

/* Has somebody else one of those locks on a table or an index of the extension, or does he wait for one? */
static bool
is_ours(const LockInstanceData *lock, Oid schema, LOCKMASK strong)
{
	Oid relation = (Oid) lock->locktag.locktag_field2;
	char kind;

	if (lock->locktag.locktag_type != LOCKTAG_RELATION ||
		lock->locktag.locktag_field1 != MyDatabaseId || lock->pid == MyProcPid ||
		((lock->holdMask | LOCKBIT_ON(lock->waitLockMode)) & strong) == 0 ||
		get_rel_namespace(relation) != schema)
		return false;
	kind = get_rel_relkind(relation);
	return kind == RELKIND_RELATION || kind == RELKIND_INDEX;
}

static bool
is_any(const LockData *locks, Oid schema, LOCKMASK strong)
{
	for (int i = 0; i < locks->nelements; i++)
		if (is_ours(&locks->locks[i], schema, strong))
			return true;
	return false;
}

static void
say(ShardHealth *problems, const LockInstanceData *lock)
{
	const char *name = get_rel_name((Oid) lock->locktag.locktag_field2);
	char *who = lock->pid == 0 ? pstrdup("a prepared transaction, see pg_prepared_xacts")
							   : psprintf("process %d", lock->pid);

	shard_health_add(problems,
					 psprintf("shard.%s %s %s: workers, senders and this node's part in its "
							  "cluster may stand still; end that transaction, see pg_locks",
							  name != NULL ? name : "?",
							  (lock->holdMask & NO_WRITES) != 0 ? "is locked by"
																: "is about to be locked by",
							  who));
}

/* See health.h. */
bool
shard_health_tables(ShardHealth *problems)
{
	const ShardCatalog *catalog = shard_catalog_find();
	TimestampTz since = GetCurrentTimestamp();
	LockData *locks;

	if (catalog == NULL)
		return true;
	while (is_any(locks = GetLockStatusData(), catalog->schema, NO_WRITES))
	{
		if (TimestampDifferenceExceeds(since, GetCurrentTimestamp(), PATIENCE_MS))
			break;
		shard_command_nap();
	}
	for (int i = 0; i < locks->nelements; i++)
		if (is_ours(&locks->locks[i], catalog->schema, NO_WRITES))
			say(problems, &locks->locks[i]);
	if (!is_any(locks, catalog->schema, NO_READS))
		return true;
	shard_health_add(problems, "nothing else was looked at: that would wait for these locks");
	return false;
}
