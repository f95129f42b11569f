/*
 * sql/type/admin_row.c
 *		Rows of table shard.type, for the functions that change them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

#include "sql/type/admin.h"
#include "registry/catalog.h"
#include "core/map/type_number.h"
#include "base/guc.h"
#include "shared/board.h"
#include "registry/registry.h"
#include "registry/registry_dropped.h"
#include "registry/statement.h"

/* Tells all processes, this one too, that a type has changed. */
static void
tell_everybody(void)
{
	CacheInvalidateRelcacheByRelid(shard_catalog_get()->type);
	shard_board_types_change();
}

/* Column of the first row of the last result; null is an internal error. */
static Datum
result_column(int number)
{
	bool isnull;
	Datum value = shard_statement_column(0, number, &isnull);

	if (isnull)
		elog(ERROR, "unexpected null in shard.type");
	return value;
}

/* A text column, in memory that outlives SPI. */
static char *
result_text(int number)
{
	text *value = DatumGetTextPP(result_column(number));
	char *result = SPI_palloc(VARSIZE_ANY_EXHDR(value) + 1);

	text_to_cstring_buffer(value, result, VARSIZE_ANY_EXHDR(value) + 1);
	return result;
}

/* Settings as strings in memory that outlives SPI. */
static void
result_settings(ShardSettings *settings)
{
	shard_settings_from_jsonb(settings, DatumGetJsonbP(result_column(10)));
	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
		if (settings->value[id] != NULL)
		{
			char *copy = SPI_palloc(strlen(settings->value[id]) + 1);

			settings->value[id] = strcpy(copy, settings->value[id]);
		}
	settings->value[SHARD_SETTING_NUMBER_OF_SHARDS] = result_text(7);
	settings->value[SHARD_SETTING_HASH] = result_text(8);
}

/*
 * The row of a type, locked. Owner and name are the caller's to fill in,
 * because the owner is that of the state table.
 */
bool
shard_admin_row_read(const char *name, ShardAdminType *type)
{
	const ShardStatement look = {
		"SELECT type_id, handler, handler_oid, batch, state_type::oid, state_table::oid,"
		"  number_of_shards::text, hash, search_path, settings, extractors, mode,"
		"  problem IS NOT NULL"
		" FROM shard.type WHERE type_name OPERATOR(pg_catalog.=) $1 FOR UPDATE",
		1,
		{TEXTOID}};
	ShardArguments arguments = {0};
	oidvector *extractors;

	shard_statement_add_string(&arguments, name);
	shard_statement_once(&look, &arguments, SPI_OK_SELECT);
	if (SPI_processed == 0)
		return false;

	type->type_id = DatumGetInt32(result_column(1));
	type->handler.name = result_text(2);
	type->handler.function = DatumGetObjectId(result_column(3));
	type->handler.batch = DatumGetBool(result_column(4));
	type->handler.state_type = DatumGetObjectId(result_column(5));
	type->handler.composite = get_typtype(type->handler.state_type) == TYPTYPE_COMPOSITE;
	type->state_table = DatumGetObjectId(result_column(6));
	type->search_path = result_text(9);
	result_settings(&type->settings);
	extractors = (oidvector *) DatumGetPointer(result_column(11));
	memcpy(type->extractor, extractors->values,
		   Min(extractors->dim1, SHARD_EXTRACTORS) * sizeof(Oid));
	type->mode = result_text(12);
	type->problem = DatumGetBool(result_column(13));
	return true;
}

/* Parameters 1 to 7 of insert and update: what both write. */
static void
add_common(ShardArguments *arguments, const ShardAdminType *type)
{
	shard_statement_add_string(arguments, type->handler.name);
	shard_statement_add(arguments, ObjectIdGetDatum(type->handler.function), false);
	shard_statement_add(arguments, BoolGetDatum(type->handler.batch), false);
	shard_statement_add_string(arguments, type->mode);
	shard_statement_add_string(arguments, type->search_path);
	shard_statement_add(arguments, JsonbPGetDatum(shard_settings_to_jsonb(&type->settings)), false);
	shard_statement_add(arguments,
						PointerGetDatum(buildoidvector(type->extractor, SHARD_EXTRACTORS)), false);
}

/* The types that have numbers here. */
typedef struct Numbered
{
	ShardNumberedType *types;
	int count;
} Numbered;

static void
add_numbered(ShardType *type, void *arg)
{
	Numbered *numbered = arg;

	numbered->types =
		numbered->types == NULL
			? palloc(sizeof(ShardNumberedType))
			: repalloc(numbered->types, (numbered->count + 1) * sizeof(ShardNumberedType));
	numbered->types[numbered->count++] =
		(ShardNumberedType){type->type_id,
							{psprintf("%u", type->owner),
							 type->own_worker ? pstrdup(type->name) : NULL}};
}

