/*
 * sql/type/admin_start.c
 *		SQL function shard_start: a new entity type, or the same one again.
 *
 * See admin.c for locks and privileges.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "sql/type/admin.h"
#include "sql/type/reshard.h"
#include "sql/send/api.h"
#include "control/control.h"
#include "registry/cluster_map.h"
#include "registry/directory.h"
#include "shared/board.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "entity/state_structure.h"
#include "sql/operate/command.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_start);
PG_FUNCTION_INFO_V1(shard_shard_id);

/* Arguments of shard_start before the settings, which follow in the order of ShardSettingId. */
#define ARGUMENT_NAME 0
#define ARGUMENT_HANDLER 1
#define ARGUMENT_SETTINGS 2

/* How long the cluster may take to give a type its number, in microseconds. */
#define NUMBER_TIMEOUT (5 * INT64CONST(1000000))

/* Refuses a name that cannot be a table's, or that would break lines of logs. */
void
shard_admin_check_name(const char *name)
{
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME), errmsg("name of an entity type cannot be empty"),
				 errhint("Give a name that its state table can have.")));
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR, (errcode(ERRCODE_NAME_TOO_LONG),
						errmsg("name of entity type \"%s\" is too long", name),
						errdetail("It has %d bytes.", (int) strlen(name)),
						errhint("Use at most %d bytes.", NAMEDATALEN - 1)));
	for (const char *c = name; *c != '\0'; c++)
		if ((unsigned char) *c < ' ' || *c == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_NAME),
					 errmsg("name of an entity type must not have control characters"),
					 errdetail("Byte %d of it is 0x%02x. Logs and lists have one line for a type.",
							   (int) (c - name) + 1, (unsigned char) *c),
					 errhint("Leave out line breaks and tabs.")));
}

/* The caller's search_path, for the type's code. */
const char *
shard_admin_search_path(void)
{
	const char *path = shard_security_path(GetConfigOption("search_path", false, false));

	shard_settings_check_bytes("search_path", path);
	return path;
}

/* Reads a setting from its argument; a function is resolved and checked. */
static void
read_setting(FunctionCallInfo fcinfo, ShardSettingId id, ShardAdminType *type)
{
	int number = ARGUMENT_SETTINGS + id;
	const char *value = NULL;

	/* what passivation is without a word about it, depends on another setting */
	if (id != SHARD_SETTING_PASSIVATION_STRATEGY || !PG_ARGISNULL(number))
		value = shard_settings_from_argument(id, PG_GETARG_DATUM(number), PG_ARGISNULL(number));

	if (value != NULL && shard_settings_is_function(id))
	{
		ShardExtractor which = shard_admin_extractor(id);
		char *name;

		type->extractor[which] = shard_routine_resolve_extractor(which, value, &name);
		value = name;
	}
	type->settings.value[id] = value;
}

/*
 * Error for what would have no effect: settings of an order that was not asked for. Later on shard_alter may end an
 * order.
 */
static void
check_order(const ShardSettings *settings)
{
	static const ShardSettingId about[] = {SHARD_SETTING_ORDERED_FROM,
										   SHARD_SETTING_ORDERED_TIMEOUT,
										   SHARD_SETTING_ORDERED_WINDOW};

	for (int i = 0; i < lengthof(about) && settings->value[SHARD_SETTING_ORDERED_BY] == NULL; i++)
	{
		const char *value = settings->value[about[i]];
		const char *usual = shard_settings_default(about[i]);

		if (value != NULL && (usual == NULL || strcmp(value, usual) != 0))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("setting \"%s\" has no effect without \"ordered_by\"",
							shard_settings_name(about[i])),
					 errhint("Name the function that gives a message its number: ordered_by => "
							 "'...'.")));
	}
}

/* Copies that nobody takes over are of no use yet, so only builds for tests have them. */
static void
check_offered(const ShardSettings *settings)
{
#ifndef SHARD_ASSERTIONS
	if (strcmp(settings->value[SHARD_SETTING_REPLICAS],
			   shard_settings_default(SHARD_SETTING_REPLICAS)) != 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("entity types cannot have replicas yet"),
						errdetail("The states of a shard are kept by its home alone."),
						errhint("Make nodes that matter HA pairs of PostgreSQL.")));
#endif
}

