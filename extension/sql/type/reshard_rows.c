/*
 * sql/type/reshard_rows.c
 *		What is kept beside the states of a type gets the number of the type to come, and its shards.
 *
 * In the transaction in which the type gets its number: what waits, positions, timers, failures and dead letters belong
 * to one type or to the other. A bounded number of entities is in memory.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "sql/type/reshard.h"

#include "base/compat.h"

/* How long sessions that send dead letters again, or discard them, are waited for. */
#define LETTERS_TIMEOUT "10s"
#define LETTERS_MS (10 * 1000)

/* Entities that are looked at at once. */
#define ENTITIES 1000

/* The tables; lane: a column that follows the shard. */
static const struct
{
	const char *name;
	bool lane;
} tables[] = {{"held"}, {"parked"}, {"ordered"}, {"timer", true}, {"history"}, {"dead_letter"}};

/* Tables with the entity that sent. */
static const char *const senders[] = {"held", "parked", "dead_letter"};

/* Some entities of one table, by shard and id. */
typedef struct Slice
{
	int32 type_id;
	int32 number; /* of the type to come */
	int count;
	int32 was[ENTITIES];
	char *entity[ENTITIES];
	Datum datum[4][ENTITIES]; /* for the statement: shard, entity, shard to come, its lane */
} Slice;

/* The entities behind the last one of the slice. */
static void
read_slice(Slice *slice, const char *table)
{
	ShardStatement look = {psprintf("SELECT shard, entity FROM shard.%s WHERE type_id = $1"
									" AND (shard, entity COLLATE \"C\") > ($2, $3)"
									" GROUP BY shard, entity ORDER BY shard, entity COLLATE \"C\""
									" LIMIT %d",
									table, ENTITIES),
						   3,
						   {INT4OID, INT4OID, TEXTOID}};
	ShardArguments arguments = {0};
	ShardSecurity security = {0};
	MemoryContext caller = CurrentMemoryContext;
	bool first = slice->count == 0;

	shard_statement_add(&arguments, Int32GetDatum(slice->type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(first ? -1 : slice->was[slice->count - 1]),
						false);
	shard_statement_add_string(&arguments, first ? "" : slice->entity[slice->count - 1]);
	shard_security_open_system(&security);
	shard_statement_once(&look, &arguments, SPI_OK_SELECT);
	slice->count = (int) SPI_processed;
	for (int i = 0; i < slice->count; i++)
	{
		slice->was[i] = shard_statement_int4(i, 1);
		slice->entity[i] = MemoryContextStrdup(caller, shard_statement_text(i, 2));
	}
	shard_security_close_system(&security);
}

/* Where they belong. */
static void
find_shards(Slice *slice, ShardType *target)
{
	for (int i = 0; i < slice->count; i++)
	{
		int32 shard = shard_registry_shard_id(target, slice->entity[i], strlen(slice->entity[i]));

		slice->datum[0][i] = Int32GetDatum(slice->was[i]);
		slice->datum[1][i] = CStringGetTextDatum(slice->entity[i]);
		slice->datum[2][i] = Int32GetDatum(shard);
		slice->datum[3][i] = Int16GetDatum((int16) shard_message_lane(slice->number, shard));
	}
}

/* A column of the slice. */
static Datum
column(Slice *slice, int number, Oid type, int length, bool by_value, char align)
{
	return PointerGetDatum(
		construct_array(slice->datum[number], slice->count, type, length, by_value, align));
}

/* Writes their rows. */
static void
write_slice(Slice *slice, const char *table, bool lane)
{
	ShardStatement write = {
		psprintf("UPDATE shard.%s x SET type_id = $2, shard = m.shard%s"
				 " FROM unnest($3, $4, $5, $6) AS m (was, entity, shard, lane)"
				 " WHERE x.type_id = $1 AND x.shard = m.was AND x.entity = m.entity COLLATE \"C\"",
				 table, lane ? ", lane = m.lane" : ""),
		6,
		{INT4OID, INT4OID, INT4ARRAYOID, TEXTARRAYOID, INT4ARRAYOID, INT2ARRAYOID}};
	ShardArguments arguments = {0};
	ShardSecurity security = {0};

	shard_statement_add(&arguments, Int32GetDatum(slice->type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(slice->number), false);
	shard_statement_add(&arguments, column(slice, 0, INT4OID, 4, true, TYPALIGN_INT), false);
	shard_statement_add(&arguments, column(slice, 1, TEXTOID, -1, false, TYPALIGN_INT), false);
	shard_statement_add(&arguments, column(slice, 2, INT4OID, 4, true, TYPALIGN_INT), false);
	shard_statement_add(&arguments, column(slice, 3, INT2OID, 2, true, TYPALIGN_SHORT), false);
	shard_security_open_system(&security);
	shard_statement_once(&write, &arguments, SPI_OK_UPDATE);
	shard_security_close_system(&security);
}

/* All rows of one table. */
static void
move_table(Slice *slice, const char *table, bool lane, ShardType *target)
{
	MemoryContext two[2]; /* the last entity of a slice says where the next one begins */
	MemoryContext old = CurrentMemoryContext;

	for (int i = 0; i < 2; i++)
		two[i] = AllocSetContextCreate(old, "shard reshard slice", ALLOCSET_DEFAULT_SIZES);
	slice->count = 0;
	for (int turn = 0;; turn ^= 1)
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(two[turn]);
		MemoryContextSwitchTo(two[turn]);
		read_slice(slice, table);
		if (slice->count == 0)
			break;
		find_shards(slice, target);
		write_slice(slice, table, lane);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(two[0]);
	MemoryContextDelete(two[1]);
}

/* What entities of the type have sent names them by its number. */
static void
rename_senders(int32 type_id, int32 number, const char *table)
{
	ShardStatement write = {psprintf("UPDATE shard.%s SET src_type = $2 WHERE src_type = $1",
									 table),
							2,
							{INT4OID, INT4OID}};
	ShardArguments arguments = {0};
	ShardSecurity security = {0};

	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(number), false);
	shard_security_open_system(&security);
	shard_statement_once(&write, &arguments, SPI_OK_UPDATE);
	shard_security_close_system(&security);
}

void
shard_reshard_lock_letters(int32 type_id)
{
	const ShardStatement lock = {"SELECT FROM shard.dead_letter WHERE type_id = $1 FOR UPDATE",
								 1,
								 {INT4OID}};
	ShardArguments arguments = {0};
	ShardSecurity security = {0};

	if (LockTimeout == 0 || LockTimeout > LETTERS_MS)
		(void) set_config_option("lock_timeout", LETTERS_TIMEOUT, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_security_open_system(&security);
	shard_statement_once(&lock, &arguments, SPI_OK_SELECT);
	shard_security_close_system(&security);
}

void
shard_reshard_rows(int32 type_id, int32 number, ShardType *target)
{
	Slice *slice = palloc0(sizeof(Slice));

	slice->type_id = type_id;
	slice->number = number;
	for (int i = 0; i < lengthof(tables); i++)
	{
#ifdef SHARD_MUTANT_RESHARD_LEAVES_TIMERS
		if (tables[i].lane)
			continue;
#endif
		move_table(slice, tables[i].name, tables[i].lane, target);
	}
	for (int i = 0; i < lengthof(senders); i++)
		rename_senders(type_id, number, senders[i]);
	pfree(slice);
}