static int
compare_names(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

/* The names of the types that have workers of their own. */
static char *
names_of_own(const Numbered *numbered)
{
	List *own = NIL;
	ListCell *cell;
	StringInfoData names;

	for (int i = 0; i < numbered->count; i++)
		if (numbered->types[i].party.alone != NULL)
			own = lappend(own, unconstify(char *, numbered->types[i].party.alone));
	list_sort(own, compare_names);
	initStringInfo(&names);
	foreach (cell, own)
		appendStringInfo(&names, "%s\"%s\"", names.len == 0 ? "" : ", ", (char *) lfirst(cell));
	return names.data;
}

/*
 * The group of lanes for a new type. In a cluster with others its coordinator says that.
 */
static int
group_of(const ShardAdminType *type, int32 last)
{
	Numbered numbered = {0};
	ShardTypeParty party;
	char *own;
	int group;

	shard_registry_each(add_numbered, &numbered);
	own = names_of_own(&numbered);
	shard_registry_each_dropped(add_numbered, &numbered);
	party.owner = psprintf("%u", type->owner);
	party.alone =
		strcmp(type->settings.value[SHARD_SETTING_WORKER], "own") == 0 ? type->name : NULL;
	group = shard_type_number_group(numbered.types, numbered.count, party, last,
									shard_owners_may_share_workers);
	if (group < 0)
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg(SHARD_TYPE_NUMBER_ERROR, type->name, SHARD_TYPE_NUMBER_WHY),
						errdetail(SHARD_TYPE_NUMBER_DETAIL, SHARD_GROUPS),
						party.alone && own[0] != '\0' ? errhint(SHARD_TYPE_NUMBER_HINT_OWN, own)
													  : errhint(SHARD_TYPE_NUMBER_HINT)));
	return group;
}

/*
 * A number that no type here has had, in a group of lanes that fits its owner. The sequence does not know those that a
 * cluster gave, and has to know those that were left out: a number is given once. No other session numbers a type now
 * (shard_admin_lock_list).
 */
static int32
next_number(const ShardAdminType *type)
{
	const ShardStatement draw = {
		"SELECT GREATEST(pg_catalog.nextval(pg_catalog.pg_get_serial_sequence("
		"'shard.type', 'type_id'))::int4, "
		"(SELECT pg_catalog.max(type_id) OPERATOR(pg_catalog.+) 1 FROM shard.type))"};
	const ShardStatement leave_out = {
		"SELECT pg_catalog.setval("
		"pg_catalog.pg_get_serial_sequence('shard.type', 'type_id'), $1)",
		1,
		{INT4OID}};
	ShardArguments arguments = {0};
	int32 next;
	int32 number;

	shard_statement_once(&draw, NULL, SPI_OK_SELECT);
	next = DatumGetInt32(result_column(1));
	number = shard_type_number_next(next - 1, group_of(type, next - 1));
	if (number == 0)
		elog(ERROR, "could not number an entity type");
	shard_statement_add(&arguments, Int32GetDatum(number), false);
	shard_statement_once(&leave_out, &arguments, SPI_OK_SELECT);
	return number;
}

