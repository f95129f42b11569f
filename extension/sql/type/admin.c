/*
 * sql/type/admin.c
 *		SQL functions that alter and stop entity types.
 *
 * Called by clients. Each takes the shared lock on the extension object, then exclusive locks of the extension's own
 * that keep two of them apart (admin_lock.c), all to the end of the transaction; region workers do not take the latter.
 * All of it is transactional, so a crash leaves a type as it was or as it was asked for.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

#include "sql/type/admin.h"
#include "registry/catalog.h"
#include "base/guc.h"
#include "entity/handler.h"
#include "registry/registry.h"
#include "shared/shmem.h"
#include "sql/operate/command.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_alter);
PG_FUNCTION_INFO_V1(shard_stop_type);
PG_FUNCTION_INFO_V1(shard_type_mode);
PG_FUNCTION_INFO_V1(shard_type_problem);

void
shard_admin_begin(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	if (InSecurityRestrictedOperation())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("cannot execute %s within security-restricted operation", function),
						errhint("Entity types cannot be changed from a handler or an extractor.")));
	shard_shmem_require();
	shard_catalog_lock(false);
}

void
shard_admin_open_type(FunctionCallInfo fcinfo, const char *what, ShardAdminType *stored,
					  ShardSecurity *security)
{
	ShardType *type = shard_admin_lock_name(shard_command_text(fcinfo, 0, "type name"), what);

	shard_security_open_system(security);
	if (!shard_admin_row_read(type->name, stored))
		elog(ERROR, "entity type \"%s\" has no row", type->name);
	stored->name = type->name;
	stored->owner = type->owner;
}

/* Gives the type another handler of the same state. */
static void
alter_handler(ShardAdminType *type, const ShardRoutine *handler)
{
	shard_admin_check_executes(type->owner, handler->function, handler->name);
	shard_admin_bind(type, handler);
}

/* Error unless the text is a list of schema names. */
static void
check_schema_list(const char *path)
{
	List *names;

	if (!SplitIdentifierString(pstrdup(path), ',', &names))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid value for setting \"search_path\": \"%s\"", path),
						errhint("Write schema names separated by commas.")));
}

/* What shard_alter was asked to change, resolved in the caller's search_path. */
typedef struct Change
{
	const char *setting;
	const char *value; /* canonical; NULL: null */
	ShardSettingId id; /* unless handler, search_path or owner */
	Oid owner;		   /* InvalidOid: another setting */
	ShardRoutine handler;
	Oid extractor;
} Change;

/* Reads the arguments of shard_alter. */
static void
read_change(FunctionCallInfo fcinfo, Change *change)
{
	char *value = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));

	change->setting = shard_command_text(fcinfo, 1, "setting");
	if (strcmp(change->setting, "handler") == 0)
		shard_routine_resolve_handler(shard_command_text(fcinfo, 2, "handler"), &change->handler);
	else if (strcmp(change->setting, "search_path") == 0)
	{
		value = shard_command_text(fcinfo, 2, "search_path");
		shard_settings_check_bytes("search_path", value);
		check_schema_list(value);
		change->value = shard_security_path(value);
		shard_settings_check_bytes("search_path", change->value);
	}
	else if (strcmp(change->setting, "owner") == 0)
		change->owner = get_role_oid(shard_command_text(fcinfo, 2, "owner"), false);
	else
	{
		change->id = shard_settings_find(change->setting);
		if (value != NULL && shard_settings_is_function(change->id))
			change->extractor =
				shard_routine_resolve_extractor(shard_admin_extractor(change->id), value, &value);
		change->value = shard_settings_from_text(change->id, value);
	}
}

/* Changes an ordinary setting of the type. */
static void
alter_setting(ShardAdminType *type, const Change *change)
{
	const char **place = &type->settings.value[change->id];

	if (shard_settings_is_fixed(change->id))
	{
		if (*place == change->value ||
			(*place != NULL && change->value != NULL && strcmp(*place, change->value) == 0))
			return;
		if (shard_settings_is_of_replicas(change->id))
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("setting \"%s\" of entity type \"%s\" cannot be altered yet",
								   change->setting, type->name),
							errdetail("The sets of its shards stay as they were decided."),
							errhint("Drop the type with shard_drop_type() and start it again.")));
		ereport(ERROR,
				(errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM),
				 errmsg("setting \"%s\" of entity type \"%s\" cannot be altered", change->setting,
						type->name),
				 errdetail("%s", shard_settings_why_fixed(change->id)),
				 shard_settings_is_of_shards(change->id)
					 ? errhint("CALL shard_reshard() for the type once it is stopped everywhere.")
					 : errhint(
						   "Start another entity type, or drop this one with shard_drop_type().")));
	}
	if (shard_settings_is_function(change->id))
	{
		if (change->value != NULL)
			shard_admin_check_executes(type->owner, change->extractor, change->value);
		type->extractor[shard_admin_extractor(change->id)] = change->extractor;
	}
	*place = change->value;
	shard_settings_check(&type->settings);
	if (change->id == SHARD_SETTING_ACTIVE_ENTITY_LIMIT)
		shard_settings_check_limit(&type->settings, ERROR);
	else if (change->id == SHARD_SETTING_PASSIVATION_STRATEGY)
		shard_settings_check_limit(&type->settings, NOTICE);
}

