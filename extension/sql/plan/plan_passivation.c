/*
 * sql/plan/plan_passivation.c
 *		Which entities a passivation strategy lets go, for a list of accesses.
 *
 * The core's strategies, fed from SQL: nothing is read, nothing is changed.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "core/entity/passivation.h"
#include "base/plan_json.h"
#include "registry/settings.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_plan_passivation);

/* An entity that an access has named. */
typedef struct PlanEntity
{
	ShardPassivationEntity core;
	char *name; /* as in the result */
} PlanEntity;

typedef struct NameEntry
{
	char *name; /* shard/id */
	PlanEntity *entity;
	char status;
} NameEntry;

#define SH_PREFIX names
#define SH_ELEMENT_TYPE NameEntry
#define SH_KEY_TYPE char *
#define SH_KEY name
#define SH_HASH_KEY(table, key) hash_bytes((const unsigned char *) (key), strlen(key))
#define SH_EQUAL(table, a, b) (strcmp(a, b) == 0)
#define SH_SCOPE static inline
#define SH_DEFINE
#define SH_DECLARE
#include "lib/simplehash.h"

typedef struct ShardEntry
{
	int32 number;
	ShardPassivationShard *shard; /* NULL: not active */
} ShardEntry;

/* The accesses so far. */
typedef struct Rehearsal
{
	ShardPassivation *region;
	MemoryContext memory; /* of what outlives a step */
	names_hash *entities;
	HTAB *shards;
	int64 now;
	int step;
	ReturnSetInfo *result;
} Rehearsal;

/* One access, taken apart. */
typedef struct Access
{
	const char *text; /* as it was given */
	int64 at;		  /* -1: not given */
	int32 shard;
	char *id; /* NULL: none */
} Access;

/* ---- accesses --------------------------------------------------------------------------------- */

/* An access that cannot be understood. */
static void
refuse(const char *text, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid access \"%s\"", text),
					errdetail_internal("%s", detail),
					errhint("Write 'id', 'shard/id', 'shard/id@milliseconds', '@milliseconds', "
							"'!limit number', '!remove shard/id' or '!stop shard'.")));
}

/* Reads digits up to end, at least one; false if there is anything else, or the number is too large. */
static bool
read_digits(const char *text, const char *end, int64 most, int64 *number)
{
	*number = 0;
	if (text == end)
		return false;
	for (; text < end; text++)
	{
		if (*text < '0' || *text > '9' || *number > (most - (*text - '0')) / 10)
			return false;
		*number = *number * 10 + (*text - '0');
	}
	return true;
}

/* Cut the time off the end of an access, if there is one. */
static void
cut_time(char *text, Access *access)
{
	char *at = strrchr(text, '@');
	int64 milliseconds;

	access->at = -1;
	if (at == NULL)
		return;
	if (read_digits(at + 1, at + strlen(at), PG_INT64_MAX / 1000, &milliseconds))
	{
		access->at = milliseconds * 1000;
		*at = '\0';
	}
	else if (at == text)
		refuse(access->text, "After \"@\" there must be a number of milliseconds.");
}

/* Take "shard/id" or "id" apart; an id without a shard is one of shard 1. */
static void
read_entity(char *text, Access *access)
{
	char *slash = strchr(text, '/');
	int64 shard;

	access->shard = 1;
	access->id = text;
	if (slash != NULL && slash != text && strspn(text, "0123456789") == slash - text)
	{
		if (!read_digits(text, slash, PG_INT32_MAX, &shard))
			refuse(access->text, "The number of the shard is too large.");
		access->shard = (int32) shard;
		access->id = slash + 1;
	}
	if (*access->id == '\0')
		refuse(access->text, "The id of the entity is empty.");
}

/* The entry of a shard, which may not be active. */
static ShardEntry *
find_shard(Rehearsal *plan, int32 number)
{
	bool found;
	ShardEntry *entry = hash_search(plan->shards, &number, HASH_ENTER, &found);

	if (!found)
		entry->shard = NULL;
	return entry;
}

/* The entity that an access names; it is made if no access has named it before. */
static PlanEntity *
find_entity(Rehearsal *plan, const Access *access)
{
	char *full = psprintf("%d/%s", access->shard, access->id);
	bool found;
	NameEntry *entry = names_insert(plan->entities, full, &found);

	if (!found)
	{
		MemoryContext step_memory = MemoryContextSwitchTo(plan->memory);

		entry->name = pstrdup(full);
		entry->entity = palloc0(sizeof(PlanEntity));
		entry->entity->name = access->shard == 1 ? strchr(entry->name, '/') + 1 : entry->name;
		entry->entity->core.hash =
			(uint32) shard_message_hash_murmur2(access->id, strlen(access->id));
		MemoryContextSwitchTo(step_memory);
	}
	return entry->entity;
}

