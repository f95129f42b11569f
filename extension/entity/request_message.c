/*
 * entity/request_message.c
 *		Requests: names of their timers, and the contents of the messages about them, which are jsonb (E48, E49).
 *
 * As with timers, contents pass all checks on their way between nodes, and what they say is judged at the home alone.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "utils/builtins.h"

#include "entity/content.h"
#include "entity/request.h"

#include "base/compat.h"

#define KEY_DIGITS 32

/* ---- names --------------------------------------------------------------------------------------- */

static void
digest(ShardUuid key, uint8 result[PG_SHA256_DIGEST_LENGTH])
{
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);
	uint8 bytes[16];

	for (int i = 0; i < 8; i++)
	{
		bytes[i] = (uint8) (key.high >> (8 * i));
		bytes[8 + i] = (uint8) (key.low >> (8 * i));
	}
	if (context == NULL || pg_cryptohash_init(context) < 0 ||
		pg_cryptohash_update(context, bytes, sizeof(bytes)) < 0 ||
		pg_cryptohash_final(context, result, PG_SHA256_DIGEST_LENGTH) < 0)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
						errmsg("could not compute the name of a request: %s",
							   context == NULL ? "out of memory" : pg_cryptohash_error(context))));
	pg_cryptohash_free(context);
}

char *
shard_request_name(ShardUuid key)
{
	uint8 result[PG_SHA256_DIGEST_LENGTH];
	char *name = palloc(SHARD_REQUEST_NAME_LEN + 1);
	char *id = name + strlen(SHARD_REQUEST_PREFIX);

	digest(key, result);
	memcpy(name, SHARD_REQUEST_PREFIX, id - name);
	(void) hex_encode((const char *) result, SHARD_REQUEST_ID_LEN / 2, id);
	name[SHARD_REQUEST_NAME_LEN] = '\0';
	return name;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static JsonbParseState *
begin_with_key(ShardUuid key)
{
	JsonbParseState *state = NULL;
	char *digits =
		psprintf("%016llx%016llx", (unsigned long long) key.high, (unsigned long long) key.low);

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	shard_content_put_text(&state, "key", digits, KEY_DIGITS);
	return state;
}

static Jsonb *
end(JsonbParseState *state)
{
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

static void
put_string(JsonbParseState **state, const char *key, const char *text)
{
	shard_content_put_text(state, key, text, (int) strlen(text));
}

Jsonb *
shard_request_put(const ShardAsking *asking)
{
	JsonbParseState *state = begin_with_key(asking->key);

	shard_content_put_number(&state, "shard", asking->shard);
	shard_content_put_json(&state, "message", asking->message, asking->message_len);
	return end(state);
}

Jsonb *
shard_request_put_reply(ShardUuid key, const char *body, int len)
{
	JsonbParseState *state = begin_with_key(key);

	put_string(&state, "response", "reply");
	shard_content_put_json(&state, "reply", body, len);
	return end(state);
}

Jsonb *
shard_request_put_error(ShardUuid key, const ErrorData *error)
{
	JsonbParseState *state = begin_with_key(key);

	put_string(&state, "response", "error");
	put_string(&state, "error", error->message == NULL ? "" : error->message);
	put_string(&state, "sqlstate", unpack_sql_state(error->sqlerrcode));
	return end(state);
}

Jsonb *
shard_request_put_timeout(const char *id, const char *type_name, const text *entity,
						  const Jsonb *with)
{
	JsonbParseState *state = NULL;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	put_string(&state, "response", "timeout");
	put_string(&state, "request", id);
	put_string(&state, "type", type_name);
	shard_content_put_text(&state, "entity", VARDATA_ANY(entity), VARSIZE_ANY_EXHDR(entity));
	if (with != NULL)
		shard_content_put_json(&state, "with", VARDATA(with), VARSIZE(with) - VARHDRSZ);
	return end(state);
}

/* Of pairs with the same name the last one counts. */
Jsonb *
shard_request_put_answer(const ShardTimer *timer, Jsonb *content)
{
	static const char *const keys[] = {"response", "reply", "error", "sqlstate"};
	Jsonb *timeout = shard_content_open(timer->message, timer->message_len);
	JsonbIterator *iterator = JsonbIteratorInit(&timeout->root);
	JsonbParseState *state = NULL;
	JsonbValue value;
	JsonbIteratorToken token;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
		if (token == WJB_KEY || token == WJB_VALUE)
			(void) pushJsonbValue(&state, token, &value);
	for (int i = 0; i < lengthof(keys); i++)
	{
		JsonbValue *found = shard_content_get(content, keys[i]);

		if (found != NULL)
			shard_content_put(&state, keys[i], found);
	}
	return end(state);
}

/* ---- reading ------------------------------------------------------------------------------------- */

static bool
read_digits(const char *text, uint64 *number)
{
	static const char digits[] = "0123456789abcdef";

	*number = 0;
	for (int i = 0; i < KEY_DIGITS / 2; i++)
	{
		const char *digit = memchr(digits, text[i], strlen(digits));

		if (digit == NULL)
			return false;
		*number = *number << 4 | (uint64) (digit - digits);
	}
	return true;
}

static bool
read_key(Jsonb *json, ShardUuid *key)
{
	const char *digits;
	int len;

	return json != NULL && JB_ROOT_IS_OBJECT(json) &&
		   shard_content_text(json, "key", KEY_DIGITS, &digits, &len) && len == KEY_DIGITS &&
		   read_digits(digits, &key->high) && read_digits(digits + KEY_DIGITS / 2, &key->low);
}

bool
shard_request_get(const char *payload, int payload_len, ShardAsking *asking)
{
	Jsonb *json = shard_content_open(payload, payload_len);
	JsonbValue *message;
	Jsonb *copy;
	int64 shard;

	memset(asking, 0, sizeof(*asking));
	if (!read_key(json, &asking->key) || (message = shard_content_get(json, "message")) == NULL)
		return false;
	shard = shard_content_number(json, "shard");
	copy = JsonbValueToJsonb(message);
	asking->shard = shard < 0 || shard > PG_INT32_MAX ? -1 : (int32) shard;
	asking->message = VARDATA(copy);
	asking->message_len = VARSIZE(copy) - VARHDRSZ;
	return true;
}

bool
shard_request_get_response(const char *payload, int payload_len, ShardUuid *key, Jsonb **content)
{
	*content = shard_content_open(payload, payload_len);
	return read_key(*content, key);
}
