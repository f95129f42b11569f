/*
 * base/plan_json.c
 *		Strict reading of the jsonb arguments of planners.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "base/plan_json.h"

#include "base/compat.h"

/* Refuses a value; the rest is what must stand there, as a format. */
#define refuse(value, ...) \
	ereport(ERROR, \
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE), \
			 errmsg("invalid value in %s", shard_plan_json_path(value)), errdetail(__VA_ARGS__)))

char *
shard_plan_json_path(const ShardPlanValue *value)
{
	char *parent;

	if (value->parent == NULL)
		return pstrdup(value->name);
	parent = shard_plan_json_path(value->parent);
	return value->name != NULL ? psprintf("%s.%s", parent, value->name)
							   : psprintf("%s[%d]", parent, value->index);
}

char *
shard_plan_json_list(const char *const *names)
{
	StringInfoData list;

	initStringInfo(&list);
	for (; *names != NULL; names++)
		if (**names != '\0')
			appendStringInfo(&list, list.len > 0 ? ", \"%s\"" : "\"%s\"", *names);
	return list.data;
}

/* An argument as a value. */
ShardPlanValue
shard_plan_json_root(Jsonb *json, const char *name)
{
	ShardPlanValue value = {.name = name};

	if (json == NULL)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("argument \"%s\" must not be null", name)));
	value.json.type = jbvBinary;
	value.json.val.binary.data = &json->root;
	value.json.val.binary.len = VARSIZE(json) - VARHDRSZ;
	return value;
}

/* The container of an array or object; a scalar argument is stored as an array of one. */
static JsonbContainer *
container_of(const ShardPlanValue *value, bool object)
{
	JsonbContainer *container = value->json.type == jbvBinary ? value->json.val.binary.data : NULL;

	if (container == NULL || JsonContainerIsScalar(container) ||
		object != (bool) JsonContainerIsObject(container))
		refuse(value, object ? "It must be an object." : "It must be an array.");
	return container;
}

/* The members or elements of a container, without those inside of them. */
static int
read_container(const ShardPlanValue *value, bool object, ShardPlanValue **result)
{
	JsonbContainer *container = container_of(value, object);
	JsonbIterator *iterator = JsonbIteratorInit(container);
	ShardPlanValue *members = palloc0(Max(JsonContainerSize(container), 1) * sizeof(**result));
	JsonbIteratorToken token;
	JsonbValue json;
	int n = 0;

	while ((token = JsonbIteratorNext(&iterator, &json, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			members[n].name = pnstrdup(json.val.string.val, json.val.string.len);
		if (token != WJB_VALUE && token != WJB_ELEM)
			continue;
		members[n].parent = value;
		members[n].index = n;
		members[n++].json = json;
	}
	*result = members;
	return n;
}

int
shard_plan_json_fields(const ShardPlanValue *object, ShardPlanValue **fields)
{
	return read_container(object, true, fields);
}

int
shard_plan_json_elements(const ShardPlanValue *array, ShardPlanValue **elements)
{
	return read_container(array, false, elements);
}

/* The member of this name, NULL if there is none. */
const ShardPlanValue *
shard_plan_json_find(const ShardPlanValue *fields, int n_fields, const char *name)
{
	for (int i = 0; i < n_fields; i++)
		if (strcmp(fields[i].name, name) == 0)
			return &fields[i];
	return NULL;
}

const ShardPlanValue *
shard_plan_json_need(const ShardPlanValue *object, const ShardPlanValue *fields, int n_fields,
					 const char *name)
{
	const ShardPlanValue *field = shard_plan_json_find(fields, n_fields, name);

	if (field == NULL)
		refuse(object, "It must have a member \"%s\".", name);
	return field;
}

/* The place of a name in a list that NULL ends, -1 if it is not there. */
static int
find_name(const char *const *names, const char *name)
{
	for (int i = 0; names[i] != NULL; i++)
		if (names[i][0] != '\0' && strcmp(names[i], name) == 0)
			return i;
	return -1;
}

void
shard_plan_json_allow(const ShardPlanValue *fields, int n_fields, const char *const *names)
{
	for (int i = 0; i < n_fields; i++)
		if (find_name(names, fields[i].name) < 0)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("unknown name \"%s\" in %s", fields[i].name,
								   shard_plan_json_path(fields[i].parent)),
							errhint("Names that are known: %s.", shard_plan_json_list(names))));
}

/* The number as text, exactly; NULL if the value is none. */
static char *
number_text(const ShardPlanValue *value)
{
	if (value->json.type != jbvNumeric)
		return NULL;
	return DatumGetCString(
		DirectFunctionCall1(numeric_out, NumericGetDatum(value->json.val.numeric)));
}

/* The integer that a number is, even if it is written 1.0; false if it is none, or too large. */
static bool
number_integer(const ShardPlanValue *value, int64 *integer)
{
	char *text = number_text(value);
	char *fraction = text != NULL ? strchr(text, '.') : NULL;
	char *end;

	if (text == NULL)
		return false;
	if (fraction != NULL && fraction[1 + strspn(fraction + 1, "0")] != '\0')
		return false;
	errno = 0;
	*integer = strtoll(text, &end, 10);
	return errno == 0 && (*end == '\0' || end == fraction);
}

/* An integer between bounds. */
int32
shard_plan_json_int(const ShardPlanValue *value, int32 least, int32 most)
{
	int64 integer;

	if (!number_integer(value, &integer) || integer < least || integer > most)
		refuse(value, "It must be an integer from %d to %d.", least, most);
	return (int32) integer;
}

int32
shard_plan_json_int_key(const ShardPlanValue *value, int32 least, int32 most)
{
	char *end;
	int64 integer;

	errno = 0;
	integer = strtoll(value->name, &end, 10);
	if (errno != 0 || integer < least || integer > most ||
		strcmp(value->name, psprintf(INT64_FORMAT, integer)) != 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid name \"%s\" in %s", value->name,
							   shard_plan_json_path(value->parent)),
						errdetail("It must be an integer from %d to %d.", least, most)));
	return (int32) integer;
}

/* A number between bounds. */
double
shard_plan_json_double(const ShardPlanValue *value, double least, double most)
{
	double number = 0;

	if (value->json.type == jbvNumeric)
		number = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
													NumericGetDatum(value->json.val.numeric)));
	if (value->json.type != jbvNumeric || !(number >= least && number <= most))
		refuse(value, "It must be a number from %g to %g.", least, most);
	return number;
}

/* true or false. */
bool
shard_plan_json_bool(const ShardPlanValue *value)
{
	if (value->json.type != jbvBool)
		refuse(value, "It must be true or false.");
	return value->json.val.boolean;
}

/* A text. */
char *
shard_plan_json_text(const ShardPlanValue *value)
{
	if (value->json.type != jbvString)
		refuse(value, "It must be a text.");
	return pnstrdup(value->json.val.string.val, value->json.val.string.len);
}

int
shard_plan_json_choice(const ShardPlanValue *value, const char *const *names)
{
	int index = value->json.type == jbvString ? find_name(names, shard_plan_json_text(value)) : -1;

	if (index < 0)
		refuse(value, "It must be one of %s.", shard_plan_json_list(names));
	return index;
}

int
shard_plan_json_texts(const ShardPlanValue *array, char ***texts)
{
	ShardPlanValue *elements;
	int n = shard_plan_json_elements(array, &elements);

	*texts = palloc(Max(n, 1) * sizeof(char *));
	for (int i = 0; i < n; i++)
		(*texts)[i] = shard_plan_json_text(&elements[i]);
	return n;
}
