/*
 * entity/run.c
 *		An entity type in a region worker: handler, state table, entities, counts.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/syscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "core/base/message.h"
#include "entity/crash.h"
#include "entity/internal.h"
#include "registry/security.h"
#include "shared/shmem.h"

#include "base/compat.h"

/* So often in a row a worker may end for a type. */
#define MOST_STUCK 3

#define STUCK_PROBLEM \
	"what it runs could not be cancelled three times in a row, or ended its worker by an error; mend it, then call shard_start() for it again"

#define CRASHED_PROBLEM \
	"what it runs crashed the server twice, as the server's log says, with the entity; mend it, or have it raise an error for that message, then call shard_start() for it again"

static ShardRun **runs = NULL; /* by type id */
static int run_count = 0;

/* How states are passed; not always as the number was known first: a proxy may have become a host. */
static void
look_at_state_type(ShardRun *run)
{
	HeapTuple tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(run->type->state_type));

	/* a dropped state type took the handler along, so nothing will be run */
	run->length = -1;
	run->by_value = false;
	if (!HeapTupleIsValid(tuple))
		return;
	run->length = ((Form_pg_type) GETSTRUCT(tuple))->typlen;
	run->by_value = ((Form_pg_type) GETSTRUCT(tuple))->typbyval;
	ReleaseSysCache(tuple);
}

/* Room for that page, and for half as many again. */
static void
make_pages(ShardRun *run, int page)
{
	int count = run->n_pages;

	run->n_pages = page + 1 + page / 2;
	if (count == 0)
		run->pages = MemoryContextAlloc(TopMemoryContext, run->n_pages * sizeof(ShardShardCount *));
	else
		run->pages = repalloc(run->pages, run->n_pages * sizeof(ShardShardCount *));
	memset(&run->pages[count], 0, (run->n_pages - count) * sizeof(ShardShardCount *));
}

ShardShardCount *
shard_run_count(ShardRun *run, int shard)
{
	int page = shard / SHARD_RUN_PAGE;

	if (unlikely(page >= run->n_pages))
		make_pages(run, page);
	if (unlikely(run->pages[page] == NULL))
		run->pages[page] =
			MemoryContextAllocZero(TopMemoryContext, SHARD_RUN_PAGE * sizeof(ShardShardCount));
	return &run->pages[page][shard % SHARD_RUN_PAGE];
}

const ShardShardCount *
shard_run_counted(const ShardRun *run, int shard)
{
	int page = shard / SHARD_RUN_PAGE;

	return page >= run->n_pages || run->pages[page] == NULL
			   ? NULL
			   : &run->pages[page][shard % SHARD_RUN_PAGE];
}

void
shard_run_forget_counts(ShardRun *run)
{
	for (int i = 0; i < run->n_pages; i++)
		if (run->pages[i] != NULL)
			pfree(run->pages[i]);
	if (run->n_pages > 0)
		pfree(run->pages);
	run->pages = NULL;
	run->n_pages = 0;
}

/* A run for a type that this worker meets for the first time. */
static ShardRun *
make_run(ShardType *type)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ShardRun *run = palloc0(sizeof(ShardRun));

	run->type = type;
	run->state_table = type->state_table;
	run->dropped = type->mode == SHARD_MODE_DROPPED;
	look_at_state_type(run);
	dlist_init(&run->lru);
	MemoryContextSwitchTo(old);
	return run;
}

ShardRun *
shard_run_known(int32 type_id)
{
	if (type_id >= run_count || runs[type_id] == NULL || !runs[type_id]->type->exists)
		return NULL;
	return runs[type_id];
}

ShardRun *
shard_run_get(int32 type_id)
{
	ShardType *type;

	if (type_id < run_count && runs[type_id] != NULL)
		return shard_run_known(type_id);
	type = shard_registry_known(type_id);
	if (type == NULL)
		return NULL;
	if (type_id >= run_count)
	{
		int count = Max(type_id + 1, Max(16, run_count * 2));

		runs = runs == NULL ? MemoryContextAlloc(TopMemoryContext, count * sizeof(ShardRun *))
							: repalloc(runs, count * sizeof(ShardRun *));
		memset(runs + run_count, 0, (count - run_count) * sizeof(ShardRun *));
		run_count = count;
	}
	runs[type_id] = make_run(type);
	return runs[type_id];
}

