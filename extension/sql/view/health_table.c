/*
 * sql/view/health_table.c
 *		Tables of the extension that a session has locked; a part of shard_health.
 *
 * Workers and senders wait for them, and so would health: it looks at the locks alone.
 */
#include "postgres.h"

#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "sql/operate/command.h"
#include "registry/catalog.h"
#include "sql/view/health.h"
#include "shared/table_lock.h"

#include "base/compat.h"

/* What is over by then, as a segment that is emptied, is no trouble. */
#define PATIENCE_MS 1000

static bool
is_any(const LockData *locks, Oid schema, LOCKMASK strong)
{
	for (int i = 0; i < locks->nelements; i++)
		if (shard_table_lock_keeps(&locks->locks[i], schema, strong))
			return true;
	return false;
}

static void
say(ShardHealth *problems, const LockInstanceData *lock)
{
	const char *name = get_rel_name((Oid) lock->locktag.locktag_field2);

	shard_health_add(problems,
					 psprintf("shard.%s %s %s: workers, senders and this node's part in its "
							  "cluster may stand still; end that transaction, see pg_locks",
							  name != NULL ? name : "?",
							  (lock->holdMask & SHARD_TABLE_NO_WRITES) != 0
								  ? "is locked by"
								  : "is about to be locked by",
							  shard_table_lock_who(lock)));
}

bool
shard_health_tables(ShardHealth *problems)
{
	const ShardCatalog *catalog = shard_catalog_find();
	TimestampTz since = GetCurrentTimestamp();
	LockData *locks;

	if (catalog == NULL)
		return true;
	while (is_any(locks = GetLockStatusData(), catalog->schema, SHARD_TABLE_NO_WRITES))
	{
		if (TimestampDifferenceExceeds(since, GetCurrentTimestamp(), PATIENCE_MS))
			break;
		shard_command_nap();
	}
	for (int i = 0; i < locks->nelements; i++)
		if (shard_table_lock_keeps(&locks->locks[i], catalog->schema, SHARD_TABLE_NO_WRITES))
			say(problems, &locks->locks[i]);
	if (!is_any(locks, catalog->schema, SHARD_TABLE_NO_READS))
		return true;
	shard_health_add(problems, "nothing else was looked at: that would wait for these locks");
	return false;
}
