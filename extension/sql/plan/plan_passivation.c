/*
 * sql/plan/plan_passivation.c
 *		Which entities a passivation strategy lets go, for a list of accesses.
 *
 * The core's strategies, fed from SQL: nothing is read, nothing is changed.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "core/entity/passivation.h"
#include "base/duration.h"
#include "base/plan_json.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_plan_passivation);

/* An entity that an access has named. */
typedef struct PlanEntity
{
	ShardPassivationEntity core;
	char *name; /* as in the result */
} PlanEntity;

typedef struct NameEntry
{
	char *name; /* shard/id */
	PlanEntity *entity;
	char status;
} NameEntry;

#define SH_PREFIX names
#define SH_ELEMENT_TYPE NameEntry
#define SH_KEY_TYPE char *
#define SH_KEY name
#define SH_HASH_KEY(table, key) hash_bytes((const unsigned char *) (key), strlen(key))
#define SH_EQUAL(table, a, b) (strcmp(a, b) == 0)
#define SH_SCOPE static inline
#define SH_DEFINE
#define SH_DECLARE
#include "lib/simplehash.h"

typedef struct ShardEntry
{
	int32 number;
	ShardPassivationShard *shard; /* NULL: not active */
} ShardEntry;

/* The accesses so far. */
typedef struct Rehearsal
{
	ShardPassivation *region;
	MemoryContext memory; /* of what outlives a step */
	names_hash *entities;
	HTAB *shards;
	int64 now;
	int step;
	ReturnSetInfo *result;
} Rehearsal;

/* One access, taken apart. */
typedef struct Access
{
	const char *text; /* as it was given */
	int64 at;		  /* -1: not given */
	int32 shard;
	char *id; /* NULL: none */
} Access;

/* ---- settings --------------------------------------------------------------------------------- */

typedef enum SettingKind
{
	SETTING_INT,
	SETTING_PROPORTION,
	SETTING_LEVELS, /* proportions */
	SETTING_DURATION,
	SETTING_FILTER
} SettingKind;

typedef struct Setting
{
	const char *name;
	const char *strategies; /* each with a comma behind it */
	Size offset;
	SettingKind kind;
	int least; /* of SETTING_INT */
	int most;
} Setting;

#define FIELD(name) offsetof(ShardPassivationSettings, name)
#define LIMITED "lru,slru,mru,lfu,lfu_aging,composite,"

static const Setting setting_table[] = {
	{"active_entity_limit", LIMITED, FIELD(active_entity_limit), SETTING_INT, 1, PG_INT32_MAX},
	{"passivate_idle_after", "idle," LIMITED, FIELD(idle_after), SETTING_DURATION},
	{"levels", "slru,composite,", FIELD(levels), SETTING_INT, 1, SHARD_PASSIVATION_MAX_LEVELS},
	{"proportions", "slru,composite,", FIELD(proportion), SETTING_LEVELS},
	{"window_proportion", "composite,", FIELD(window_proportion), SETTING_PROPORTION},
	{"admission_filter", "composite,", FIELD(filter), SETTING_FILTER},
	{"frequency_sketch_depth", "composite,", FIELD(sketch_depth), SETTING_INT, 1, 8},
	{"frequency_sketch_counter_bits", "composite,", FIELD(sketch_counter_bits), SETTING_INT, 2, 32},
	{"frequency_sketch_width_multiplier", "composite,", FIELD(sketch_width_multiplier), SETTING_INT,
	 1, 1000},
	{"frequency_sketch_reset_multiplier", "composite,", FIELD(sketch_reset_multiplier), SETTING_INT,
	 1, 1000000},
};

/* A number from 0 to 1, to the millionth. */
static int
read_proportion(const ShardPlanValue *value)
{
	return (int) rint(shard_plan_json_double(value, 0, 1) * SHARD_PASSIVATION_WHOLE);
}

/* Proportions of the levels, the lowest first; -1 behind the last one. */
static void
read_levels(const ShardPlanValue *value, int *proportion)
{
	ShardPlanValue *elements;
	int n = shard_plan_json_elements(value, &elements);

	if (n < 1 || n > SHARD_PASSIVATION_MAX_LEVELS)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid value in %s", shard_plan_json_path(value)),
						errdetail("It must have 1 to %d elements.", SHARD_PASSIVATION_MAX_LEVELS)));
	for (int level = 0; level < SHARD_PASSIVATION_MAX_LEVELS; level++)
		proportion[level] = level < n ? read_proportion(&elements[level]) : -1;
}

