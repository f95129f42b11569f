/*
 * registry/settings_passivation.c
 *		Passivation settings of an entity type: strategy, limit, and what goes with the strategy.
 *
 * shard_plan_passivation() reads the same names by the same rules.
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/duration.h"
#include "base/plan_json.h"
#include "core/entity/passivation.h"
#include "registry/settings.h"

#include "base/compat.h"

typedef enum PartKind
{
	PART_INT,
	PART_PROPORTION,
	PART_LEVELS, /* proportions */
	PART_DURATION,
	PART_FILTER
} PartKind;

typedef struct Part
{
	const char *name;
	const char *strategies; /* each with a comma behind it */
	Size offset;
	PartKind kind;
	int least; /* of PART_INT */
	int most;
	bool apart; /* a type has a setting of its own for it */
} Part;

#define FIELD(name) offsetof(ShardPassivationSettings, name)
#define LIMITED "lru,slru,mru,lfu,lfu_aging,composite,"

static const Part parts[] = {
	{"active_entity_limit", LIMITED, FIELD(active_entity_limit), PART_INT, 1, PG_INT32_MAX, true},
	{"passivate_idle_after", "idle," LIMITED, FIELD(idle_after), PART_DURATION, .apart = true},
	{"levels", "slru,composite,", FIELD(levels), PART_INT, 1, SHARD_PASSIVATION_MAX_LEVELS},
	{"proportions", "slru,composite,", FIELD(proportion), PART_LEVELS},
	{"window_proportion", "composite,", FIELD(window_proportion), PART_PROPORTION},
	{"admission_filter", "composite,", FIELD(filter), PART_FILTER},
	{"frequency_sketch_depth", "composite,", FIELD(sketch_depth), PART_INT, 1, 8},
	{"frequency_sketch_counter_bits", "composite,", FIELD(sketch_counter_bits), PART_INT, 2, 32},
	{"frequency_sketch_width_multiplier", "composite,", FIELD(sketch_width_multiplier), PART_INT, 1,
	 1000},
	{"frequency_sketch_reset_multiplier", "composite,", FIELD(sketch_reset_multiplier), PART_INT, 1,
	 1000000},
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
read_setting(ShardPassivationSettings *settings, const Part *part, const ShardPlanValue *value)
{
	static const char *const filters[] = {"none", "frequency_sketch", NULL};
	char *place = (char *) settings + part->offset;

	switch (part->kind)
	{
		case PART_INT:
			*(int *) place = shard_plan_json_int(value, part->least, part->most);
			break;
		case PART_PROPORTION:
			*(int *) place = read_proportion(value);
			break;
		case PART_LEVELS:
			read_levels(value, (int *) place);
			break;
		case PART_DURATION:
			*(int64 *) place = read_duration(value);
			break;
		case PART_FILTER:
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
settings_of(const char *strategy, bool all)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < lengthof(parts); i++)
		if (is_listed(parts[i].strategies, strategy) && (all || !parts[i].apart))
			appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "", parts[i].name);
	return list.len > 0 ? list.data : "none";
}

/* The setting of a name, which must be one of the strategy's. */
static const Part *
find_setting(const char *name, const char *strategy, bool all)
{
	for (int i = 0; i < lengthof(parts); i++)
	{
		if (strcmp(parts[i].name, name) != 0)
			continue;
		if (parts[i].apart && !all)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("\"%s\" is not part of passivation_settings", name),
					 errhint("It is a setting of its own: %s => ..., or shard_alter().", name)));
		if (!is_listed(parts[i].strategies, strategy))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("passivation strategy \"%s\" has no setting \"%s\"", strategy, name),
					 errdetail("Settings of the strategy: %s.", settings_of(strategy, all)),
					 errhint("Leave the setting out, or choose another strategy.")));
		return &parts[i];
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown name \"%s\" in settings", name),
			 errdetail("Settings of strategy \"%s\": %s.", strategy, settings_of(strategy, all)),
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

ShardPassivationSettings
shard_settings_read_passivation(const char *name, const ShardPlanValue *json, bool all)
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
		const Part *part = find_setting(fields[i].name, name, all);

		if (fields[i].json.type != jbvNull)
			read_setting(&settings, part, &fields[i]);
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

void
shard_settings_passivation(const ShardSettings *settings, ShardPassivationSettings *passivation)
{
	const char *limit = settings->value[SHARD_SETTING_ACTIVE_ENTITY_LIMIT];
	const char *text = settings->value[SHARD_SETTING_PASSIVATION_SETTINGS];
	Jsonb *json = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
	ShardPlanValue root = shard_plan_json_root(json, "passivation_settings");

	*passivation =
		shard_settings_read_passivation(settings->value[SHARD_SETTING_PASSIVATION_STRATEGY], &root,
										false);
	if (limit != NULL)
		passivation->active_entity_limit =
			(int) shard_settings_number(settings, SHARD_SETTING_ACTIVE_ENTITY_LIMIT);
	if (passivation->strategy != SHARD_PASSIVATION_NONE)
		passivation->idle_after =
			shard_settings_number(settings, SHARD_SETTING_PASSIVATE_IDLE_AFTER);
}

void
shard_settings_check_limit(const ShardSettings *settings, int elevel)
{
	const char *strategy = settings->value[SHARD_SETTING_PASSIVATION_STRATEGY];

	if (settings->value[SHARD_SETTING_ACTIVE_ENTITY_LIMIT] == NULL || is_listed(LIMITED, strategy))
		return;
	ereport(elevel, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("setting \"active_entity_limit\" has no effect with "
							"passivation_strategy \"%s\"",
							strategy),
					 errhint("Choose a strategy with a limit: \"lru\", \"slru\", \"mru\", "
							 "\"lfu\", \"lfu_aging\" or \"composite\".")));
}
