/*
 * sql/view/dead_letter.c
 *		shard_redrive, shard_discard: sending messages again that were given up, or deleting them for good.
 *
 * A dead letter that is sent again is appended to the inbox, at the end, as a new message of this node under its old
 * id, and deleted by the same transaction (doc/protocol.md D26); one that is discarded is only deleted. In batches: there
 * may be many; and one by one in memory: large ones. All of a call is the caller's transaction: if the process dies
 * right here, every letter is where it was.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "registry/catalog.h"
#include "entity/execution.h"
#include "log/log.h"
#include "registry/identity.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "log/session.h"
#include "shared/shmem.h"
#include "sql/send/handler_guard.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_redrive);
PG_FUNCTION_INFO_V1(shard_discard);

/* Parameters: last id of the batch before, ids or NULL, type ids. */
#define IS_CHOSEN "d.id > $1 AND ($2 IS NULL OR d.id = ANY ($2)) AND d.type_id = ANY ($3)"

static const ShardStatement foreign = {
	"SELECT type_id, id FROM shard.dead_letter WHERE id = ANY ($1) AND type_id <> ALL ($2) LIMIT 1",
	2,
	{INT8ARRAYOID, INT4ARRAYOID}};

static const ShardStatement bound = {
	"SELECT max(id) FROM (SELECT d.id FROM shard.dead_letter d WHERE " IS_CHOSEN
	" ORDER BY d.id LIMIT 256) batch",
	3,
	{INT8OID, INT8ARRAYOID, INT4ARRAYOID}};

static const ShardStatement take = {
	"SELECT type_id, shard, entity, kind, coalesce(src_type, 0), coalesce(src_entity, ''),"
	" mid_node, mid_seq, payload, coalesce(epoch, -1), stamp, id FROM shard.dead_letter d"
	" WHERE " IS_CHOSEN " AND d.id <= $4 ORDER BY d.id FOR UPDATE",
	4,
	{INT8OID, INT8ARRAYOID, INT4ARRAYOID, INT8OID}};

static const ShardStatement delete_taken = {"DELETE FROM shard.dead_letter WHERE id = ANY ($1)",
											1,
											{INT8ARRAYOID}};

static const ShardStatement discard = {"DELETE FROM shard.dead_letter d WHERE " IS_CHOSEN
									   " AND d.id <= $4",
									   4,
									   {INT8OID, INT8ARRAYOID, INT4ARRAYOID, INT8OID}};

/* What the call is about. */
typedef struct Letters
{
	bool discard;		/* delete them for good, or send them again */
	const char *action; /* as errors say it: "permission denied to ..." */
	Datum ids;			/* int8[], or NULL for all */
	bool all;
	ArrayType *types; /* int4[]: those the caller may send again, or discard */
	int64 count;	  /* messages so far */
} Letters;

/* Ids of the types that the caller owns, while they are gathered. */
typedef struct TypeList
{
	Datum *id;
	int count;
} TypeList;

static void
add_owned(ShardType *type, void *arg)
{
	TypeList *list = arg;

	if (!type->exists || !shard_security_is_owner(type))
		return;
	if (list->id == NULL)
		list->id = palloc(sizeof(Datum));
	else
		list->id = repalloc(list->id, (list->count + 1) * sizeof(Datum));
	list->id[list->count++] = Int32GetDatum(type->type_id);
}

/*
 * The types whose messages the call is about: the one named, or all that the caller owns.
 */
static ArrayType *
choose_types(FunctionCallInfo fcinfo, const char *action)
{
	TypeList list = {0};

	if (PG_ARGISNULL(1))
	{
		shard_registry_catch_up();
		shard_registry_each(add_owned, &list);
	}
	else
	{
		ShardType *type = shard_registry_get_present(text_to_cstring(PG_GETARG_TEXT_PP(1)));

		shard_security_check_owner(type, action);
		add_owned(type, &list);
	}
	return construct_array(list.id, list.count, INT4OID, sizeof(int32), true, TYPALIGN_INT);
}

static Datum
column(int row, int number)
{
	bool isnull;

	return shard_statement_column(row, number, &isnull);
}

