/*
 * registry/settings_allocation.c
 *		Allocation settings of an entity type: allocation_strategy and what goes with it.
 *
 * allocation_settings is kept as the JSON text of what differs from the strategy's defaults, so that
 * equal settings have equal texts, and the text can be made again from the record that the cluster has of
 * the type.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "core/allocation/allocation.h"
#include "base/duration.h"
#include "base/plan_json.h"
#include "registry/routine.h"
#include "registry/settings.h"

#include "base/compat.h"

static const char *const function_names[] = {"allocate", "rebalance", NULL};

/* The settings of a strategy, ended by NULL; names are those of the core, and of functions. */
static const char *const *
setting_names(ShardAllocationKind kind)
{
	static const char *const least_shard[] = {"rebalance_absolute_limit",
											  "rebalance_relative_limit", "weighted", NULL};
	static const char *const threshold[] = {"rebalance_threshold", "max_simultaneous_rebalance",
											NULL};
	static const char *const hashing[] = {"rebalance_limit", "virtual_nodes", "weighted", NULL};
	static const char *const external[] = {"rebalance_limit", NULL};
	static const char *const none[] = {NULL};

	switch (kind)
	{
		case SHARD_ALLOCATION_LEAST_SHARD:
			return least_shard;
		case SHARD_ALLOCATION_LEAST_SHARD_THRESHOLD:
			return threshold;
		case SHARD_ALLOCATION_CONSISTENT_HASHING:
			return hashing;
		case SHARD_ALLOCATION_EXTERNAL:
			return external;
		case SHARD_ALLOCATION_LOCALITY:
			return none;
		case SHARD_ALLOCATION_FUNCTION:
			return function_names;
	}
	return none;
}

static ShardAllocationKind
kind_of(const ShardSettings *settings)
{
	const char *name = settings->value[SHARD_SETTING_ALLOCATION_STRATEGY];

	for (int32 kind = 1; shard_allocation_is_known(kind); kind++)
		if (strcmp(shard_allocation_kind_names[kind], name) == 0)
			return (ShardAllocationKind) kind;
	elog(ERROR, "unexpected allocation strategy \"%s\"", name);
}

static Jsonb *
json_of(const ShardSettings *settings)
{
	return DatumGetJsonbP(
		DirectFunctionCall1(jsonb_in,
							CStringGetDatum(settings->value[SHARD_SETTING_ALLOCATION_SETTINGS])));
}

/* Sets what the core knows by name. */
void
shard_settings_read_allocation(ShardAllocationSettings *allocation,
							   const ShardAllocationSetting *setting, const ShardPlanValue *value)
{
	void *place = (char *) allocation + setting->offset;

	switch (setting->type)
	{
		case SHARD_ALLOCATION_INTEGER:
			*(int32 *) place = shard_plan_json_int(value, setting->least, setting->most);
			break;
		case SHARD_ALLOCATION_FRACTION:
			*(double *) place = shard_plan_json_double(value, setting->least, setting->most);
			break;
		case SHARD_ALLOCATION_SWITCH:
			*(bool *) place = shard_plan_json_bool(value);
			break;
	}
}

void
shard_settings_allocation(const ShardSettings *settings, ShardAllocationSettings *allocation)
{
	ShardPlanValue root = shard_plan_json_root(json_of(settings), "allocation_settings");
	ShardPlanValue *fields;
	int n = shard_plan_json_fields(&root, &fields);

	*allocation = shard_allocation_defaults(kind_of(settings));
	for (int i = 0; i < shard_allocation_n_settings; i++)
	{
		const ShardAllocationSetting *setting = &shard_allocation_setting_list[i];
		const ShardPlanValue *value = shard_plan_json_find(fields, n, setting->name);

		if (value != NULL)
			shard_settings_read_allocation(allocation, setting, value);
	}
}

char *
shard_settings_strategy_function(const ShardSettings *settings, bool rebalance)
{
	ShardPlanValue root;
	ShardPlanValue *fields;
	const ShardPlanValue *value;
	int n;

	if (kind_of(settings) != SHARD_ALLOCATION_FUNCTION)
		return NULL;
	root = shard_plan_json_root(json_of(settings), "allocation_settings");
	n = shard_plan_json_fields(&root, &fields);
	value = shard_plan_json_find(fields, n, function_names[rebalance]);
	return value != NULL ? shard_plan_json_text(value) : NULL;
}

/* ---- canonical text --------------------------------------------------------------------------- */

static void
push_name(JsonbParseState **state, const char *name)
{
	JsonbValue json = {.type = jbvString};

	json.val.string.val = unconstify(char *, name);
	json.val.string.len = (int) strlen(name);
	pushJsonbValue(state, WJB_KEY, &json);
}

static void
push_function(JsonbParseState **state, const char *name, const char *signature)
{
	JsonbValue json = {.type = jbvString};

	if (signature == NULL)
		return;
	push_name(state, name);
	json.val.string.val = unconstify(char *, signature);
	json.val.string.len = (int) strlen(signature);
	pushJsonbValue(state, WJB_VALUE, &json);
}

