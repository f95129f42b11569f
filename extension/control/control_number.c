/*
 * control/control_number.c
 *		Numbers of this database's types, which become those that the cluster knows them by.
 *
 * All in one transaction, under an exclusive lock on the extension, which keeps all senders and turns out: if
 * the process dies right here, nothing has changed, and the next one does it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"

#include "registry/catalog.h"
#include "control/control_types.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Types that could not be renumbered are looked at again so soon. */
#define RENUMBER_AGAIN (200 * SHARD_MS)

/*
 * Whether anything is kept here by the number of the type. Under the exclusive lock, nothing is in
 * the making.
 */
static bool
has_data(int32 type_id)
{
	const ShardStatement look = {
		"SELECT WHERE EXISTS (SELECT FROM shard.held WHERE type_id OPERATOR(pg_catalog.=) $1)"
		" OR EXISTS (SELECT FROM shard.parked WHERE type_id OPERATOR(pg_catalog.=) $1)"
		" OR EXISTS (SELECT FROM shard.dead_letter WHERE type_id OPERATOR(pg_catalog.=) $1)"
		" OR EXISTS (SELECT FROM shard.shard_input WHERE type_id OPERATOR(pg_catalog.=) $1)"
		" OR EXISTS (SELECT FROM shard.ordered WHERE type_id OPERATOR(pg_catalog.=) $1)"
		" OR EXISTS (SELECT FROM shard.timer WHERE type_id OPERATOR(pg_catalog.=) $1)"
		" OR EXISTS (SELECT FROM shard.history WHERE type_id OPERATOR(pg_catalog.=) $1)"
		" OR EXISTS (SELECT FROM shard.own WHERE type_id OPERATOR(pg_catalog.=) $1)"
		" OR EXISTS (SELECT FROM shard.route WHERE type_id OPERATOR(pg_catalog.=) $1)",
		1,
		{INT4OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_once_read(&look, &arguments, 1);
	return SPI_processed > 0 || shard_control_data_in_log(type_id);
}

static ShardStatement update_negative = {
	"UPDATE shard.type SET type_id = -type_id WHERE type_id < 0"};

static void
update_number(int32 from, int32 to)
{
	static ShardStatement update = {"UPDATE shard.type SET type_id = $2 WHERE type_id = $1",
									2,
									{INT4OID, INT4OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(from), false);
	shard_statement_add(&arguments, Int32GetDatum(to), false);
	shard_statement_run(&update, &arguments, SPI_OK_UPDATE);
	if (SPI_processed != 1)
		elog(ERROR, "could not renumber an entity type");
}

/*
 * Begins a transaction that has the extension to itself, and what it may write; false if another session uses it now.
 */
bool
shard_control_begin_alone(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (shard_catalog_find() == NULL || shard_catalog_get()->extension != shard_control.extension)
	{
		/* Gone, or another one: the next common transaction sees to it. */
		CommitTransactionCommand();
		return false;
	}
	if (!shard_catalog_lock_alone(true) || !shard_control_lock_all())
	{
		CommitTransactionCommand();
		return false;
	}
	PushActiveSnapshot(GetTransactionSnapshot());
	return true;
}

/* Said once by a process: the node handles nothing until an operator has seen to it. */
static void
warn_of_data(void)
{
	static bool warned = false;

	if (!warned)
		ereport(
			WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("an entity type has messages or dead letters under a number that means another "
					"type to the cluster"),
			 errdetail("The entity type cannot be renumbered, so this node handles nothing."),
			 errhint("Drop the type with shard_drop_type(), and start it again.")));
	warned = true;
}

/*
 * Gives the types of this database the numbers that the cluster knows them by. Two steps, so that numbers may change
 * places: the first goes to unused numbers. True: it is done.
 */
static bool
renumber(List *types, const ControlLearned *learned, int count)
{
	static const char *const tables[] = {"type",		"held",	   "parked", "dead_letter",
										 "shard_input", "ordered", "timer",	 "history",
										 "own",			"route"};
	ListCell *cell;
	bool good = true;

	if (!shard_control_begin_alone())
		return false;
	if (!shard_control_lock(tables, lengthof(tables)))
	{
		shard_control_commit();
		return false;
	}
	SPI_connect();
	foreach (cell, types)
	{
		ControlType *type = lfirst(cell);

		for (int i = 0; i < count && good; i++)
			if (strcmp(learned[i].name, type->record.name) == 0 &&
				learned[i].type_id != type->type_id)
			{
				good = !has_data(type->type_id);
				if (good)
					update_number(type->type_id, -learned[i].type_id);
			}
	}
	if (good)
		shard_statement_run(&update_negative, &(ShardArguments){0}, SPI_OK_UPDATE);
	SPI_finish();
	if (good)
	{
		CacheInvalidateRelcacheByRelid(shard_catalog_get()->type);
		shard_control_commit();
	}
	else
	{
		PopActiveSnapshot();
		AbortCurrentTransaction();
		MemoryContextSwitchTo(shard_control.step_context);
		warn_of_data();
	}
	return good;
}

/* Does a number of this database mean another type to the cluster? */
static bool
has_conflict(const ControlType *type, const ControlLearned *learned, int count)
{
	for (int i = 0; i < count; i++)
		if ((strcmp(learned[i].name, type->record.name) == 0) !=
			(learned[i].type_id == type->type_id))
			return true;
	return false;
}

/*
 * Has the cluster given a number to each type whose own number means another type there? Until then the places are not
 * free.
 */
static bool
all_known(List *types, const ControlLearned *learned, int count)
{
	ListCell *cell;

	foreach (cell, types)
	{
		const ControlType *type = lfirst(cell);
		bool known = false;

		for (int i = 0; i < count; i++)
			known |= strcmp(learned[i].name, type->record.name) == 0;
		if (!known && has_conflict(type, learned, count))
			return false;
	}
	return true;
}

/* What keeps it from being done may last: the lock that it needs is a strong one. */
bool
shard_control_number_conflict(List *types, const ControlLearned *learned, int count, bool *done)
{
	static int64 next_try = 0;
	ListCell *cell;
	bool conflict = false;

	foreach (cell, types)
		conflict |= has_conflict(lfirst(cell), learned, count);
	*done = false;
	if (!conflict || !all_known(types, learned, count) || shard_clock_now() < next_try)
		return conflict;
	*done = renumber(types, learned, count);
	next_try = *done ? 0 : shard_clock_now() + RENUMBER_AGAIN;
	return true;
}