/* Milliseconds or the text of an interval, as microseconds. */
static int64
read_duration(const ShardPlanValue *value)
{
	int64 duration;

	if (value->json.type != jbvString)
		return (int64) rint(shard_plan_json_double(value, 0, 1e12) * 1000);
	duration = shard_duration_from_interval(DatumGetIntervalP(
		DirectFunctionCall3(interval_in, CStringGetDatum(shard_plan_json_text(value)),
							ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1))));
	if (duration < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value in %s", shard_plan_json_path(value)),
				 errdetail("It must be a number of milliseconds, or the text of an interval, "
						   "that is not negative.")));
	return duration;
}

/* Take over the value of a setting. */
static void
read_setting(ShardPassivationSettings *settings, const Setting *setting,
			 const ShardPlanValue *value)
{
	static const char *const filters[] = {"none", "frequency_sketch", NULL};
	char *place = (char *) settings + setting->offset;

	switch (setting->kind)
	{
		case SETTING_INT:
			*(int *) place = shard_plan_json_int(value, setting->least, setting->most);
			break;
		case SETTING_PROPORTION:
			*(int *) place = read_proportion(value);
			break;
		case SETTING_LEVELS:
			read_levels(value, (int *) place);
			break;
		case SETTING_DURATION:
			*(int64 *) place = read_duration(value);
			break;
		case SETTING_FILTER:
			*(bool *) place = shard_plan_json_choice(value, filters) == 1;
			break;
	}
}

/* Whether a name is in a list in which each has a comma behind it. */
static bool
is_listed(const char *list, const char *name)
{
	Size length = strlen(name);

	for (const char *p = list; *p != '\0'; p = strchr(p, ',') + 1)
		if (strncmp(p, name, length) == 0 && p[length] == ',')
			return true;
	return false;
}

/* The settings that a strategy has, as part of a sentence. */
static char *
settings_of(const char *strategy)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < lengthof(setting_table); i++)
		if (is_listed(setting_table[i].strategies, strategy))
			appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "", setting_table[i].name);
	return list.len > 0 ? list.data : "none";
}

/* The setting of a name, which must be one of the strategy's. */
static const Setting *
find_setting(const char *name, const char *strategy)
{
	for (int i = 0; i < lengthof(setting_table); i++)
	{
		if (strcmp(setting_table[i].name, name) != 0)
			continue;
		if (!is_listed(setting_table[i].strategies, strategy))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("passivation strategy \"%s\" has no setting \"%s\"", strategy, name),
					 errdetail("Settings of the strategy: %s.", settings_of(strategy)),
					 errhint("Leave the setting out, or choose another strategy.")));
		return &setting_table[i];
	}
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("unknown name \"%s\" in settings", name),
					errdetail("Settings of strategy \"%s\": %s.", strategy, settings_of(strategy)),
					errhint("Correct the name of the setting, or leave it out.")));
}

/*
 * Make the number of levels and that of their proportions agree; -1 was not given. One follows from
 * the other; without proportions, levels are equal, but for two, which have a default.
 */
static void
complete_levels(ShardPassivationSettings *settings, const ShardPassivationSettings *defaults)
{
	int levels = settings->levels;
	int given = 0;

	while (given < SHARD_PASSIVATION_MAX_LEVELS && settings->proportion[given] >= 0)
		given++;
	if (levels >= 0 && given > 0 && levels != given)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("settings \"levels\" and \"proportions\" contradict each other"),
						errdetail("There are %d levels and %d proportions.", levels, given),
						errhint("Leave \"levels\" out.")));
	if (given > 0)
		settings->levels = given;
	else if (levels < 0 || levels == defaults->levels)
	{
		settings->levels = defaults->levels;
		memcpy(settings->proportion, defaults->proportion, sizeof(settings->proportion));
	}
	else
		settings->equal_levels = true;
}