/* Reads all arguments into what the row shall be, with the caller as owner. */
static void
read_arguments(FunctionCallInfo fcinfo, ShardAdminType *type)
{
	type->name = shard_command_text(fcinfo, ARGUMENT_NAME, "type name");
	shard_admin_check_name(type->name);
	shard_routine_resolve_handler(shard_command_text(fcinfo, ARGUMENT_HANDLER, "handler"),
								  &type->handler);
	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
		read_setting(fcinfo, (ShardSettingId) id, type);
	if (type->settings.value[SHARD_SETTING_PASSIVATION_STRATEGY] == NULL)
		type->settings.value[SHARD_SETTING_PASSIVATION_STRATEGY] =
			shard_settings_is_on(&type->settings, SHARD_SETTING_REMEMBER_ENTITIES) ? "none"
																				   : "idle";
	shard_settings_resolve_allocation(&type->settings);
	check_order(&type->settings);
	shard_settings_check_limit(&type->settings, ERROR);
	shard_settings_check(&type->settings);
	check_offered(&type->settings);
	type->owner = GetUserId();
	type->mode = "hosting";
	type->search_path = shard_admin_search_path();
}

/* Error unless the current user may make an entity type. */
void
shard_admin_check_create(const char *name)
{
	if (shard_database_aclcheck(MyDatabaseId, GetUserId(), ACL_CREATE) == ACLCHECK_OK)
		return;
	ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("permission denied to start entity type \"%s\"", name),
					errdetail("Starting a new entity type needs CREATE on the database."),
					errhint("GRANT CREATE ON DATABASE to the role.")));
}

/* What start_again has found to differ. */
typedef struct Difference
{
	const char *type;	 /* name, as a literal */
	const char *setting; /* the first, or the first that is fixed; NULL: none */
	bool fixed;			 /* at least one cannot be altered */
	bool stopped;		 /* the type is */
	const char
		*handler; /* of a suspended type, if the handler is the same, as a literal; NULL: not so */
	StringInfoData detail;
	StringInfoData remedy; /* calls that alter those which can be */
} Difference;

/* Compares one setting of the type that is there with what was asked for. */
static void
compare(Difference *difference, const char *setting, const char *stored, const char *wanted,
		bool fixed)
{
	if (stored == wanted || (stored != NULL && wanted != NULL && strcmp(stored, wanted) == 0))
		return;
	if (difference->setting == NULL || (fixed && !difference->fixed))
		difference->setting = setting;
	if (!fixed)
		appendStringInfo(&difference->remedy, "%sshard_alter(%s, '%s', %s)",
						 difference->remedy.len > 0 ? ", " : "", difference->type, setting,
						 wanted ? quote_literal_cstr(wanted) : "NULL");
	if (difference->detail.len > 0)
		appendStringInfoChar(&difference->detail, '\n');
	difference->fixed |= fixed;
	appendStringInfo(&difference->detail, "Setting \"%s\" is %s, asked for %s.", setting,
					 stored ? stored : "null", wanted ? wanted : "null");
}

/* Whether a setting says in which shard an entity is. */
static bool
is_of_shards(const char *setting)
{
	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
		if (strcmp(setting, shard_settings_name((ShardSettingId) id)) == 0)
			return shard_settings_is_of_shards((ShardSettingId) id);
	return false;
}

/* Handlers may be altered, but for the type of the states that they have. */
static const char *
fixed_name(const char *setting)
{
	return strcmp(setting, "handler") == 0 ? "The type of the states, which is the handler's,"
										   : psprintf("Setting \"%s\"", setting);
}

/*
 * What can be done about the differences. A setting that cannot be altered is no reason to drop a type that has states:
 * that comes last.
 */
static const char *
remedies(const Difference *difference)
{
	StringInfoData hint;

	initStringInfo(&hint);
	if (difference->handler != NULL)
		appendStringInfo(&hint,
						 "The type is suspended: once its code is mended, shard_alter(%s, "
						 "'handler', %s) lets the type go on with the settings that it has.",
						 difference->type, difference->handler);
	else if (difference->stopped)
		appendStringInfoString(&hint,
							   "The type is stopped: shard_start() with the settings that it "
							   "has, which shard_types shows, lets it go on as it is.");
	if (difference->remedy.len > 0)
		appendStringInfo(&hint, "%s%s %s.", hint.len > 0 ? " " : "",
						 difference->stopped ? "To change them, use" : "Use",
						 difference->remedy.data);
	if (difference->fixed)
		appendStringInfo(
			&hint,
			"%s%s cannot be altered: call shard_start() with the value that "
			"the type has, or use another name for a type with another value. "
			"shard_drop_type(%s) removes this type, with force => true also its states.%s",
			hint.len > 0 ? " " : "", fixed_name(difference->setting), difference->type,
			is_of_shards(difference->setting)
				? " shard_reshard() gives a type that is stopped everywhere other shards."
				: "");
	return hint.data;
}

/* Error that names what differs and says what to do about it. */
static void
refuse_differences(const char *name, const Difference *difference)
{
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("entity type \"%s\" exists with another \"%s\"", name, difference->setting),
			 errdetail_internal("%s", difference->detail.data),
			 errhint("%s", remedies(difference))));
}

/*
 * The type's state table was dropped. A caller that starts types again and again, as a deployment does, has not said by
 * that that the entities shall go on from nothing with the messages that wait; a caller that stops the type before has.
 */