/* Add the victims of a step to the result. */
static void
report(Rehearsal *plan, dlist_head *victims)
{
	while (!dlist_is_empty(victims))
	{
		PlanEntity *entity = dlist_container(PlanEntity, core.place, dlist_pop_head_node(victims));
		Datum values[2] = {Int32GetDatum(plan->step), CStringGetTextDatum(entity->name)};
		bool nulls[2] = {false, false};

		tuplestore_putvalues(plan->result->setResult, plan->result->setDesc, values, nulls);
	}
}

/* An access to an entity. Its shard becomes active if it is not. */
static void
run_access(Rehearsal *plan, const Access *access, dlist_head *victims)
{
	ShardEntry *entry = find_shard(plan, access->shard);

	if (entry->shard == NULL)
	{
		MemoryContext step_memory = MemoryContextSwitchTo(plan->memory);

		entry->shard = shard_passivation_add_shard(plan->region, victims);
		MemoryContextSwitchTo(step_memory);
	}
	shard_passivation_accessed(plan->region, entry->shard, &find_entity(plan, access)->core,
							   plan->now, victims);
}

/* A command, which begins with an exclamation mark. */
static void
run_command(Rehearsal *plan, char *text, Access *access, dlist_head *victims)
{
	const char *end = text + strlen(text);
	int64 number;

	if (strncmp(text, "!limit ", 7) == 0 && read_digits(text + 7, end, PG_INT32_MAX, &number) &&
		number > 0)
		shard_passivation_set_limit(plan->region, (int) number, victims);
	else if (strncmp(text, "!stop ", 6) == 0 && read_digits(text + 6, end, PG_INT32_MAX, &number))
	{
		ShardEntry *entry = find_shard(plan, (int32) number);

		if (entry->shard != NULL)
			shard_passivation_remove_shard(plan->region, entry->shard, victims);
		entry->shard = NULL;
	}
	else if (strncmp(text, "!remove ", 8) == 0)
	{
		read_entity(text + 8, access);
		shard_passivation_remove(plan->region, &find_entity(plan, access)->core);
	}
	else
		refuse(access->text, "The command is not one of those that there are, or its number is "
							 "out of range.");
}

/* One step: entities that were idle for too long leave first, then what the access says is done. */
static void
run_step(Rehearsal *plan, const char *given)
{
	Access access = {.text = given};
	char *text = pstrdup(given);
	dlist_head victims;

	dlist_init(&victims);
	if (*text == '\0')
		refuse(given, "It is empty.");
	cut_time(text, &access);
	if (access.at >= 0)
	{
		if (access.at < plan->now)
			refuse(given, "Its time is before that of the access before it.");
		plan->now = access.at;
	}
	shard_passivation_idle(plan->region, plan->now, &victims);
	report(plan, &victims);
	if (*text == '!')
		run_command(plan, text, &access, &victims);
	else if (*text != '\0')
	{
		read_entity(text, &access);
		run_access(plan, &access, &victims);
	}
	report(plan, &victims);
}

/* ---- the function ----------------------------------------------------------------------------- */

/*
 * shard_plan_passivation(strategy text, settings jsonb, accesses text[])
 *		returns table (step int4, passivated text)
 */
Datum
shard_plan_passivation(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {"strategy", "settings", "accesses"};
	HASHCTL control = {.keysize = sizeof(int32), .entrysize = sizeof(ShardEntry)};
	ShardPlanValue json;
	ShardPassivationSettings settings;
	Rehearsal plan = {.memory = CurrentMemoryContext};
	MemoryContext step_memory;
	Datum *accesses;
	bool *nulls;
	int n_accesses;

	for (int i = 0; i < lengthof(names); i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("argument \"%s\" must not be null", names[i])));
	json = shard_plan_json_arg(1, "settings");
	settings = shard_settings_read_passivation(text_to_cstring(PG_GETARG_TEXT_PP(0)), &json, true);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), TEXTOID, -1, false, TYPALIGN_INT, &accesses, &nulls,
					  &n_accesses);

	InitMaterializedSRF(fcinfo, 0);
	plan.result = (ReturnSetInfo *) fcinfo->resultinfo;
	plan.region = shard_passivation_create(&settings);
	plan.entities = names_create(plan.memory, 64, NULL);
	control.hcxt = plan.memory;
	plan.shards =
		hash_create("shards of a plan", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	step_memory = AllocSetContextCreate(plan.memory, "step of a plan", ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(step_memory);
	for (int i = 0; i < n_accesses; i++)
	{
		CHECK_FOR_INTERRUPTS();
		plan.step = i + 1;
		if (nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("argument \"accesses\" must not contain nulls")));
		run_step(&plan, TextDatumGetCString(accesses[i]));
		MemoryContextReset(step_memory);
	}
	MemoryContextSwitchTo(plan.memory);
	MemoryContextDelete(step_memory);
	hash_destroy(plan.shards);
	shard_passivation_destroy(plan.region);
	return (Datum) 0;
}
