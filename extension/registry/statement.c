/*
 * registry/statement.c
 *		The extension's own SQL: planned at first use, kept for the life of the process; or planned for one call.
 *
 * A plan that is kept is made once, for all values of its parameters, and without a look at how large a table is just
 * then: the tables of messages that wait are empty most of the time, when the plan is made, and when vacuum has said so
 * and it is made anew. Read from end to end then, as is best for a table without a page, each later piece of a backlog
 * of 100 000 messages costs as much as all of it. So these are planned by indexes, whatever the server believes.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "jit/jit.h"
#include "optimizer/cost.h"
#include "optimizer/planner.h"
#include "utils/builtins.h"
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

/* The statement that runs, the innermost, of those whose plan is kept; their texts are there for ever. */
static const char *running = NULL;

static planner_hook_type next_planner = NULL;

static PlannedStmt *
plan_next(Query *query, const char *sql, int options, ParamListInfo params)
{
	if (next_planner != NULL)
		return next_planner(query, sql, options, params);
	return standard_planner(query, sql, options, params);
}

/*
 * Plans by indexes what runs here, whenever the server plans it (anew). What a user runs in a trigger has another text,
 * and is planned as ever.
 */
static PlannedStmt *
plan_by_index(Query *query, const char *sql, int options, ParamListInfo params)
{
	bool ways[] = {enable_seqscan, enable_bitmapscan, enable_sort, jit_enabled};
	PlannedStmt *plan;

#ifdef SHARD_MUTANT_PLAN_BY_SIZE
	return plan_next(query, sql, options, params);
#endif
	if (running == NULL || sql == NULL || strcmp(sql, running) != 0)
		return plan_next(query, sql, options, params);

	/* a plan that has no other way seems dear enough to be compiled for each run */
	enable_seqscan = enable_bitmapscan = enable_sort = jit_enabled = false;
	PG_TRY();
	{
		plan = plan_next(query, sql, options, params);
	}
	PG_FINALLY();
	{
		enable_seqscan = ways[0];
		enable_bitmapscan = ways[1];
		enable_sort = ways[2];
		jit_enabled = ways[3];
	}
	PG_END_TRY();
	return plan;
}

/* The statement's plan, which is made when it runs; the caller has connected to SPI. */
static SPIPlanPtr
plan_of(ShardStatement *statement)
{
	static bool hooked = false;

	if (!hooked)
	{
		next_planner = planner_hook;
		planner_hook = plan_by_index;
		hooked = true;
	}
	if (statement->plan == NULL)
	{
		SPIPlanPtr plan = SPI_prepare_cursor(statement->sql, statement->parameters, statement->type,
											 CURSOR_OPT_GENERIC_PLAN);

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
	const char *outer = running;

	ShardAssert(arguments->count == statement->parameters);
	running = statement->sql;
	if (SPI_execute_plan(plan_of(statement), arguments->value, arguments->null, read_only, limit) !=
		expected)
		elog(ERROR, "could not run \"%s\"", statement->sql);
	running = outer;
}

struct PortalData *
shard_statement_open(ShardStatement *statement)
{
	const char *outer = running;
	Portal portal;

	running = statement->sql;
	portal = SPI_cursor_open(NULL, plan_of(statement), NULL, NULL, false);
	running = outer;
	return portal;
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
