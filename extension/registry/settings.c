/*
 * registry/settings.c
 *		The named settings of an entity type: names, bounds, defaults, text form.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "core/entity/entity.h"
#include "core/map/record.h"
#include "base/duration.h"
#include "registry/settings.h"

typedef enum SettingKind
{
	KIND_INT,	   /* int4 argument */
	KIND_SIZE,	   /* int8 argument */
	KIND_DURATION, /* interval argument, positive, bounds in microseconds */
	KIND_CHOICE,   /* text, one of choices */
	KIND_FUNCTION, /* text, name of a function; null: none */
	KIND_TEXT,
	KIND_JSON,
	KIND_BOOLEAN
} SettingKind;

typedef struct Setting
{
	const char *name;
	SettingKind kind;
	const char *boot; /* default, canonical; NULL: null */
	int64 minimum;
	int64 maximum;
	const char *choices; /* names, each followed by a comma */
	bool fixed;			 /* cannot be altered */
	bool column;		 /* stored in a column of its own */
} Setting;

#define DAYS(n) ((n) *USECS_PER_DAY)
#define MS(n) ((n) *INT64CONST(1000))

static const Setting setting_table[SHARD_SETTING_COUNT] = {
	[SHARD_SETTING_NUMBER_OF_SHARDS] = {"number_of_shards", KIND_INT, "1000", 1, SHARD_MAX_SHARDS,
										.fixed = true, .column = true},
	[SHARD_SETTING_HASH] = {"hash", KIND_CHOICE, "murmur2", .choices = "murmur2,java,",
							.fixed = true, .column = true},
	[SHARD_SETTING_ENTITY_ID_EXTRACTOR] = {"entity_id_extractor", KIND_FUNCTION},
	[SHARD_SETTING_MESSAGE_EXTRACTOR] = {"message_extractor", KIND_FUNCTION},
	[SHARD_SETTING_SHARD_ID_EXTRACTOR] = {"shard_id_extractor", KIND_FUNCTION, .fixed = true},
	[SHARD_SETTING_ROLE] = {"role", KIND_TEXT, .fixed = true},
	[SHARD_SETTING_ALLOCATION_STRATEGY] = {"allocation_strategy", KIND_CHOICE, "least_shard",
										   .choices = SHARD_ALLOCATION_NAMES, .fixed = true},
	[SHARD_SETTING_ALLOCATION_SETTINGS] = {"allocation_settings", KIND_JSON, "{}", .fixed = true},
	[SHARD_SETTING_PASSIVATION_STRATEGY] = {"passivation_strategy", KIND_CHOICE, "idle",
											.choices =
												"idle,none,lru,slru,mru,lfu,lfu_aging,composite,"},
	[SHARD_SETTING_PASSIVATE_IDLE_AFTER] = {"passivate_idle_after", KIND_DURATION, "2 min", MS(10),
											DAYS(3650)},
	[SHARD_SETTING_MAX_ATTEMPTS] = {"max_attempts", KIND_INT, "5", 1, 1000000},
	[SHARD_SETTING_RETRY_BACKOFF] = {"retry_backoff", KIND_DURATION, "100 ms", MS(1), DAYS(1)},
	[SHARD_SETTING_MAX_RETRY_BACKOFF] = {"max_retry_backoff", KIND_DURATION, "30 s", MS(1),
										 DAYS(7)},
	[SHARD_SETTING_HANDLER_TIMEOUT] = {"handler_timeout", KIND_DURATION, "5 s", MS(10), DAYS(1)},
	[SHARD_SETTING_HANDOFF_TIMEOUT] = {"handoff_timeout", KIND_DURATION, "1 min", MS(1), DAYS(1),
									   .fixed = true},
	[SHARD_SETTING_MAX_MESSAGE_SIZE] = {"max_message_size", KIND_SIZE, "1048576", 1,
										256 * 1024 * 1024},
	[SHARD_SETTING_BUFFER_SIZE] = {"buffer_size", KIND_INT, "100000", 1, PG_INT32_MAX},
	[SHARD_SETTING_ORDERED_BY] = {"ordered_by", KIND_FUNCTION},
	[SHARD_SETTING_ORDERED_WINDOW] = {"ordered_window", KIND_INT, "1000", 1, PG_INT32_MAX},
	[SHARD_SETTING_ORDERED_TIMEOUT] = {"ordered_timeout", KIND_DURATION, "10 s", MS(1), DAYS(1)},
	[SHARD_SETTING_ORDERED_FROM] = {"ordered_from", KIND_INT, NULL, PG_INT32_MIN, PG_INT32_MAX},
	[SHARD_SETTING_MAX_DEAD_LETTERS] = {"max_dead_letters", KIND_INT, "100000", 1, PG_INT32_MAX},
	[SHARD_SETTING_MAX_DEAD_LETTERS_SIZE] = {"max_dead_letters_size", KIND_SIZE, "268435456", 1,
											 INT64CONST(1) << 50},
	[SHARD_SETTING_DEAD_LETTERS_FULL] = {"dead_letters_full", KIND_CHOICE, "wait",
										 .choices = "wait,drop_oldest,"},
	[SHARD_SETTING_ACTIVE_ENTITY_LIMIT] = {"active_entity_limit", KIND_INT, NULL, 1, PG_INT32_MAX},
	[SHARD_SETTING_PASSIVATION_SETTINGS] = {"passivation_settings", KIND_JSON, "{}"},
	[SHARD_SETTING_STOP_MESSAGE] = {"stop_message", KIND_JSON},
	[SHARD_SETTING_REMEMBER_ENTITIES] = {"remember_entities", KIND_BOOLEAN, "false"},
	[SHARD_SETTING_ENTITY_RECOVERY_STRATEGY] = {"entity_recovery_strategy", KIND_CHOICE, "all",
												.choices = "all,constant,"},
	[SHARD_SETTING_ENTITY_RECOVERY_FREQUENCY] = {"entity_recovery_frequency", KIND_DURATION,
												 "100 ms", MS(10), DAYS(1)},
	[SHARD_SETTING_ENTITY_RECOVERY_NUMBER] = {"entity_recovery_number", KIND_INT, "5", 1,
											  PG_INT32_MAX},
	[SHARD_SETTING_START_MESSAGE] = {"start_message", KIND_JSON},
	[SHARD_SETTING_ENTITY_RESTART_BACKOFF] = {"entity_restart_backoff", KIND_DURATION, "10 s",
											  MS(1), DAYS(1)},
	[SHARD_SETTING_SUPERVISION] = {"supervision", KIND_CHOICE, "restart",
								   .choices = SHARD_ENTITY_DECISION_NAMES},
	[SHARD_SETTING_DECIDER] = {"decider", KIND_FUNCTION},
	[SHARD_SETTING_MAX_RESTARTS] = {"max_restarts", KIND_INT, NULL, 0, SHARD_MOST_RESTARTS},
	[SHARD_SETTING_RESTART_WINDOW] = {"restart_window", KIND_DURATION, "1 min", MS(10), DAYS(365)},
	[SHARD_SETTING_SHARD_FAILURE_BACKOFF] = {"shard_failure_backoff", KIND_DURATION, "10 s", MS(1),
											 DAYS(7)},
	[SHARD_SETTING_WORKER] = {"worker", KIND_CHOICE, "shared", .choices = "shared,own,",
							  .fixed = true},
	[SHARD_SETTING_REPLICAS] = {"replicas", KIND_INT, "0", 0, SHARD_MAX_REPLICAS, .fixed = true},
	[SHARD_SETTING_MIN_INSYNC] = {"min_insync", KIND_INT, "2", 1, SHARD_MAX_HOMES, .fixed = true},
	[SHARD_SETTING_ON_TOO_FEW] = {"on_too_few", KIND_CHOICE, "run", .choices = "run,stop,",
								  .fixed = true}};

