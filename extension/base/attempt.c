/*
 * base/attempt.c
 *		What may fail without the transaction failing, and errors that outlive it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/attempt.h"

#include "base/compat.h"

/* The texts of an error that user code can choose, even by the name of a column. */
static const size_t texts[] = {
	offsetof(ErrorData, message),		  offsetof(ErrorData, detail),
	offsetof(ErrorData, detail_log),	  offsetof(ErrorData, hint),
	offsetof(ErrorData, context),		  offsetof(ErrorData, backtrace),
	offsetof(ErrorData, schema_name),	  offsetof(ErrorData, table_name),
	offsetof(ErrorData, column_name),	  offsetof(ErrorData, datatype_name),
	offsetof(ErrorData, constraint_name), offsetof(ErrorData, internalquery)};

/* The front of a text, whole characters, and how much there was. */
static char *
front_of(const char *text, size_t bytes)
{
	int kept = pg_mbcliplen(text, (int) bytes, SHARD_ATTEMPT_TEXT_BYTES);

	return psprintf("%.*s... (%zu bytes, cut off)", kept, text, bytes);
}

void
shard_attempt_cut_error(ErrorData *error)
{
	MemoryContext old = MemoryContextSwitchTo(error->assoc_context);

	for (int i = 0; i < (int) lengthof(texts); i++)
	{
		char **place = (char **) ((char *) error + texts[i]);
		size_t bytes = *place == NULL ? 0 : strlen(*place);

		if (bytes > SHARD_ATTEMPT_TEXT_BYTES)
		{
			char *whole = *place;

			*place = front_of(whole, bytes);
			pfree(whole);
		}
	}
	MemoryContextSwitchTo(old);
}

static ErrorData *
attempt(void (*function)(void *argument), void *argument, bool keep)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		function(argument);
		if (keep)
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		shard_attempt_cut_error(error);
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	return error;
}

ErrorData *
shard_attempt(void (*function)(void *argument), void *argument)
{
	return attempt(function, argument, true);
}

ErrorData *
shard_attempt_undone(void (*function)(void *argument), void *argument)
{
	return attempt(function, argument, false);
}

ErrorData *
shard_attempt_take_error(void)
{
	MemoryContext context =
		AllocSetContextCreate(TopMemoryContext, "shard error", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ErrorData *error = CopyErrorData();

	MemoryContextSwitchTo(old);
	FlushErrorState();
	shard_attempt_cut_error(error);
	return error;
}

void
shard_attempt_free_error(ErrorData *error)
{
	MemoryContextDelete(error->assoc_context);
}
