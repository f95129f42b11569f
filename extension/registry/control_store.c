/*
 * registry/control_store.c
 *		Durable records of the control plane: table shard.control (core/action.h).
 *
 * The control worker is the only writer: its lock (control.c) sees to it. Everything that a
 * step changes is written by one transaction of the caller's; if the process dies before its commit,
 * nothing of the step was.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/builtins.h"

#include "registry/control_store.h"

#include "base/compat.h"

#define KEY_COLUMNS 4

/* Statements, each planned once for a process. */
typedef enum Statement
{
	PUT,
	REMOVE,
	CLEAR,
	GET,
	STATEMENTS
} Statement;

static const char *const texts[STATEMENTS] = {
	"INSERT INTO shard.control AS c (store, kind, a, b, n, deleted, value) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (store, kind, a, b) "
	"DO UPDATE SET n = excluded.n, deleted = excluded.deleted, value = excluded.value",
	"DELETE FROM shard.control "
	"WHERE store OPERATOR(pg_catalog.=) $1 AND kind OPERATOR(pg_catalog.=) $2 "
	"AND a OPERATOR(pg_catalog.=) $3 AND b OPERATOR(pg_catalog.=) $4",
	"DELETE FROM shard.control WHERE store OPERATOR(pg_catalog.=) $1",
	"SELECT store, kind, a, b, n, deleted, value FROM shard.control "
	"WHERE store OPERATOR(pg_catalog.=) $1 AND kind OPERATOR(pg_catalog.=) $2 "
	"AND a OPERATOR(pg_catalog.=) $3 AND b OPERATOR(pg_catalog.=) $4"};

static const int arguments[STATEMENTS] = {7, 4, 1, 4};

static SPIPlanPtr plans[STATEMENTS];

static SPIPlanPtr
plan_of(Statement statement)
{
	Oid types[7] = {INT2OID, INT4OID, INT4OID, INT4OID, INT8OID, BOOLOID, BYTEAOID};

	if (plans[statement] != NULL)
		return plans[statement];
	plans[statement] = SPI_prepare(texts[statement], arguments[statement], types);
	if (plans[statement] == NULL)
		elog(ERROR, "could not prepare a statement on shard.control");
	SPI_keepplan(plans[statement]);
	return plans[statement];
}

static void
execute(Statement statement, Datum *values)
{
	if (SPI_execute_plan(plan_of(statement), values, NULL, false, 0) < 0)
		elog(ERROR, "could not write shard.control");
}

static void
apply(const ShardWrite *write)
{
	const ShardMapEntry *entry = &write->entry;
	Datum values[7] = {Int16GetDatum(write->store), Int32GetDatum(entry->key.kind),
					   Int32GetDatum(entry->key.a), Int32GetDatum(entry->key.b)};
	bytea *value;

	if (write->clear || write->remove)
	{
		execute(write->clear ? CLEAR : REMOVE, values);
		return;
	}
	value = palloc(VARHDRSZ + entry->length);
	SET_VARSIZE(value, VARHDRSZ + entry->length);
	if (entry->length > 0)
		memcpy(VARDATA(value), entry->value, entry->length);
	values[4] = Int64GetDatum(entry->n);
	values[5] = BoolGetDatum(entry->deleted);
	values[6] = PointerGetDatum(value);
	execute(PUT, values);
	pfree(value);
}

void
shard_control_store_apply(const ShardWrite *writes, int count)
{
	SPI_connect();
	for (int i = 0; i < count; i++)
		apply(&writes[i]);
	SPI_finish();
}

/*
 * A row as a write.
 */
static void
read_row(HeapTuple row, TupleDesc desc, ShardWrite *write)
{
	bool isnull;
	bytea *value;

	memset(write, 0, sizeof(ShardWrite));
	write->store = (ShardStore) DatumGetInt16(SPI_getbinval(row, desc, 1, &isnull));
	write->entry.key.kind = DatumGetInt32(SPI_getbinval(row, desc, 2, &isnull));
	write->entry.key.a = DatumGetInt32(SPI_getbinval(row, desc, 3, &isnull));
	write->entry.key.b = DatumGetInt32(SPI_getbinval(row, desc, 4, &isnull));
	write->entry.n = DatumGetInt64(SPI_getbinval(row, desc, 5, &isnull));
	write->entry.deleted = DatumGetBool(SPI_getbinval(row, desc, 6, &isnull));
	value = DatumGetByteaPP(SPI_getbinval(row, desc, 7, &isnull));
	write->entry.length = VARSIZE_ANY_EXHDR(value);
	write->entry.value = VARDATA_ANY(value);
}

