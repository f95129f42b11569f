/*
 * registry/registry_row.c
 *		Rows of table shard.type: as a ShardType, and why its messages wait.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "registry/catalog.h"
#include "registry/registry_private.h"
#include "registry/security.h"
#include "registry/settings.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Columns of shard.type, as in install/10-tables.sql. */
enum
{
	COLUMN_TYPE_ID,
	COLUMN_TYPE_NAME,
	COLUMN_OWNER,
	COLUMN_HANDLER,
	COLUMN_HANDLER_OID,
	COLUMN_BATCH,
	COLUMN_STATE_TYPE,
	COLUMN_STATE_TABLE,
	COLUMN_MODE,
	COLUMN_NUMBER_OF_SHARDS,
	COLUMN_HASH,
	COLUMN_SEARCH_PATH,
	COLUMN_SETTINGS,
	COLUMN_EXTRACTORS,
	COLUMN_PROBLEM,
	COLUMN_PROBLEM_CODE,
	COLUMN_CLUSTER_OWNER,
	COLUMN_COUNT
};

/* The owner of a table; fallback if it was dropped. */
static Oid
table_owner(Oid relid, Oid fallback)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid owner = fallback;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

/* An SQLSTATE that this file has stored. */
static int
read_sql_state(Datum value)
{
	char *code = TextDatumGetCString(value);

	return strlen(code) == 5 ? MAKE_SQLSTATE(code[0], code[1], code[2], code[3], code[4]) : 0;
}

/* A mode by its name. */
static ShardTypeMode
parse_mode(const char *mode)
{
	if (strcmp(mode, "hosting") == 0)
		return SHARD_MODE_HOSTING;
	if (strcmp(mode, "proxy") == 0)
		return SHARD_MODE_PROXY;
	if (strcmp(mode, "dropped") == 0)
		return SHARD_MODE_DROPPED;
	return SHARD_MODE_STOPPED;
}

/* A message that is a setting. */
static Jsonb *
read_message(const char *text)
{
	return text == NULL ? NULL
						: DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
}

/* The settings of entities that start without a message of their own. */
static void
apply_start_settings(ShardType *type, const ShardSettings *settings)
{
	type->remember = shard_settings_is_on(settings, SHARD_SETTING_REMEMBER_ENTITIES);
	type->recovers_slowly =
		strcmp(settings->value[SHARD_SETTING_ENTITY_RECOVERY_STRATEGY], "constant") == 0;
	type->recovery_number =
		(int) shard_settings_number(settings, SHARD_SETTING_ENTITY_RECOVERY_NUMBER);
	type->recovery_frequency =
		shard_settings_number(settings, SHARD_SETTING_ENTITY_RECOVERY_FREQUENCY);
	type->start_message = read_message(settings->value[SHARD_SETTING_START_MESSAGE]);
	type->starts = type->remember || type->start_message != NULL;
	type->restart_backoff = shard_settings_number(settings, SHARD_SETTING_ENTITY_RESTART_BACKOFF);
}

/* Fills in the fields that come from the stored settings. */
static void
apply_settings(ShardType *type, const ShardSettings *settings)
{
	shard_settings_passivation(settings, &type->passivation);
	type->own_worker = strcmp(settings->value[SHARD_SETTING_WORKER], "own") == 0;
	type->replicas = (int) shard_settings_number(settings, SHARD_SETTING_REPLICAS);
	type->min_insync = (int) shard_settings_number(settings, SHARD_SETTING_MIN_INSYNC);
	type->stops_on_too_few = strcmp(settings->value[SHARD_SETTING_ON_TOO_FEW], "stop") == 0;
	type->stop_message = read_message(settings->value[SHARD_SETTING_STOP_MESSAGE]);
	type->max_attempts = (int) shard_settings_number(settings, SHARD_SETTING_MAX_ATTEMPTS);
	type->retry_backoff = shard_settings_number(settings, SHARD_SETTING_RETRY_BACKOFF);
	type->max_retry_backoff = shard_settings_number(settings, SHARD_SETTING_MAX_RETRY_BACKOFF);
	type->handler_timeout = shard_settings_number(settings, SHARD_SETTING_HANDLER_TIMEOUT);
	type->max_message_size = shard_settings_number(settings, SHARD_SETTING_MAX_MESSAGE_SIZE);
	type->buffer_size = shard_settings_number(settings, SHARD_SETTING_BUFFER_SIZE);
	type->max_dead_letters = shard_settings_number(settings, SHARD_SETTING_MAX_DEAD_LETTERS);
	type->max_dead_letters_size =
		shard_settings_number(settings, SHARD_SETTING_MAX_DEAD_LETTERS_SIZE);
	type->drop_oldest_dead_letters =
		strcmp(settings->value[SHARD_SETTING_DEAD_LETTERS_FULL], "drop_oldest") == 0;
	type->ordered_window = (int) shard_settings_number(settings, SHARD_SETTING_ORDERED_WINDOW);
	type->ordered_timeout = shard_settings_number(settings, SHARD_SETTING_ORDERED_TIMEOUT);
	type->has_ordered_from = settings->value[SHARD_SETTING_ORDERED_FROM] != NULL;
	if (type->has_ordered_from)
		type->ordered_from = shard_settings_number(settings, SHARD_SETTING_ORDERED_FROM);
	apply_start_settings(type, settings);
	type->supervision = shard_entity_decision(settings->value[SHARD_SETTING_SUPERVISION]);
	type->max_restarts = settings->value[SHARD_SETTING_MAX_RESTARTS] == NULL
							 ? -1
							 : (int) shard_settings_number(settings, SHARD_SETTING_MAX_RESTARTS);
	type->restart_window = shard_settings_number(settings, SHARD_SETTING_RESTART_WINDOW);
	type->shard_failure_backoff =
		shard_settings_number(settings, SHARD_SETTING_SHARD_FAILURE_BACKOFF);
}

