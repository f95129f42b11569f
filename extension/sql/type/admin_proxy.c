/*
 * sql/type/admin_proxy.c
 *		SQL function shard_start_proxy: an entity type of the cluster that does not run here.
 *
 * Its row has the cluster's number and what is needed to know the shard of an entity, but no state
 * table. See admin.c for locks and privileges.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "sql/type/admin.h"
#include "registry/cluster_map.h"
#include "sql/cluster/cluster_view.h"
#include "registry/registry.h"
#include "sql/operate/command.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_start_proxy);

/*
 * The type as the cluster knows it.
 */
static void
find_in_cluster(const char *name, ShardClusterType *type)
{
	if (!shard_cluster_map_type(name, type))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("the cluster has no entity type \"%s\"", name),
						errhint("Start it first with shard_start(), at a member that hosts it.")));
}

/*
 * No member that is heard has it: it goes, or is that of one which is not heard.
 */
static void
refuse_dropping(const char *name)
{
	List *reports = shard_cluster_view_reports();
	const char *away = shard_cluster_view_not_heard(reports);

	if (reports != NIL && away == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("entity type \"%s\" is being dropped in the cluster", name),
						errdetail("No member has it any more."),
						errhint("Start it first with shard_start(), at a member that hosts it.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("no member that is heard has entity type \"%s\"", name),
			 errdetail("It may be there at %s.", away != NULL ? away : "a node that is away"),
			 errhint("Try again when its hosts are heard, see shard_members; or start it first "
					 "with shard_start(), at a member that hosts it.")));
}

/*
 * What the row shall be.
 */
static void
fill_in(ShardAdminType *type, const ShardClusterType *wanted)
{
	const char *extractor;

	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
		type->settings.value[id] = shard_settings_default((ShardSettingId) id);
	shard_settings_from_record(&type->settings, &wanted->record);
	extractor = type->settings.value[SHARD_SETTING_SHARD_ID_EXTRACTOR];
	if (extractor != NULL)
	{
		char *name;

		type->extractor[SHARD_EXTRACTOR_SHARD_ID] =
			shard_routine_resolve_extractor(SHARD_EXTRACTOR_SHARD_ID, extractor, &name);
		type->settings.value[SHARD_SETTING_SHARD_ID_EXTRACTOR] = name;
	}
	type->type_id = wanted->type_id;
	type->owner = shard_admin_owner(type->name, "start entity type");
	type->mode = "proxy";
	type->search_path = shard_admin_search_path();
}

/* The function on which EXECUTE allows to send; none: only the owner may. */
static void
take_handler(FunctionCallInfo fcinfo, ShardAdminType *type)
{
	if (PG_ARGISNULL(2))
		type->handler = (ShardRoutine){.name = "", .state_type = JSONBOID};
	else
		shard_routine_resolve_handler(text_to_cstring(PG_GETARG_TEXT_PP(2)), &type->handler);
}

/*
 * The type is here: good, if it is a proxy. A function that is named becomes the one whose EXECUTE allows to send.
 */
static void
start_again(FunctionCallInfo fcinfo, const ShardType *known)
{
	ShardAdminType type = {0};
	ShardAdminType wanted = {0};
	ShardSecurity security = {0};

	shard_security_check_owner(known, "start entity type");
	if (known->mode != SHARD_MODE_PROXY)
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT),
						errmsg("entity type \"%s\" runs on this node", known->name),
						errhint("To make it a proxy here, drop it with shard_drop_type() first.")));
	if (PG_ARGISNULL(2))
		return;
	take_handler(fcinfo, &wanted);
	shard_security_open_system(&security);
	if (!shard_admin_row_read(known->name, &type))
		elog(ERROR, "entity type \"%s\" has no row", known->name);
	if (type.handler.function != wanted.handler.function)
	{
		type.handler = wanted.handler;
		shard_admin_row_update(&type);
	}
	shard_security_close_system(&security);
}

/*
 * shard_start_proxy(type_name text, role text = NULL, handler text = NULL): a type that members with that role host.
 * For roles that have CREATE on the database and are members of the type's owner in the cluster, which owns it here,
 * too (C18).
 */
Datum
shard_start_proxy(PG_FUNCTION_ARGS)
{
	ShardAdminType type = {0};
	ShardClusterType wanted;
	ShardSecurity security = {0};
	ShardType *known;

	shard_admin_begin("shard_start_proxy()");
	type.name = shard_command_text(fcinfo, 0, "type name");
	shard_admin_check_name(type.name);
	known = shard_admin_lock_start(type.name);
	if (known != NULL)
	{
		start_again(fcinfo, known);
		PG_RETURN_VOID();
	}
	shard_admin_check_create(type.name);
	find_in_cluster(type.name, &wanted);
	if (wanted.record.dropping)
		refuse_dropping(type.name);
	if (!PG_ARGISNULL(1) && strcmp(text_to_cstring(PG_GETARG_TEXT_PP(1)), wanted.record.role) != 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("entity type \"%s\" has another role in the cluster", type.name),
						errdetail("It is \"%s\".", wanted.record.role)));
	fill_in(&type, &wanted);
	take_handler(fcinfo, &type);
	shard_admin_check_functions(&type);
	shard_admin_limit_types(type.name, type.owner,
							shard_settings_number(&type.settings, SHARD_SETTING_NUMBER_OF_SHARDS));

	shard_security_open_system(&security);
	shard_admin_row_insert(&type);
	shard_security_close_system(&security);
	PG_RETURN_VOID();
}
