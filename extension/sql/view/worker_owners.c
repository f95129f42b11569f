/*
 * sql/view/worker_owners.c
 *		The owners of the types that a region worker runs, as people see it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "registry/registry.h"
#include "sql/view/worker_owners.h"
#include "core/base/division.h"

#include "base/compat.h"

typedef struct Search
{
	ShardLanes lanes;
	List *owners; /* Oid */
} Search;

static void
add_owner(ShardType *type, void *arg)
{
	Search *search = arg;

	if ((shard_group_lanes(shard_message_group(type->type_id)) & search->lanes) != 0)
		search->owners = list_append_unique_oid(search->owners, type->owner);
}

static int
compare_names(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

static char *
owners_of(ShardLanes lanes, int *count)
{
	Search search = {.lanes = lanes};
	List *names = NIL;
	ListCell *cell;
	StringInfoData text;

	shard_registry_each(add_owner, &search);
	foreach (cell, search.owners)
	{
		char *name = GetUserNameFromId(lfirst_oid(cell), true);

		names = lappend(names, name != NULL ? name : psprintf("%u", lfirst_oid(cell)));
	}
	list_sort(names, compare_names);
	initStringInfo(&text);
	foreach (cell, names)
		appendStringInfo(&text, "%s%s", text.len > 0 ? ", " : "",
						 quote_identifier((char *) lfirst(cell)));
	*count = list_length(names);
	return text.data;
}

char *
shard_worker_owners(const ShardDatabase *db, int worker, int *count)
{
	*count = 0;
	if (shard_division_is_keeper(&db->division, worker))
		return pstrdup("");
	return owners_of(shard_shmem_worker_lanes(db, worker), count);
}

char *
shard_worker_waiting_owners(const ShardDatabase *db)
{
	ShardLanes lanes = 0;
	int count;

	for (int group = 0; group < SHARD_GROUPS; group++)
		if ((db->division.waits & shard_group_bit(group)) != 0)
			lanes |= shard_group_lanes(group);
	return owners_of(lanes, &count);
}