static void
refuse_lost_table(const char *name)
{
	const char *literal = quote_literal_cstr(name);

	ereport(
		ERROR,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg("the state table of entity type \"%s\" was dropped", name),
		 errdetail("The states of this node's entities went with it; messages wait."),
		 errhint(
			 "To have the table created again, empty, stop the type first: SELECT "
			 "shard_stop_type(%s), then shard_start() again, and in the same transaction put back "
			 "states of a backup.",
			 literal)));
}

/*
 * The type runs here, and the cluster has another structure of its states, as a member said that does not host the type
 * any more, or that differs: the control worker says again what it is here. Errors: 54000, states that are too large to
 * be described.
 */
static void
correct_cluster(const ShardType *type)
{
	ShardClusterType known;

	if (shard_admin_had_others() && shard_cluster_map_type(type->name, &known) &&
		known.type_id == type->type_id &&
		strcmp(known.record.state, shard_state_structure(type->state_type)) != 0)
		shard_board_types_announce();
}

/*
 * The type is there: nothing to do here if it is the same and runs. A stopped one is resumed, with another table if its own
 * was dropped, and one whose handler was created again is bound to that.
 */
static void
start_again(const ShardType *type, const ShardAdminType *wanted)
{
	ShardAdminType stored = {0};
	Difference difference = {0};

	if (!shard_admin_row_read(wanted->name, &stored))
		elog(ERROR, "entity type \"%s\" has no row", wanted->name);
	stored.name = wanted->name;
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(type->owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the owner of entity type \"%s\" does not exist any more", stored.name),
				 errdetail("It was role %u.", type->owner),
				 errhint("Give the type to another role, SELECT shard_alter(%s, 'owner', '...'), "
						 "then start it.",
						 quote_literal_cstr(stored.name))));
	shard_reshard_end_or_refuse(&stored);

	difference.type = quote_literal_cstr(wanted->name);
	difference.stopped = type->mode == SHARD_MODE_STOPPED;
	initStringInfo(&difference.detail);
	initStringInfo(&difference.remedy);
	if (stored.handler.function != wanted->handler.function)
		compare(&difference, "handler", stored.handler.name, wanted->handler.name,
				stored.handler.state_type != wanted->handler.state_type &&
					shard_admin_has_state_type(&stored));
	else if (stored.problem)
		difference.handler = quote_literal_cstr(stored.handler.name);
	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
		compare(&difference, shard_settings_name((ShardSettingId) id), stored.settings.value[id],
				wanted->settings.value[id], shard_settings_is_fixed((ShardSettingId) id));
	if (difference.setting != NULL)
		refuse_differences(wanted->name, &difference);
	if (type->owner != type->runs_as)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("entity type \"%s\" does not run before its new owner has confirmed it",
						wanted->name),
				 errhint("Call shard_alter(%s, 'owner', ...) with its name.",
						 quote_literal_cstr(wanted->name))));

	if (!shard_admin_table_exists(&stored))
	{
		if (strcmp(stored.mode, "stopped") != 0)
			refuse_lost_table(wanted->name);
		shard_admin_table_check(wanted);
		stored.owner = type->owner;
		stored.handler = wanted->handler;
		shard_admin_table_create_again(&stored, "States of a backup can be put into it in this "
												"transaction. Roll back if it is not wanted.");
	}
	else if (!shard_admin_table_watch(&stored) && strcmp(stored.mode, "hosting") == 0 &&
			 !stored.problem && stored.handler.function == wanted->handler.function &&
			 memcmp(stored.extractor, wanted->extractor, sizeof(stored.extractor)) == 0)
	{
		correct_cluster(type);
		return;
	}
	else
		shard_admin_bind(&stored, &wanted->handler);
	stored.mode = "hosting";
	memcpy(stored.extractor, wanted->extractor, sizeof(stored.extractor));
	shard_admin_row_update(&stored);
}

/*
 * Whether the cluster has, or had, other members, as far as this database knows durably: what they called types is in
 * the map, whichever members are left, and whether or not the control worker runs.
 */
bool
shard_admin_had_others(void)
{
	ShardSecurity security = {0};
	int count;

	shard_security_begin_system(&security);
	(void) shard_directory_refresh();
	shard_security_end(&security);
	(void) shard_directory_list(&count);
	return count > 1;
}

/*
 * No coordinator speaks with a node that takes no part in its cluster: the type would wait for one in vain.
 */
static void
check_part(const char *name)
{
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (view.downed)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot start entity type \"%s\": this node was downed", name),
				 errdetail("Until it is back no coordinator speaks with it, so the type gets no "
						   "number."),
				 errhint("Restart its server, or call shard_admit(%d, %d) here, then start the "
						 "type.",
						 view.node, view.inc_no + 1)));
	if (view.fenced)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot start entity type \"%s\": this node is fenced", name),
				 errdetail("This node takes no part in its cluster any more; its data can only "
						   "be read."),
				 errhint("See shard_health() here, and start the type at a member.")));
}