/* The settings of a strategy, from JSON; null is the default. */
static ShardPassivationSettings
read_settings(const char *name, const ShardPlanValue *json)
{
	ShardPassivationStrategy strategy;
	ShardPassivationSettings defaults;
	ShardPassivationSettings settings;
	ShardPlanValue *fields;
	int n_fields;
	const char *problem;

	if (!shard_passivation_find(name, &strategy))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("passivation strategy \"%s\" does not exist", name),
						errhint("Strategies are: \"none\", \"idle\", \"lru\", \"slru\", \"mru\", "
								"\"lfu\", \"lfu_aging\", \"composite\".")));
	settings = defaults = shard_passivation_defaults(strategy);
	settings.levels = settings.proportion[0] = -1;
	n_fields = shard_plan_json_fields(json, &fields);
	for (int i = 0; i < n_fields; i++)
	{
		const Setting *setting = find_setting(fields[i].name, name);

		if (fields[i].json.type != jbvNull)
			read_setting(&settings, setting, &fields[i]);
	}
	complete_levels(&settings, &defaults);
	problem = shard_passivation_problem(&settings);
	if (problem != NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid settings of passivation strategy \"%s\"", name),
						errdetail_internal("%s", problem),
						errhint("Correct the setting, or leave it out for the default.")));
	return settings;
}

/* ---- accesses --------------------------------------------------------------------------------- */

/* An access that cannot be understood. */
static void
refuse(const char *text, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid access \"%s\"", text),
					errdetail_internal("%s", detail),
					errhint("Write 'id', 'shard/id', 'shard/id@milliseconds', '@milliseconds', "
							"'!limit number', '!remove shard/id' or '!stop shard'.")));
}

/* Reads digits up to end, at least one; false if there is anything else, or the number is too large. */
static bool
read_digits(const char *text, const char *end, int64 most, int64 *number)
{
	*number = 0;
	if (text == end)
		return false;
	for (; text < end; text++)
	{
		if (*text < '0' || *text > '9' || *number > (most - (*text - '0')) / 10)
			return false;
		*number = *number * 10 + (*text - '0');
	}
	return true;
}

/* Cut the time off the end of an access, if there is one. */
static void
cut_time(char *text, Access *access)
{
	char *at = strrchr(text, '@');
	int64 milliseconds;

	access->at = -1;
	if (at == NULL)
		return;
	if (read_digits(at + 1, at + strlen(at), PG_INT64_MAX / 1000, &milliseconds))
	{
		access->at = milliseconds * 1000;
		*at = '\0';
	}
	else if (at == text)
		refuse(access->text, "After \"@\" there must be a number of milliseconds.");
}

/* Take "shard/id" or "id" apart; an id without a shard is one of shard 1. */
static void
read_entity(char *text, Access *access)
{
	char *slash = strchr(text, '/');
	int64 shard;

	access->shard = 1;
	access->id = text;
	if (slash != NULL && slash != text && strspn(text, "0123456789") == slash - text)
	{
		if (!read_digits(text, slash, PG_INT32_MAX, &shard))
			refuse(access->text, "The number of the shard is too large.");
		access->shard = (int32) shard;
		access->id = slash + 1;
	}
	if (*access->id == '\0')
		refuse(access->text, "The id of the entity is empty.");
}

/* The entry of a shard, which may not be active. */
static ShardEntry *
find_shard(Rehearsal *plan, int32 number)
{
	bool found;
	ShardEntry *entry = hash_search(plan->shards, &number, HASH_ENTER, &found);

	if (!found)
		entry->shard = NULL;
	return entry;
}

/* The entity that an access names; it is made if no access has named it before. */
static PlanEntity *
find_entity(Rehearsal *plan, const Access *access)
{
	char *full = psprintf("%d/%s", access->shard, access->id);
	bool found;
	NameEntry *entry = names_insert(plan->entities, full, &found);

	if (!found)
	{
		MemoryContext step_memory = MemoryContextSwitchTo(plan->memory);

		entry->name = pstrdup(full);
		entry->entity = palloc0(sizeof(PlanEntity));
		entry->entity->name = access->shard == 1 ? strchr(entry->name, '/') + 1 : entry->name;
		entry->entity->core.hash =
			(uint32) shard_message_hash_murmur2(access->id, strlen(access->id));
		MemoryContextSwitchTo(step_memory);
	}
	return entry->entity;
}

/* Add the victims of a step to the result. */
static void
report(Rehearsal *plan, dlist_head *victims)
{
	while (!dlist_is_empty(victims))
	{
		PlanEntity *entity = dlist_container(PlanEntity, core.place, dlist_pop_head_node(victims));
		Datum values[2] = {Int32GetDatum(plan->step), CStringGetTextDatum(entity->name)};
		bool nulls[2] = {false, false};

		tuplestore_putvalues(plan->result->setResult, plan->result->setDesc, values, nulls);
	}
}