void
shard_run_each(void (*visit)(ShardRun *run, void *arg), void *arg)
{
	for (int i = 0; i < run_count; i++)
		if (runs[i] != NULL)
			visit(runs[i], arg);
}

char *
shard_run_problem(const ShardType *type, int *sqlstate)
{
	char *problem = shard_security_owner_problem(type);

	*sqlstate = ERRCODE_INSUFFICIENT_PRIVILEGE;
	if (problem == NULL)
		problem = shard_security_problem(type, sqlstate);
	if (problem == NULL)
		problem = shard_handler_problem(type, sqlstate);
	if (problem == NULL)
		problem = shard_handler_ordered_by_problem(type, sqlstate);
	if (problem == NULL)
		problem = shard_state_problem(type, sqlstate);
	return problem;
}

/* What the users see as the reason, and how to mend it. */
static void
say_problem(ShardRun *run, int sqlstate, char *problem)
{
	ShardType *type = run->type;

	if (problem == NULL ? type->problem == NULL
						: (type->problem != NULL && strcmp(problem, type->problem) == 0))
		return;
	if (problem != NULL)
		ereport(WARNING,
				(errcode(sqlstate),
				 errmsg("entity type \"%s\" cannot run: %s", type->name, problem),
				 errdetail("Its messages wait in the stash; nothing is lost."),
				 type->owner != type->runs_as
					 ? errhint("shard_stop_type() and shard_drop_type() end it instead.")
					 : errhint("Mend the function or the table; shard_alter() names another "
							   "handler.")));
	else
		ereport(LOG, (errmsg("entity type \"%s\" runs again", type->name)));
	shard_registry_set_problem(type, problem == NULL ? NULL : unpack_sql_state(sqlstate), problem);
}

/*
 * Whether code of the type's owner had to be ended with its worker again and again. What is stored once holds until
 * somebody starts or alters the type, who is believed to have mended it: the count begins anew then.
 */
static bool
is_stuck(const ShardType *type)
{
	ShardWorkerSlot *slot = shard_shmem_my_worker();
	bool stored = type->problem != NULL && strcmp(type->problem, STUCK_PROBLEM) == 0;

	if (slot == NULL || slot->stuck_type != type->type_id)
		return stored;
	if (stored)
		slot->stuck_times = 0;
	return stored || slot->stuck_times >= MOST_STUCK;
}

/* The same, with the whole server. The marks of the crashes mean nothing any more once the type's row was written. */
static bool
is_crashing(const ShardType *type)
{
	return (type->problem != NULL && strcmp(type->problem, CRASHED_PROBLEM) == 0) ||
		   shard_crash_count(type) >= SHARD_MOST_CRASHES;
}

bool
shard_run_keeps(void)
{
	const ShardWorkerSlot *slot = shard_shmem_my_worker();

	return slot != NULL && slot->keeper;
}

bool
shard_run_awaits_worker(const ShardRun *run)
{
	const ShardDatabase *db = shard_shmem_database();

	return run->type->mode == SHARD_MODE_HOSTING && shard_run_keeps() && db != NULL &&
		   (db->division.waits & shard_group_bit(shard_message_group(run->type->type_id))) == 0;
}

void
shard_run_refresh(ShardRun *run)
{
	ShardType *type = run->type;
	char *problem = NULL;
	int sqlstate = 0;

	if (run->looked_at == shard_registry_generation())
		return;
	run->looked_at = shard_registry_generation();
	look_at_state_type(run);
	if (type->mode == SHARD_MODE_DROPPED)
	{
		shard_handler_free(&run->handler);
		shard_handler_free(&run->ordered_by);
		run->runnable = false;
		return;
	}
	problem = shard_run_problem(type, &sqlstate);
	if (problem == NULL && is_stuck(type))
	{
		problem = STUCK_PROBLEM;
		sqlstate = ERRCODE_QUERY_CANCELED;
	}
	if (problem == NULL && is_crashing(type))
	{
		problem = CRASHED_PROBLEM;
		sqlstate = ERRCODE_EXTERNAL_ROUTINE_EXCEPTION;
	}

	/* Compiled anew by its next call, whose fault it is if that fails. */
	shard_handler_free(&run->handler);
	shard_handler_free(&run->ordered_by);
	say_problem(run, sqlstate, problem);
	run->runnable = problem == NULL && type->mode == SHARD_MODE_HOSTING && !shard_run_keeps();
}
