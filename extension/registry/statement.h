/*
 * registry/statement.h
 *		The extension's own SQL: planned at first use, kept for the life of the process; or planned for one call.
 *
 * For the exceptional path of workers, which act as the bootstrap superuser, and for functions of operators; a message that
 * is simply handled runs none of it. The caller has ended any stretch of user code. What goes wrong is an internal error that
 * shows the statement; errors of the statement itself pass.
 */
#pragma once

#define SHARD_STATEMENT_PARAMETERS 20

struct _SPI_plan;

/* A statement. */
typedef struct ShardStatement
{
	const char *sql;
	int parameters;
	Oid type[SHARD_STATEMENT_PARAMETERS];
	struct _SPI_plan
		*plan; /* kept: by indexes, also where the tables were small when it was made */
} ShardStatement;

/* Values and nulls of its parameters, filled in order; all zeroes at first. */
typedef struct ShardArguments
{
	int count;
	Datum value[SHARD_STATEMENT_PARAMETERS];
	char null[SHARD_STATEMENT_PARAMETERS];
} ShardArguments;

extern void shard_statement_add(ShardArguments *arguments, Datum value, bool isnull);

/* A text or bytea of these bytes, NULL for a null pointer; and a string. */
extern void shard_statement_add_text(ShardArguments *arguments, const char *text, int len);
extern void shard_statement_add_string(ShardArguments *arguments, const char *text);

/* Runs the statement; the caller has connected to SPI. expected: SPI_OK_SELECT and the like. */
extern void shard_statement_run(ShardStatement *statement, ShardArguments *arguments, int expected);

/*
 * Runs a SELECT that sees what the active snapshot sees, and nothing that this transaction's present command has changed.
 * limit: rows at most, 0: all.
 */
extern void shard_statement_read(ShardStatement *statement, ShardArguments *arguments, int limit);

/* Opens a cursor of a SELECT without parameters, which the caller closes; the caller has connected to SPI. */
extern struct PortalData *shard_statement_open(ShardStatement *statement);

/*
 * The same as shard_statement_run and shard_statement_read, planned for this call alone: for text that is put together, and for
 * what a session does once. arguments: NULL if there are no parameters. expected 0: whatever succeeds.
 */
extern void shard_statement_once(const ShardStatement *statement, const ShardArguments *arguments,
								 int expected);
extern void shard_statement_once_read(const ShardStatement *statement,
									  const ShardArguments *arguments, int limit);

/* Runs a statement that returns nothing; the second must change exactly one row. */
extern void
shard_statement_change(ShardStatement *statement, ShardArguments *arguments, int expected);
extern void
shard_statement_change_one(ShardStatement *statement, ShardArguments *arguments, int expected);

/* A column of a row of the result, in SPI's memory. */
extern Datum shard_statement_column(uint64 number, int column, bool *isnull);

/* The same as text, in the current memory context; NULL for SQL NULL. */
extern char *shard_statement_text(uint64 number, int column);

/* The same as int4 and int8; 0 for SQL NULL. */
extern int32 shard_statement_int4(uint64 number, int column);
extern int64 shard_statement_int8(uint64 number, int column);

/* Bytes of a varlena column, copied to context, with a zero behind them; NULL for SQL NULL. */
extern char *shard_statement_bytes(uint64 number, int column, MemoryContext context, int *len);
