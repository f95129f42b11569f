/*
 * registry/control_store.c
 *		Durable records of the control plane: table shard.control (core/map/action.h).
 *
 * The control worker is the only writer: its lock (control.c) sees to it. Everything that a
 * step changes is written by one transaction of the caller's; if the process dies before its commit,
 * nothing of the step was.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/builtins.h"

#include "registry/control_store.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Backends, whose search_path may be anything, read by these statements, too: operators name their schema. */
static ShardStatement put = {
	"INSERT INTO shard.control AS c (store, kind, a, b, n, deleted, value)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (store, kind, a, b)"
	" DO UPDATE SET n = excluded.n, deleted = excluded.deleted, value = excluded.value",
	7,
	{INT2OID, INT4OID, INT4OID, INT4OID, INT8OID, BOOLOID, BYTEAOID}};

static ShardStatement remove_one = {
	"DELETE FROM shard.control"
	" WHERE store OPERATOR(pg_catalog.=) $1 AND kind OPERATOR(pg_catalog.=) $2"
	" AND a OPERATOR(pg_catalog.=) $3 AND b OPERATOR(pg_catalog.=) $4",
	4,
	{INT2OID, INT4OID, INT4OID, INT4OID}};

static ShardStatement clear = {"DELETE FROM shard.control WHERE store OPERATOR(pg_catalog.=) $1",
							   1,
							   {INT2OID}};

static ShardStatement get = {
	"SELECT store, kind, a, b, n, deleted, value FROM shard.control"
	" WHERE store OPERATOR(pg_catalog.=) $1 AND kind OPERATOR(pg_catalog.=) $2"
	" AND a OPERATOR(pg_catalog.=) $3 AND b OPERATOR(pg_catalog.=) $4",
	4,
	{INT2OID, INT4OID, INT4OID, INT4OID}};

static ShardStatement get_all = {
	"SELECT store, kind, a, b, n, deleted, value FROM shard.control ORDER BY store, n"};

static ShardStatement get_kind = {
	"SELECT store, kind, a, b, n, deleted, value FROM shard.control"
	" WHERE store OPERATOR(pg_catalog.=) $1 AND kind OPERATOR(pg_catalog.=) $2 ORDER BY a, b",
	2,
	{INT2OID, INT4OID}};

static void
add_key(ShardArguments *arguments, ShardStore store, const ShardMapKey *key)
{
	shard_statement_add(arguments, Int16GetDatum(store), false);
	shard_statement_add(arguments, Int32GetDatum(key->kind), false);
	shard_statement_add(arguments, Int32GetDatum(key->a), false);
	shard_statement_add(arguments, Int32GetDatum(key->b), false);
}

static void
apply(const ShardWrite *write)
{
	const ShardMapEntry *entry = &write->entry;
	ShardArguments arguments = {0};

	if (write->clear)
	{
		shard_statement_add(&arguments, Int16GetDatum(write->store), false);
		shard_statement_run(&clear, &arguments, SPI_OK_DELETE);
		return;
	}
	add_key(&arguments, write->store, &entry->key);
	if (write->remove)
	{
		shard_statement_run(&remove_one, &arguments, SPI_OK_DELETE);
		return;
	}
	shard_statement_add(&arguments, Int64GetDatum(entry->n), false);
	shard_statement_add(&arguments, BoolGetDatum(entry->deleted), false);
	shard_statement_add_text(&arguments, entry->length > 0 ? entry->value : "", entry->length);
	shard_statement_run(&put, &arguments, SPI_OK_INSERT);
	pfree(DatumGetPointer(arguments.value[arguments.count - 1]));
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
	shard_statement_read(&get_all, &(ShardArguments){0}, 0);
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
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int16GetDatum(SHARD_STORE_LEARNED), false);
	shard_statement_add(&arguments, Int32GetDatum(kind), false);
	SPI_connect();
	shard_statement_read(&get_kind, &arguments, 0);
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
	ShardArguments arguments = {0};
	ShardWrite write;

	add_key(&arguments, SHARD_STORE_LEARNED, &(ShardMapKey){kind, a, b});
	shard_statement_read(&get, &arguments, 1);
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
