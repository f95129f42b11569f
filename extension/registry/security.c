/*
 * registry/security.c
 *		The right to send, and running code as a type's owner.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "catalog/pg_authid.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "registry/owner_session.h"
#include "registry/security.h"
#include "registry/settings.h"

#include "base/compat.h"

/* Rises when roles, memberships or schemas change; types and handlers have the registry's counter. */
static uint64 role_changes = 1;

/* Syscache callback: some role, membership or schema changed. */
static void
note_role_change(Datum arg, int cacheid, uint32 hashvalue)
{
	role_changes++;
}

/*
 * A number that differs from all earlier ones after any change that may grant
 * or take the right to send. Both parts only rise, hence their sum does.
 */
static uint64
rights_generation(void)
{
	static bool registered = false;

	if (unlikely(!registered))
	{
		CacheRegisterSyscacheCallback(AUTHOID, note_role_change, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMMEMROLE, note_role_change, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, note_role_change, (Datum) 0);
		registered = true;
	}
	return role_changes + shard_registry_generation();
}

/* Error unless the current user might name the handler, as a call of it by that user would have to. */
static void
check_schema(const ShardType *type)
{
	Oid schema = get_func_namespace(type->handler);
	char *name;

	if (shard_namespace_aclcheck(schema, GetUserId(), ACL_USAGE) == ACLCHECK_OK)
		return;
	name = get_namespace_name(schema);
	ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("permission denied to send to entity type \"%s\"", type->name),
					errdetail("Sending needs USAGE on the schema of the type's handler."),
					errhint("GRANT USAGE ON SCHEMA %s to the role.",
							name ? quote_identifier(name) : "?")));
}

/* Error unless the current user may execute the type's handler. */
static void
check_execute(const ShardType *type)
{
	if (!OidIsValid(type->handler))
	{
		/* No role can hold a right on a function that is gone; its owner's messages wait. */
		if (shard_security_is_owner(type))
			return;
		if (type->handler_name[0] == '\0')
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to send to entity type \"%s\"", type->name),
					 errdetail("The type is a proxy here that was started without a function; "
							   "then only its owner may send."),
					 errhint("Let its owner call shard_start_proxy(%s, handler => ...), and grant "
							 "EXECUTE on that function.",
							 quote_literal_cstr(type->name))));
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("handler of entity type \"%s\" does not exist", type->name),
				 errdetail("The handler was %s; EXECUTE on it is the right to send.",
						   type->handler_name),
				 errhint("Create the function again, or name another one with shard_alter().")));
	}
	if (shard_proc_aclcheck(type->handler, GetUserId(), ACL_EXECUTE) != ACLCHECK_OK)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied to send to entity type \"%s\"", type->name),
						errdetail("Sending needs EXECUTE on the type's handler."),
						errhint("GRANT EXECUTE ON FUNCTION %s to the role.", type->handler_name)));
	check_schema(type);
}

char *
shard_security_role_text(Oid role)
{
	char *name = GetUserNameFromId(role, true);

	return name == NULL ? psprintf("role %u, which was dropped", role)
						: psprintf("role \"%s\"", name);
}

/* The owner here has the name of that in the cluster again, which the control worker has not noted yet. */
static bool
is_same_owner(const ShardType *type)
{
	char *name = GetUserNameFromId(type->owner, true);

	return name != NULL && strcmp(name, type->cluster_owner) == 0;
}

char *
shard_security_owner_problem(const ShardType *type)
{
	if (type->cluster_owner == NULL)
		return NULL;
	if (is_same_owner(type))
		return psprintf(
			"it was given to role \"%s\", which owns it in the cluster; it goes on when "
			"the control worker has noted that",
			type->cluster_owner);
	return psprintf("it belongs to role \"%s\" in the cluster, and here to %s", type->cluster_owner,
					shard_security_role_text(type->owner));
}

/* Error if the type is another role's in the cluster: a role that may send to it here need not have that right there. */
static void
check_cluster_owner(const ShardType *type)
{
	if (type->cluster_owner == NULL)
		return;
	if (is_same_owner(type))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot send to entity type \"%s\" at this node", type->name),
				 errdetail("It was given to role \"%s\", which owns it in the cluster; the control "
						   "worker has not noted that yet.",
						   type->cluster_owner),
				 errhint("Try again.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot send to entity type \"%s\" at this node", type->name),
			 errdetail("Here it belongs to %s, in the cluster to role \"%s\".",
					   shard_security_role_text(type->owner), type->cluster_owner),
			 errhint("shard_alter(%s, 'owner', ...) gives it one owner; or drop it here with "
					 "shard_drop_type().",
					 quote_literal_cstr(type->name))));
}

/*
 * Returns if the current user may send to the type, else raises. The last
 * role that passed is remembered in the type until rights may have changed.
 */
void
shard_security_check_send(ShardType *type)
{
	Oid role = GetUserId();
	uint64 generation = rights_generation();

	if (likely(type->send_generation == generation && type->send_role == role))
		return;

	check_cluster_owner(type);
	check_execute(type);
	type->send_role = role;
	type->send_generation = generation;
}

/* Whether the current user has the rights of the type's owner. */
bool
shard_security_is_owner(const ShardType *type)
{
	return has_privs_of_role(GetUserId(), type->owner);
}