/* Finds out what the names of the type's extractors mean today. */
static void
find_extractors(ShardType *type, const ShardSettings *settings, const Oid *bound)
{
	Oid *field[SHARD_EXTRACTORS] = {[SHARD_EXTRACTOR_ENTITY_ID] = &type->entity_id_extractor,
									[SHARD_EXTRACTOR_MESSAGE] = &type->message_extractor,
									[SHARD_EXTRACTOR_SHARD_ID] = &type->shard_id_extractor};

	for (int i = 0; i <= SHARD_EXTRACTOR_SHARD_ID; i++)
	{
		const char *name = settings->value[SHARD_SETTING_ENTITY_ID_EXTRACTOR + i];

		if (name == NULL)
			continue;
		*field[i] = shard_routine_find_extractor((ShardExtractor) i, name, bound[i], type->owner);
		if (!OidIsValid(*field[i]))
			type->missing_extractor = pstrdup(name);
	}
}

/* The same for a function that senders can do without: its type waits while it is missing. */
static void
find_at_home(const ShardType *type, const char *setting, ShardExtractor which, const Oid *bound,
			 char **name, Oid *function)
{
	if (setting == NULL)
		return;
	*name = pstrdup(setting);
	*function = shard_routine_find_extractor(which, setting, bound[which], type->owner);
}

/* Copies the extractors' OIDs out of the row's vector, which is shorter if of an older version. */
static void
read_extractors(Datum value, Oid bound[SHARD_EXTRACTORS])
{
	oidvector *vector = (oidvector *) DatumGetPointer(value);

	if (vector->dim1 > SHARD_EXTRACTORS)
		elog(ERROR, "unexpected number of extractors in shard.type: %d", vector->dim1);
	memset(bound, 0, SHARD_EXTRACTORS * sizeof(Oid));
	memcpy(bound, vector->values, vector->dim1 * sizeof(Oid));
}

/* Fills in what decides which code runs, and under which role: owner, handler, state. */
static void
read_identity(const Datum *value, ShardType *type, Oid handler)
{
	type->type_id = DatumGetInt32(value[COLUMN_TYPE_ID]);
	text_to_cstring_buffer(DatumGetTextPP(value[COLUMN_TYPE_NAME]), type->name, NAMEDATALEN);
	type->state_table = DatumGetObjectId(value[COLUMN_STATE_TABLE]);
	type->runs_as = DatumGetObjectId(value[COLUMN_OWNER]);
	type->owner = table_owner(type->state_table, type->runs_as);
	type->batch = DatumGetBool(value[COLUMN_BATCH]);
	type->state_type = DatumGetObjectId(value[COLUMN_STATE_TYPE]);
	type->composite = get_typtype(type->state_type) == TYPTYPE_COMPOSITE;
	type->handler_name = TextDatumGetCString(value[COLUMN_HANDLER]);
	/* A proxy may have none: then only its owner may send. */
	if (type->handler_name[0] != '\0')
		type->handler = shard_routine_find_handler(type->handler_name, handler, type->owner,
												   type->state_type, type->batch);
}

