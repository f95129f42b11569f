/*
 * settings_store.c
 *		Settings of an entity type to and from the table.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "duration.h"
#include "settings.h"

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
		set_string(&json, shard_settings_name(id));
		pushJsonbValue(&state, WJB_KEY, &json);
		if (shard_settings_is_number(id))
		{
			json.type = jbvNumeric;
			json.val.numeric = int64_to_numeric(strtoll(text, NULL, 10));
		}
		else
			set_string(&json, text);
		pushJsonbValue(&state, WJB_VALUE, &json);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* The text of a stored value; palloc'd. */
static const char *
stored_text(ShardSettingId id, const JsonbValue *json)
{
	if (json->type == jbvString)
		return pnstrdup(json->val.string.val, json->val.string.len);
	if (json->type == jbvNumeric)
		return DatumGetCString(
			DirectFunctionCall1(numeric_out, NumericGetDatum(json->val.numeric)));
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

/* See settings.h. */
uint64
shard_settings_hash(const char *type_name, const ShardSettings *settings)
{
	static const ShardSettingId agreed[] = {SHARD_SETTING_NUMBER_OF_SHARDS,
											SHARD_SETTING_HASH,
											SHARD_SETTING_SHARD_ID_EXTRACTOR,
											SHARD_SETTING_ROLE,
											SHARD_SETTING_ALLOCATION_STRATEGY,
											SHARD_SETTING_ALLOCATION_SETTINGS};
	uint64 hash = hash_text(UINT64CONST(0xcbf29ce484222325), type_name);

	for (int i = 0; i < (int) lengthof(agreed); i++)
		hash = hash_text(hash, settings->value[agreed[i]]);
	return hash;
}

/* "murmur2", or "murmur2 public.my_shard(text)". */
char *
shard_settings_hashing(const ShardSettings *settings)
{
	const char *extractor = settings->value[SHARD_SETTING_SHARD_ID_EXTRACTOR];

	return psprintf("%s%s%s", settings->value[SHARD_SETTING_HASH], extractor ? " " : "",
					extractor ? extractor : "");
}

/* The reverse. */
void
shard_settings_from_hashing(ShardSettings *settings, const char *hashing)
{
	char *hash = pstrdup(hashing);
	char *extractor = strchr(hash, ' ');

	if (extractor != NULL)
		*extractor++ = '\0';
	settings->value[SHARD_SETTING_HASH] = hash;
	settings->value[SHARD_SETTING_SHARD_ID_EXTRACTOR] = extractor;
}