/* Error 42501 unless the current user has the rights of the type's owner. */
void
shard_security_check_owner(const ShardType *type, const char *what)
{
	if (shard_security_is_owner(type))
		return;
	ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("permission denied to %s \"%s\"", what, type->name),
					errdetail("Only members of the role that owns the entity type may do this."),
					errhint("Ask %s.", shard_security_role_text(type->owner))));
}

char *
shard_security_problem(const ShardType *type, int *sqlstate)
{
	const char *owner;

	if (unlikely(type->path_too_long > 0))
	{
		*sqlstate = ERRCODE_PROGRAM_LIMIT_EXCEEDED;
		return psprintf(
			"its search_path has " INT64_FORMAT
			" bytes, and may have %d: shard_alter(%s, 'search_path', ...) gives it a shorter one",
			type->path_too_long, SHARD_SETTING_MAX_BYTES, quote_literal_cstr(type->name));
	}
	if (likely(type->owner == type->runs_as))
		return NULL;
	*sqlstate = ERRCODE_INSUFFICIENT_PRIVILEGE;
	owner = GetUserNameFromId(type->owner, true);
	if (owner == NULL)
		owner = "?";
	return psprintf(
		"it was given to role \"%s\", which has to call shard_alter(%s, 'owner', %s) before its "
		"code runs as that role",
		owner, quote_literal_cstr(type->name), quote_literal_cstr(owner));
}

/* Error if the type's code must not run. */
static void
check_confirmed(const ShardType *type)
{
	int sqlstate;
	char *problem = shard_security_problem(type, &sqlstate);

	if (unlikely(problem != NULL))
		ereport(ERROR, (errcode(sqlstate),
						errmsg("code of entity type \"%s\" cannot run: %s", type->name, problem),
						errhint("See shard_types. Messages that name their entity wait.")));
}

/* pg_temp, or the name that such a schema has in the catalog. */
static bool
is_temporary_schema(const char *name)
{
	return strncmp(name, "pg_temp", 7) == 0 && (name[7] == '\0' || name[7] == '_');
}

char *
shard_security_path(const char *path)
{
	StringInfoData result;
	List *names;
	ListCell *cell;

	if (!SplitIdentifierString(pstrdup(path), ',', &names))
		return pstrdup(path);
	initStringInfo(&result);
	foreach (cell, names)
		if (!is_temporary_schema(lfirst(cell)))
			appendStringInfo(&result, "%s, ", quote_identifier(lfirst(cell)));
	appendStringInfoString(&result, "pg_temp");
	return result.data;
}

/* Sets a setting for the current GUC nest level, with the rights of the current user. */
static void
set_in_level(const char *name, const char *value)
{
	(void) set_config_option(name, value, superuser() ? PGC_SUSET : PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/* Opens a stretch as the given role; the caller sets what the nest level needs. */
static void
enter(ShardSecurity *security, Oid owner, int added_context)
{
	GetUserIdAndSecContext(&security->saved_user, &security->saved_context);
	SetUserIdAndSecContext(owner, security->saved_context | added_context);
	security->nest_level = NewGUCNestLevel();
	security->owner = owner;
	security->path_number = 0;
	security->in_session = false;
	security->active = true;
}

/*
 * Opens a stretch of a type's user code, or continues the one that is open if
 * owner and search_path are the same; else the open one is ended first.
 */
void
shard_security_begin(ShardSecurity *security, const ShardType *type)
{
	bool nested;

	if (security->active)
	{
		if (security->owner == type->owner && security->path_number == type->path_number)
			return;
		shard_security_end(security);
	}

	check_confirmed(type);
	nested = InSecurityRestrictedOperation();
	enter(security, type->owner, SECURITY_RESTRICTED_OPERATION);
	security->session = shard_owner_session_begin(type->owner, nested);
	security->in_session = true;
	set_in_level("search_path", type->search_path);
	security->path_number = type->path_number;
}

void
shard_security_require(Oid owner)
{
	Oid user;
	int context;

	GetUserIdAndSecContext(&user, &context);
	if (likely(user == owner && (context & SECURITY_RESTRICTED_OPERATION) != 0))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("code of %s cannot run now", shard_security_role_text(owner)),
			 errdetail("The code runs as that role only, in a security-restricted operation."),
			 errhint("If the owner of an entity type has just changed, try again.")));
}

/*
 * Opens a stretch of the extension's own SQL as the bootstrap superuser. SET ROLE is barred in it, and the user's
 * settings do not decide where new tables go.
 */
void
shard_security_begin_system(ShardSecurity *security)
{
	Assert(!security->active);

	enter(security, BOOTSTRAP_SUPERUSERID, SECURITY_LOCAL_USERID_CHANGE);
	set_in_level("search_path", "pg_catalog, pg_temp");
	set_in_level("default_tablespace", "");
	set_in_level("default_table_access_method", "heap");
}

/* Ends the stretch, if one is open: what user code set is undone, user and session are back. */
void
shard_security_end(ShardSecurity *security)
{
	if (!security->active)
		return;
	if (security->in_session)
		shard_owner_session_end(security->session);
	AtEOXact_GUC(false, security->nest_level);
	SetUserIdAndSecContext(security->saved_user, security->saved_context);
	security->active = false;
}

/* Forgets a stretch that an error ended: the abort restored user and settings already. */
void
shard_security_forget(ShardSecurity *security)
{
	memset(security, 0, sizeof(*security));
}

void
shard_security_open_system(ShardSecurity *security)
{
	SPI_connect();
	shard_security_begin_system(security);
}

void
shard_security_close_system(ShardSecurity *security)
{
	shard_security_end(security);
	SPI_finish();
}
