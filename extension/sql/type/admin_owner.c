/*
 * sql/type/admin_owner.c
 *		The owner of an entity type: the role that owns it in the cluster owns it at each node (C18).
 *
 * shard_start and shard_start_proxy of a type that the cluster has make it that role's here, and only its members may
 * call them. shard_alter gives a type to another role: first in the cluster, then here, in the caller's
 * transaction. If the process dies between, or the transaction is rolled back, the type belongs to the other role in
 * the cluster: it is suspended here, and at all other nodes, until the same call is made there; or here, back again.
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/lsyscache.h"

#include "sql/type/admin.h"
#include "sql/operate/command.h"
#include "registry/cluster_map.h"
#include "shared/board.h"

#include "base/compat.h"

/* How long a decision may take to be known here. */
#define LEARN_TIMEOUT (10 * SHARD_COMMAND_SECOND)

/* The cluster's owner by name; errors if there is no such role here. */
static Oid
role_here(const char *type, const char *owner)
{
	Oid role = get_role_oid(owner, true);

	if (!OidIsValid(role))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("role \"%s\" does not exist at this node", owner),
						errdetail("Entity type \"%s\" belongs to it in the cluster.", type),
						errhint("CREATE ROLE here, or give the type another owner with "
								"shard_alter(%s, 'owner', ...) at a node that has it.",
								quote_literal_cstr(type))));
	return role;
}

/* Error unless the current user is a member of the role that owns a type in the cluster. */
static void
check_member(const char *type, const char *what, Oid role)
{
	if (!has_privs_of_role(GetUserId(), role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to %s \"%s\"", what, type),
				 errdetail("It belongs to role \"%s\" in the cluster.",
						   GetUserNameFromId(role, false)),
				 errhint("Members of that role do it, and superusers; or take another name.")));
}

/* About a type that is being dropped, or is dropped by the time, the coordinator answers. */
Oid
shard_admin_owner(const char *type, const char *what)
{
	ShardClusterType known;
	Oid role;

	if (!shard_admin_had_others() || !shard_cluster_map_type(type, &known) ||
		known.record.dropping || known.record.owner[0] == '\0')
		return GetUserId();
	role = role_here(type, known.record.owner);
	check_member(type, what, role);
	return role;
}

/*
 * Code of a superuser's type may do everything, and who owns the function may put another body into it at any time. A
 * superuser who starts the type of somebody else, as from a dump, seldom means that.
 */
static void
warn_of_lent_rights(Oid owner, Oid author, const char *name)
{
	char *author_name = GetUserNameFromId(author, true);
	char *owner_name = GetUserNameFromId(owner, true);

	if (!superuser_arg(owner) || superuser_arg(author) || author_name == NULL || owner_name == NULL)
		return;
	ereport(
		WARNING,
		(errmsg("function %s of role \"%s\" runs as superuser \"%s\"", name, author_name,
				owner_name),
		 errdetail("The entity type belongs to \"%s\", and role \"%s\" can put any code into "
				   "the function.",
				   owner_name, author_name),
		 errhint(
			 "Give the type to that role, by shard_alter(type_name, 'owner', %s); or the function "
			 "to a superuser.",
			 quote_literal_cstr(author_name))));
}

void
shard_admin_check_executes(Oid owner, Oid function, const char *name)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid author;

	/* a function that is gone suspends the type, and needs no right */
	if (!HeapTupleIsValid(tuple))
		return;
	author = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	if (shard_proc_aclcheck(function, owner, ACL_EXECUTE) == ACLCHECK_OK)
	{
		warn_of_lent_rights(owner, author, name);
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for function %s", name),
			 errdetail("The function would run as the owner of the entity type, role \"%s\".",
					   GetUserNameFromId(owner, false)),
			 errhint("GRANT EXECUTE ON FUNCTION %s to that role.", name)));
}

void
shard_admin_check_functions(const ShardAdminType *type)
{
	shard_admin_check_executes(type->owner, type->handler.function, type->handler.name);
	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
		if (shard_settings_is_function((ShardSettingId) id) && type->settings.value[id] != NULL)
			shard_admin_check_executes(type->owner,
									   type->extractor[shard_admin_extractor((ShardSettingId) id)],
									   type->settings.value[id]);
}

/* ---- another owner ---------------------------------------------------------------------------- */

/* Has the cluster learned it? */
static void
wait_for_owner(const char *type, const char *owner)
{
	int64 deadline = shard_clock_now() + LEARN_TIMEOUT;
	ShardClusterType known;

	while (shard_cluster_map_type(type, &known) && strcmp(known.record.owner, owner) != 0)
	{
		if (shard_clock_now() > deadline)
			ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
							errmsg("owner of entity type \"%s\" was not decided in time", type),
							errhint("See shard_members and shard_health(), and try again.")));
		shard_command_nap();
	}
}

void
shard_admin_owner_in_cluster(const char *type, Oid owner)
{
	const char *name = GetUserNameFromId(owner, false);
	ShardCommand command = {.kind = SHARD_COMMAND_OWNER, .text = name};
	ShardClusterType known;

	if (!is_member_of_role(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to give entity type \"%s\" to role \"%s\"", type, name),
				 errdetail("Only members of that role may do this."),
				 errhint("Let a superuser do it.")));
	if (!shard_admin_had_others() || !shard_cluster_map_type(type, &known) ||
		strcmp(known.record.owner, name) == 0)
		return;
	if (known.record.owner[0] != '\0' && !superuser())
		check_member(type, "alter entity type", role_here(type, known.record.owner));
	shard_command_need_coordinator("shard_alter()");
	command.type_id = known.type_id;
	command.record_n = known.n;
	(void) shard_command_send(&command, SHARD_COMMAND_TIMEOUT,
							  psprintf("could not change the owner of entity type \"%s\"", type));
	wait_for_owner(type, name);
}

void
shard_admin_owner_here(ShardAdminType *type, Oid owner)
{
	type->owner = owner;
	shard_admin_check_functions(type);
	shard_admin_table_own(type, owner);
	shard_admin_row_owner(type);
}
