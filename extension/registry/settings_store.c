/*
 * registry/settings_store.c
 *		Settings of an entity type to and from the table.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "core/allocation/allocation.h"
#include "base/duration.h"
#include "registry/settings.h"

/* The number of a numeric setting that is not null; of a duration, microseconds. */
int64
shard_settings_number(const ShardSettings *settings, ShardSettingId id)
{
	const char *text = settings->value[id];

	if (shard_settings_is_number(id))
		return strtoll(text, NULL, 10);
	return shard_duration_parse(text);
}

/* A JSON string of a C string; refers to it. */
static void
set_string(JsonbValue *json, const char *text)
{
	json->type = jbvString;
	json->val.string.val = unconstify(char *, text);
	json->val.string.len = (int) strlen(text);
}

/* A JSON document of its text. */
static void
set_json(JsonbValue *json, const char *text)
{
	Jsonb *document = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));

	if (JB_ROOT_IS_SCALAR(document))
	{
		(void) JsonbExtractScalar(&document->root, json);
		return;
	}
	json->type = jbvBinary;
	json->val.binary.data = &document->root;
	json->val.binary.len = VARSIZE(document) - VARHDRSZ;
}

/* Whether other members keep copies of the type's shards. */
static bool
has_replicas(const ShardSettings *settings)
{
	return shard_settings_number(settings, SHARD_SETTING_REPLICAS) > 0;
}