/*
 * Finds a dead letter that was asked for by id and is not the caller's. Returns its type, 0 if there is none.
 */
static int32
find_foreign(const Letters *letters, int64 *id)
{
	ShardArguments arguments = {0};

	if (letters->all)
		return 0;
	shard_statement_add(&arguments, letters->ids, false);
	shard_statement_add(&arguments, PointerGetDatum(letters->types), false);
	shard_statement_once(&foreign, &arguments, SPI_OK_SELECT);
	if (SPI_processed == 0)
		return 0;
	*id = DatumGetInt64(column(0, 2));
	return DatumGetInt32(column(0, 1));
}

/*
 * Appends a dead letter. Tag and stamp of its old way stay
 * behind: by them a newer home would refuse it, or a mark drop it.
 */
static void
append_row(int number)
{
	text *entity = DatumGetTextPP(column(number, 3));
	text *src_entity = DatumGetTextPP(column(number, 6));
	bytea *payload = DatumGetByteaPP(column(number, 9));
	ShardType *type = shard_registry_by_id(DatumGetInt32(column(number, 1)));
	ShardRow row = {
		.type_id = DatumGetInt32(column(number, 1)),
		.shard = DatumGetInt32(column(number, 2)),
		.entity = VARDATA_ANY(entity),
		.entity_len = VARSIZE_ANY_EXHDR(entity),
		.kind = DatumGetInt16(column(number, 4)),
		.epoch = -1,
		.src_type = DatumGetInt32(column(number, 5)),
		.src_entity = VARDATA_ANY(src_entity),
		.src_entity_len = VARSIZE_ANY_EXHDR(src_entity),
		.mid_node = DatumGetInt32(column(number, 7)),
		.mid_seq = DatumGetInt64(column(number, 8)),
		.payload = VARDATA_ANY(payload),
		.payload_len = VARSIZE_ANY_EXHDR(payload),
	};

#ifdef SHARD_MUTANT_REDRIVE_OLD_STAMP
	row.epoch = DatumGetInt32(column(number, 10));
	if (row.epoch >= 0)
		row.stamp = shard_log_get_stamp(VARDATA_ANY(DatumGetByteaPP(column(number, 11))));
#endif
	shard_log_append(&row);
	if (type != NULL)
		shard_session_told(type, row.shard);
}

/*
 * Appends what a query has locked. The log copies; what was unpacked of one
 * message is freed before the next.
 */
static void
append_rows(uint64 count)
{
	MemoryContext scratch =
		AllocSetContextCreate(CurrentMemoryContext, "shard redrive", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(scratch);

	for (uint64 i = 0; i < count; i++)
	{
		append_row((int) i);
		MemoryContextReset(scratch);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scratch);
}

/*
 * Sends the letters again that a query has locked, and deletes them: those alone, whatever has become a letter meanwhile.
 * That they are gone is told behind the messages (Q35), so that no record has the one without the other.
 */
static void
send_again(void)
{
	uint64 count = SPI_processed;
	SPITupleTable *rows = SPI_tuptable;
	ShardArguments arguments = {0};
	Datum *ids = palloc(sizeof(Datum) * Max(count, 1));
	ArrayType *taken;

	append_rows(count);
	for (uint64 i = 0; i < count; i++)
		ids[i] = column((int) i, 12);
	taken =
		construct_array(ids, (int) count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
	shard_statement_add(&arguments, PointerGetDatum(taken), false);
	shard_statement_once(&delete_taken, &arguments, SPI_OK_DELETE);
	pfree(taken);
	pfree(ids);
	SPI_freetuptable(rows);
}

/*
 * Moves the next batch; *last is the last id looked at. False if there is none.
 */
static bool
move_batch(Letters *letters, int64 *last)
{
	ShardArguments arguments = {0};
	bool none;

	shard_statement_add(&arguments, Int64GetDatum(*last), false);
	shard_statement_add(&arguments, letters->ids, letters->all);
	shard_statement_add(&arguments, PointerGetDatum(letters->types), false);
	shard_statement_once(&bound, &arguments, SPI_OK_SELECT);
	*last = DatumGetInt64(shard_statement_column(0, 1, &none));
	if (none)
		return false;
	shard_statement_add(&arguments, Int64GetDatum(*last), false);
	if (letters->discard)
		shard_statement_once(&discard, &arguments, SPI_OK_DELETE);
	else
	{
		shard_statement_once(&take, &arguments, SPI_OK_SELECT);
		send_again();
	}
	letters->count += SPI_processed;
	SPI_freetuptable(SPI_tuptable);
	return true;
}

/* Raises the error about a dead letter of another owner's type, of another type than the one named, or of none. */
static void
report_foreign(const Letters *letters, int32 type_id, int64 id)
{
	ShardType *type = shard_registry_by_id(type_id);

	if (type != NULL)
	{
		shard_security_check_owner(type, letters->action);
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("dead letter " INT64_FORMAT " is of entity type \"%s\"", id, type->name),
				 errdetail("The call names another type."),
				 errhint("Leave the type out, or the id.")));
	}
	else
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("entity type of dead letter " INT64_FORMAT " does not exist", id),
				 errdetail("The type was dropped. A type of the same name that was "
						   "started since gets none of its messages, as it may belong to "
						   "another role."),
				 errhint("A superuser sees it in shard_dead_letters, may send what it says to "
						 "another type with shard_tell(), and may delete it from "
						 "shard.dead_letter.")));
}

