/*
 * entity/local_type.c
 *		An entity type in a region worker: handler, state table, entities, counts.
 *
 * Comes from: turn_entity.c, which looks a message's type up; turn.c, when the registry has changed.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "entity/crash.h"
#include "entity/internal.h"
#include "entity/stuck.h"
#include "registry/security.h"
#include "shared/shmem.h"

#include "base/compat.h"

/*
 * Problems that are stored, and hold until the type's row is written: each goes on with the call that lets the type go on.
 * They are known again by their SQLSTATEs, which no other problem has: texts change.
 */
#define STUCK_CODE ERRCODE_QUERY_CANCELED
#define CRASHED_CODE ERRCODE_EXTERNAL_ROUTINE_EXCEPTION

#define STUCK_PROBLEM \
	"code of the type could not be cancelled three times in a row, or ended its region worker by an error; mend the " \
	"code, then let the type go on: "

#define CRASHED_PROBLEM \
	"code of the type crashed the server twice, as the server's log says, which names the entity; mend the code, or " \
	"have it raise an error for that message, then let the type go on: "

static ShardLocalType **types = NULL; /* by type id */
static int type_count = 0;

/* How states are passed; not always as the number was known first: a proxy may have become a host. */
static void
look_at_state_type(ShardLocalType *local)
{
	HeapTuple tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(local->type->state_type));

	/* a dropped state type took the handler along, so nothing will be run */
	local->length = -1;
	local->by_value = false;
	if (!HeapTupleIsValid(tuple))
		return;
	local->length = ((Form_pg_type) GETSTRUCT(tuple))->typlen;
	local->by_value = ((Form_pg_type) GETSTRUCT(tuple))->typbyval;
	ReleaseSysCache(tuple);
}

/* Room for that page, and for half as many again. */
static void
make_pages(ShardLocalType *local, int page)
{
	int count = local->n_pages;

	local->n_pages = page + 1 + page / 2;
	if (count == 0)
		local->pages =
			MemoryContextAlloc(TopMemoryContext, local->n_pages * sizeof(ShardShardCount *));
	else
		local->pages = repalloc(local->pages, local->n_pages * sizeof(ShardShardCount *));
	memset(&local->pages[count], 0, (local->n_pages - count) * sizeof(ShardShardCount *));
}

ShardShardCount *
shard_local_count(ShardLocalType *local, int shard)
{
	int page = shard / SHARD_LOCAL_PAGE;

	if (unlikely(page >= local->n_pages))
		make_pages(local, page);
	if (unlikely(local->pages[page] == NULL))
		local->pages[page] =
			MemoryContextAllocZero(TopMemoryContext, SHARD_LOCAL_PAGE * sizeof(ShardShardCount));
	return &local->pages[page][shard % SHARD_LOCAL_PAGE];
}

const ShardShardCount *
shard_local_counted(const ShardLocalType *local, int shard)
{
	int page = shard / SHARD_LOCAL_PAGE;

	return page >= local->n_pages || local->pages[page] == NULL
			   ? NULL
			   : &local->pages[page][shard % SHARD_LOCAL_PAGE];
}

void
shard_local_forget_counts(ShardLocalType *local)
{
	for (int i = 0; i < local->n_pages; i++)
		if (local->pages[i] != NULL)
			pfree(local->pages[i]);
	if (local->n_pages > 0)
		pfree(local->pages);
	local->pages = NULL;
	local->n_pages = 0;
}

/* A type that this worker meets for the first time. */
static ShardLocalType *
make_type(ShardType *type)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ShardLocalType *local = palloc0(sizeof(ShardLocalType));

	local->type = type;
	local->state_table = type->state_table;
	local->dropped = type->mode == SHARD_MODE_DROPPED;
	local->code = shard_local_code(type);
	look_at_state_type(local);
	dlist_init(&local->lru);
	dlist_init(&local->victims);
	MemoryContextSwitchTo(old);
	return local;
}

bool
shard_local_is_another(const ShardLocalType *local)
{
	return local->state_table != local->type->state_table ||
		   local->dropped != (local->type->mode == SHARD_MODE_DROPPED);
}

ShardLocalType *
shard_local_known(int32 type_id)
{
	if (type_id < 0 || type_id >= type_count || types[type_id] == NULL ||
		!types[type_id]->type->exists)
		return NULL;
	return types[type_id];
}

ShardLocalType *
shard_local_get(int32 type_id)
{
	ShardType *type;

	if (type_id >= 0 && type_id < type_count && types[type_id] != NULL)
		return shard_local_known(type_id);
	type = shard_registry_known(type_id); /* a number below 0 is none */
	if (type == NULL)
		return NULL;
	if (type_id >= type_count)
	{
		int count = Max(type_id + 1, Max(16, type_count * 2));

		types = types == NULL
					? MemoryContextAlloc(TopMemoryContext, count * sizeof(ShardLocalType *))
					: repalloc(types, count * sizeof(ShardLocalType *));
		memset(types + type_count, 0, (count - type_count) * sizeof(ShardLocalType *));
		type_count = count;
	}
	types[type_id] = make_type(type);
	return types[type_id];
}

void
shard_local_each(void (*visit)(ShardLocalType *local, void *arg), void *arg)
{
	for (int i = 0; i < type_count; i++)
		if (types[i] != NULL)
			visit(types[i], arg);
}