/* The name of a setting, as in shard_start. */
const char *
shard_settings_name(ShardSettingId id)
{
	return setting_table[id].name;
}

bool
shard_settings_is_fixed(ShardSettingId id)
{
	return setting_table[id].fixed;
}

/* Why it is so; for errors. */
const char *
shard_settings_why_fixed(ShardSettingId id)
{
	if (id == SHARD_SETTING_WORKER)
		return "The type's number, which all its rows have, says which workers run it.";
	return shard_settings_is_of_shards(id) ? "The setting says in which shard an entity is."
										   : "All members of a cluster agree on it.";
}

bool
shard_settings_is_of_shards(ShardSettingId id)
{
	return id == SHARD_SETTING_NUMBER_OF_SHARDS || id == SHARD_SETTING_HASH ||
		   id == SHARD_SETTING_SHARD_ID_EXTRACTOR;
}

bool
shard_settings_is_of_replicas(ShardSettingId id)
{
	return id == SHARD_SETTING_REPLICAS || id == SHARD_SETTING_MIN_INSYNC ||
		   id == SHARD_SETTING_ON_TOO_FEW;
}

/* Whether a setting belongs into the stored settings: it has no column. */
bool
shard_settings_is_stored(ShardSettingId id)
{
	return !setting_table[id].column;
}

