/*
 * base/plan_json.h
 *		Strict reading of the jsonb arguments of planners.
 *
 * A value that is not exactly as a planner wants it raises an error, 22023, that names the place in the argument
 * (members[2].node) and says what must be there. Names, texts and arrays are palloc'd, for the caller.
 */
#pragma once

#include "utils/jsonb.h"

/* A value, and where it stands. A value must outlive those that are in it. */
typedef struct ShardPlanValue
{
	const struct ShardPlanValue *parent; /* NULL: an argument */
	const char *name;					 /* key, or name of the argument; NULL in an array */
	int index;							 /* in an array */
	JsonbValue json;
} ShardPlanValue;

/* An argument as a value; an error, 22004, if it is NULL. */
#define shard_plan_json_arg(n, name) \
	shard_plan_json_root(PG_ARGISNULL(n) ? NULL : PG_GETARG_JSONB_P(n), name)

extern ShardPlanValue shard_plan_json_root(Jsonb *json, const char *name);

/*
 * The members of an object, in the order jsonb keeps: shorter names first, then by bytes. Returns their number.
 * shard_plan_json_find returns the member of a name, NULL if there is none.
 */
extern int shard_plan_json_fields(const ShardPlanValue *object, ShardPlanValue **fields);
extern const ShardPlanValue *
shard_plan_json_find(const ShardPlanValue *fields, int n_fields, const char *name);
/* The same, with an error if the object has no such member. */
extern const ShardPlanValue *
shard_plan_json_need(const ShardPlanValue *object, const ShardPlanValue *fields, int n_fields,
					 const char *name);
/* Error unless every name is in the list, which NULL ends; the hint prints the list. */
extern void
shard_plan_json_allow(const ShardPlanValue *fields, int n_fields, const char *const *names);

extern int shard_plan_json_elements(const ShardPlanValue *array, ShardPlanValue **elements);

extern int32 shard_plan_json_int(const ShardPlanValue *value, int32 least, int32 most);
/* The key of an object's member as a number, written as int4 is. */
extern int32 shard_plan_json_int_key(const ShardPlanValue *value, int32 least, int32 most);
extern double shard_plan_json_double(const ShardPlanValue *value, double least, double most);
extern bool shard_plan_json_bool(const ShardPlanValue *value);
extern char *shard_plan_json_text(const ShardPlanValue *value);
/* The index of a text in the list, which NULL ends; an error if the list has no such text. */
extern int shard_plan_json_choice(const ShardPlanValue *value, const char *const *names);
/* The texts of an array; returns their number. */
extern int shard_plan_json_texts(const ShardPlanValue *array, char ***texts);

/* A list that NULL ends, as text: "a", "b", "c"; palloc'd. Empty names are left out. */
extern char *shard_plan_json_list(const char *const *names);
/* Where a value stands, for errors that a planner raises itself; palloc'd. */
extern char *shard_plan_json_path(const ShardPlanValue *value);
