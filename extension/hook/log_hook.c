/*
 * hook/log_hook.c
 *		What of statements that have addresses in them reaches the server's log: how they begin.
 *
 * An address with a password is refused, but the server writes the statement of an error into its log, where every
 * reader of the log sees it: the refused one, one with a misspelt option, one of a role that may not call the function,
 * or a transaction that failed before. So statements, contexts and queries with such a call in them are left out,
 * wherever the error is raised; what comes before any literal, comment or call is written instead, so that a role
 * cannot hide a statement by adding such a call to it. The message itself is written as always. Nothing is kept here,
 * so nothing is lost if the process dies.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "tcop/tcopprot.h"
#include "utils/elog.h"
#include "utils/guc.h"

#include "hook/hook.h"

#include "base/compat.h"

/* The most bytes of a statement that are written; errors may be about memory. */
#define MOST_SHOWN 1024

static emit_log_hook_type previous_hook = NULL;

static bool
has_call(const char *text)
{
	return text != NULL && shard_log_call_in_text(text);
}

/* Says in the log, and nowhere else, that a statement is left out, and how it begins. */
static void
say_left_out(ErrorData *error, const char *statement, size_t shown)
{
	const char *detail = error->detail_log != NULL ? error->detail_log : error->detail;
	int length = pg_mbcliplen(statement, (int) Min(shown, MOST_SHOWN), MOST_SHOWN);

	error->detail_log =
		psprintf("%s%sThe statement may have an address in it and is left out; it "
				 "begins with: %.*s",
				 detail != NULL ? detail : "", detail != NULL ? "\n" : "", length, statement);
}

/* The statement that fails may be another one than that of the client, which calls it. */
static void
leave_out(ErrorData *error)
{
	size_t shown;
	bool statement =
		debug_query_string != NULL && shard_log_call_in_statement(debug_query_string, &shown);

	if (statement && !error->hide_stmt && error->elevel >= log_min_error_statement)
		say_left_out(error, debug_query_string, shown);
	error->hide_stmt |= statement;
	error->hide_ctx |= statement || has_call(error->context);
	if (has_call(error->internalquery))
	{
		pfree(error->internalquery);
		error->internalquery = NULL;
		error->internalpos = 0;
	}
	if (previous_hook != NULL)
		previous_hook(error);
}

void
shard_log_hook_init(void)
{
	previous_hook = emit_log_hook;
	emit_log_hook = leave_out;
}
