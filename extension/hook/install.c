/*
 * hook/install.c
 *		CREATE EXTENSION, seen from the server: a database wants workers.
 *
 * The install script, and each upgrade script, calls shard.installed(). When its transaction commits, the launcher has
 * workers of a former extension leave and looks into the database again.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"

#include "hook/hook.h"
#include "shared/shmem.h"

#include "base/compat.h"

/* The database in whose count "installing" this transaction is. */
static ShardDatabase *installing_in = NULL;

PG_FUNCTION_INFO_V1(shard_install_announce);

static ShardDatabase *count_in(void);
static void transaction_changed(XactEvent event, void *arg);

/*
 * Registers the transaction callback. From _PG_init.
 */
void
shard_install_init(void)
{
	RegisterXactCallback(transaction_changed, NULL);
}

/*
 * shard.installed(): error if the library was not preloaded, else announces
 * this database to the launcher, at commit.
 */
Datum
shard_install_announce(PG_FUNCTION_ARGS)
{
	shard_shmem_require();
	if (installing_in == NULL)
		installing_in = count_in();
	PG_RETURN_VOID();
}

/*
 * Counts this transaction in its database's slot, made if needed, so that the
 * slot stays though the launcher cannot see the extension yet.
 */
static ShardDatabase *
count_in(void)
{
	ShardDatabase *db;

	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	db = shard_shmem_find_database(MyDatabaseId);
	if (db == NULL)
		db = shard_shmem_make_database(MyDatabaseId);
	if (db != NULL)
		db->installing++;
	LWLockRelease(shard_shared->lock);

	if (db == NULL)
		shard_shmem_too_many_databases(ERROR);
	return db;
}

/*
 * Transaction callback.
 */
static void
transaction_changed(XactEvent event, void *arg)
{
	if (installing_in == NULL)
		return;
	if (event == XACT_EVENT_PRE_PREPARE)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg(
				 "cannot PREPARE a transaction that has created or updated extension \"shard\"")));
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;

	LWLockAcquire(shard_shared->lock, LW_EXCLUSIVE);
	installing_in->installing--;
	if (event == XACT_EVENT_COMMIT)
		installing_in->probe_wanted = true;
	LWLockRelease(shard_shared->lock);
	installing_in = NULL;
	pg_atomic_write_u32(&shard_shared->list_wanted, 1);
	shard_shmem_wake_launcher();
}
