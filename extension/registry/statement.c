/*
 * registry/statement.c
 *		The extension's own SQL: planned at first use, kept for the life of the process; or planned for one call.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "shard.h"
#include "registry/statement.h"

#include "base/compat.h"

void
shard_statement_add(ShardArguments *arguments, Datum value, bool isnull)
{
	arguments->value[arguments->count] = value;
	arguments->null[arguments->count++] = isnull ? 'n' : ' ';
}

void
shard_statement_add_text(ShardArguments *arguments, const char *text, int len)
{
	shard_statement_add(arguments,
						text == NULL ? (Datum) 0
									 : PointerGetDatum(cstring_to_text_with_len(text, len)),
						text == NULL);
}

void
shard_statement_add_string(ShardArguments *arguments, const char *text)
{
	shard_statement_add_text(arguments, text, text == NULL ? 0 : strlen(text));
}

struct _SPI_plan *
shard_statement_plan(ShardStatement *statement)
{
	if (statement->plan == NULL)
	{
		SPIPlanPtr plan = SPI_prepare(statement->sql, statement->parameters, statement->type);

		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not plan \"%s\"", statement->sql);
		statement->plan = plan;
	}
	return statement->plan;
}

static void
execute(ShardStatement *statement, ShardArguments *arguments, bool read_only, int limit,
		int expected)
{
	ShardAssert(arguments->count == statement->parameters);
	if (SPI_execute_plan(shard_statement_plan(statement), arguments->value, arguments->null,
						 read_only, limit) != expected)
		elog(ERROR, "could not run \"%s\"", statement->sql);
}

void
shard_statement_run(ShardStatement *statement, ShardArguments *arguments, int expected)
{
	execute(statement, arguments, false, 0, expected);
}

void
shard_statement_read(ShardStatement *statement, ShardArguments *arguments, int limit)
{
	execute(statement, arguments, true, limit, SPI_OK_SELECT);
}

void
shard_statement_run_in_order(ShardStatement *statement, ShardArguments *arguments)
{
	static const char *const ways[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort"};
	int level = NewGUCNestLevel();

	for (int i = 0; i < lengthof(ways); i++)
		(void) set_config_option(ways[i], "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true,
								 0, false);
	shard_statement_run(statement, arguments, SPI_OK_SELECT);
	AtEOXact_GUC(true, level);
}

static void
execute_once(const ShardStatement *statement, const ShardArguments *arguments, bool read_only,
			 int limit, int expected)
{
	ShardArguments none = {0};
	int result;

	if (arguments == NULL)
		arguments = &none;
	ShardAssert(arguments->count == statement->parameters);
	result = SPI_execute_with_args(statement->sql, statement->parameters,
								   unconstify(ShardStatement *, statement)->type,
								   unconstify(ShardArguments *, arguments)->value, arguments->null,
								   read_only, limit);
	if (result < 0 || (expected != 0 && result != expected))
		elog(ERROR, "could not run \"%s\"", statement->sql);
}

void
shard_statement_once(const ShardStatement *statement, const ShardArguments *arguments, int expected)
{
	execute_once(statement, arguments, false, 0, expected);
}

void
shard_statement_once_read(const ShardStatement *statement, const ShardArguments *arguments,
						  int limit)
{
	execute_once(statement, arguments, true, limit, SPI_OK_SELECT);
}

void
shard_statement_change(ShardStatement *statement, ShardArguments *arguments, int expected)
{
	SPI_connect();
	shard_statement_run(statement, arguments, expected);
	SPI_finish();
}

void
shard_statement_change_one(ShardStatement *statement, ShardArguments *arguments, int expected)
{
	SPI_connect();
	shard_statement_run(statement, arguments, expected);
	if (SPI_processed != 1)
		elog(ERROR, "\"%s\" changed " UINT64_FORMAT " rows", statement->sql, SPI_processed);
	SPI_finish();
}

Datum
shard_statement_column(uint64 number, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[number], SPI_tuptable->tupdesc, column, isnull);
}

char *
shard_statement_text(uint64 number, int column)
{
	return SPI_getvalue(SPI_tuptable->vals[number], SPI_tuptable->tupdesc, column);
}

int32
shard_statement_int4(uint64 number, int column)
{
	bool isnull;
	Datum value = shard_statement_column(number, column, &isnull);

	return isnull ? 0 : DatumGetInt32(value);
}

int64
shard_statement_int8(uint64 number, int column)
{
	bool isnull;
	Datum value = shard_statement_column(number, column, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

char *
shard_statement_bytes(uint64 number, int column, MemoryContext context, int *len)
{
	bool isnull;
	Datum value = shard_statement_column(number, column, &isnull);
	struct varlena *bytes;
	char *copy;

	*len = 0;
	if (isnull)
		return NULL;
	bytes = PG_DETOAST_DATUM_PACKED(value);
	*len = VARSIZE_ANY_EXHDR(bytes);
	copy = MemoryContextAlloc(context, *len + 1);
	memcpy(copy, VARDATA_ANY(bytes), *len);
	copy[*len] = '\0';
	if ((Pointer) bytes != DatumGetPointer(value))
		pfree(bytes);
	return copy;
}
