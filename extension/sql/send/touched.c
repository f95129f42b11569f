/*
 * sql/send/touched.c
 *		Triggers that tell shards with replicas what no turn has done: rows of states that SQL has changed (Q33), and dead
 *		letters that are gone (Q35).
 *
 * Comes from: the executor, in any process, in a transaction of anybody who may write the table. Goes to: the log, rows of
 * kind TOUCHED and LETTERS_GONE, which the worker of the shard's home meets (route/routing.c, entity/deliver.c).
 *
 * Whoever writes may be anybody: nothing is run here, and what is appended is taken from the row that was written and from
 * the table's own type. On a table that is no state table of a type with replicas the trigger does nothing.
 *
 * If the process dies right here: row and change are of one transaction.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "log/log.h"
#include "log/session.h"
#include "registry/catalog.h"
#include "registry/registry.h"
#include "shared/shmem.h"
#include "sql/send/api.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_state_touched);
PG_FUNCTION_INFO_V1(shard_letter_gone);

/* So many entities are remembered as told; beyond, one may be told again, which does no harm. */
#define MOST_TOLD 1024

/* An entity, with zeros behind its id. */
typedef struct Told
{
	int32 type_id;
	int32 shard;
	char entity[SHARD_MAX_ENTITY_ID + 1];
} Told;

static HTAB *told = NULL; /* Told, of this transaction; NULL: none */
static MemoryContext told_memory = NULL;
static bool follows_transactions = false;

/* ---- once for an entity and transaction -------------------------------------------------------- */

static void
forget_told(void)
{
	if (told_memory != NULL)
		MemoryContextDelete(told_memory);
	told_memory = NULL;
	told = NULL;
}

/* Its memory goes with the transaction. */
static void
transaction_changed(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
	{
		told_memory = NULL;
		told = NULL;
	}
}

/* What a subtransaction has told is undone with it. */
static void
subtransaction_changed(SubXactEvent event, SubTransactionId level, SubTransactionId parent,
					   void *arg)
{
#ifndef SHARD_MUTANT_TOLD_NOT_UNDONE
	if (event == SUBXACT_EVENT_ABORT_SUB)
		forget_told();
#endif
}

static void
make_told(void)
{
	HASHCTL info = {.keysize = sizeof(Told), .entrysize = sizeof(Told)};

	if (!follows_transactions)
	{
		RegisterXactCallback(transaction_changed, NULL);
		RegisterSubXactCallback(subtransaction_changed, NULL);
		follows_transactions = true;
	}
	told_memory = AllocSetContextCreate(TopTransactionContext, "shard touched entities",
										ALLOCSET_DEFAULT_SIZES);
	info.hcxt = told_memory;
	told = hash_create("touched entities", 256, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Whether the entity has been told by this transaction; from now on it has. */
static bool
is_told(int32 type_id, int32 shard, const char *entity, int len)
{
	Told key = {.type_id = type_id, .shard = shard};
	bool found;

	if (told != NULL && hash_get_num_entries(told) >= MOST_TOLD)
		forget_told();
	if (told == NULL)
		make_told();
	memcpy(key.entity, entity, len);
	(void) hash_search(told, &key, HASH_ENTER, &found);
	return found;
}

/* ---- states ------------------------------------------------------------------------------------- */

/* A table as the trigger sees it in one statement. */
typedef struct Watched
{
	Oid table;
	const ShardType *type; /* NULL: it is no state table of a type with replicas */
	AttrNumber shard;
	AttrNumber entity;
} Watched;

static void
look_at_type(ShardType *type, void *arg)
{
	Watched *watched = arg;

	if (type->exists && type->replicas > 0 && type->state_table == watched->table)
		watched->type = type;
}

/* The number of a column that is as the extension has made it. */
static AttrNumber
column(Relation rel, const char *name, Oid type)
{
	AttrNumber number = get_attnum(RelationGetRelid(rel), name);

	if (number <= 0 || TupleDescAttr(RelationGetDescr(rel), number - 1)->atttypid != type)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("state table \"%s\" has no column \"%s\" of type %s",
						RelationGetRelationName(rel), name, format_type_be(type)),
				 errdetail("The members that keep copies of the states cannot be told which entity "
						   "is changed."),
				 errhint("Make the column as it was before you change rows.")));
	return number;
}

/* What the table is, once for each statement. */
static const Watched *
look_at_table(FunctionCallInfo fcinfo, Relation rel)
{
	Watched *watched = fcinfo->flinfo->fn_extra;

	if (watched != NULL && watched->table == RelationGetRelid(rel))
		return watched;
	shard_shmem_require();
	(void) shard_catalog_lock(false);
	watched = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(Watched));
	watched->table = RelationGetRelid(rel);
	shard_registry_catch_up();
	shard_registry_each(look_at_type, watched);
	if (watched->type != NULL)
	{
		watched->shard = column(rel, "shard", INT4OID);
		watched->entity = column(rel, "entity_id", TEXTOID);
	}
	fcinfo->flinfo->fn_extra = watched;
	return watched;
}