/* What an administrator allows the caller, under whose role the session still runs: from here on it is another one. */
static void
check_limit(FunctionCallInfo fcinfo, const Change *change)
{
	ShardAdminType wanted = {.name = shard_command_text(fcinfo, 0, "type name")};

	wanted.settings.value[change->id] = change->value;
	if (change->handler.name == NULL && strcmp(change->setting, "search_path") != 0)
		shard_admin_limit_setting(&wanted, change->id);
}

/* First the cluster hears of another owner, from a caller with the right to say so. */
static void
give_in_cluster(FunctionCallInfo fcinfo, Oid owner)
{
	const char *name = shard_command_text(fcinfo, 0, "type name");
	ShardType *type = shard_admin_lock_name(name, "alter entity type");

	shard_admin_lock_list();
	if (type->owner != owner || type->runs_as != owner)
		shard_admin_limit_types(type->name, owner, type->number_of_shards);
	shard_admin_owner_in_cluster(type->name, owner);
}

/*
 * shard_alter(type_name text, setting text, value text): changes one setting of
 * a type; a null value is the setting's default. Members of the owner.
 */
Datum
shard_alter(PG_FUNCTION_ARGS)
{
	ShardAdminType type = {0};
	ShardSecurity security = {0};
	Change change = {0};

	shard_admin_begin("shard_alter()");
	read_change(fcinfo, &change);
	if (OidIsValid(change.owner))
		give_in_cluster(fcinfo, change.owner);
	else
		check_limit(fcinfo, &change);
	shard_admin_open_type(fcinfo, "alter entity type", &type, &security);
	if (OidIsValid(change.owner))
		shard_admin_owner_here(&type, change.owner);
	else if (change.handler.name != NULL)
		alter_handler(&type, &change.handler);
	else if (strcmp(change.setting, "search_path") == 0)
		type.search_path = change.value;
	else
		alter_setting(&type, &change);
	shard_admin_row_update(&type);
	shard_security_close_system(&security);
	PG_RETURN_VOID();
}

/*
 * shard_stop_type(type_name text): no entity of the type runs from now on; state
 * and messages are kept. Members of the owner. A proxy has no entities that could be stopped: error 55000.
 */
Datum
shard_stop_type(PG_FUNCTION_ARGS)
{
	ShardAdminType type = {0};
	ShardSecurity security = {0};

	shard_admin_begin("shard_stop_type()");
	shard_admin_open_type(fcinfo, "stop entity type", &type, &security);
	if (strcmp(type.mode, "proxy") == 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("entity type \"%s\" is a proxy on this node", type.name),
						errdetail("Its entities run at other members."),
						errhint("Call shard_stop_type() at the members that host it, see "
								"shard_current_regions; shard_drop_type() takes the proxy away.")));
	type.mode = "stopped";
	shard_admin_row_update(&type);
	shard_security_close_system(&security);
	PG_RETURN_VOID();
}

/*
 * shard.type_mode(mode text, role text) RETURNS text: what a type is on this node, which hosts no type whose role the
 * node lacks; the role may be NULL. NULL of NULL.
 */
Datum
shard_type_mode(PG_FUNCTION_ARGS)
{
	text *mode;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	mode = PG_GETARG_TEXT_PP(0);
	if (!PG_ARGISNULL(1) && strcmp(text_to_cstring(mode), "hosting") == 0 &&
		!shard_guc_has_role(text_to_cstring(PG_GETARG_TEXT_PP(1))))
		PG_RETURN_TEXT_P(cstring_to_text("proxy"));
	PG_RETURN_TEXT_P(mode);
}

/*
 * What is wrong with the handler as it is now: workers store what they met, which may have changed since. A proxy
 * has one for what is ordered by it elsewhere, and calls none.
 */
static char *
handler_problem(const ShardType *type)
{
	int sqlstate;

	if (type->mode != SHARD_MODE_PROXY)
		return shard_handler_problem(type, &sqlstate);
	return OidIsValid(type->handler) ? NULL : shard_handler_missing(type);
}

/*
 * shard.type_problem(type_id int4) RETURNS text: what bars a type from running
 * that can be seen without running it; NULL if nothing does.
 */
Datum
shard_type_problem(PG_FUNCTION_ARGS)
{
	ShardType *type = shard_registry_by_id(PG_GETARG_INT32(0));
	char *problem;
	bool no_table;
	int sqlstate;

	if (type == NULL)
		PG_RETURN_NULL();
	no_table = type->mode != SHARD_MODE_PROXY && get_rel_relkind(type->state_table) == '\0';
	problem = shard_security_owner_problem(type);
	if (problem == NULL)
		problem = shard_security_problem(type, &sqlstate);
	if (problem != NULL)
		PG_RETURN_TEXT_P(cstring_to_text(problem));
	if (type->handler_name[0] != '\0')
		problem = handler_problem(type);
	/* as after DROP OWNED: an owner that creates the handler again must know of the table before */
	if (problem != NULL && no_table)
		problem = psprintf("%s; its state table was dropped, too, with all states in it: create "
						   "the handler again, then shard_stop_type('%s') and shard_start() as "
						   "before create the table again, empty, and messages that wait are "
						   "handled",
						   problem, type->name);
	else if (problem == NULL && no_table)
		problem =
			pstrdup("its state table was dropped, with all states in it; shard_stop_type() and "
					"shard_start() as before create the table again, empty, and messages that "
					"wait are handled then");
	else if (problem == NULL && type->missing_extractor != NULL)
		problem = psprintf("extractor %s does not exist", type->missing_extractor);
	else if (problem == NULL)
		problem = shard_handler_home_problem(type, &sqlstate);
	if (problem == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(problem));
}