/* An access to an entity. Its shard becomes active if it is not. */
static void
run_access(Rehearsal *plan, const Access *access, dlist_head *victims)
{
	ShardEntry *entry = find_shard(plan, access->shard);

	if (entry->shard == NULL)
	{
		MemoryContext step_memory = MemoryContextSwitchTo(plan->memory);

		entry->shard = shard_passivation_add_shard(plan->region, victims);
		MemoryContextSwitchTo(step_memory);
	}
	shard_passivation_accessed(plan->region, entry->shard, &find_entity(plan, access)->core,
							   plan->now, victims);
}

/* A command, which begins with an exclamation mark. */
static void
run_command(Rehearsal *plan, char *text, Access *access, dlist_head *victims)
{
	const char *end = text + strlen(text);
	int64 number;

	if (strncmp(text, "!limit ", 7) == 0 && read_digits(text + 7, end, PG_INT32_MAX, &number) &&
		number > 0)
		shard_passivation_set_limit(plan->region, (int) number, victims);
	else if (strncmp(text, "!stop ", 6) == 0 && read_digits(text + 6, end, PG_INT32_MAX, &number))
	{
		ShardEntry *entry = find_shard(plan, (int32) number);

		if (entry->shard != NULL)
			shard_passivation_remove_shard(plan->region, entry->shard, victims);
		entry->shard = NULL;
	}
	else if (strncmp(text, "!remove ", 8) == 0)
	{
		read_entity(text + 8, access);
		shard_passivation_remove(plan->region, &find_entity(plan, access)->core);
	}
	else
		refuse(access->text, "The command is not one of those that there are, or its number is "
							 "out of range.");
}

/* One step: entities that were idle for too long leave first, then what the access says is done. */
static void
run_step(Rehearsal *plan, const char *given)
{
	Access access = {.text = given};
	char *text = pstrdup(given);
	dlist_head victims;

	dlist_init(&victims);
	if (*text == '\0')
		refuse(given, "It is empty.");
	cut_time(text, &access);
	if (access.at >= 0)
	{
		if (access.at < plan->now)
			refuse(given, "Its time is before that of the access before it.");
		plan->now = access.at;
	}
	shard_passivation_idle(plan->region, plan->now, &victims);
	report(plan, &victims);
	if (*text == '!')
		run_command(plan, text, &access, &victims);
	else if (*text != '\0')
	{
		read_entity(text, &access);
		run_access(plan, &access, &victims);
	}
	report(plan, &victims);
}

/* ---- the function ----------------------------------------------------------------------------- */

/*
 * shard_plan_passivation(strategy text, settings jsonb, accesses text[])
 *		returns table (step int4, passivated text)
 */
Datum
shard_plan_passivation(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {"strategy", "settings", "accesses"};
	HASHCTL control = {.keysize = sizeof(int32), .entrysize = sizeof(ShardEntry)};
	ShardPlanValue json;
	ShardPassivationSettings settings;
	Rehearsal plan = {.memory = CurrentMemoryContext};
	MemoryContext step_memory;
	Datum *accesses;
	bool *nulls;
	int n_accesses;

	for (int i = 0; i < lengthof(names); i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("argument \"%s\" must not be null", names[i])));
	json = shard_plan_json_arg(1, "settings");
	settings = read_settings(text_to_cstring(PG_GETARG_TEXT_PP(0)), &json);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), TEXTOID, -1, false, TYPALIGN_INT, &accesses, &nulls,
					  &n_accesses);

	InitMaterializedSRF(fcinfo, 0);
	plan.result = (ReturnSetInfo *) fcinfo->resultinfo;
	plan.region = shard_passivation_create(&settings);
	plan.entities = names_create(plan.memory, 64, NULL);
	control.hcxt = plan.memory;
	plan.shards =
		hash_create("shards of a plan", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	step_memory = AllocSetContextCreate(plan.memory, "step of a plan", ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(step_memory);
	for (int i = 0; i < n_accesses; i++)
	{
		CHECK_FOR_INTERRUPTS();
		plan.step = i + 1;
		if (nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("argument \"accesses\" must not contain nulls")));
		run_step(&plan, TextDatumGetCString(accesses[i]));
		MemoryContextReset(step_memory);
	}
	MemoryContextSwitchTo(plan.memory);
	MemoryContextDelete(step_memory);
	hash_destroy(plan.shards);
	shard_passivation_destroy(plan.region);
	return (Datum) 0;
}