/*
 * Moves everything that was chosen, as the system: the table is closed to all.
 */
static void
move_all(Letters *letters)
{
	ShardSecurity security = {0};
	int32 foreign_type;
	int64 foreign_id = 0;
	int64 last = 0;

	shard_security_begin_system(&security);
	SPI_connect();
	foreign_type = find_foreign(letters, &foreign_id);
	while (foreign_type == 0 && move_batch(letters, &last))
		CHECK_FOR_INTERRUPTS();
	SPI_finish();
	shard_security_end(&security);
	if (foreign_type != 0)
		report_foreign(letters, foreign_type, foreign_id);
}

/* What both functions begin with. name: of the function, with parentheses. */
static Letters
begin_call(FunctionCallInfo fcinfo, const char *name, const char *guard, const char *action)
{
	Letters letters = {.action = action};

	shard_shmem_require();
	shard_handler_guard_check(guard, NULL, NULL);
	PreventCommandDuringRecovery(name);
	PreventCommandIfReadOnly(name);
	(void) shard_catalog_lock(false);
	letters.all = PG_ARGISNULL(0);
	letters.ids = letters.all ? (Datum) 0 : PG_GETARG_DATUM(0);
	return letters;
}

/*
 * shard_redrive(ids int8[], type_name text) returns int8
 *
 * Sends dead letters again: those of the ids, of the type, or all that the
 * caller may. Returns how many.
 */
Datum
shard_redrive(PG_FUNCTION_ARGS)
{
	Letters letters = begin_call(fcinfo, "shard_redrive()", "redrive messages",
								 "redrive messages of entity type");

	shard_identity_check_open();
	letters.types = choose_types(fcinfo, letters.action);
	move_all(&letters);
	PG_RETURN_INT64(letters.count);
}

/*
 * shard_discard(ids int8[], type_name text) returns int8
 *
 * Deletes dead letters for good: those of the ids, of the type, or of both. Returns how many. What nobody named is not
 * deleted: without ids and type it is an error.
 */
Datum
shard_discard(PG_FUNCTION_ARGS)
{
	Letters letters = begin_call(fcinfo, "shard_discard()", "discard dead letters",
								 "discard dead letters of entity type");

	if (PG_ARGISNULL(0) && PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("shard_discard() needs ids or a type"),
						errdetail("What it deletes is gone for good, so it does not take all types "
								  "at once."),
						errhint("For example shard_discard(type_name => 'cart'), or with the ids "
								"that view shard_dead_letters shows.")));
	letters.discard = true;
	letters.types = choose_types(fcinfo, letters.action);
	move_all(&letters);
	PG_RETURN_INT64(letters.count);
}
