/*
 * entity/content.c
 *		Contents of messages of our own, which are jsonb like any message's: writing and reading them.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "entity/content.h"

#include "base/compat.h"

void
shard_content_put(JsonbParseState **state, const char *key, JsonbValue *value)
{
	JsonbValue name = {.type = jbvString};

	name.val.string.val = unconstify(char *, key);
	name.val.string.len = (int) strlen(key);
	(void) pushJsonbValue(state, WJB_KEY, &name);
	(void) pushJsonbValue(state, WJB_VALUE, value);
}

void
shard_content_put_text(JsonbParseState **state, const char *key, const char *text, int len)
{
	JsonbValue value = {.type = jbvString};

	value.val.string.val = unconstify(char *, text);
	value.val.string.len = len;
	shard_content_put(state, key, &value);
}

void
shard_content_put_number(JsonbParseState **state, const char *key, int64 number)
{
	JsonbValue value = {.type = jbvNumeric};

	value.val.numeric = int64_to_numeric(number);
	shard_content_put(state, key, &value);
}

void
shard_content_put_json(JsonbParseState **state, const char *key, const char *body, int len)
{
	JsonbValue value = {.type = jbvNull};

	if (body != NULL)
	{
		char *copy = palloc(len);

		memcpy(copy, body, len);
		value.type = jbvBinary;
		value.val.binary.data = (JsonbContainer *) copy;
		value.val.binary.len = len;
	}
	shard_content_put(state, key, &value);
}

Jsonb *
shard_content_open(const char *payload, int payload_len)
{
	Jsonb *json;

	if (payload_len < (int) sizeof(uint32))
		return NULL;
	json = palloc(payload_len + VARHDRSZ);
	SET_VARSIZE(json, payload_len + VARHDRSZ);
	memcpy(VARDATA(json), payload, payload_len);
	return json;
}

JsonbValue *
shard_content_get(Jsonb *json, const char *key)
{
	return getKeyJsonValueFromContainer(&json->root, key, (int) strlen(key), NULL);
}

bool
shard_content_text(Jsonb *json, const char *key, int most, const char **text, int *len)
{
	const JsonbValue *value = shard_content_get(json, key);

	if (value == NULL || value->type != jbvString || value->val.string.len > most)
		return false;
	*text = pnstrdup(value->val.string.val, value->val.string.len);
	*len = value->val.string.len;
	return true;
}

int64
shard_content_number(Jsonb *json, const char *key)
{
	const JsonbValue *value = shard_content_get(json, key);

	if (value == NULL || value->type != jbvNumeric)
		return 0;
	return strtoll(numeric_normalize(value->val.numeric), NULL, 10);
}