void
shard_control_store_load(ShardControlStoreVisit visit, void *arg)
{
	ShardMapEntry *entries;
	ShardStore store = SHARD_STORE_NODE;
	int count = 0;

	SPI_connect();
	if (SPI_execute(
			"SELECT store, kind, a, b, n, deleted, value FROM shard.control ORDER BY store, n",
			true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read shard.control");
	entries = palloc_extended(sizeof(ShardMapEntry) * Max(SPI_processed, 1), MCXT_ALLOC_HUGE);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		ShardWrite write;

		read_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, &write);
		if (count > 0 && write.store != store)
		{
			visit(store, entries, count, arg);
			count = 0;
		}
		store = write.store;
		entries[count++] = write.entry;
	}
	if (count > 0)
		visit(store, entries, count, arg);
	SPI_finish();
}

void
shard_control_store_learned(ShardMapKind kind, void (*visit)(const ShardMapEntry *entry, void *arg),
							void *arg)
{
	Oid types[2] = {INT2OID, INT4OID};
	Datum values[2] = {Int16GetDatum(SHARD_STORE_LEARNED), Int32GetDatum(kind)};

	SPI_connect();
	if (SPI_execute_with_args("SELECT store, kind, a, b, n, deleted, value FROM shard.control "
							  "WHERE store OPERATOR(pg_catalog.=) $1 "
							  "AND kind OPERATOR(pg_catalog.=) $2 ORDER BY a, b",
							  2, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read shard.control");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		ShardWrite write;

		read_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, &write);
		if (!write.entry.deleted)
			visit(&write.entry, arg);
	}
	SPI_finish();
}

/*
 * One record of what was learned; its value is in SPI's memory. False: there is none.
 */
static bool
get_learned(int32 kind, int32 a, int32 b, ShardMapEntry *entry)
{
	Datum values[KEY_COLUMNS] = {Int16GetDatum(SHARD_STORE_LEARNED), Int32GetDatum(kind),
								 Int32GetDatum(a), Int32GetDatum(b)};
	ShardWrite write;

	if (SPI_execute_plan(plan_of(GET), values, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read shard.control");
	if (SPI_processed == 0)
		return false;
	read_row(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, &write);
	*entry = write.entry;
	return true;
}

int64
shard_control_store_upto(void)
{
	ShardMapEntry entry;

	return get_learned(0, 0, 0, &entry) ? entry.n : 0;
}

void
shard_control_store_home(int32 type_id, int32 shard, ShardFactLearned *learned)
{
	ShardMapEntry entry;

	learned->n = -1;
	learned->deleted = false;
	if (!get_learned(SHARD_MAP_HOME, type_id, shard, &entry))
		return;
	learned->n = entry.n;
	learned->deleted = entry.deleted || !shard_record_get_home(&entry, &learned->home);
	learned->home.extra = (ShardExtra){0};
	SPI_freetuptable(SPI_tuptable);
}

void
shard_control_store_target(int32 type_id, ShardTargetLearned *learned)
{
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entry;
	ShardTypeRecord type;
	ShardCountersRecord counters;

	*learned = (ShardTargetLearned){.upto_n = shard_control_store_upto()};
	if (get_learned(SHARD_MAP_COUNTERS, 0, 0, &entry) && !entry.deleted &&
		shard_record_get_counters(&entry, &counters))
		learned->last_type_id = counters.last_type_id;
	if (get_learned(SHARD_MAP_TYPE, type_id, 0, &entry) && !entry.deleted &&
		shard_record_get_type(&entry, &type, arena))
		learned->number_of_shards = type.number_of_shards;
	shard_arena_destroy(arena);
}

int32
shard_control_store_last_node(void)
{
	ShardMapEntry entry;
	ShardCountersRecord counters;

	return get_learned(SHARD_MAP_COUNTERS, 0, 0, &entry) && !entry.deleted &&
				   shard_record_get_counters(&entry, &counters)
			   ? counters.last_node_id
			   : 0;
}

int32
shard_control_store_status(int32 node)
{
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entry;
	ShardMemberRecord member;
	int32 status = SHARD_MEMBER_NONE;

	if (get_learned(SHARD_MAP_MEMBER, node, 0, &entry) && !entry.deleted &&
		shard_record_get_member(&entry, &member, arena))
		status = member.status;
	shard_arena_destroy(arena);
	return status;
}