/* The settings that are stored and not null, as a jsonb object; palloc'd. */
Jsonb *
shard_settings_to_jsonb(const ShardSettings *settings)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
	{
		const char *text = settings->value[id];
		JsonbValue json;

		if (!shard_settings_is_stored(id) || text == NULL)
			continue;
		/* a type without copies is what it was before there were any */
		if (shard_settings_is_of_replicas((ShardSettingId) id) && !has_replicas(settings))
			continue;
		set_string(&json, shard_settings_name(id));
		pushJsonbValue(&state, WJB_KEY, &json);
		if (shard_settings_is_number(id))
		{
			json.type = jbvNumeric;
			json.val.numeric = int64_to_numeric(strtoll(text, NULL, 10));
		}
		else if (shard_settings_is_boolean(id))
		{
			json.type = jbvBool;
			json.val.boolean = shard_settings_is_on(settings, (ShardSettingId) id);
		}
		else if (shard_settings_is_json(id))
			set_json(&json, text);
		else
			set_string(&json, text);
		pushJsonbValue(&state, WJB_VALUE, &json);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* The text of a stored value; palloc'd. */
static const char *
stored_text(ShardSettingId id, JsonbValue *json)
{
	if (shard_settings_is_json(id))
	{
		Jsonb *document = JsonbValueToJsonb(json);

		return JsonbToCString(NULL, &document->root, VARSIZE(document));
	}
	if (json->type == jbvString)
		return pnstrdup(json->val.string.val, json->val.string.len);
	if (json->type == jbvNumeric)
		return DatumGetCString(
			DirectFunctionCall1(numeric_out, NumericGetDatum(json->val.numeric)));
	if (json->type == jbvBool)
		return json->val.boolean ? "true" : "false";
	elog(ERROR, "unexpected stored value of setting \"%s\"", shard_settings_name(id));
}

/*
 * Fills in all settings from a stored object: a missing key is null if a
 * function, else the default, which is how settings of later versions come to
 * older types.
 */
void
shard_settings_from_jsonb(ShardSettings *settings, Jsonb *stored)
{
	for (int id = 0; id < SHARD_SETTING_COUNT; id++)
	{
		const char *name = shard_settings_name(id);
		JsonbValue buffer;
		JsonbValue *json = NULL;

		if (shard_settings_is_stored(id))
			json = getKeyJsonValueFromContainer(&stored->root, name, (int) strlen(name), &buffer);
		settings->value[id] = json == NULL ? shard_settings_default(id) : stored_text(id, json);
	}
}

/* FNV-1a, the same on every machine; a byte 0 ends each text. */
static uint64
hash_text(uint64 hash, const char *text)
{
	for (;; text++)
	{
		hash ^= text == NULL ? 0xff : (unsigned char) *text;
		hash *= UINT64CONST(0x100000001b3);
		if (text == NULL || *text == '\0')
			return hash;
	}
}

/* Whether the type has its region workers to itself. */
static bool
is_alone(const ShardSettings *settings)
{
	return strcmp(settings->value[SHARD_SETTING_WORKER], "own") == 0;
}

/*
 * A hash over what all members of a cluster must agree on: name, shards, how ids come to shards, role,
 * allocation, time for a move, whose workers, copies.
 */
static uint64
settings_hash(const char *type_name, const ShardSettings *settings)
{
	static const ShardSettingId agreed[] = {SHARD_SETTING_NUMBER_OF_SHARDS,
											SHARD_SETTING_HASH,
											SHARD_SETTING_SHARD_ID_EXTRACTOR,
											SHARD_SETTING_ROLE,
											SHARD_SETTING_ALLOCATION_STRATEGY,
											SHARD_SETTING_ALLOCATION_SETTINGS,
											SHARD_SETTING_HANDOFF_TIMEOUT};
	uint64 hash = hash_text(UINT64CONST(0xcbf29ce484222325), type_name);

	for (int i = 0; i < (int) lengthof(agreed); i++)
		hash = hash_text(hash, settings->value[agreed[i]]);
	/* types that share, or have no copies, are what they were before there was a choice */
	if (is_alone(settings))
		hash = hash_text(hash, settings->value[SHARD_SETTING_WORKER]);
	for (int id = SHARD_SETTING_REPLICAS; id <= SHARD_SETTING_ON_TOO_FEW && has_replicas(settings);
		 id++)
		hash = hash_text(hash, settings->value[id]);
	return hash;
}

/*
 * What members need to be told as a text: "murmur2", or "murmur2 public.my_shard(text)"; then, each on a
 * line of its own, the functions that allocate and rebalance.
 */
static char *
make_hashing(const ShardSettings *settings)
{
	const char *extractor = settings->value[SHARD_SETTING_SHARD_ID_EXTRACTOR];
	StringInfoData out;

	initStringInfo(&out);
	appendStringInfoString(&out, settings->value[SHARD_SETTING_HASH]);
	if (extractor != NULL)
		appendStringInfo(&out, " %s", extractor);
	for (int i = 0; i < 2; i++)
	{
		const char *function = shard_settings_strategy_function(settings, i == 1);

		if (function != NULL)
			appendStringInfo(&out, "\n%s", function);
	}
	return out.data;
}

/* Takes the text up to a sign out of the front; NULL if there is no more. */
static char *
take_part(char **text, char sign)
{
	char *part = *text;
	char *end = part != NULL ? strchr(part, sign) : NULL;

	*text = NULL;
	if (end != NULL)
	{
		*end = '\0';
		*text = end + 1;
	}
	return part;
}

void
shard_settings_to_record(const char *type_name, const ShardSettings *settings,
						 ShardTypeRecord *record)
{
	const char *role = settings->value[SHARD_SETTING_ROLE];

	record->name = pstrdup(type_name);
	record->number_of_shards =
		(int32) shard_settings_number(settings, SHARD_SETTING_NUMBER_OF_SHARDS);
	record->settings_hash = settings_hash(type_name, settings);
	shard_settings_allocation(settings, &record->allocation);
	record->strategy = record->allocation.kind;
	record->handoff_timeout_ms =
		(int32) Max(shard_settings_number(settings, SHARD_SETTING_HANDOFF_TIMEOUT) / 1000, 1);
	record->role = pstrdup(role != NULL ? role : "");
	record->hashing = make_hashing(settings);
	record->own_worker = is_alone(settings);
	if (!has_replicas(settings))
		return;
	record->replicas = (int32) shard_settings_number(settings, SHARD_SETTING_REPLICAS);
	record->min_insync = (int32) shard_settings_number(settings, SHARD_SETTING_MIN_INSYNC);
	if (strcmp(settings->value[SHARD_SETTING_ON_TOO_FEW], "stop") == 0)
		record->on_too_few = SHARD_TOO_FEW_STOP;
	record->leased = true;
	record->features = SHARD_FEATURE_REPLICAS;
}

/* The reverse, as far as the record knows; the rest of the settings is left as it is. */
void
shard_settings_from_record(ShardSettings *settings, const ShardTypeRecord *record)
{
	char *functions = pstrdup(record->hashing);
	char *hash = take_part(&functions, '\n');
	char *allocate = take_part(&functions, '\n');

	settings->value[SHARD_SETTING_NUMBER_OF_SHARDS] = psprintf("%d", record->number_of_shards);
	settings->value[SHARD_SETTING_ROLE] = record->role[0] != '\0' ? pstrdup(record->role) : NULL;
	settings->value[SHARD_SETTING_HASH] = take_part(&hash, ' ');
	settings->value[SHARD_SETTING_SHARD_ID_EXTRACTOR] = hash;
	settings->value[SHARD_SETTING_WORKER] = record->own_worker ? "own" : "shared";
	settings->value[SHARD_SETTING_REPLICAS] = psprintf("%d", record->replicas);
	if (record->replicas > 0)
	{
		settings->value[SHARD_SETTING_MIN_INSYNC] = psprintf("%d", record->min_insync);
		settings->value[SHARD_SETTING_ON_TOO_FEW] =
			record->on_too_few == SHARD_TOO_FEW_STOP ? "stop" : "run";
	}
	if (record->handoff_timeout_ms > 0)
		settings->value[SHARD_SETTING_HANDOFF_TIMEOUT] =
			shard_duration_format(record->handoff_timeout_ms * INT64CONST(1000));
	shard_settings_allocation_from_record(settings, record, allocate, functions);
}