/* Whether its canonical text is also a JSON number. */
bool
shard_settings_is_number(ShardSettingId id)
{
	return setting_table[id].kind == KIND_INT || setting_table[id].kind == KIND_SIZE;
}

/* Whether its canonical text is "true" or "false". */
bool
shard_settings_is_boolean(ShardSettingId id)
{
	return setting_table[id].kind == KIND_BOOLEAN;
}

bool
shard_settings_is_on(const ShardSettings *settings, ShardSettingId id)
{
	return strcmp(settings->value[id], "true") == 0;
}

/* The default of a setting; NULL: null. */
const char *
shard_settings_default(ShardSettingId id)
{
	return setting_table[id].boot;
}

/* Whether its canonical text is a JSON document. */
bool
shard_settings_is_json(ShardSettingId id)
{
	return setting_table[id].kind == KIND_JSON;
}

/* Whether a setting names a function of the user's. */
bool
shard_settings_is_function(ShardSettingId id)
{
	return setting_table[id].kind == KIND_FUNCTION;
}

/* The setting of this name; error with the list of names if there is none. */
ShardSettingId
shard_settings_find(const char *name)
{
	StringInfoData names;

	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
		if (strcmp(setting_table[id].name, name) == 0)
			return (ShardSettingId) id;

	initStringInfo(&names);
	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
		if (!setting_table[id].fixed)
			appendStringInfo(&names, ", %s", setting_table[id].name);
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("unknown setting \"%s\"", name),
					errhint("Settings that can be altered are handler, owner, search_path%s.",
							names.data)));
}

/* The words of a comma-ended list as a sentence would put them: "a", "b". */
static char *
quote_list(const char *list)
{
	StringInfoData buf;

	initStringInfo(&buf);
	while (*list != '\0')
	{
		int len = (int) strcspn(list, ",");

		appendStringInfo(&buf, "%s\"%.*s\"", buf.len > 0 ? ", " : "", len, list);
		list += len + 1;
	}
	return buf.data;
}

/* Whether a comma-ended list contains the word. */
static bool
list_contains(const char *list, const char *word)
{
	size_t wordlen = strlen(word);

	while (*list != '\0')
	{
		size_t len = strcspn(list, ",");

		if (len == wordlen && strncmp(list, word, len) == 0)
			return true;
		list += len + 1;
	}
	return false;
}

/* Refuses a number outside of a setting's bounds. */
static void
check_bounds(const Setting *setting, int64 number)
{
	bool duration = setting->kind == KIND_DURATION;

	if (number >= setting->minimum && number <= setting->maximum)
		return;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("value for setting \"%s\" is out of range", setting->name),
					duration ? errdetail("The value must be between %s and %s.",
										 shard_duration_format(setting->minimum),
										 shard_duration_format(setting->maximum))
							 : errdetail("The value must be between " INT64_FORMAT
										 " and " INT64_FORMAT ".",
										 setting->minimum, setting->maximum)));
}