/* Runs a command for the rows of one type. */
static void
delete_rows(const ShardAdminType *type, const char *command)
{
	ShardStatement statement = {command, 1, {INT4OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_once(&statement, &arguments, SPI_OK_DELETE);
}

/*
 * A number that the cluster gives to a type may be another one's here, which was here before the node joined and has got
 * none in the cluster yet.
 */
static void
check_number(const ShardAdminType *type)
{
	const ShardStatement look = {"SELECT type_name FROM shard.type "
								 "WHERE type_id OPERATOR(pg_catalog.=) $1",
								 1,
								 {INT4OID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_once(&look, &arguments, SPI_OK_SELECT);
	if (SPI_processed > 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot start entity type \"%s\" yet", type->name),
			 errdetail("Entity type \"%s\", which was here before this node joined the cluster, "
					   "has its number until the cluster gives it one.",
					   result_text(1)),
			 errhint("See shard_health().")));
}

/* Stores a new type. */
void
shard_admin_row_insert(ShardAdminType *type)
{
	const ShardStatement insert = {
		"INSERT INTO shard.type (handler, handler_oid, batch, mode, search_path, settings,"
		"  extractors, type_name, owner, state_type, state_table, number_of_shards, hash,"
		"  type_id)"
		" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::int4, $13, $14)",
		14,
		{TEXTOID, OIDOID, BOOLOID, TEXTOID, TEXTOID, JSONBOID, OIDVECTOROID, TEXTOID, OIDOID,
		 OIDOID, OIDOID, TEXTOID, TEXTOID, INT4OID}};
	ShardArguments arguments = {0};

	shard_registry_dropped_take(type->name, type->type_id);
	if (type->type_id == 0)
		type->type_id = next_number(type);
	else
		check_number(type);

	add_common(&arguments, type);
	shard_statement_add_string(&arguments, type->name);
	shard_statement_add(&arguments, ObjectIdGetDatum(type->owner), false);
	shard_statement_add(&arguments, ObjectIdGetDatum(type->handler.state_type), false);
	shard_statement_add(&arguments, ObjectIdGetDatum(type->state_table), false);
	shard_statement_add_string(&arguments, type->settings.value[SHARD_SETTING_NUMBER_OF_SHARDS]);
	shard_statement_add_string(&arguments, type->settings.value[SHARD_SETTING_HASH]);
	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_once(&insert, &arguments, SPI_OK_INSERT);
	tell_everybody();
}

/* Stores a type in the place of what was known by its number. */
void
shard_admin_row_replace(ShardAdminType *type)
{
	delete_rows(type, "DELETE FROM shard.type WHERE type_id OPERATOR(pg_catalog.=) $1");
	shard_admin_row_insert(type);
}

/* Stores what of a type may change. */
void
shard_admin_row_update(const ShardAdminType *type)
{
	const ShardStatement update = {
		"UPDATE shard.type SET handler = $1, handler_oid = $2, batch = $3, mode = $4,"
		"  search_path = $5, settings = $6, extractors = $7, state_type = $9,"
		"  state_table = $10, problem = NULL, problem_code = NULL"
		" WHERE type_id OPERATOR(pg_catalog.=) $8",
		10,
		{TEXTOID, OIDOID, BOOLOID, TEXTOID, TEXTOID, JSONBOID, OIDVECTOROID, INT4OID, OIDOID,
		 OIDOID}};
	ShardArguments arguments = {0};

	add_common(&arguments, type);
	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_add(&arguments, ObjectIdGetDatum(type->handler.state_type), false);
	shard_statement_add(&arguments, ObjectIdGetDatum(type->state_table), false);
	shard_statement_once(&update, &arguments, SPI_OK_UPDATE);
	tell_everybody();
}

/* Stores the owner of a type. */
void
shard_admin_row_owner(const ShardAdminType *type)
{
	const ShardStatement update = {
		"UPDATE shard.type SET owner = $2,"
		"  cluster_owner = NULLIF(cluster_owner, pg_catalog.pg_get_userbyid($2)::text)"
		" WHERE type_id OPERATOR(pg_catalog.=) $1",
		2,
		{INT4OID, OIDOID}};
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_add(&arguments, ObjectIdGetDatum(type->owner), false);
	shard_statement_once(&update, &arguments, SPI_OK_UPDATE);
	tell_everybody();
}

/* Removes a type and what is kept for its shards; its messages are the caller's to judge. */
void
shard_admin_row_delete(const ShardAdminType *type)
{
	static const char *const commands[] = {
		"DELETE FROM shard.own WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.copy WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.turn_kept WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.output WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.letter WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.shard_input WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.type WHERE type_id OPERATOR(pg_catalog.=) $1"};

	for (int i = 0; i < lengthof(commands); i++)
		delete_rows(type, commands[i]);
	tell_everybody();
}

/*
 * Stores a type in the place of another one of its name and states, which ends with all that was known of its shards.
 */
void
shard_admin_row_renumber(int32 before, const ShardAdminType *type)
{
	static const char *const commands[] = {
		"DELETE FROM shard.own WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.route WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.copy WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.turn_kept WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.output WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.letter WHERE type_id OPERATOR(pg_catalog.=) $1",
		"DELETE FROM shard.shard_input WHERE type_id OPERATOR(pg_catalog.=) $1"};
	const ShardAdminType former = {.type_id = before};
	const ShardStatement update = {
		"UPDATE shard.type SET type_id = $2, number_of_shards = $3::int4, hash = $4,"
		" former = pg_catalog.array_append(former, $1)"
		" WHERE type_id OPERATOR(pg_catalog.=) $1",
		4,
		{INT4OID, INT4OID, TEXTOID, TEXTOID}};
	ShardArguments arguments = {0};

	check_number(type);
	for (int i = 0; i < lengthof(commands); i++)
		delete_rows(&former, commands[i]);
	shard_statement_add(&arguments, Int32GetDatum(before), false);
	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_add_string(&arguments, type->settings.value[SHARD_SETTING_NUMBER_OF_SHARDS]);
	shard_statement_add_string(&arguments, type->settings.value[SHARD_SETTING_HASH]);
	shard_statement_once(&update, &arguments, SPI_OK_UPDATE);
	shard_admin_row_update(type);
}