/* Tells the home of a row's entity, if there can be such an entity. */
static void
touch(const Watched *watched, HeapTuple tuple, TupleDesc desc)
{
	const ShardType *type = watched->type;
	ShardRow row = {.type_id = type->type_id, .kind = SHARD_KIND_TOUCHED, .epoch = -1};
	text *entity;
	bool no_shard;
	bool no_entity;
	Datum id = heap_getattr(tuple, watched->entity, desc, &no_entity);

	row.shard = DatumGetInt32(heap_getattr(tuple, watched->shard, desc, &no_shard));
	if (no_shard || no_entity || row.shard < 0 || row.shard >= type->number_of_shards)
		return;
	entity = DatumGetTextPP(id);
	row.entity = VARDATA_ANY(entity);
	row.entity_len = VARSIZE_ANY_EXHDR(entity);
	row.payload = "";
	if (row.entity_len == 0 || row.entity_len > SHARD_MAX_ENTITY_ID ||
		is_told(row.type_id, row.shard, row.entity, row.entity_len))
		return;
	shard_api_check_room(type, 0);
	shard_log_append(&row);
	shard_session_appended(shard_message_lane(row.type_id, row.shard));
}

static void
refuse_truncate(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot truncate state table \"%s\" of a type with replicas",
					RelationGetRelationName(rel)),
			 errdetail("The members that keep copies of the states have to be told of each row."),
			 errhint("Use DELETE FROM shard_entity.%s.",
					 quote_identifier(RelationGetRelationName(rel)))));
}

/* Whether it is the key of another entity. */
static bool
is_another(const Watched *watched, HeapTuple before, HeapTuple after, TupleDesc desc)
{
	bool none;
	bool isnull;
	Datum one = heap_getattr(before, watched->shard, desc, &none);
	Datum other = heap_getattr(after, watched->shard, desc, &isnull);
	text *id;
	text *other_id;

	if (none || isnull || DatumGetInt32(one) != DatumGetInt32(other))
		return true;
	one = heap_getattr(before, watched->entity, desc, &none);
	other = heap_getattr(after, watched->entity, desc, &isnull);
	if (none || isnull)
		return true;
	id = DatumGetTextPP(one);
	other_id = DatumGetTextPP(other);
	return VARSIZE_ANY_EXHDR(id) != VARSIZE_ANY_EXHDR(other_id) ||
		   memcmp(VARDATA_ANY(id), VARDATA_ANY(other_id), VARSIZE_ANY_EXHDR(id)) != 0;
}

/*
 * shard.state_touched() returns trigger
 *
 * Of state tables of types with replicas: after each row that is written, and before TRUNCATE.
 */
Datum
shard_state_touched(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	const Watched *watched;
	TupleDesc desc;
	bool truncates;

	truncates = CALLED_AS_TRIGGER(fcinfo) && TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event);
	if (!CALLED_AS_TRIGGER(fcinfo) || (!truncates && (!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
													  !TRIGGER_FIRED_AFTER(trigger->tg_event))))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("shard.state_touched is for triggers after rows of state tables, "
							   "and for TRUNCATE")));
	watched = look_at_table(fcinfo, trigger->tg_relation);
	if (watched->type == NULL)
		return PointerGetDatum(NULL);
	if (truncates)
		refuse_truncate(trigger->tg_relation);
	desc = RelationGetDescr(trigger->tg_relation);
	touch(watched, trigger->tg_trigtuple, desc);
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) &&
		is_another(watched, trigger->tg_trigtuple, trigger->tg_newtuple, desc))
		touch(watched, trigger->tg_newtuple, desc);
	return PointerGetDatum(NULL);
}

/* ---- dead letters ------------------------------------------------------------------------------- */

static int64
number_of(const TriggerData *trigger, const char *name, bool wide)
{
	Relation rel = trigger->tg_relation;
	bool isnull;
	Datum value = heap_getattr(trigger->tg_trigtuple, get_attnum(RelationGetRelid(rel), name),
							   RelationGetDescr(rel), &isnull);

	if (isnull)
		return 0;
	return wide ? DatumGetInt64(value) : DatumGetInt32(value);
}

/*
 * shard.letter_gone() returns trigger
 *
 * After a dead letter was deleted that has a name in its shard, by whomever.
 */
Datum
shard_letter_gone(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	ShardRow row = {.kind = SHARD_KIND_LETTERS_GONE, .epoch = -1, .entity = ""};
	ShardLetterGone gone;
	const ShardType *type;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		!TRIGGER_FIRED_AFTER(trigger->tg_event) || !TRIGGER_FIRED_BY_DELETE(trigger->tg_event) ||
		RelationGetRelid(trigger->tg_relation) != shard_catalog_get()->dead_letter)
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("shard.letter_gone is for the trigger of shard.dead_letter")));
	row.type_id = (int32) number_of(trigger, "type_id", false);
	row.shard = (int32) number_of(trigger, "shard", false);
	shard_shmem_require();
	(void) shard_catalog_lock(false);
	shard_registry_catch_up();
	type = shard_registry_by_id(row.type_id);
	if (type == NULL || type->replicas == 0)
		return PointerGetDatum(NULL);
	gone.number = number_of(trigger, "number", true);
	gone.lost = number_of(trigger, "lost", false);
	row.payload = (const char *) &gone;
	row.payload_len = sizeof(gone);
	shard_log_append(&row);
	shard_session_appended(shard_message_lane(row.type_id, row.shard));
	return PointerGetDatum(NULL);
}