char *
shard_local_problem(const ShardType *type, int *sqlstate)
{
	char *problem = shard_security_owner_problem(type);

	*sqlstate = ERRCODE_INSUFFICIENT_PRIVILEGE;
	if (problem == NULL)
		problem = shard_security_problem(type, sqlstate);
	if (problem == NULL)
		problem = shard_handler_problem(type, sqlstate);
	if (problem == NULL)
		problem = shard_handler_home_problem(type, sqlstate);
	if (problem == NULL)
		problem = shard_state_problem(type, sqlstate);
	return problem;
}

/* Tells the users the problem and how to mend it, if it has changed. */
static void
say_problem(ShardLocalType *local, int sqlstate, char *problem)
{
	ShardType *type = local->type;

	if (problem == NULL ? type->problem == NULL
						: (type->problem != NULL && strcmp(problem, type->problem) == 0))
		return;
	if (problem != NULL)
		ereport(WARNING,
				(errcode(sqlstate),
				 errmsg("entity type \"%s\" cannot run: %s", type->name, problem),
				 errdetail("Its messages wait in the stash; nothing is lost."),
				 type->owner != type->runs_as
					 ? errhint("To end the type instead, call shard_stop_type() or "
							   "shard_drop_type().")
					 : errhint("Mend the function or the table; shard_alter() names a handler, the "
							   "same or another.")));
	else
		ereport(LOG, (errmsg("entity type \"%s\" runs again", type->name)));
	shard_registry_set_problem(type, problem == NULL ? NULL : unpack_sql_state(sqlstate), problem);
}

/* The text of a problem with the call that takes the stored problem away. It names no settings: the type keeps those it has. */
static char *
with_way_out(const ShardType *type, const char *text)
{
	return psprintf("%sSELECT shard_alter(%s, 'handler', %s)", text, quote_literal_cstr(type->name),
					quote_literal_cstr(type->handler_name));
}

/*
 * Whether code of the type's owner had to be ended with its worker again and again. Once the problem is stored it holds
 * until the type is started or altered, which is taken for a mend: then the count begins at zero.
 */
static bool
is_stuck(const ShardType *type)
{
	ShardWorkerSlot *slot = shard_shmem_my_worker();
	bool stored = type->problem_code == STUCK_CODE;

	if (slot == NULL || slot->stuck.type_id != type->type_id)
		return stored;
	if (stored)
		slot->stuck.times = 0;
	return stored || slot->stuck.times >= SHARD_STUCK_MOST;
}

/*
 * Whether code of the type's owner crashed the whole server again and again. The marks of the crashes mean nothing any
 * more once the type's row was written.
 */
static bool
is_crashing(const ShardType *type)
{
	return type->problem_code == CRASHED_CODE || shard_crash_count(type) >= SHARD_MOST_CRASHES;
}

char *
shard_local_suspends(const ShardType *type, int *sqlstate)
{
	char *problem = shard_local_problem(type, sqlstate);

	if (problem == NULL && is_stuck(type))
	{
		problem = with_way_out(type, STUCK_PROBLEM);
		*sqlstate = STUCK_CODE;
	}
	if (problem == NULL && is_crashing(type))
	{
		problem = with_way_out(type, CRASHED_PROBLEM);
		*sqlstate = CRASHED_CODE;
	}
	return problem;
}

bool
shard_local_keeps(void)
{
	const ShardWorkerSlot *slot = shard_shmem_my_worker();

	return slot != NULL && slot->keeper;
}

bool
shard_local_awaits_worker(const ShardLocalType *local)
{
	const ShardDatabase *db = shard_shmem_database();

	return local->type->mode == SHARD_MODE_HOSTING && shard_local_keeps() && db != NULL &&
		   (db->division.waits & shard_group_bit(shard_message_group(local->type->type_id))) == 0;
}

/*
 * Whether states can be read for their replicas, of a type that may be stopped, or whose handler does not fit. Not if
 * there is no role to read as, or code of the owner is suspected to end its worker: that makes bytes of values, too.
 */
static bool
can_be_read(const ShardType *type, const char *problem)
{
	int sqlstate;

	if (type->replicas == 0 || shard_local_keeps() ||
		(type->mode != SHARD_MODE_HOSTING && type->mode != SHARD_MODE_STOPPED))
		return false;
	return problem == NULL ||
		   (!is_stuck(type) && !is_crashing(type) && shard_security_owner_problem(type) == NULL &&
			shard_security_problem(type, &sqlstate) == NULL &&
			shard_state_problem(type, &sqlstate) == NULL);
}

void
shard_local_refresh(ShardLocalType *local)
{
	ShardType *type = local->type;
	char *problem = NULL;
	int sqlstate = 0;

	if (local->looked_at == shard_registry_generation())
		return;
	local->looked_at = shard_registry_generation();
	look_at_state_type(local);
	if (type->mode == SHARD_MODE_DROPPED)
	{
		shard_handler_free(&local->handler);
		shard_handler_free(&local->ordered_by);
		shard_handler_free(&local->decider);
		local->runnable = local->readable = false;
		return;
	}
	problem = shard_local_suspends(type, &sqlstate);

	/* The next call compiles it again; if that fails, it is that call's failure. */
	shard_handler_free(&local->handler);
	shard_handler_free(&local->ordered_by);
	shard_handler_free(&local->decider);
	say_problem(local, sqlstate, problem);
	local->runnable = problem == NULL && type->mode == SHARD_MODE_HOSTING && !shard_local_keeps();
	local->readable = can_be_read(type, problem);
	shard_timer_follow(local);
}