/* Which row, and which function, it is: crashes are those of code as it was (crash.c). */
static void
read_versions(HeapTuple row, ShardType *type)
{
	HeapTuple handler = SearchSysCache1(PROCOID, ObjectIdGetDatum(type->handler));

	type->row_version = HeapTupleHeaderGetRawXmin(row->t_data);
	if (!HeapTupleIsValid(handler))
		return;
	type->handler_version = HeapTupleHeaderGetRawXmin(handler->t_data);
	ReleaseSysCache(handler);
}

/*
 * Reads the path that the type's code runs with. One that an older version let in, longer than any may be, is not even
 * looked at: all processes would keep it.
 */
static void
read_path(Datum value, ShardType *type)
{
	int64 bytes = (int64) toast_raw_datum_size(value) - VARHDRSZ;

	if (bytes <= SHARD_SETTING_MAX_BYTES)
	{
		type->search_path = shard_security_path(TextDatumGetCString(value));
		return;
	}
	type->path_too_long = bytes;
	type->search_path = "pg_temp";
}

void
shard_registry_row_read(HeapTuple tuple, TupleDesc desc, ShardType *type,
						Oid bound[1 + SHARD_EXTRACTORS])
{
	Datum *value = palloc(desc->natts * sizeof(Datum));
	bool *isnull = palloc(desc->natts * sizeof(bool));
	ShardSettings settings;

	if (desc->natts < COLUMN_COUNT)
		elog(ERROR, "unexpected number of columns in shard.type: %d", desc->natts);
	heap_deform_tuple(tuple, desc, value, isnull);

	bound[0] = DatumGetObjectId(value[COLUMN_HANDLER_OID]);
	read_extractors(value[COLUMN_EXTRACTORS], bound + 1);
	read_identity(value, type, bound[0]);
	read_versions(tuple, type);

	type->exists = true;
	type->mode = parse_mode(TextDatumGetCString(value[COLUMN_MODE]));
	if (!isnull[COLUMN_PROBLEM])
		type->problem = TextDatumGetCString(value[COLUMN_PROBLEM]);
	if (!isnull[COLUMN_PROBLEM_CODE])
		type->problem_code = read_sql_state(value[COLUMN_PROBLEM_CODE]);
	if (!isnull[COLUMN_CLUSTER_OWNER])
		type->cluster_owner = TextDatumGetCString(value[COLUMN_CLUSTER_OWNER]);
	type->number_of_shards = DatumGetInt32(value[COLUMN_NUMBER_OF_SHARDS]);
	type->hash = strcmp(TextDatumGetCString(value[COLUMN_HASH]), "java") == 0 ? SHARD_HASH_JAVA
																			  : SHARD_HASH_MURMUR2;
	read_path(value[COLUMN_SEARCH_PATH], type);

	shard_settings_from_jsonb(&settings, DatumGetJsonbP(value[COLUMN_SETTINGS]));
	apply_settings(type, &settings);
	if (type->mode == SHARD_MODE_DROPPED)
		return;
	find_extractors(type, &settings, bound + 1);
	find_at_home(type, settings.value[SHARD_SETTING_ORDERED_BY], SHARD_EXTRACTOR_ORDERED_BY,
				 bound + 1, &type->ordered_by_name, &type->ordered_by);
	find_at_home(type, settings.value[SHARD_SETTING_DECIDER], SHARD_EXTRACTOR_DECIDER, bound + 1,
				 &type->decider_name, &type->decider);
}

/*
 * Stores why messages of a type wait, unless it is known already. The row is left alone if a user's transaction has it
 * locked, since the callers must not wait for users: the caller finds type->problem unchanged and may try again later.
 */
void
shard_registry_set_problem(ShardType *type, const char *sqlstate, const char *problem)
{
	static ShardStatement update = {
		"WITH free AS (SELECT type_id FROM shard.type WHERE type_id = $1 FOR UPDATE SKIP LOCKED)"
		" UPDATE shard.type t SET problem_code = $2, problem = $3 FROM free"
		" WHERE t.type_id = free.type_id",
		3,
		{INT4OID, TEXTOID, TEXTOID}};
	ShardSecurity security = {0};
	ShardArguments arguments = {0};

	if (problem == NULL ? type->problem == NULL
						: type->problem != NULL && strcmp(type->problem, problem) == 0)
		return;

	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_add_string(&arguments, problem == NULL ? NULL : sqlstate);
	shard_statement_add_string(&arguments, problem);
	SPI_connect();
	shard_security_begin_system(&security);
	shard_statement_run(&update, &arguments, SPI_OK_UPDATE);
	if (SPI_processed > 0)
		CacheInvalidateRelcacheByRelid(shard_catalog_get()->type);
	shard_security_end(&security);
	SPI_finish();
}
