/*
 * control/control_transaction.c
 *		Transactions of the control worker: begun only when they can be brought to their end.
 *
 * The machine goes on with each event, and cannot take a step back: a transaction of a step that failed in its middle
 * could only end the process. So all that other sessions or the server may refuse is asked for before the step's first
 * write, and asked for again until it is there.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/attempt.h"
#include "control/control_private.h"
#include "process/worker.h"
#include "registry/catalog.h"
#include "shared/table_lock.h"

#include "base/compat.h"

/* Another session has the extension locked, or the server has no room: look again after this time. */
#define BUSY_MS 20

/* The server has no room: the pause grows up to this, since the server may log a page for each attempt. */
#define WANT_MS 1000

/* The same for the tables that are written here: said after this time, and again after a minute. */
#define LOCKED_MS 1000
#define SAY_AGAIN_MS (60 * 1000)

static uint32 wait_event = 0;

/*
 * Locks tables, also to read them only, so that no other session has their indexes; otherwise returns the name of one
 * that another session has locked, or waits for (VACUUM FULL, LOCK TABLE).
 */
static const char *
lock_tables(const ShardCatalog *catalog, const char *const *tables, int count)
{
	for (int i = 0; i < count; i++)
	{
		Oid table = get_relname_relid(tables[i], catalog->schema);

		if (OidIsValid(table) && !ConditionalLockRelationOid(table, RowExclusiveLock))
			return tables[i];
	}
	return NULL;
}

/* Says what this node waits for, when it does so for long, and then once a minute. */
static void
say_locked(const ShardCatalog *catalog, const char *table, TimestampTz since, TimestampTz *said)
{
	TimestampTz now = GetCurrentTimestamp();
	char *who;

	if (!TimestampDifferenceExceeds(since, now, LOCKED_MS) ||
		!TimestampDifferenceExceeds(*said, now, SAY_AGAIN_MS))
		return;
	who = shard_table_lock_holder(get_relname_relid(table, catalog->schema));
	if (who == NULL)
		return;
	*said = now;
	ereport(LOG,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("the control worker waits for table shard.%s, which is locked by %s", table,
					who),
			 errdetail("Meanwhile this node takes no part in its cluster, and the cluster may take "
					   "the node for dead."),
			 errhint("End the transaction that has locked the table, or that waits to lock it; see "
					 "pg_locks.")));
}

/* Tables that any step may write, and the log's, to which one with facts appends. */
static const char *const written[] = {"control", "decision", "node"};
static const char *const segments[] = {"inbox_0", "inbox_1", "inbox_2", "inbox_3",
									   "inbox_4", "inbox_5", "inbox_6", "inbox_7"};

StaticAssertDecl(lengthof(segments) == SHARD_SEGMENTS, "a name for each segment of the log");

static const char *
lock_written(const ShardCatalog *catalog, bool appends)
{
	const char *locked = lock_tables(catalog, written, lengthof(written));

	if (locked == NULL && appends)
		locked = lock_tables(catalog, segments, lengthof(segments));
	return locked;
}

/* What a transaction has from its beginning on. */
typedef struct Start
{
	bool writes;			   /* a number: it is certain to write */
	bool appends;			   /* the log's tables, too */
	const char *const *tables; /* to be tried, beside those that any step may write */
	int count;
	bool has_tables; /* set: it has them all */
	bool wants;		 /* set: the server had no room */
	TimestampTz since;
	TimestampTz said; /* of what is waited for */
} Start;

/* False: another session has what is needed, and no transaction is open. */
static bool
enter(Start *start)
{
	const ShardCatalog *catalog;
	const char *locked = NULL;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	catalog = shard_catalog_find();
	if (catalog == NULL ||
		(OidIsValid(shard_control.extension) && catalog->extension != shard_control.extension))
	{
		CommitTransactionCommand();
		shard_worker_leave_absent();
	}
	if (!shard_catalog_lock(true) || (locked = lock_written(catalog, start->appends)) != NULL)
	{
		if (locked != NULL)
			say_locked(catalog, locked, start->since, &start->said);
		CommitTransactionCommand();
		return false;
	}
	start->has_tables = lock_tables(catalog, start->tables, start->count) == NULL;
	if (start->writes)
		(void) GetCurrentTransactionId();
	return true;
}

/*
 * Does an error at the beginning of a transaction say that the server lacks something now: memory, room for locks,
 * files, numbers of transactions? Nothing of the step was done, so it can be tried again.
 */
static bool
is_want(int sqlstate)
{
	int category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_TO_CATEGORY(ERRCODE_INSUFFICIENT_RESOURCES) ||
		   category == ERRCODE_TO_CATEGORY(ERRCODE_PROGRAM_LIMIT_EXCEEDED);
}

/* Says so, once a minute. */
static void
say_want(const ErrorData *error)
{
	static TimestampTz said = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (!TimestampDifferenceExceeds(said, now, SAY_AGAIN_MS))
		return;
	said = now;
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("the control worker waits until the server has room again: %s", error->message),
			 errdetail("Meanwhile this node takes no part in its cluster, and the cluster may take "
					   "the node for dead."),
			 error->hint != NULL ? errhint("%s", error->hint) : 0));
}

/* The same; false, too, if the server has no room for the transaction. */
static bool
try_enter(Start *start)
{
	volatile bool entered = false;

	start->wants = false;
	PG_TRY();
	{
		entered = enter(start);
	}
	PG_CATCH();
	{
		ErrorData *error;

		if (!is_want(geterrcode()))
			PG_RE_THROW();
		start->wants = true;
		error = shard_attempt_take_error();
		AbortCurrentTransaction();
		say_want(error);
		shard_attempt_free_error(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(shard_control.step_context);
	return entered;
}

/*
 * Begins a transaction with a snapshot. Waits, without one, while another session has the extension to itself, or one
 * of the tables that the step writes, and while the server has no room for it: a step that met that in its middle could
 * only end the process.
 */
static void
begin(Start *start)
{
	if (wait_event == 0)
		wait_event = ShardWaitEvent("ShardControlMain");
	start->since = GetCurrentTimestamp();
	for (int pause = BUSY_MS; !try_enter(start);
		 pause = start->wants ? Min(2 * pause, WANT_MS) : BUSY_MS)
		(void) shard_worker_wait(pause, wait_event);
	PushActiveSnapshot(GetTransactionSnapshot());
}

void
shard_control_begin(void)
{
	begin(&(Start){0});
}

void
shard_control_begin_writing(bool appends)
{
	begin(&(Start){.writes = true, .appends = appends});
}

bool
shard_control_lock_all(void)
{
	return lock_written(shard_catalog_get(), true) == NULL;
}

bool
shard_control_lock(const char *const *tables, int count)
{
	return lock_tables(shard_catalog_get(), tables, count) == NULL;
}

bool
shard_control_try(const char *const *tables, int count)
{
	Start start = {.tables = tables, .count = count};

	begin(&start);
	if (!start.has_tables)
		shard_control_commit();
	return start.has_tables;
}

void
shard_control_commit(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(shard_control.step_context);
}
