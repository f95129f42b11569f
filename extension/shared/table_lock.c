/*
 * shared/table_lock.c
 *		Which process has tables of the extension locked.
 *
 * Reads the lock table, each part of which is locked for a moment meanwhile: for processes that have waited for long,
 * not for each look.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/lsyscache.h"

#include "shared/table_lock.h"

#include "base/compat.h"

/* A VACUUM that cuts the empty end of a table off gives its lock up as soon as somebody waits for it. */
static bool
gives_way(int pid)
{
	const PGPROC *process = BackendPidGetProc(pid);

	return process != NULL && (process->statusFlags & PROC_IN_VACUUM) != 0;
}

bool
shard_table_lock_keeps(const LockInstanceData *lock, Oid schema, LOCKMASK strong)
{
	Oid relation = (Oid) lock->locktag.locktag_field2;
	char kind;

	if (lock->locktag.locktag_type != LOCKTAG_RELATION ||
		lock->locktag.locktag_field1 != MyDatabaseId || lock->pid == MyProcPid ||
		((lock->holdMask | LOCKBIT_ON(lock->waitLockMode)) & strong) == 0 || gives_way(lock->pid) ||
		get_rel_namespace(relation) != schema)
		return false;
	kind = get_rel_relkind(relation);
	return kind == RELKIND_RELATION || kind == RELKIND_INDEX;
}

char *
shard_table_lock_who(const LockInstanceData *lock)
{
	return lock->pid == 0 ? pstrdup("a prepared transaction, see pg_prepared_xacts")
						  : psprintf("process %d", lock->pid);
}

/* A process that has the lock comes before one that waits for it. */
char *
shard_table_lock_holder(Oid table)
{
	LockData *locks = GetLockStatusData();
	Oid schema = get_rel_namespace(table);
	const LockInstanceData *found = NULL;

	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if ((Oid) lock->locktag.locktag_field2 == table &&
			shard_table_lock_keeps(lock, schema, SHARD_TABLE_NO_WRITES) &&
			(found == NULL || (found->holdMask & SHARD_TABLE_NO_WRITES) == 0))
			found = lock;
	}
	return found != NULL ? shard_table_lock_who(found) : NULL;
}
