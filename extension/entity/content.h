/*
 * entity/content.h
 *		Contents of messages of our own, which are jsonb like any message's: writing and reading them.
 *
 * Reading trusts nothing that the contents say, and raises no error.
 */
#pragma once

#include "utils/jsonb.h"

/* ---- writing: a pair of the object that is being built ------------------------------------------- */

extern void shard_content_put(JsonbParseState **state, const char *key, JsonbValue *value);
extern void
shard_content_put_text(JsonbParseState **state, const char *key, const char *text, int len);
extern void shard_content_put_number(JsonbParseState **state, const char *key, int64 number);

/* A jsonb value without its header; NULL: null. */
extern void
shard_content_put_json(JsonbParseState **state, const char *key, const char *body, int len);

/* ---- reading ------------------------------------------------------------------------------------- */

/* A content as jsonb, in aligned memory; NULL: it is too short to be one. */
extern Jsonb *shard_content_open(const char *payload, int payload_len);

/* The value of a key of an object; NULL: there is none. */
extern JsonbValue *shard_content_get(Jsonb *json, const char *key);

/* The text of a key, copied; false: there is none, or it is longer than most. */
extern bool shard_content_text(Jsonb *json, const char *key, int most, const char **text, int *len);

/* The number of a key, 0 if there is none; one that is too large is the largest. */
extern int64 shard_content_number(Jsonb *json, const char *key);