/*
 * The number of a new type: a node that was always alone takes one of its own, which its control worker has
 * registered; in a cluster with others it is asked for. 0: one of its own. What waits here for a proxy's
 * entities has its number, so a proxy keeps it. Errors: 54000, states that are too large to be described.
 */
static int32
number_in_cluster(const ShardAdminType *type, const ShardType *proxy)
{
	ShardTypeRecord wanted = {0};
	ShardCommand command = {.kind = SHARD_COMMAND_TYPE, .type = &wanted};
	char *structure = shard_state_structure(type->handler.state_type);
	int32 number;

	if (!shard_admin_had_others())
		return proxy != NULL ? proxy->type_id : 0;
	check_part(type->name);
	shard_settings_to_record(type->name, &type->settings, &wanted);
	command.again = shard_board_types_changing();
	wanted.state = structure;
	wanted.owner = GetUserNameFromId(type->owner, false);
	number = (int32) shard_control_command(&command, NUMBER_TIMEOUT);
	if (proxy != NULL && number != proxy->type_id)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("entity type \"%s\" is a proxy of another one of that name", type->name),
				 errdetail("That one was dropped in the cluster meanwhile."),
				 errhint("Drop it here with shard_drop_type(), too, and start it again.")));
	return number;
}

/* What an administrator allows. */
static void
check_limits(const ShardAdminType *type, bool is_new)
{
	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
		shard_admin_limit_setting(type, (ShardSettingId) id);
	if (is_new)
		shard_admin_limit_types(type->name, type->owner,
								shard_settings_number(&type->settings,
													  SHARD_SETTING_NUMBER_OF_SHARDS));
}

/*
 * All roles may execute a function unless its owner revokes that, so all may send to a type, too; a caller that starts
 * one is told as long as that is so.
 */
static void
tell_if_open(const ShardAdminType *type)
{
	Oid handler = type->handler.function;

	if (shard_proc_aclcheck(handler, ACL_ID_PUBLIC, ACL_EXECUTE) != ACLCHECK_OK ||
		shard_namespace_aclcheck(get_func_namespace(handler), ACL_ID_PUBLIC, ACL_USAGE) !=
			ACLCHECK_OK)
		return;
	ereport(
		NOTICE,
		(errmsg("any role may send to entity type \"%s\"", type->name),
		 errdetail(
			 "PUBLIC may execute the handler of the type, which is the default for functions."),
		 errhint("To choose which roles may send: REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC, then "
				 "GRANT it to them.",
				 type->handler.name)));
}

/*
 * shard_start(type_name text, handler text, settings…): makes an entity type and its state table, makes a proxy a host,
 * or resumes it. For roles that have CREATE on the database and EXECUTE on the functions. The caller becomes the type's
 * owner, unless the cluster has the type: then the owner there does, of which the caller has to be a member (C18).
 */
Datum
shard_start(PG_FUNCTION_ARGS)
{
	ShardAdminType wanted = {0};
	ShardSecurity security = {0};
	ShardType *type;
	bool is_new; /* here: there is no state table */

	shard_admin_begin("shard_start()");
	read_arguments(fcinfo, &wanted);

	type = shard_admin_lock_start(wanted.name);
	is_new = type == NULL || type->mode == SHARD_MODE_PROXY;
	if (is_new)
	{
		shard_admin_check_create(wanted.name);
		shard_admin_table_check(&wanted);
		wanted.owner = shard_admin_owner(wanted.name, "start entity type");
		shard_admin_check_functions(&wanted);
		check_limits(&wanted, type == NULL);
		wanted.type_id = number_in_cluster(&wanted, type);
	}
	shard_security_open_system(&security);
	if (is_new)
	{
		shard_admin_table_create(&wanted);
		if (type == NULL)
			shard_admin_row_insert(&wanted);
		else
			shard_admin_row_replace(&wanted);
	}
	else
		start_again(type, &wanted);
	shard_security_close_system(&security);
	if (is_new)
		tell_if_open(&wanted);
	PG_RETURN_VOID();
}

/*
 * shard_shard_id(type_name text, entity_id text) RETURNS int: the shard of an entity. For roles that may send to the
 * type, because it may run an extractor.
 */
Datum
shard_shard_id(PG_FUNCTION_ARGS)
{
	ShardType *type = shard_registry_get(shard_command_text(fcinfo, 0, "type name"));
	text *id = PG_GETARG_TEXT_PP(1);

	shard_security_check_send(type);
	PG_RETURN_INT32(shard_api_shard(type, VARDATA_ANY(id), (int) VARSIZE_ANY_EXHDR(id)));
}
