/*
 * log_hook.c
 *		What of statements that have addresses in them reaches the server's log: nothing.
 *
 * An address with a password is refused, but the server writes the statement of an error into its log, for all
 * who may read that: the refused one, one with a misspelt option, one of a role that may not call the function, or
 * a transaction that failed before. So statements, contexts and queries with such a call in them are left out, whoever
 * raises the error. The message itself is written as always. Nothing is kept here, so nothing is lost if the process
 * dies.
 */
#include "postgres.h"

#include "tcop/tcopprot.h"
#include "utils/elog.h"

#include "log_hook.h"

#include "compat.h"

/* The function to which people give addresses, as they may write it. */
static const char *const called[] = {"shard_join", "shard.journal_dsn"};

static emit_log_hook_type previous_hook = NULL;

/* Like strstr, whatever the case of the letters. */
static bool
contains(const char *text, const char *word)
{
	size_t length = strlen(word);

	for (; *text != '\0'; text++)
		if (pg_strncasecmp(text, word, length) == 0)
			return true;
	return false;
}

static bool
has_address(const char *text)
{
	for (int i = 0; text != NULL && i < (int) lengthof(called); i++)
		if (contains(text, called[i]))
			return true;
	return false;
}

/* The statement that fails may be another one than that of the client, which calls it. */
static void
leave_out(ErrorData *error)
{
	bool statement = has_address(debug_query_string);

	error->hide_stmt |= statement;
	error->hide_ctx |= statement || has_address(error->context);
	if (has_address(error->internalquery))
	{
		pfree(error->internalquery);
		error->internalquery = NULL;
		error->internalpos = 0;
	}
	if (previous_hook != NULL)
		previous_hook(error);
}

/* See log_hook.h. */
void
shard_log_hook_init(void)
{
	previous_hook = emit_log_hook;
	emit_log_hook = leave_out;
}
