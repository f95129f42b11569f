/*
 * control/control_owner.c
 *		The owners of types, and types of this database that belong to another role in the cluster (C18).
 *
 * What the map says of a type's owner, and differs from the owner here, is kept in the type's row, where all processes
 * look: such a type runs nowhere here, and no session can send to it from here. A row that another session has locked
 * is written at one of the next rounds.
 *
 * If the process dies right here: the next one compares all rows with the map as it starts.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"

#include "registry/catalog.h"
#include "control/control_types.h"
#include "registry/registry.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Rows that were locked are looked at again so soon. */
#define LOOK_AGAIN (200 * SHARD_MS)

Oid
shard_control_owner_of(int32 type_id)
{
	static const char *const tables[] = {"type"};
	const ShardType *type;
	Oid owner;

	if (!shard_control_try(tables, lengthof(tables)))
		return InvalidOid;
	type = shard_registry_by_id(type_id);
	owner = type != NULL ? type->owner : InvalidOid;
	shard_control_commit();
	return owner;
}

/*
 * The owner in the cluster, if that is another role than here; else NULL. A node that is alone decides itself which
 * role owns its types.
 */
static const char *
owner_in_cluster(const ControlType *type, const ControlLearned *learned, int count)
{
	if (shard_control_was_always_alone())
		return NULL;
	for (int i = 0; i < count; i++)
		if (strcmp(learned[i].name, type->record.name) == 0)
		{
			ShardTypeRecord known = {.owner = learned[i].owner};

			return shard_difference_of_owners(&known, &type->record) ? learned[i].owner : NULL;
		}
	return NULL;
}

static bool
is_noted(const ControlType *type, const char *owner)
{
	if (type->cluster_owner == NULL || owner == NULL)
		return type->cluster_owner == owner;
	return strcmp(type->cluster_owner, owner) == 0;
}

/* False: another session has the row locked, or it is gone. */
static bool
note(const ControlType *type, const char *owner)
{
	static ShardStatement update = {
		"WITH free AS (SELECT type_id FROM shard.type WHERE type_id = $1 FOR UPDATE SKIP LOCKED)"
		" UPDATE shard.type t SET cluster_owner = $2 FROM free WHERE t.type_id = free.type_id",
		2,
		{INT4OID, TEXTOID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_add_string(&arguments, owner);
	shard_statement_run(&update, &arguments, SPI_OK_UPDATE);
	if (SPI_processed > 0)
		CacheInvalidateRelcacheByRelid(shard_catalog_get()->type);
	return SPI_processed > 0;
}

bool
shard_control_owner_follow(List *types, const ControlLearned *learned, int count)
{
	static const char *const tables[] = {"type"};
	static int64 next_try = 0;
	List *other = NIL;
	ListCell *cell;
	bool all = true;

	foreach (cell, types)
	{
		const ControlType *type = lfirst(cell);

		if (!is_noted(type, owner_in_cluster(type, learned, count)))
			other = lappend(other, lfirst(cell));
	}
	if (other == NIL)
		return true;
	if (shard_clock_now() < next_try || !shard_control_try(tables, lengthof(tables)))
		return false;
	PushActiveSnapshot(GetLatestSnapshot());
	SPI_connect();
	foreach (cell, other)
	{
		ControlType *type = lfirst(cell);

		all &= note(type, owner_in_cluster(type, learned, count));
	}
	SPI_finish();
	PopActiveSnapshot();
	shard_control_commit();
	next_try = all ? 0 : shard_clock_now() + LOOK_AGAIN;
	return all;
}