/* Refuses a word that is not among a setting's choices. */
static void
check_choice(const Setting *setting, const char *word)
{
	if (list_contains(setting->choices, word))
		return;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for setting \"%s\": \"%s\"", setting->name, word),
					errhint("Valid values are %s.", quote_list(setting->choices))));
}

void
shard_settings_check_bytes(const char *setting, const char *value)
{
	size_t bytes = strlen(value);

	if (bytes > SHARD_SETTING_MAX_BYTES)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("value for setting \"%s\" is too long", setting),
						errdetail("The value has %zu bytes.", bytes),
						errhint("Use at most %d bytes.", SHARD_SETTING_MAX_BYTES)));
}

/*
 * Last step of every way in: refuses null where there must be a value, and more of one than every process is to keep.
 */
static const char *
accept_value(const Setting *setting, const char *value)
{
	if (value != NULL)
		shard_settings_check_bytes(setting->name, value);
	if (value == NULL && setting->boot != NULL)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("setting \"%s\" cannot be null", setting->name),
						errhint("The setting's default is %s.", setting->boot)));
	return value;
}

/* An interval's text in microseconds. */
static int64
read_interval(const char *text)
{
	Datum interval = DirectFunctionCall3(interval_in, CStringGetDatum(text),
										 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));

	return shard_duration_from_interval(DatumGetIntervalP(interval));
}

/* What a value of the setting looks like. */
static const char *
hint_for(const Setting *setting)
{
	switch (setting->kind)
	{
		case KIND_INT:
		case KIND_SIZE:
			return "Give a whole number.";
		case KIND_DURATION:
			return "Give an interval, like '5 s' or '2 min'.";
		case KIND_BOOLEAN:
			return "Give true or false.";
		default:
			return "Give a JSON document, like '{}'.";
	}
}

/*
 * What a type's input function says of a text that it cannot read knows nothing of the setting. Errors that are not
 * about the text go on as they are.
 */
static void
rethrow_unreadable(const Setting *setting, const char *text, MemoryContext context)
{
	ErrorData *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
		ReThrowError(error);
	ereport(ERROR, (errcode(error->sqlerrcode),
					errmsg("invalid value for setting \"%s\": \"%s\"", setting->name, text),
					errdetail_internal("%c%s.%s%s", pg_toupper((unsigned char) error->message[0]),
									   error->message + 1, error->detail != NULL ? " " : "",
									   error->detail != NULL ? error->detail : ""),
					errhint("%s", hint_for(setting))));
}

/* A number as text, within the setting's bounds. */
static const char *
number_value(const Setting *setting, int64 number)
{
	check_bounds(setting, number);
	if (setting->kind == KIND_DURATION)
		return shard_duration_format(number);
	return psprintf(INT64_FORMAT, number);
}

/* The canonical form of a value of a setting that is a word. */
static const char *
word_value(const Setting *setting, const char *text)
{
	if (setting->kind == KIND_CHOICE)
		check_choice(setting, text);
	return text;
}

static const char *
json_value(Jsonb *json)
{
	return JsonbToCString(NULL, &json->root, VARSIZE(json));
}

static const char *
boolean_value(bool value)
{
	return value ? "true" : "false";
}

/* What a type's input function makes of a text: the number, the boolean, or the JSON document. */
static Datum
read_value(const Setting *setting, const char *text)
{
	switch (setting->kind)
	{
		case KIND_DURATION:
			return Int64GetDatum(read_interval(text));
		case KIND_JSON:
			return DirectFunctionCall1(jsonb_in, CStringGetDatum(text));
		case KIND_BOOLEAN:
			return DirectFunctionCall1(boolin, CStringGetDatum(text));
		default:
			return DirectFunctionCall1(int8in, CStringGetDatum(text));
	}
}

/* The same; an error names the setting. */
static Datum
read_value_of(const Setting *setting, const char *text)
{
	MemoryContext context = CurrentMemoryContext;
	Datum value = 0;

	PG_TRY();
	{
		value = read_value(setting, text);
	}
	PG_CATCH();
	{
		rethrow_unreadable(setting, text, context);
	}
	PG_END_TRY();
	return value;
}

