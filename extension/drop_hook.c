/*
 * drop_hook.c
 *		What is said when a database that is a member of a cluster is dropped, or its extension.
 *
 * Neither is ever refused: whoever has to get rid of a database or of the extension can. But the others hear
 * nothing of it, and take the node for one that may come back. So whoever drops it is told what that means,
 * and what to do instead, or afterwards.
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "miscadmin.h"

#include "drop_hook.h"
#include "plane.h"
#include "shmem.h"

#include "compat.h"

static object_access_hook_type previous_hook = NULL;

static void
warn(const ShardPlaneView *view, const char *what)
{
	ereport(
		WARNING,
		(errmsg("%s is node %d of a cluster with %d other member%s, and has not left it", what,
				view->node, view->members - 1, view->members == 2 ? "" : "s"),
		 errdetail(
			 "When it is dropped the others take it for a lost node: its shards and messages for "
			 "them wait for it, in vain. States that are here, and messages that have not been "
			 "delivered, are lost."),
		 errhint("Call shard_leave() first. If it is too late, call shard_write_off(%d) at another "
				 "member: its shards begin anew there, empty. If no coordinator is left, "
				 "shard_force_voters() comes before that.",
				 view->node)));
}

/* See drop_hook.h. A node that has left, or was written off, is fenced; a copy is not known. */
void
shard_drop_hook_warn(Oid dboid, const char *name)
{
	ShardDatabase *db;
	ShardPlaneView view;

	LWLockAcquire(shard_control->lock, LW_SHARED);
	db = shard_shmem_find_database(dboid);
	shard_plane_get(db, &view);
	LWLockRelease(shard_control->lock);
	if (view.known && !view.fenced && view.members > 1)
		warn(&view, name != NULL ? psprintf("database \"%s\"", name) : "this database");
}

/*
 * The extension is dropped: by its own command, or with its schema or owner.
 */
static void
object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (previous_hook)
		previous_hook(access, class_id, object_id, sub_id, arg);
	if (access == OAT_DROP && class_id == ExtensionRelationId && IsUnderPostmaster &&
		shard_control != NULL)
	{
		const char *name = get_extension_name(object_id);

		if (name != NULL && strcmp(name, "shard") == 0)
			shard_drop_hook_warn(MyDatabaseId, NULL);
	}
}

void
shard_drop_hook_init(void)
{
	previous_hook = object_access_hook;
	object_access_hook = object_access;
}