/* One setting, unless it has its default. */
static void
push_setting(JsonbParseState **state, const ShardAllocationSetting *setting,
			 const ShardAllocationSettings *allocation, const ShardAllocationSettings *defaults)
{
	const void *place = (const char *) allocation + setting->offset;
	const void *usual = (const char *) defaults + setting->offset;
	JsonbValue json = {.type = jbvNumeric};
	Datum number = (Datum) 0;

	switch (setting->type)
	{
		case SHARD_ALLOCATION_INTEGER:
			if (*(const int32 *) place == *(const int32 *) usual)
				return;
			json.val.numeric = int64_to_numeric(*(const int32 *) place);
			break;
		case SHARD_ALLOCATION_FRACTION:
			if (*(const double *) place == *(const double *) usual)
				return;
			number = DirectFunctionCall1(float8_numeric, Float8GetDatum(*(const double *) place));
			json.val.numeric = DatumGetNumeric(number);
			break;
		case SHARD_ALLOCATION_SWITCH:
			if (*(const bool *) place == *(const bool *) usual)
				return;
			json.type = jbvBool;
			json.val.boolean = *(const bool *) place;
			break;
	}
	push_name(state, setting->name);
	pushJsonbValue(state, WJB_VALUE, &json);
}

/* The text of allocation_settings. */
static char *
canonical_text(const ShardAllocationSettings *allocation, const char *allocate,
			   const char *rebalance)
{
	ShardAllocationSettings defaults = shard_allocation_defaults(allocation->kind);
	JsonbParseState *state = NULL;
	Jsonb *json;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < shard_allocation_n_settings; i++)
		push_setting(&state, &shard_allocation_setting_list[i], allocation, &defaults);
	push_function(&state, function_names[0], allocate);
	push_function(&state, function_names[1], rebalance);
	json = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
	return JsonbToCString(NULL, &json->root, VARSIZE(json));
}

/* A strategy that this version does not know is shown as the default. */
void
shard_settings_allocation_from_record(ShardSettings *settings, const ShardTypeRecord *record,
									  const char *allocate, const char *rebalance)
{
	ShardAllocationSettings allocation = record->allocation;
	int32 kind = record->strategy;

	if (!shard_allocation_is_known(kind))
		kind = SHARD_ALLOCATION_LEAST_SHARD;
	if (allocation.kind == 0)
		allocation = shard_allocation_defaults((ShardAllocationKind) kind);
	settings->value[SHARD_SETTING_ALLOCATION_STRATEGY] = shard_allocation_kind_names[kind];
	settings->value[SHARD_SETTING_ALLOCATION_SETTINGS] =
		canonical_text(&allocation, allocate, rebalance);
}

/* ---- what a user gives ------------------------------------------------------------------------ */

/* Refuses what belongs to another strategy, or to none. */
static void
check_names(ShardAllocationKind kind, const ShardPlanValue *fields, int n)
{
	const char *const *names = setting_names(kind);

	for (int i = 0; i < n; i++)
	{
		bool known = false;

		for (int k = 0; names[k] != NULL; k++)
			known |= strcmp(names[k], fields[i].name) == 0;
		if (known)
			continue;
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("allocation strategy \"%s\" has no setting \"%s\"",
							   shard_allocation_kind_names[kind], fields[i].name),
						names[0] != NULL ? errhint("The strategy's settings are: %s.",
												   shard_plan_json_list(names))
										 : errhint("The strategy has no settings: give '{}'.")));
	}
}

/* The signature of a function that is given by name; NULL: not given. */
static char *
resolve_function(const ShardPlanValue *fields, int n, bool rebalance)
{
	const ShardPlanValue *value = shard_plan_json_find(fields, n, function_names[rebalance]);
	char *signature;

	if (value == NULL)
		return NULL;
	(void) shard_routine_resolve_strategy(rebalance ? SHARD_STRATEGY_REBALANCE
													: SHARD_STRATEGY_ALLOCATE,
										  shard_plan_json_text(value), &signature);
	return signature;
}

void
shard_settings_resolve_allocation(ShardSettings *settings)
{
	const char **timeout = &settings->value[SHARD_SETTING_HANDOFF_TIMEOUT];
	int64 timeout_us = shard_settings_number(settings, SHARD_SETTING_HANDOFF_TIMEOUT);
	ShardAllocationKind kind = kind_of(settings);
	ShardPlanValue root = shard_plan_json_root(json_of(settings), "allocation_settings");
	ShardPlanValue *fields;
	int n = shard_plan_json_fields(&root, &fields);
	ShardAllocationSettings allocation;
	char *allocate;
	char *rebalance;

	check_names(kind, fields, n);
	shard_settings_allocation(settings, &allocation);
	allocate = resolve_function(fields, n, false);
	rebalance = resolve_function(fields, n, true);
	if (kind == SHARD_ALLOCATION_FUNCTION && allocate == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("allocation strategy \"function\" needs setting \"allocate\""),
				 errhint(
					 "Give allocation_settings => '{\"allocate\": \"f\", \"rebalance\": \"g\"}'; "
					 "without \"rebalance\" no shard moves by itself.")));
	settings->value[SHARD_SETTING_ALLOCATION_SETTINGS] =
		canonical_text(&allocation, allocate, rebalance);
	/* The cluster counts in milliseconds. */
	*timeout = shard_duration_format((timeout_us + 999) / 1000 * 1000);
}