/*
 * Canonical text of a value given as text; null means the default. Errors:
 * 22P02, 22007 and the like for what cannot be read, else as accept_value and
 * the checks say. Names of functions are passed through.
 */
const char *
shard_settings_from_text(ShardSettingId id, const char *text)
{
	const Setting *setting = &setting_table[id];

	if (text == NULL)
		return setting->boot;

	switch (setting->kind)
	{
		case KIND_INT:
		case KIND_SIZE:
		case KIND_DURATION:
			text = number_value(setting, DatumGetInt64(read_value_of(setting, text)));
			break;
		case KIND_JSON:
			text = json_value(DatumGetJsonbP(read_value_of(setting, text)));
			break;
		case KIND_BOOLEAN:
			text = boolean_value(DatumGetBool(read_value_of(setting, text)));
			break;
		default:
			text = word_value(setting, text);
	}
	return accept_value(setting, text);
}

/* The same for an argument of shard_start, of the SQL type that the kind has there. */
const char *
shard_settings_from_argument(ShardSettingId id, Datum value, bool isnull)
{
	const Setting *setting = &setting_table[id];
	const char *form = NULL;

	if (isnull)
		return accept_value(setting, NULL);

	switch (setting->kind)
	{
		case KIND_INT:
			form = number_value(setting, DatumGetInt32(value));
			break;
		case KIND_SIZE:
			form = number_value(setting, DatumGetInt64(value));
			break;
		case KIND_DURATION:
			form = number_value(setting, shard_duration_from_interval(DatumGetIntervalP(value)));
			break;
		case KIND_JSON:
			form = json_value(DatumGetJsonbP(value));
			break;
		case KIND_BOOLEAN:
			form = boolean_value(DatumGetBool(value));
			break;
		case KIND_CHOICE:
		case KIND_FUNCTION:
		case KIND_TEXT:
			form = word_value(setting, TextDatumGetCString(value));
			break;
	}
	return accept_value(setting, form);
}

/* Copies: what would have no effect, and more of them than there can be. */
static void
check_replicas(const ShardSettings *settings)
{
	int64 replicas = shard_settings_number(settings, SHARD_SETTING_REPLICAS);

	for (int id = SHARD_SETTING_MIN_INSYNC; id <= SHARD_SETTING_ON_TOO_FEW && replicas == 0; id++)
		if (strcmp(settings->value[id], setting_table[id].boot) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("setting \"%s\" has no effect without \"replicas\"",
							setting_table[id].name),
					 errhint("Say how many members keep copies of a shard: replicas => 1.")));
	if (replicas > 0 && shard_settings_number(settings, SHARD_SETTING_MIN_INSYNC) > replicas + 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("setting \"min_insync\" is greater than the number of copies"),
						errdetail("With \"replicas\" %s a shard has " INT64_FORMAT
								  " copies, that of its home included; asked for are %s.",
								  settings->value[SHARD_SETTING_REPLICAS], replicas + 1,
								  settings->value[SHARD_SETTING_MIN_INSYNC]),
						errhint("Raise replicas, or lower min_insync.")));
}

/* Refuses settings that contradict one another. */
void
shard_settings_check(const ShardSettings *settings)
{
	ShardPassivationSettings passivation;

	if (shard_settings_number(settings, SHARD_SETTING_RETRY_BACKOFF) >
		shard_settings_number(settings, SHARD_SETTING_MAX_RETRY_BACKOFF))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("setting \"retry_backoff\" is greater than \"max_retry_backoff\""),
						errdetail("The settings are %s and %s.",
								  settings->value[SHARD_SETTING_RETRY_BACKOFF],
								  settings->value[SHARD_SETTING_MAX_RETRY_BACKOFF]),
						errhint("Raise max_retry_backoff, or lower retry_backoff.")));
	check_replicas(settings);
	shard_settings_passivation(settings, &passivation);
}
